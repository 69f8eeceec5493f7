//! How children are stopped: deadlines, orders and shutdowns.

use std::time::Duration;

use procession::observe::ProcessInfo;
use procession::process::{Named, exit, send_exit};
use procession::supervisor::{ChildSpec, Restart, Stop, Strategy, Supervisor, SupervisorRef};
use procession::{Address, Context, Exit, SpawnOptions, sleep};

use super::{Log, SECOND, start, three, worker};
use crate::contracts::HOUR;
use crate::scene::{alive, assert_conserved, driven};

#[test]
fn a_child_that_ignores_its_stop_is_terminated_at_its_deadline() {
    let ignores = || ChildSpec::new("ignores", |_: Context<()>| std::future::pending::<()>());
    let after = |cx: &mut Context<()>| assert!(!cx.trap_exits(true));
    let traps = ChildSpec::new("traps", move |mut cx: Context<()>| async move {
        after(&mut cx);
        std::future::pending::<()>().await
    });
    for (child, stop, seconds) in [
        (ignores(), Stop::Within(3 * SECOND), 3),
        (ignores(), Stop::Kill, 0),
        (ignores(), Stop::Signal(3 * SECOND), 0),
        (traps, Stop::Signal(3 * SECOND), 3),
        (ignores(), Stop::Within(Duration::ZERO), 0),
    ] {
        let scheduler = driven();
        let tree = start(&scheduler, Supervisor::one_for_one().child(child.stop(stop)));
        let before = scheduler.now();
        tree.cancel();
        assert_eq!(tree.join(), Exit::Shutdown);
        assert_eq!(scheduler.now().saturating_duration_since(before), seconds * SECOND, "{stop:?}");
    }
}

#[test]
fn a_shutdown_goes_through_the_trees_in_order() {
    let (scheduler, log) = (driven(), Log::default());
    // Each child takes a second to clean up, so that the clock shows an order, too.
    let slow = |id: &'static str| {
        let log = log.clone();
        ChildSpec::new(id, move |mut cx: Context<()>| {
            let log = log.clone();
            async move {
                while cx.recv().await.is_some() {}
                sleep(SECOND).await;
                log.note('-', id);
            }
        })
    };
    let inner = Supervisor::one_for_one().child(slow("x")).child(slow("y"));
    let tree = Supervisor::rest_for_one()
        .child(slow("a"))
        .child(ChildSpec::supervisor("inner", inner))
        .child(slow("b"));
    let tree = start(&scheduler, tree);
    let before = scheduler.now();
    let unfinished = scheduler.block_on(scheduler.shutdown(HOUR));
    assert!(unfinished.is_empty(), "{unfinished:?}");
    assert_eq!(log.take(), "-b -y -x -a");
    assert_eq!(scheduler.now().saturating_duration_since(before), 4 * SECOND);
    assert_eq!(tree.join(), Exit::Shutdown);
}

#[test]
fn a_tree_three_deep_ends_in_reverse_and_a_child_that_ignores_it_is_killed_at_its_deadline() {
    for by_shutdown in [true, false] {
        let (scheduler, log) = (driven(), Log::default());
        let ended = Log::default();
        // Logs its drop, even if the child is killed.
        struct Ended(Log, &'static str);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.0.note('x', self.1);
            }
        }
        let stubborn = |id: &'static str, seconds: u32| {
            let ended = ended.clone();
            let child = ChildSpec::new(id, move |_: Context<()>| {
                let ended = Ended(ended.clone(), id);
                async move {
                    std::future::pending::<()>().await;
                    drop(ended);
                }
            });
            child.stop(Stop::Within(seconds * SECOND))
        };
        let deep = Supervisor::one_for_one()
            .child(worker(&log, "deep 1"))
            .child(stubborn("deep 2", 3))
            .child(worker(&log, "deep 3"));
        let middle = Supervisor::one_for_all()
            .child(worker(&log, "middle 1"))
            .child(ChildSpec::supervisor("deep", deep))
            .child(worker(&log, "middle 2"));
        let tree = Supervisor::rest_for_one()
            .child(worker(&log, "outer 1"))
            .child(ChildSpec::supervisor("middle", middle))
            .child(stubborn("outer 2", 4))
            .child(worker(&log, "outer 3"));
        let tree = start(&scheduler, tree);
        assert_eq!(log.take(), "+outer 1 +middle 1 +deep 1 +deep 3 +middle 2 +outer 3");
        let before = scheduler.now();
        if by_shutdown {
            let unfinished = scheduler.block_on(scheduler.shutdown(HOUR));
            assert!(unfinished.is_empty(), "{unfinished:?}");
        } else {
            tree.cancel();
        }
        assert_eq!(tree.join(), Exit::Shutdown);
        assert_eq!(log.take(), "-outer 3 -middle 2 -deep 3 -deep 1 -middle 1 -outer 1");
        assert_eq!(ended.take(), "xouter 2 xdeep 2");
        assert_eq!(
            scheduler.now().saturating_duration_since(before),
            7 * SECOND,
            "each deadline, and no more"
        );
        scheduler.run_until_idle();
        assert_eq!(alive(&scheduler.snapshot()).count(), 0);
        assert_conserved(&scheduler);
    }
}

#[test]
fn the_deadline_of_a_shutdown_is_above_those_of_children() {
    let scheduler = driven();
    let stays =
        ChildSpec::new("stays", |_: Context<()>| std::future::pending::<()>()).stop(Stop::Wait);
    let tree = start(&scheduler, Supervisor::one_for_one().child(stays));
    let unfinished = scheduler.block_on(scheduler.shutdown(SECOND));
    assert_eq!(labels(&unfinished.terminated), ["stays"]);
    assert_eq!(tree.join(), Exit::Killed);
}

/// A child that takes `seconds` to clean up.
fn cleans_up(id: &'static str, seconds: u32) -> ChildSpec<Address<()>> {
    ChildSpec::new(id, move |mut cx: Context<()>| async move {
        while cx.recv().await.is_some() {}
        sleep(seconds * SECOND).await;
    })
}

fn labels(processes: &[ProcessInfo]) -> Vec<&str> {
    processes.iter().map(|process| process.label.as_deref().expect("it has its id")).collect()
}

#[test]
fn a_graceful_child_has_the_deadline_of_the_shutdown_and_five_seconds_otherwise() {
    for stopped_before in [None, Some(SECOND), Some(4 * SECOND)] {
        let scheduler = driven();
        let tree = start(&scheduler, Supervisor::one_for_one().child(cleans_up("slow", 20)));
        let before = scheduler.now();
        if let Some(time) = stopped_before {
            // The stop begins before the shutdown does.
            tree.cancel();
            scheduler.block_on(sleep(time));
        }
        let unfinished = scheduler.block_on(scheduler.shutdown(30 * SECOND));
        assert!(unfinished.is_empty(), "{unfinished}");
        assert_eq!((unfinished.stopped, unfinished.to_string().as_str()), (0, ""));
        assert_eq!(scheduler.now().saturating_duration_since(before), 20 * SECOND);
        assert_eq!(tree.join(), Exit::Shutdown);
    }
    let scheduler = driven();
    let tree = start(&scheduler, Supervisor::one_for_one().child(cleans_up("slow", 20)));
    let before = scheduler.now();
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
    assert_eq!(scheduler.now().saturating_duration_since(before), 5 * SECOND);
}

#[test]
fn a_shutdown_names_the_children_that_its_deadline_ended() {
    let scheduler = driven();
    let inner = Supervisor::one_for_one().child(cleans_up("slow", 60));
    let tree = Supervisor::rest_for_one()
        .child(cleans_up("first", 0))
        .child(cleans_up("killed", 0).stop(Stop::Kill))
        .child(ChildSpec::supervisor("inner", inner))
        .child(cleans_up("last", 0));
    let tree = start(&scheduler, tree);
    let dropped = scheduler.spawn(std::future::pending::<()>());
    let unfinished = scheduler.block_on(scheduler.shutdown(30 * SECOND));
    // The first child was never asked.
    assert_eq!(labels(&unfinished.terminated), ["first", "slow"]);
    assert!(unfinished.processes.is_empty() && !unfinished.is_empty());
    let text = unfinished.to_string();
    let ends = ["and had not been asked to end yet", "although it had been asked to end"];
    for (line, end) in text.lines().zip(ends) {
        assert!(line.ends_with(&format!(" was terminated before it had ended, {end}")), "{text}");
    }
    assert_eq!(tree.join(), Exit::Killed);
    assert_eq!(dropped.join(), Err(Exit::Shutdown));
}

#[test]
fn an_end_that_the_stop_of_a_child_asks_for_is_no_loss() {
    let stops = [
        (Stop::Within(2 * SECOND), 1),
        (Stop::Signal(2 * SECOND), 0),
        (Stop::Kill, 0),
        (Stop::Graceful, 0),
    ];
    for (stop, stopped) in stops {
        let scheduler = driven();
        let child = cleans_up("slow", 20).stop(stop);
        let tree = start(&scheduler, Supervisor::one_for_one().child(child));
        let unfinished = scheduler.block_on(scheduler.shutdown(30 * SECOND));
        assert!(unfinished.is_empty(), "{stop:?}: {unfinished}");
        assert_eq!(unfinished.stopped, stopped, "{stop:?}");
        assert_eq!(tree.join(), Exit::Shutdown);
    }
}

#[test]
fn the_text_of_a_shutdown_names_few_of_many_processes() {
    let scheduler = driven();
    for _ in 0..20 {
        drop(scheduler.start(|_: Context<()>| std::future::pending::<()>()));
    }
    let unfinished = scheduler.block_on(scheduler.shutdown(SECOND));
    assert_eq!(unfinished.terminated.len(), 20);
    let text = unfinished.to_string();
    assert_eq!(text.lines().count(), 9, "{text}");
    assert!(text.ends_with("12 more processes were terminated before they had ended"), "{text}");
}

#[test]
fn a_child_may_shut_the_scheduler_down() {
    let (scheduler, log) = (driven(), Log::default());
    let (told, ended) = crate::home::mpsc::channel();
    let handle = scheduler.clone();
    let calls = ChildSpec::new("calls", move |mut cx: Context<()>| {
        let (handle, told) = (handle.clone(), told.clone());
        async move {
            cx.recv().await;
            told.send(handle.shutdown(HOUR).await.processes.len()).expect("the test listens");
        }
    });
    let tree = Supervisor::one_for_one()
        .child(worker(&log, "a"))
        .child(calls.name("calls"))
        .child(worker(&log, "b"));
    let tree = start(&scheduler, tree);
    let before = scheduler.now();
    Named::on(&scheduler, "calls").send(()).expect("it is there");
    assert_eq!(tree.join(), Exit::Shutdown);
    scheduler.run_until_idle();
    assert_eq!(ended.try_recv(), Ok(0));
    assert_eq!(scheduler.now(), before, "nothing waited for a deadline");
    assert_eq!(log.take(), "+a +b -b -a");
}

/// Goal: the child and its supervisor do not wait for each other.
#[test]
fn a_child_that_is_being_stopped_may_shut_the_scheduler_down() {
    for stop in [Stop::Graceful, Stop::Within(SECOND), Stop::Wait] {
        let (scheduler, log) = (driven(), Log::default());
        let (told, ended) = crate::home::mpsc::channel();
        let handle = scheduler.clone();
        let calls = ChildSpec::new("calls", move |mut cx: Context<()>| {
            let (handle, told) = (handle.clone(), told.clone());
            async move {
                while cx.recv().await.is_some() {}
                told.send(handle.shutdown(HOUR).await.is_empty()).expect("the test listens");
            }
        });
        let tree = Supervisor::one_for_one().child(worker(&log, "a")).child(calls.stop(stop));
        let tree = start(&scheduler, tree);
        let before = scheduler.now();
        tree.cancel();
        assert_eq!(tree.join(), Exit::Shutdown);
        scheduler.run_until_idle();
        assert_eq!(ended.try_recv(), Ok(true), "{stop:?}");
        assert_eq!(scheduler.now(), before, "nothing waited for a deadline");
        assert_eq!(log.take(), "+a -a");
        assert_eq!(alive(&scheduler.snapshot()).count(), 0);
    }
}

#[test]
fn a_supervisor_that_is_terminated_takes_its_children_along() {
    let (scheduler, log) = (driven(), Log::default());
    let inner = Supervisor::one_for_one().child(worker(&log, "x"));
    let tree = Supervisor::one_for_one()
        .child(worker(&log, "a"))
        .child(ChildSpec::supervisor("inner", inner));
    let tree = start(&scheduler, tree);
    procession::process::kill(tree.pid());
    scheduler.run_until_idle();
    assert_eq!(alive(&scheduler.snapshot()).count(), 0);
    // The worker was killed by its link. The inner supervisor traps exits, and stops its child in
    // order.
    assert_eq!(log.take(), "+a +x -x");
    assert_eq!(tree.join(), Exit::Killed);
}

#[test]
fn the_end_of_the_parent_by_link_is_an_orderly_stop() {
    let (scheduler, log) = (driven(), Log::default());
    let children = three(&log, Strategy::OneForOne, Restart::Permanent);
    let parent = scheduler.start(|mut cx: Context<()>| async move {
        let tree = children
            .try_start_with(SpawnOptions::new().link().name("tree"))
            .await
            .expect("it starts");
        drop(tree);
        cx.recv().await;
        exit(Exit::failed("broken"))
    });
    scheduler.run_until_idle();
    let tree =
        SupervisorRef::of(scheduler.whereis("tree").expect("it runs")).expect("it is a supervisor");
    // Only its parent can end a supervisor in this way.
    assert!(send_exit(tree.pid(), Exit::failed("stranger")));
    scheduler.run_until_idle();
    assert!(tree.is_alive());
    parent.send(()).expect("it is there");
    scheduler.run_until_idle();
    assert!(!tree.is_alive());
    assert_eq!(log.take(), "+a +b +c -c -b -a");
    assert_eq!(
        parent.join().map(drop as fn(std::convert::Infallible)),
        Err(Exit::failed("broken"))
    );
}

/// Goal: independent children share the time of a shutdown, and do not use it up one by one.
#[test]
fn children_that_stop_together_take_as_long_as_the_slowest() {
    let kinds: [fn() -> Supervisor; 3] =
        [Supervisor::one_for_one, Supervisor::one_for_all, Supervisor::rest_for_one];
    for (kind, together) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let scheduler = driven();
        let mut tree = if together { kind().stop_together() } else { kind() };
        for (id, seconds) in [("a", 3), ("b", 4), ("c", 2)] {
            tree = tree.child(ChildSpec::new(id, move |_: Context<()>| async move {
                procession::process::cancelled().await;
                sleep(SECOND * seconds).await;
            }));
        }
        let tree = start(&scheduler, tree);
        let begin = scheduler.now();
        let unfinished = scheduler.block_on(scheduler.shutdown(SECOND * 60));
        assert!(unfinished.is_empty() && unfinished.stopped == 0, "{unfinished}");
        let expected = if together { SECOND * 4 } else { SECOND * 9 };
        assert_eq!(scheduler.now() - begin, expected, "{together}");
        assert_eq!(tree.join(), Exit::Shutdown);
    }
}
