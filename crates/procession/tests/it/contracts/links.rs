//! Links, trapping and exit signals. The outcomes are those of Erlang/OTP.

use crate::home::{mpsc, thread};
use std::sync::Arc;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::{Event, send};
use procession::process::{Outcome, exit, link, send_exit, unlink};
use procession::sync::RecvError;
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions, spawn, start, timeout, yield_now};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::SeqCst;

use super::{HOUR, ends, told, waits};
use crate::scene::{assert_conserved, driven, panic_quietly, soon, threaded};

#[test]
fn an_end_other_than_normal_ends_linked_processes() {
    for (end, reason) in ends() {
        let scheduler = driven();
        let linked = scheduler.start(move |mut cx: Context<()>| async move {
            drop(SpawnOptions::new().link().spawn(async move { end() }));
            // A normal end has no effect on it.
            cx.recv_timeout(HOUR).await.is_err()
        });
        let expected = if reason == Exit::Normal { Ok(true) } else { Err(reason) };
        assert_eq!(linked.join(), expected);
    }
}

#[test]
fn an_end_is_reported_to_a_process_that_traps() {
    for (end, reason) in ends() {
        let scheduler = driven();
        let traps = scheduler.start(move |mut cx: Context<()>| async move {
            assert!(!cx.trap_exits(true));
            let child = SpawnOptions::new().link().spawn(async move { end() });
            let pid = child.pid();
            drop(child);
            let Some(Event::Exit(signal)) = cx.recv_event().await else { return None };
            assert_eq!(signal.from, Some(pid));
            Some(signal.exit)
        });
        assert_eq!(traps.join(), Ok(Some(reason)));
    }
}

#[test]
fn a_link_works_both_ways_and_through_others() {
    let scheduler = driven();
    // Each process is linked to the one before; the last one fails.
    let mut before = None;
    let mut all = Vec::new();
    for _ in 0..10 {
        let linked = scheduler.start(move |mut cx: Context<()>| async move {
            if let Some(pid) = before {
                cx.link(pid);
            }
            cx.recv().await;
        });
        before = Some(linked.pid());
        all.push(linked);
    }
    scheduler.run_until_idle();
    assert!(send_exit(all[4].pid(), Exit::failed("pulled")));
    for linked in all {
        assert_eq!(linked.join(), Err(Exit::failed("pulled")));
    }
    assert_conserved(&scheduler);
}

#[test]
fn a_process_that_is_terminated_reports_that_it_was_killed() {
    let scheduler = driven();
    let victim = waits(&scheduler);
    let pid = victim.pid();
    let traps = scheduler.start(move |mut cx: Context<()>| async move {
        cx.trap_exits(true);
        cx.link(pid);
        told(&mut cx).await
    });
    scheduler.run_until_idle();
    procession::process::kill(pid);
    assert_eq!(traps.join(), Ok(String::from("exit: the process was terminated")));
    assert_eq!(victim.join(), Err(Exit::Killed));
}

#[test]
fn a_link_to_nobody_is_an_exit_at_once() {
    let scheduler = driven();
    let gone = waits(&scheduler);
    let pid = gone.pid();
    procession::process::kill(pid);
    assert!(gone.join().is_err());
    let dies = scheduler.spawn(async move {
        link(pid);
        yield_now().await;
    });
    assert_eq!(dies.join(), Err(Exit::NoProcess));
    let traps = scheduler.start(move |mut cx: Context<()>| async move {
        cx.trap_exits(true);
        cx.link(pid);
        told(&mut cx).await
    });
    assert_eq!(traps.join(), Ok(String::from("exit: there is no such process")));
}

#[test]
fn linking_twice_is_linking_once() {
    let scheduler = driven();
    let traps = scheduler.start(|mut cx: Context<()>| async move {
        cx.trap_exits(true);
        let child = SpawnOptions::new().link().spawn(async {});
        cx.link(child.pid());
        drop(child);
        let first = told(&mut cx).await;
        (first, cx.recv_timeout(HOUR).await.is_err(), cx.try_recv())
    });
    assert_eq!(
        traps.join(),
        Ok((String::from("exit: the process ended normally"), true, Err(RecvError::Empty)))
    );
}

#[test]
fn a_process_that_is_unlinked_receives_nothing() {
    let scheduler = driven();
    let unlinked = scheduler.start(|mut cx: Context<()>| async move {
        let child = SpawnOptions::new().link().spawn(async {
            yield_now().await;
            panic_quietly("alone")
        });
        unlink(child.pid());
        assert!(child.await.expect_err("it panics").is_panic());
        cx.try_recv().is_err()
    });
    assert_eq!(unlinked.join(), Ok(true));
}

#[test]
fn an_exit_signal_ends_a_process_that_does_not_trap_it() {
    let scheduler = driven();
    for (signal, expected) in
        [(Exit::failed("go"), Err(Exit::failed("go"))), (Exit::Normal, Ok(()))]
    {
        let victim = waits(&scheduler);
        scheduler.run_until_idle();
        assert!(send_exit(victim.pid(), signal));
        scheduler.run_until_idle();
        victim.cancel();
        assert_eq!(victim.join(), expected);
    }
    // The first of two signals counts.
    let victim = waits(&scheduler);
    let pid = victim.pid();
    assert!(send_exit(pid, Exit::failed("first")) && send_exit(pid, Exit::failed("second")));
    procession::process::kill(pid);
    assert_eq!(victim.join(), Err(Exit::failed("first")));
    assert!(!send_exit(pid, Exit::Normal), "there is no such process");
    // A normal exit signal ends a process that sends it to itself.
    let suicide = scheduler.start(|mut cx: Context<()>| async move {
        send_exit(cx.pid(), Exit::Normal);
        cx.recv().await
    });
    assert_eq!(suicide.join(), Err(Exit::Normal));
}

#[test]
fn a_terminate_is_not_trapped() {
    let scheduler = driven();
    let traps = scheduler.start(|mut cx: Context<()>| async move {
        cx.trap_exits(true);
        loop {
            told(&mut cx).await;
        }
    });
    scheduler.run_until_idle();
    assert!(send_exit(traps.pid(), Exit::failed("trapped")));
    scheduler.run_until_idle();
    assert!(traps.is_alive());
    procession::process::kill(traps.pid());
    assert_eq!(traps.join().map(drop), Err(Exit::Killed));
}

#[test]
fn a_process_ends_itself_and_drops_what_it_holds() {
    let scheduler = driven();
    let (held, dropped) = mpsc::channel::<()>();
    let ends = scheduler.spawn(async move {
        let _held = held;
        yield_now().await;
        exit(Exit::failed("enough"))
    });
    assert_eq!(ends.join(), Err::<(), _>(Exit::failed("enough")));
    assert!(dropped.recv().is_err());
    assert_eq!(scheduler.snapshot().panicked, 0, "that is no panic");
}

/// A state machine with methods that decide if it traps, monitors or links.
struct Machine {
    told: Vec<String>,
    watched: procession::Pid,
}

impl Process for Machine {
    type Input = ();
    type Message = ();
    type Output = Vec<String>;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Vec<String>>, Box<dyn std::error::Error + Send + Sync>> {
        if self.told.is_empty() {
            self.told.push(String::from("started"));
            yields.trap_exits(true);
            yields.link(self.watched);
            let given_up = yields.monitor(self.watched);
            yields.monitor(self.watched);
            assert!(yields.demonitor(given_up));
        }
        for event in events {
            match event {
                Event::Down(down) => self.told.push(format!("down: {}", down.exit)),
                Event::Exit(signal) => self.told.push(format!("exit: {}", signal.exit)),
                Event::Message(()) => return Ok(Status::Done(std::mem::take(&mut self.told))),
                Event::Cancel => return Err(Box::new(Exit::Shutdown)),
                _ => {}
            }
        }
        Ok(Status::Wait(WaitingFor::Messages))
    }
}

#[test]
fn a_state_machine_is_told_as_well() {
    let scheduler = driven();
    let watched = waits(&scheduler);
    let pid = watched.pid();
    let machine = || Machine { told: Vec::new(), watched: pid };
    let tells = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine(), "", ())
        .expect("it takes any");
    let fails = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine(), "", ())
        .expect("it takes any");
    scheduler.run_until_idle();
    fails.cancel();
    assert_eq!(fails.join(), Err(Exit::Shutdown), "an exit as the error of a step is how it ends");
    procession::process::kill(pid);
    scheduler.run_until_idle();
    assert_eq!(tells.send(()), Ok(()));
    // The order of the notices of a link and a monitor to the same process is not specified.
    let told = tells.join().map(|told| told.len());
    assert_eq!(told, Ok(3));
}

#[test]
fn links_to_processes_that_just_end_are_told_once() {
    let scheduler = threaded(2);
    for round in 0..2000_u32 {
        let (go, gone) = mpsc::channel::<()>();
        let ends = scheduler.spawn(async move {
            // Ignored: the other process may have ended.
            let _ = gone.try_recv();
        });
        let pid = ends.pid();
        // Half of the processes are known only by that PID.
        let _kept = (round % 2 == 0).then_some(ends);
        let traps = scheduler.start(move |mut cx: Context<()>| async move {
            cx.trap_exits(true);
            drop(go);
            cx.link(pid);
            told(&mut cx).await
        });
        let told = traps.join().expect("it ends");
        let known = ["exit: the process ended normally", "exit: there is no such process"];
        assert!(known.contains(&told.as_str()), "round {round}: {told}");
    }
    assert_conserved(&scheduler);
}

/// A context that was moved to another thread links its process while that ends.
#[test]
fn a_link_through_a_moved_context_is_told_of_an_end_at_the_same_time() {
    let scheduler = threaded(2);
    for round in 0..500_u32 {
        let (moves, moved) = mpsc::channel();
        let (go, gone) = procession::sync::oneshot::channel::<()>();
        let ends = scheduler.start(move |cx: Context<()>| async move {
            moves.send(cx).expect("the test listens");
            // Ignored: a sender that is dropped is a sign to go, too.
            let _ = gone.await;
            exit(Exit::Shutdown)
        });
        let mut context = soon(&moved);
        let linked = waits(&scheduler);
        let pid = linked.pid();
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..round % 200).for_each(|_| std::hint::spin_loop());
                context.link(pid);
            });
            (0..round % 170).for_each(|_| std::hint::spin_loop());
            drop(go);
        });
        ends.join().expect_err("it ends itself");
        linked.join_timeout(HOUR / 180).expect("it is told").expect_err("it does not trap");
    }
}

/// A process without other references ends, and its result is dropped. The on-exit hooks that this
/// drop leaves are settled nevertheless.
#[test]
fn what_a_dropped_result_leaves_with_its_process_is_settled() {
    struct Leaves {
        with: Pid,
        linked_to: Pid,
    }

    impl Outcome for Leaves {}

    impl Drop for Leaves {
        fn drop(&mut self) {
            assert!(link(self.linked_to), "its process is the running one");
            send(self.with, 7_u32).expect("it has not ended");
        }
    }

    let scheduler = driven();
    let traps = scheduler.start(move |mut cx: Context<()>| async move {
        cx.trap_exits(true);
        let linked_to = cx.pid();
        drop(start(move |cx: Context<u32>| {
            let with = cx.pid();
            async move { Leaves { with, linked_to } }
        }));
        timeout(HOUR, told(&mut cx)).await
    });
    assert_eq!(traps.join(), Ok(Ok(String::from("exit: the process ended normally"))));
    assert_conserved(&scheduler);
}

#[test]
fn schedulers_are_linked_across() {
    let (one, two) = (threaded(1), threaded(1));
    let (told_of, tells) = mpsc::channel();
    let victim = two.start(|mut cx: Context<()>| async move { cx.recv().await });
    let pid = victim.pid();
    let traps = one.start(move |mut cx: Context<()>| async move {
        cx.trap_exits(true);
        cx.link(pid);
        let monitor = cx.monitor(pid);
        told_of.send(String::from("linked")).expect("the test listens");
        let down = cx.down(monitor).await.map(|down| down.exit);
        told_of.send(format!("{down:?}, {}", told(&mut cx).await)).expect("the test listens");
    });
    assert_eq!(soon(&tells), "linked");
    procession::process::kill(pid);
    assert_eq!(soon(&tells), "Some(Killed), exit: the process was terminated");
    assert_eq!(traps.join(), Ok(()));
    assert_eq!(victim.join(), Err(Exit::Killed));
}

#[test]
fn a_scope_cancels_its_processes_when_it_ends() {
    for (end, _) in ends() {
        let scheduler = driven();
        let (ended, tells) = mpsc::channel();
        let parent = scheduler.spawn(async move {
            for n in 0..3 {
                let ended = ended.clone();
                let child =
                    SpawnOptions::new().scoped().start(move |mut cx: Context<()>| async move {
                        cx.recv().await;
                        ended.send(n).expect("the test listens");
                    });
                drop(child);
            }
            // A process without any other reference.
            drop(spawn(std::future::pending::<()>()));
            yield_now().await;
            end();
        });
        let _ = parent.join();
        scheduler.run_until_idle();
        let mut told: Vec<u32> = tells.try_iter().collect();
        told.sort_unstable();
        assert_eq!(told, [0, 1, 2]);
        assert_eq!(scheduler.snapshot().processes.len(), 1, "the one without references");
    }
}

#[test]
fn what_needs_a_running_process_is_refused_without_one() {
    let scheduler: Scheduler = driven();
    for options in
        [SpawnOptions::new().link(), SpawnOptions::new().monitor(), SpawnOptions::new().scoped()]
    {
        let error = options
            .on(&scheduler)
            .try_spawn(async { 7 })
            .expect_err("no process runs on this thread");
        assert!(error.to_string().contains("none runs here"), "{error}");
    }
    assert!(!link(waits(&scheduler).pid()));
}

#[test]
fn links_made_and_ended_from_both_sides_at_once_are_whole() {
    /// Both processes begin at once, and linking is the last thing that each does.
    fn relink(together: &AtomicU32, other: Pid) {
        together.fetch_add(1, SeqCst);
        while together.load(SeqCst) < 2 {
            thread::yield_now();
        }
        for _ in 0..3 {
            unlink(other);
            link(other);
        }
    }
    let scheduler = threaded(2);
    for _ in 0..1000 {
        let traps = scheduler.start(|mut cx: Context<()>| async move {
            cx.trap_exits(true);
            let (own, together) = (cx.address(), Arc::new(AtomicU32::new(0)));
            let other = procession::start({
                let together = Arc::clone(&together);
                move |mut cx: Context<()>| async move {
                    relink(&together, own.pid());
                    own.send(()).expect("it waits");
                    cx.recv().await;
                    exit(Exit::Shutdown)
                }
            });
            relink(&together, other.pid());
            assert!(matches!(cx.recv_event().await, Some(Event::Message(()))));
            other.send(()).expect("it waits");
            matches!(cx.recv_event().await, Some(Event::Exit(signal)) if signal.from == Some(other.pid()))
        });
        assert_eq!(traps.join_timeout(HOUR / 180).expect("it is told something"), Ok(true));
    }
}
