//! Children that do not start.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use procession::behaviour::{
    EnteredFrom, Server, ServerContext, Statem, StatemContext, StatemEvent, Transition,
};
use procession::mailbox::WhenFull;
use procession::process::{OnCancel, exit, send_exit};
use procession::supervisor::{
    ChildError, ChildSpec, ChildStatus, OnceSpec, RefusedChild, Restart, Running, StartError, Stop,
    Supervisor, SupervisorRef, Template,
};
use procession::sync::oneshot;
use procession::{Address, Context, Exit, JoinHandle, Scheduler, SpawnOptions, sleep};

use super::{Log, Refuses, SECOND, start, worker};
use crate::contracts::{HOUR, waits};
use crate::scene::{TIMEOUT, driven, panic_quietly};

#[test]
fn every_way_not_to_start_is_told() {
    let taken =
        || ChildSpec::new("f", |cx: Context<()>| async move { cx.cancelled().await }).name("taken");
    let machine = |made: fn() -> Refuses| ChildSpec::machine("f", made, "go", || ());
    for (child, expected) in [
        (machine(|| Refuses(false)), "cannot start a process: it has no method \"go\""),
        (machine(|| panic_quietly("factory")), "the process panicked: factory"),
        (taken(), "cannot start a process: `taken` is taken by "),
        (
            ChildSpec::with_init("f", |_: Context<()>, _started| async {}),
            "it did not report that it is ready",
        ),
        (
            ChildSpec::with_init("f", |_: Context<()>, started| async move {
                drop(started);
                std::future::pending::<()>().await
            }),
            "it did not report that it is ready",
        ),
        (
            ChildSpec::with_init("f", |_: Context<()>, started| async move {
                let _started = started;
                sleep(SECOND).await;
                Err::<(), _>("no such file".to_owned())
            }),
            "the process failed: no such file",
        ),
        (
            ChildSpec::with_init("f", |_: Context<()>, started| async move {
                let _started = started;
                panic_quietly("early")
            }),
            "the process panicked: early",
        ),
        (
            ChildSpec::with_init("f", |mut cx: Context<()>, started| async move {
                drop(procession::spawn(async move {
                    let _started = started;
                    panic_quietly("elsewhere")
                }));
                while cx.recv().await.is_some() {}
            }),
            "it did not report that it is ready",
        ),
        (
            taken().affinity(99),
            "cannot start a process: it is bound to worker 99, but there are only 1, from 0",
        ),
    ] {
        let scheduler = driven();
        let owner = waits(&scheduler);
        scheduler.register("taken", owner.pid()).expect("it is free");
        match scheduler
            .block_on(Supervisor::one_for_one().child(child).try_start())
            .expect_err("it does not start")
        {
            StartError::Child { reason, .. } => {
                assert!(reason.to_string().starts_with(expected), "{reason}")
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_supervisor_answers_while_a_child_fails_to_start_again_and_again() {
    let (scheduler, log) = (driven(), Log::default());
    let starts = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&starts);
    let fails = ChildSpec::machine(
        "fails",
        move || {
            let mut starts = noted.lock().expect("no test panics under it");
            starts.push(procession::time::Instant::now());
            Refuses(starts.len() == 1)
        },
        "go",
        || (),
    );
    let tree = Supervisor::one_for_one()
        .intensity(1_000_000, HOUR)
        .back_off(Duration::from_millis(100), Duration::from_secs(10))
        .child(worker(&log, "a"))
        .child(fails);
    let tree = start(&scheduler, tree);
    scheduler.block_on(async {
        let first = tree.status("fails").await.expect("it is there").pid().expect("it runs");
        assert!(send_exit(first, Exit::failed("broken")));
        sleep(Duration::from_secs(60)).await;
        assert!(matches!(tree.status("fails").await, Ok(ChildStatus::Waiting(_))));
        assert_eq!(tree.count().await.map(|counts| (counts.children, counts.running)), Ok((2, 1)));
        assert_eq!(tree.restart_child("fails").await, Err(ChildError::Restarting));
        assert_eq!(tree.terminate_child("a").await, Ok(()));
        assert_eq!(tree.terminate_child("fails").await, Ok(()));
        assert_eq!(tree.status("fails").await, Ok(ChildStatus::Stopped));
        assert!(matches!(tree.restart_child("fails").await, Err(ChildError::Start(_))));
    });
    let starts = starts.lock().expect("no test panics under it");
    let waits: Vec<u128> = starts[1..]
        .windows(2)
        .map(|pair| pair[1].saturating_duration_since(pair[0]).as_millis())
        .collect();
    // The first back-off is before the second start. Each of the others is twice as long, shortened
    // by at most a half.
    for (wait, most) in waits.iter().zip([200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]) {
        assert!((most / 2..=most + 1).contains(wait), "{waits:?}");
    }
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
}

#[test]
fn without_back_off_a_child_that_never_starts_again_escalates_soon() {
    let scheduler = driven();
    let first = Mutex::new(true);
    let fails = ChildSpec::machine(
        "fails",
        move || Refuses(std::mem::take(&mut *first.lock().expect("no test panics under it"))),
        "go",
        || (),
    );
    let tree = start(&scheduler, Supervisor::one_for_one().intensity(1000, SECOND).child(fails));
    let pid =
        scheduler.block_on(tree.status("fails")).expect("it is there").pid().expect("it runs");
    procession::process::kill(pid);
    assert!(matches!(tree.join(), Exit::GaveUp(_)));
}

/// Goal: a start that is refused within the same step stops the siblings before the back-off.
#[test]
fn one_for_all_stops_a_sibling_as_soon_as_a_start_is_refused() {
    let (scheduler, log) = (driven(), Log::default());
    let starts = Mutex::new(0);
    let refused_once = move || {
        let mut starts = starts.lock().expect("no test panics under it");
        *starts += 1;
        Refuses(*starts != 2)
    };
    let tree = Supervisor::one_for_all()
        .intensity(9, HOUR)
        .back_off(10 * SECOND, 10 * SECOND)
        .child(worker(&log, "a"))
        .child(ChildSpec::machine("b", refused_once, "go", || ()).name("b"));
    let tree = start(&scheduler, tree);
    assert_eq!(log.take(), "+a");
    procession::process::kill(scheduler.whereis("b").expect("it runs"));
    scheduler.block_on(async {
        // The first back-off takes 5 to 10 s, and so does the second.
        sleep(10 * SECOND).await;
        assert_eq!(log.take(), "-a +a -a");
        sleep(10 * SECOND).await;
        assert_eq!(log.take(), "+a");
    });
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
}

/// A server and a state machine that take a second to begin. With `true`, they then fail.
struct Slow(Log, bool);

impl Slow {
    async fn begin(&self) -> Result<(), Exit> {
        sleep(SECOND).await;
        self.0.note('+', "slow");
        if self.1 { Err(Exit::failed("no disk")) } else { Ok(()) }
    }
}

impl Server for Slow {
    type Message = ();

    async fn init(&mut self, _: &mut ServerContext<Self>) -> Result<(), Exit> {
        self.begin().await
    }

    async fn handle(&mut self, (): (), _: &mut ServerContext<Self>) {}
}

impl Statem for Slow {
    type State = ();
    type Message = ();

    async fn enter(&mut self, _: EnteredFrom<()>, _: &mut StatemContext<Self>) {
        if let Err(failure) = self.begin().await {
            exit(failure);
        }
    }

    async fn handle(&mut self, _: StatemEvent<()>, _: &mut StatemContext<Self>) -> Transition<()> {
        Transition::Keep
    }
}

#[test]
fn the_init_of_a_behaviour_holds_up_the_next_child_and_the_start() {
    let kinds: [fn(Log, bool) -> ChildSpec; 2] = [
        |log, fails| ChildSpec::server("slow", move || Slow(log.clone(), fails)).untyped(),
        |log, fails| ChildSpec::statem("slow", move || (Slow(log.clone(), fails), ())).untyped(),
    ];
    for kind in kinds {
        let (scheduler, log) = (driven(), Log::default());
        let tree = || Supervisor::rest_for_one().child(worker(&log, "before"));
        let good = tree().child(kind(log.clone(), false)).child(worker(&log, "behind"));
        let running = start(&scheduler, good);
        assert_eq!(log.take(), "+before +slow +behind");
        running.cancel();
        assert_eq!(running.join(), Exit::Shutdown);
        assert_eq!(log.take(), "-behind -before");
        let bad = tree().child(kind(log.clone(), true)).child(worker(&log, "behind"));
        let error = scheduler.block_on(bad.try_start()).expect_err("a child fails");
        assert!(error.to_string().ends_with("no disk"), "{error}");
        scheduler.run_until_idle();
        assert_eq!(log.take(), "+before +slow -before");
    }
}

/// Starts a [`Slow`] child from a value that moves into it. Returns the error and whether the value
/// came back.
type StartMoved = fn(SupervisorRef, Log, bool) -> BoxFuture<Option<(ChildError, bool)>>;
type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

#[test]
fn the_init_of_a_behaviour_from_a_moved_value_holds_up_the_start() {
    fn refused<T, V>(started: Result<T, RefusedChild<V>>) -> Option<(ChildError, bool)> {
        let (value, cause) = started.err()?.into_parts();
        Some((cause, value.is_some()))
    }
    let kinds: [StartMoved; 4] = [
        |tree, log, fails| {
            let spec = OnceSpec::server(move || Slow(log, fails));
            Box::pin(async move { refused(tree.add_once(spec).await) })
        },
        |tree, log, fails| {
            let spec = OnceSpec::statem(move || (Slow(log, fails), ()));
            Box::pin(async move { refused(tree.add_once(spec).await) })
        },
        |tree, log, fails| {
            let template = Template::server(|(log, fails)| Slow(log, fails));
            Box::pin(async move { refused(tree.add_another(&template, (log, fails)).await) })
        },
        |tree, log, fails| {
            let template = Template::statem(|(log, fails)| (Slow(log, fails), ()));
            Box::pin(async move { refused(tree.add_another(&template, (log, fails)).await) })
        },
    ];
    for kind in kinds {
        let (scheduler, log) = (driven(), Log::default());
        let tree = start(&scheduler, Supervisor::dynamic());
        let start = |fails| scheduler.block_on(kind((*tree).clone(), log.clone(), fails));
        assert_eq!(start(false), None);
        assert_eq!(log.take(), "+slow");
        let (cause, is_back) = start(true).expect("its init fails");
        assert_eq!(cause.to_string(), "the child did not start: the process failed: no disk");
        assert!(!is_back, "it has moved into the process");
        assert_eq!(log.take(), "+slow");
        tree.cancel();
        assert_eq!(tree.join(), Exit::Shutdown);
    }
}

/// Goal: a restart from a template waits for `init`, too, and its clone is not lost.
#[test]
fn a_template_of_servers_restarts_with_a_clone() {
    let (scheduler, log) = (driven(), Log::default());
    let tree = start(&scheduler, Supervisor::dynamic());
    let template = Template::server(|log| Slow(log, false)).restart(Restart::Permanent);
    let child = scheduler.block_on(tree.add_another(&template, log.clone())).expect("it starts");
    assert_eq!(log.take(), "+slow");
    procession::process::kill(child.pid());
    scheduler.block_on(async {
        sleep(SECOND / 2).await;
        assert_eq!(log.take(), "");
        sleep(SECOND).await;
    });
    assert_eq!(log.take(), "+slow");
    tree.cancel();
    assert_eq!(tree.join(), Exit::Shutdown);
}

#[test]
fn a_behaviour_that_is_killed_or_stopped_in_its_init_has_not_started() {
    let (scheduler, log) = (driven(), Log::default());
    let supervisor = Supervisor::dynamic();
    let running = start(&scheduler, supervisor);
    let noted = log.clone();
    let slow = ChildSpec::server("slow", move || Slow(noted.clone(), false)).name("slow");
    let reference = (*running).clone();
    let starts = scheduler.spawn(async move { reference.add_child(slow).await.map(drop) });
    // Until the supervisor has started it, which takes no time.
    let pid = scheduler.block_on(async {
        sleep(SECOND / 2).await;
        procession::process::whereis("slow").expect("it begins")
    });
    assert_eq!(scheduler.block_on(running.status(pid)), Ok(ChildStatus::Starting(pid)));
    procession::process::kill(pid);
    let refused = starts.join().expect("it returns").expect_err("it has not started");
    let ChildError::Start(reason) = &refused else { panic!("{refused}") };
    assert_eq!(reason.to_string(), Exit::Killed.to_string());
    let reference = (*running).clone();
    let late = ChildSpec::server("late", move || Slow(log.clone(), false));
    let starts = scheduler.spawn(async move { reference.add_child(late).await.map(drop) });
    scheduler.block_on(sleep(SECOND / 2));
    running.cancel();
    assert_eq!(running.join(), Exit::Shutdown);
    starts.join().expect("it returns").expect_err("the supervisor ends");
}

#[test]
fn reports_of_children_need_no_room_in_the_mailbox() {
    for when_full in [
        WhenFull::Reject,
        WhenFull::DropNewest,
        WhenFull::DropOldest,
        WhenFull::Kill,
        WhenFull::Wait,
    ] {
        // Its clock does not move by itself, which would end the suspension.
        let scheduler = Scheduler::builder()
            .worker_threads(1)
            .callers_drive()
            .build()
            .expect("it starts no thread");
        let (go, gone) = oneshot::channel::<()>();
        let gone = Arc::new(Mutex::new(Some(gone)));
        let child = ChildSpec::with_init("a", move |cx: Context<()>, started| {
            let gone = gone.lock().expect("no test panics under it").take();
            async move {
                if let Some(gone) = gone {
                    // Ignored: a sender that is dropped is a sign to go, too.
                    let _ = gone.await;
                }
                started.ready();
                cx.cancelled().await;
            }
        });
        let options = SpawnOptions::new().on(&scheduler).mailbox(1, when_full).name("bounded");
        let starts =
            scheduler.spawn(Supervisor::one_for_one().child(child).try_start_with(options));
        scheduler.run_until_idle();
        let pid = scheduler.whereis("bounded").expect("it starts");
        // As if it were busy, with a request that fills its mailbox.
        scheduler.suspend(pid).expect("it has not ended");
        scheduler.run_until_idle();
        let reference = SupervisorRef::of(pid).expect("it is a supervisor");
        let asks = scheduler.spawn(async move { reference.count().await.map(|_| ()) });
        scheduler.run_until_idle();
        go.send(()).expect("it waits");
        scheduler.run_until_idle();
        scheduler.resume(pid);
        let running = starts
            .join_timeout(TIMEOUT)
            .expect("the start returns")
            .expect("its process returns")
            .expect("the child has started");
        asks.join().expect("it returns").expect("there was room for it");
        running.cancel();
        assert_eq!(running.join(), Exit::Shutdown);
    }
}

#[test]
fn a_supervisor_ends_in_order_whatever_a_cancel_does_to_other_processes() {
    let (scheduler, log) = (driven(), Log::default());
    let traps = |id: &'static str| {
        let log = log.clone();
        ChildSpec::new(id, move |mut cx: Context<()>| {
            let log = log.clone();
            async move {
                cx.trap_exits(true);
                while cx.recv().await.is_some() {}
                log.note('-', id);
            }
        })
    };
    let supervisor = Supervisor::one_for_one().child(traps("a")).child(traps("b"));
    let options = SpawnOptions::new().on(&scheduler).on_cancel(OnCancel::Drop);
    let running = scheduler.block_on(supervisor.try_start_with(options)).expect("it starts");
    scheduler.run_until_idle();
    running.cancel();
    assert_eq!(running.join(), Exit::Shutdown);
    assert_eq!(log.take(), "-b -a");
}

/// Begins the start of a tree.
fn begin(
    scheduler: &Scheduler,
    supervisor: Supervisor,
) -> (SupervisorRef, JoinHandle<Result<Running, StartError>>) {
    let options = SpawnOptions::new().on(scheduler).name("tree");
    let starts = scheduler.spawn(supervisor.try_start_with(options));
    scheduler.run_until_idle();
    let pid = scheduler.whereis("tree").expect("it starts");
    (SupervisorRef::of(pid).expect("it is a supervisor"), starts)
}

/// A child that starts in a second.
fn slow() -> ChildSpec<Address<()>> {
    ChildSpec::with_init("slow", |cx: Context<()>, started| async move {
        sleep(SECOND).await;
        started.ready();
        cx.cancelled().await;
    })
}

/// A child that never reports that it has started at the first time, and then fails to.
fn hangs_then_fails() -> ChildSpec<Address<()>> {
    let first = Mutex::new(true);
    let hangs = ChildSpec::with_init("x", move |_: Context<()>, started| {
        let hangs = std::mem::take(&mut *first.lock().expect("no test panics under it"));
        async move {
            if !hangs {
                return started.fail("not now");
            }
            let _started = started;
            std::future::pending().await
        }
    });
    hangs.stop(Stop::Kill)
}

/// Goal: only the children of the description decide whether the tree starts.
#[test]
fn a_child_that_is_added_while_the_tree_starts_fails_alone() {
    let scheduler = driven();
    let (tree, starts) = begin(&scheduler, Supervisor::one_for_one().child(slow()));
    let refuses = ChildSpec::machine("refuses", || Refuses(false), "go", || ());
    let refused = scheduler.block_on(tree.add_child(refuses));
    assert!(matches!(refused, Err(ChildError::Start(_))), "{refused:?}");
    let running = starts.join().expect("it returns").expect("its own child starts");
    assert_eq!(scheduler.block_on(running.count()).map(|counts| counts.children), Ok(1));
    running.cancel();
    assert_eq!(running.join(), Exit::Shutdown);
}

/// Goal: a restart that fails is one more restart, also while other children start.
#[test]
fn a_child_that_has_started_may_be_restarted_while_the_tree_starts() {
    let scheduler = driven();
    let starts = Mutex::new(0);
    let flaps = ChildSpec::with_init("flaps", move |cx: Context<()>, started| {
        let mut starts = starts.lock().expect("no test panics under it");
        *starts += 1;
        let fails = *starts == 2;
        async move {
            if fails {
                return started.fail("not now");
            }
            started.ready();
            cx.cancelled().await;
        }
    });
    let supervisor = Supervisor::one_for_one().intensity(2, HOUR).child(flaps.name("flaps"));
    let (_, starts) = begin(&scheduler, supervisor.child(slow()));
    procession::process::kill(scheduler.whereis("flaps").expect("it has started"));
    let running = starts.join().expect("it returns").expect("both have started");
    assert_eq!(scheduler.block_on(running.count()).map(|counts| counts.running), Ok(2));
    running.cancel();
    assert_eq!(running.join(), Exit::Shutdown);
}

#[test]
fn an_added_child_that_is_stopped_before_it_has_started_is_not_added() {
    let scheduler = driven();
    let running = start(&scheduler, Supervisor::one_for_one());
    // The second one fails, because it has not started before.
    let child = hangs_then_fails();
    let (reference, hangs) = ((*running).clone(), child.clone());
    let adds = scheduler.spawn(async move { reference.add_child(hangs).await.map(drop) });
    scheduler.run_until_idle();
    assert_eq!(scheduler.block_on(running.terminate_child("x")), Ok(()));
    let refused = adds.join().expect("it returns");
    assert_eq!(refused, Err(ChildError::Start("it was stopped".into())));
    assert_eq!(scheduler.block_on(running.status("x")), Err(ChildError::NotFound));
    let refused = scheduler.block_on(running.add_child(child)).map(drop);
    assert_eq!(refused, Err(ChildError::Start("not now".into())));
    running.cancel();
    assert_eq!(running.join(), Exit::Shutdown);
}

#[test]
fn a_child_of_the_description_stays_known_if_it_was_stopped_before_it_has_started() {
    let scheduler = driven();
    let supervisor = Supervisor::one_for_one().child(hangs_then_fails());
    let (tree, starts) = begin(&scheduler, supervisor);
    assert_eq!(scheduler.block_on(tree.terminate_child("x")), Ok(()));
    let running = starts.join().expect("it returns").expect("no other child is left");
    let refused = scheduler.block_on(tree.restart_child("x"));
    assert_eq!(refused, Err(ChildError::Start("not now".into())));
    assert_eq!(scheduler.block_on(tree.status("x")), Ok(ChildStatus::Stopped));
    running.cancel();
    assert_eq!(running.join(), Exit::Shutdown);
}
