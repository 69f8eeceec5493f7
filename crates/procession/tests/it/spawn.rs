//! Starting processes, waiting for them, and their properties: scheduler, parent, label, location,
//! worker, PID.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::snapshot::ProcessState;
use procession::{Context, Event, Exit, Outcome, Pid, Scheduler, SpawnOptions};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicUsize};
use procession_sync::hint;

use crate::scene::{driven, panic_quietly, soon, soon_closed, threaded};

/// A machine that ends in the way it is sent, with the value it is sent.
struct Machine;

impl Process for Machine {
    type Input = ();
    type Message = Result<u32, String>;
    type Output = u32;

    fn init(&mut self, method: &str, (): ()) -> Result<(), InitError> {
        if method == "run" { Ok(()) } else { Err(InitError::unknown_method(method)) }
    }

    fn step(
        &mut self,
        events: &mut Events<Self::Message>,
        _: &mut Yields<'_>,
    ) -> Result<Status<u32>, Box<dyn std::error::Error + Send + Sync>> {
        match events.next() {
            Some(Event::Message(Ok(0))) => Ok(Status::Wait(WaitingFor::Completions)),
            Some(Event::Message(Ok(output))) => Ok(Status::Done(output)),
            Some(Event::Message(Err(text))) => Err(text.into()),
            _ => Ok(Status::Wait(WaitingFor::Messages)),
        }
    }
}

fn machine(scheduler: &Scheduler) -> procession::Child<Result<u32, String>, u32> {
    scheduler.spawn_machine(Machine, "run", ()).expect("it has this method")
}

/// Keeps its sender until it is dropped.
struct Held(#[expect(dead_code, reason = "its drop is the message")] mpsc::Sender<()>);

impl Outcome for Held {}

async fn for_ever() -> u32 {
    std::future::pending().await
}

#[test]
fn a_result_is_awaited_or_joined() {
    let scheduler = threaded(2);
    assert_eq!(scheduler.block_on(async { procession::spawn(async { 1 }).await }), Ok(1));
    assert_eq!(scheduler.spawn(async { 2 }).join(), Ok(2));
    let child = scheduler.start(|cx: Context<()>| async move { cx.pid() });
    let pid = child.pid();
    assert_eq!(child.join(), Ok(pid));
    // Joined by a thread that does not belong to the scheduler, long after the end.
    let handle = scheduler.spawn(async { 3 });
    scheduler.run_until_idle();
    assert!(handle.is_finished());
    assert_eq!(
        std::thread::scope(|scope| scope.spawn(|| handle.join()).join()).expect("no panic"),
        Ok(3)
    );
}

#[test]
fn a_join_that_is_out_of_patience_gives_the_handle_back() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    let (address, handle) = child.into_parts();
    let before = scheduler.now();
    let handle =
        handle.join_timeout(Duration::from_secs(3600)).expect_err("nobody has sent anything");
    assert_eq!(scheduler.now() - before, Duration::from_secs(3600));
    let handle = handle.join_timeout(Duration::ZERO).expect_err("nobody has sent anything yet");
    address.send(7).expect("it lives");
    let result = handle.join_timeout(Duration::from_secs(1)).expect("the message has come");
    assert_eq!(result, Ok(Some(7)));
    assert_eq!(scheduler.now() - before, Duration::from_secs(3600), "nothing was waited for");
}

#[test]
fn dropping_a_handle_detaches_the_process() {
    for scheduler in [driven(), threaded(2)] {
        let (held, ends) = mpsc::channel();
        let (address, handle) = scheduler
            .start(move |mut cx: Context<Held>| async move {
                let output = cx.recv().await;
                procession::yield_now().await;
                output
            })
            .into_parts();
        drop(handle);
        scheduler.run_until_idle();
        assert!(address.is_alive(), "it waits for its message still");
        address.send(Held(held)).expect("it lives");
        scheduler.run_until_idle();
        soon_closed(&ends);
        assert!(!address.is_alive());
        drop(address);
        assert_eq!(scheduler.snapshot().processes.len(), 0, "the result is not waited for");
    }
}

#[test]
fn every_way_to_end_has_its_exit() {
    let cases: [(Result<u32, Exit>, &str, fn(&Scheduler) -> Result<u32, Exit>); 9] = [
        (Ok(1), "", |scheduler| scheduler.spawn(async { 1 }).join()),
        (Ok(2), "", |scheduler| {
            let child = machine(scheduler);
            child.send(Ok(2)).expect("it lives");
            child.join()
        }),
        (
            Err(Exit::Panicked("out of cheese".into())),
            "the process panicked: out of cheese",
            |scheduler| scheduler.spawn(async { panic_quietly("out of cheese") }).join(),
        ),
        (
            Err(Exit::Panicked("in the closure".into())),
            "the process panicked: in the closure",
            |scheduler| {
                let child = scheduler.start(|_: Context<()>| {
                    panic_quietly("in the closure");
                    #[expect(unreachable_code, reason = "it names the type")]
                    for_ever()
                });
                child.join()
            },
        ),
        (Err(Exit::Killed), "the process was terminated", |scheduler| {
            let handle = scheduler.spawn(for_ever());
            scheduler.run_until_idle();
            assert!(scheduler.terminate(handle.pid()));
            handle.join()
        }),
        (Err(Exit::Failed("no cheese".into())), "the process failed: no cheese", |scheduler| {
            let child = machine(scheduler);
            child.send(Err("no cheese".into())).expect("it lives");
            child.join()
        }),
        (
            Err(Exit::WaitsForNothing),
            "the process waits for completions, but none is outstanding",
            |scheduler| {
                let child = machine(scheduler);
                child.send(Ok(0)).expect("it lives");
                child.join()
            },
        ),
        (Err(Exit::Killed), "the process was terminated", |scheduler| {
            // Before its first step.
            let (release, gate) = mpsc::channel::<()>();
            let in_the_way = SpawnOptions::new()
                .on(scheduler)
                .affinity(0)
                .spawn(async move { gate.recv().is_err() });
            let handle = SpawnOptions::new()
                .on(scheduler)
                .affinity(0)
                .spawn(async { panic_quietly("it has run") });
            scheduler.terminate(handle.pid());
            drop(release);
            assert_eq!(in_the_way.join(), Ok(true));
            handle.join()
        }),
        (Err(Exit::Refused), "the scheduler takes no more processes", |scheduler| {
            SpawnOptions::new().on(scheduler).affinity(1000).spawn(async { 1 }).join()
        }),
    ];
    for (expected, text, end) in cases {
        for scheduler in [driven(), threaded(1), threaded(2)] {
            let result = end(&scheduler);
            assert_eq!(result, expected);
            assert_eq!(result.map_or_else(|exit| exit.to_string(), |_| String::new()), text);
        }
    }
}

#[test]
fn a_refused_process_is_nobody() {
    let scheduler = driven();
    let child = SpawnOptions::new()
        .on(&scheduler)
        .affinity(1)
        .start(|mut cx: Context<u8>| async move { cx.recv().await });
    assert!(!child.is_alive());
    assert_eq!(child.pid().to_string(), "p0.0.1");
    let error = child.send(3).expect_err("nobody is there");
    assert!(error.is_ended());
    assert_eq!(error.into_inner(), 3);
    child.cancel();
    let (_, handle) = child.into_parts();
    assert!(handle.is_finished());
    assert_eq!(handle.pid(), Pid::NOBODY);
    assert_eq!(handle.join_timeout(Duration::ZERO).expect("it has ended"), Err(Exit::Refused));
    assert_eq!(scheduler.snapshot().spawned, 0);
}

#[test]
fn a_handle_gives_its_result_once() {
    let scheduler = driven();
    let mut handle = scheduler.spawn(async { 1 });
    let pid = handle.pid();
    assert!(pid != Pid::NOBODY && !handle.is_finished());
    assert_eq!(scheduler.block_on(&mut handle), Ok(1));
    assert_eq!((handle.pid(), handle.is_finished()), (pid, true));
    let again = catch_unwind(AssertUnwindSafe(|| scheduler.block_on(&mut handle)));
    let text = again.expect_err("it has given it");
    assert_eq!(
        text.downcast_ref::<String>().map(String::as_str),
        Some("a `JoinHandle` was used after its result was taken")
    );
    assert!(!scheduler.terminate(pid));
}

#[test]
fn a_handle_that_moves_between_tasks_wakes_the_last_one() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
    let (address, mut handle) = child.into_parts();
    // Polled by one process, which goes on without it, and then by another.
    let (first, mut handle) = scheduler
        .block_on(async move {
            procession::spawn(async move {
                let pending =
                    poll_fn(|task| Poll::Ready(Pin::new(&mut handle).poll(task).is_pending()))
                        .await;
                (pending, handle)
            })
            .await
        })
        .expect("it ends");
    assert!(first);
    let second = scheduler.spawn(async move { (&mut handle).await });
    scheduler.run_until_idle();
    address.send(()).expect("it lives");
    assert_eq!(scheduler.block_on(second), Ok(Ok(Some(()))));
}

/// Each of the first processes is gone when another worker comes for it, so that worker naps.
#[test]
fn the_only_child_of_a_step_that_computes_runs_beside_it() {
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .watchdog(false)
        .build()
        .expect("the system has threads");
    let parent = scheduler.spawn(async {
        for number in 0..20_000 {
            assert_eq!(procession::spawn(async move { number }).await, Ok(number));
        }
        for _ in 0..10 {
            let has_run = Arc::new(AtomicBool::new(false));
            let runs = Arc::clone(&has_run);
            let child = procession::spawn(async move { runs.store(true, Relaxed) });
            while !has_run.load(Relaxed) {
                hint::spin_loop();
            }
            child.await.expect("it only stores");
        }
    });
    assert_eq!(parent.join(), Ok(()));
}

#[test]
fn processes_belong_to_the_scheduler_of_their_spawner_and_know_their_parent() {
    let [one, two] = [driven(), threaded(2)];
    let who = |cx: Context<()>| async move { (cx.pid(), cx.parent()) };

    let (pid, parent) = one.start(who).join().expect("it ends");
    assert_eq!((pid.scheduler(), parent), (one.id(), None), "from outside");

    let (pid, parent) = one.block_on(async move { procession::start(who).await }).expect("it ends");
    assert_eq!((pid.scheduler(), parent), (one.id(), None), "from a future that is no process");

    let inside = one.spawn(async move {
        let own = procession::current_pid();
        let child = procession::start(who).await;
        let grandchild = procession::spawn(async move {
            let own = procession::current_pid();
            (own, procession::start(who).await)
        });
        (own, child, grandchild.await)
    });
    let (own, child, grandchild) = inside.join().expect("it ends");
    let (pid, parent) = child.expect("it ends");
    assert_eq!((pid.scheduler(), parent), (one.id(), own), "from a process");
    let (own, child) = grandchild.expect("it ends");
    let (pid, parent) = child.expect("it ends");
    assert_eq!((pid.scheduler(), parent), (one.id(), own), "from the child of a process");

    let other = two.clone();
    let across = one.spawn(async move { SpawnOptions::new().on(&other).start(who).await });
    let (pid, parent) = across.join().expect("it ends").expect("it ends");
    assert_eq!((pid.scheduler(), parent), (two.id(), None), "from a process of another scheduler");

    let nested = one.block_on(async {
        let inner = two.block_on(async move { procession::start(who).await });
        (inner, procession::start(who).await)
    });
    let schedulers =
        (nested.0.expect("it ends").0.scheduler(), nested.1.expect("it ends").0.scheduler());
    assert_eq!(schedulers, (two.id(), one.id()), "from nested calls");
    assert_eq!(procession::current_pid(), None);
}

#[test]
fn the_default_scheduler_is_there_for_all_threads_that_have_none() {
    let pid = procession::spawn(async { procession::current_pid() })
        .join()
        .expect("it ends")
        .expect("a process has one");
    assert_eq!(pid.scheduler(), Scheduler::global().id());
    let inside =
        procession::run(async { procession::spawn(async { procession::current_pid() }).await });
    assert_eq!(
        inside.expect("it ends").expect("a process has one").scheduler(),
        Scheduler::global().id()
    );
}

#[test]
fn the_snapshot_names_kind_label_location_and_parent() {
    let scheduler = driven();
    let line = line!();
    let plain = scheduler.spawn(for_ever());
    let started = scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await });
    let machine = scheduler.spawn_machine(Machine, "run", ()).expect("it has this method");
    let options = SpawnOptions::new().on(&scheduler).label("the labelled one");
    let labelled = options.spawn(for_ever());
    let (tell, told) = mpsc::channel();
    let parent = scheduler.spawn(async move {
        let handle = procession::spawn(for_ever());
        tell.send(handle.pid()).expect("the test waits");
        handle.await
    });
    scheduler.run_until_idle();
    let by_free_function = soon(&told);
    let snapshot = scheduler.snapshot();
    let find = |pid: Pid| {
        let process =
            snapshot.processes.iter().find(|process| process.pid == pid).expect("it is alive");
        assert_eq!(process.location.file(), file!());
        (process.kind, process.label.as_deref(), process.location.line() - line, process.parent)
    };
    assert_eq!(find(plain.pid()), ("async", None, 1, None));
    assert_eq!(find(started.pid()), ("async", None, 2, None));
    assert_eq!(find(machine.pid()), ("machine", None, 3, None));
    assert_eq!(find(labelled.pid()), ("async", Some("the labelled one"), 5, None));
    assert_eq!(find(by_free_function), ("async", None, 8, Some(parent.pid())));
    assert_eq!(snapshot.processes.len(), 6);
}

#[test]
fn the_snapshot_shows_states_and_forgets_what_is_done() {
    let scheduler = driven();
    let idle = scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await });
    let blocked = scheduler.spawn(for_ever());
    let mut complete = scheduler.spawn(async { 1 });
    scheduler.run_until_idle();
    let ready = scheduler.spawn(async {});
    let observer = scheduler.clone();
    let states = |scheduler: &Scheduler| -> Vec<_> {
        scheduler.snapshot().processes.iter().map(|process| (process.pid, process.state)).collect()
    };
    let running = scheduler.spawn(async move { (procession::current_pid(), states(&observer)) });
    let (own, seen) = running.join().expect("it ends");
    let state_of = |pid: Pid| seen.iter().find(|seen| seen.0 == pid).map(|seen| seen.1);
    assert_eq!(state_of(idle.pid()), Some(ProcessState::Idle));
    assert_eq!(state_of(blocked.pid()), Some(ProcessState::Blocked));
    assert_eq!(state_of(complete.pid()), Some(ProcessState::Complete));
    assert_eq!(state_of(own.expect("a process asked")), Some(ProcessState::Running));
    // The scheduler is free to run it before or after the other one.
    assert!(matches!(state_of(ready.pid()), Some(ProcessState::Ready | ProcessState::Complete)));
    assert_eq!(scheduler.block_on(&mut complete), Ok(1));
    assert!(
        !states(&scheduler)
            .iter()
            .any(|seen| seen.1 == ProcessState::Complete && seen.0 != ready.pid())
    );
}

#[test]
fn a_bound_process_stays_on_its_worker() {
    const WAKES: usize = 300;
    let scheduler = Scheduler::builder()
        .name("bound")
        .worker_threads(4)
        .build()
        .expect("the system has threads");
    let handles: Vec<_> = (0..4)
        .map(|worker| {
            let child = SpawnOptions::new().on(&scheduler).affinity(worker).start(
                move |mut cx: Context<()>| async move {
                    let mut threads = Vec::with_capacity(3 * WAKES);
                    let mut note = || {
                        threads.push((
                            std::thread::current().id(),
                            std::thread::current().name().map(str::to_owned),
                        ))
                    };
                    for n in 0..WAKES {
                        note();
                        cx.recv().await;
                        note();
                        procession::yield_now().await;
                        if n % 10 == 0 {
                            note();
                            procession::sleep(Duration::from_nanos(1)).await;
                        }
                    }
                    threads
                },
            );
            // Woken from all workers, and from outside.
            for _ in 0..WAKES / 4 {
                child.send(()).expect("it lives");
            }
            for _ in 0..3 {
                let address = child.address().clone();
                drop(scheduler.spawn(async move {
                    for _ in 0..WAKES / 4 {
                        address.send(()).expect("it lives");
                        procession::yield_now().await;
                    }
                }));
            }
            (worker, child)
        })
        .collect();
    for (worker, child) in handles {
        let threads = child.join().expect("it ends");
        assert!(threads.len() > 2 * WAKES);
        let name = Some(format!("bound-{worker}"));
        assert!(
            threads.iter().all(|thread| *thread == (threads[0].0, name.clone())),
            "worker {worker}"
        );
    }
}

#[test]
fn a_process_cannot_be_bound_to_a_worker_that_is_not_there() {
    let scheduler = threaded(2);
    for worker in [2, 3, u32::MAX] {
        let value = Arc::new(worker);
        let moved = Arc::clone(&value);
        let error = SpawnOptions::new()
            .on(&scheduler)
            .affinity(worker)
            .try_spawn(async move { *moved })
            .expect_err("only 0 and 1 are there");
        assert!(!error.is_limit() && !error.is_closing() && error.init_error().is_none());
        assert_eq!(
            error.to_string(),
            format!(
                "cannot start a process: it is bound to worker {worker}, but there are only 2, from 0"
            )
        );
        assert_eq!(scheduler.block_on(error.into_inner()), worker, "the future comes back");
        assert_eq!(Arc::strong_count(&value), 1);
    }
    assert_eq!(scheduler.snapshot().spawned, 0);
}

/// Fills a scheduler with waiting processes. The last one is refused, and its closure comes back.
fn fill(scheduler: &Scheduler, alive: &mut Vec<procession::Child<(), Option<()>>>, most: u32) {
    for number in 0.. {
        assert!(number <= most, "it takes no more than {most}");
        let proof = Arc::new(());
        let kept = Arc::clone(&proof);
        let started =
            SpawnOptions::new().on(scheduler).try_start(move |mut cx: Context<()>| async move {
                assert_eq!(*kept, ());
                cx.recv().await
            });
        match started {
            Ok(child) => alive.push(child),
            Err(error) => {
                assert!(error.is_limit(), "{error}");
                assert_eq!(
                    error.to_string(),
                    "cannot start a process: the scheduler has reached its limit of processes"
                );
                assert_eq!(Arc::strong_count(&proof), 2, "the closure is in the error");
                drop(error.into_inner());
                assert_eq!(Arc::strong_count(&proof), 1);
                return;
            }
        }
    }
}

#[test]
fn the_limit_of_processes_holds_and_frees() {
    for (limit, width) in [(1, 1), (2, 2), (15, 1), (100, 1), (1000, 4)] {
        // The slack that the builder's documentation grants each worker.
        let slack = (limit / 16).min(64 * width as u32);
        for driven in [true, false] {
            let builder = Scheduler::builder().worker_threads(width).max_processes(limit);
            let builder = if driven { builder.callers_drive() } else { builder };
            let scheduler = builder.build().expect("the system has threads");
            let mut alive = Vec::new();
            for round in 0..3 {
                fill(&scheduler, &mut alive, limit);
                let taken = alive.len() as u32;
                assert!(
                    (limit - slack..=limit).contains(&taken),
                    "{taken} of {limit} in round {round}"
                );
                assert!(scheduler.spawn(async { 1 }).is_finished(), "refused");
                // Half of the processes end, but at least one.
                for child in alive.drain(taken as usize / 2..) {
                    child.send(()).expect("it lives");
                    assert_eq!(child.join(), Ok(Some(())));
                }
                scheduler.run_until_idle();
            }
        }
    }
}

#[test]
fn what_is_refused_for_what_it_asks_for_takes_no_place() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .callers_drive()
        .max_processes(1)
        .build()
        .expect("it starts no thread");
    for _ in 0..100 {
        let options = SpawnOptions::new().on(&scheduler).affinity(1000);
        let refused = options.try_spawn(async { 1 }).expect_err("there is no such worker");
        assert!(!refused.is_limit(), "{refused}");
    }
    assert_eq!(scheduler.spawn(async { 2 }).join(), Ok(2));
    let snapshot = scheduler.snapshot();
    assert_eq!((snapshot.spawned, snapshot.processes.len()), (1, 0));
}

#[test]
fn the_limit_of_processes_holds_inside_too() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .max_processes(64)
        .build()
        .expect("it starts no thread");
    let inside = scheduler.spawn(async {
        let mut waiting = Vec::new();
        let refused = loop {
            let waits = |mut cx: Context<()>| async move { cx.recv().await };
            match SpawnOptions::new().try_start(waits) {
                Ok(child) => waiting.push(child),
                Err(error) => break error,
            }
        };
        assert!(refused.is_limit());
        let taken = waiting.len();
        let last = waiting.pop().expect("at least one was taken");
        last.send(()).expect("it lives");
        assert_eq!(last.await, Ok(Some(())));
        let again =
            SpawnOptions::new().try_start(refused.into_inner()).map_err(|error| error.to_string());
        let again = again.expect("one has ended");
        again.send(()).expect("it lives");
        assert_eq!(again.await, Ok(Some(())));
        taken
    });
    let taken = inside.join().expect("it ends");
    assert_eq!(taken, 63, "all but the one that spawns: the only worker keeps no slot from itself");
}

#[test]
fn a_machine_that_is_refused_is_not_initialised() {
    struct Counted(Arc<AtomicUsize>);
    impl Process for Counted {
        type Input = ();
        type Message = ();
        type Output = ();
        fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
            self.0.fetch_add(1, Relaxed);
            Ok(())
        }
        fn step(
            &mut self,
            _: &mut Events<()>,
            _: &mut Yields<'_>,
        ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
            Ok(Status::Wait(WaitingFor::Messages))
        }
        fn close(&mut self) {
            self.0.fetch_add(100, Relaxed);
        }
    }
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .max_processes(1)
        .build()
        .expect("it starts no thread");
    let calls = Arc::new(AtomicUsize::new(0));
    let first = scheduler
        .spawn_machine(Counted(Arc::clone(&calls)), "", ())
        .expect("there is room for one");
    let error = scheduler
        .spawn_machine(Counted(Arc::clone(&calls)), "", ())
        .expect_err("there is room for one");
    assert!(error.is_limit());
    drop(error.into_inner());
    assert_eq!(calls.load(Relaxed), 1, "the second was neither initialised nor closed");
    scheduler.terminate(first.pid());
    assert_eq!(first.join(), Err(Exit::Killed));
    assert_eq!(calls.load(Relaxed), 101);
}

#[test]
fn a_stale_pid_reaches_nobody() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .max_processes(1)
        .build()
        .expect("it starts no thread");
    let mut stale = Vec::new();
    for generation in 1..=50_u32 {
        let child = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
        let pid = child.pid();
        assert_eq!(
            pid.to_string(),
            format!("p{}.0.{generation}", scheduler.id()),
            "there is only one slot"
        );
        for &old in &stale {
            let error = procession::mailbox::send(old, 1_u32).expect_err("it has ended");
            assert!(error.is_ended());
            assert_eq!(error.to_string(), format!("cannot send to {old}: the process has ended"));
            assert!(!scheduler.cancel(old) && !scheduler.terminate(old));
        }
        procession::mailbox::send(pid, generation).expect("it lives");
        assert_eq!(child.join(), Ok(Some(generation)), "nothing else has reached it");
        stale.push(pid);
    }
}

#[test]
fn a_pid_can_be_printed_parsed_and_used() {
    let scheduler = driven();
    let child = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    let printed = child.pid().to_string();
    let parsed: Pid = printed.parse().expect("what is printed is parsed");
    assert_eq!(parsed, child.pid());
    assert_eq!((parsed.node(), parsed.scheduler()), (0, scheduler.id()));
    // The same numbers on another node, in another scheduler, or in slots that were never made do
    // not name this process.
    let numbers = printed.strip_prefix('p').expect("a PID");
    for other in [
        format!("p3@{numbers}"),
        "p4294967295.0.1".into(),
        format!("p{}.4294967295.1", scheduler.id()),
    ] {
        let other: Pid = other.parse().expect("a PID");
        let error = procession::mailbox::send(other, 1_u32).expect_err("nobody");
        assert!(if other.node() == 0 { error.is_ended() } else { error.is_not_relayed() });
        assert!(!scheduler.cancel(other));
    }
    procession::mailbox::send(parsed, 5_u32).expect("it lives");
    assert_eq!(child.join(), Ok(Some(5)));
}

#[test]
fn a_pid_of_a_scheduler_that_is_gone_reaches_nobody() {
    let pid = {
        let scheduler = driven();
        let child = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
        scheduler.run_until_idle();
        let pid = child.pid();
        drop(child);
        pid
    };
    assert!(
        procession::mailbox::send(pid, 1_u32).expect_err("its scheduler has ended it").is_ended()
    );
    // Schedulers do not reuse the numbers of other schedulers.
    assert!((0..10).all(|_| driven().id() != pid.scheduler()));
}

#[test]
fn callers_take_turns_in_driving() {
    let scheduler = driven();
    // One thread has the seat, and leaves it while others wait. They must not get stuck with
    // processes that no thread runs.
    for _ in 0..50 {
        let order = Arc::new(Mutex::new(Vec::new()));
        let children: Vec<_> = (0..4_u32)
            .map(|number| {
                let order = Arc::clone(&order);
                scheduler.start(move |mut cx: Context<()>| async move {
                    cx.recv().await;
                    for _ in 0..number {
                        procession::yield_now().await;
                    }
                    order.lock().push(number);
                })
            })
            .collect();
        std::thread::scope(|scope| {
            for child in children {
                scope.spawn(move || {
                    child.send(()).expect("it lives");
                    assert_eq!(child.join(), Ok(()));
                });
            }
        });
        assert_eq!(order.lock().len(), 4);
    }
}

#[test]
fn callers_come_and_go_while_others_spawn() {
    let scheduler = driven();
    let joins = |scheduler: &Scheduler| {
        for n in 0..1000 {
            assert_eq!(scheduler.spawn(async move { n }).join(), Ok(n));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| joins(&scheduler));
        }
    });
}

#[test]
fn builder_errors_name_value_and_range() {
    let cases: [(procession::Builder, &str); 9] = [
        (Scheduler::builder().worker_threads(0), "worker_threads is 0, but must be from 1 to 1024"),
        (
            Scheduler::builder().worker_threads(1025),
            "worker_threads is 1025, but must be from 1 to 1024",
        ),
        (
            Scheduler::builder().worker_threads(usize::MAX),
            "worker_threads is 18446744073709551615, but must be from 1 to 1024",
        ),
        (
            Scheduler::builder().max_processes(0),
            "max_processes is 0, but must be from 1 to 1073741824",
        ),
        (
            Scheduler::builder().max_processes((1 << 30) + 1),
            "max_processes is 1073741825, but must be from 1 to 1073741824",
        ),
        (
            Scheduler::builder().max_processes(u32::MAX),
            "max_processes is 4294967295, but must be from 1 to 1073741824",
        ),
        (Scheduler::builder().max_timers(0), "max_timers is 0, but must be from 1 to 1073741824"),
        (
            Scheduler::builder().max_timers((1 << 30) + 1),
            "max_timers is 1073741825, but must be from 1 to 1073741824",
        ),
        (Scheduler::builder().name("a\0b"), "name is \"a\\0b\", but must not contain a NUL"),
    ];
    for (builder, text) in cases {
        let error = builder.build().expect_err(text);
        assert_eq!(error.to_string(), format!("cannot build a scheduler: {text}"));
    }
}

#[test]
fn the_ends_of_the_builders_ranges_are_in_them() {
    let builders: [fn() -> procession::Builder; 5] = [
        || Scheduler::builder().worker_threads(1024),
        || Scheduler::builder().worker_threads(1).max_processes(1),
        || Scheduler::builder().worker_threads(1).max_processes(1 << 30),
        || Scheduler::builder().worker_threads(1).max_timers(1 << 30),
        || Scheduler::builder().worker_threads(1).name(""),
    ];
    for builder in builders {
        let scheduler = builder().callers_drive().build().expect("it is in range");
        assert_eq!(scheduler.spawn(async { 1 }).join(), Ok(1));
    }
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .max_timers(1)
        .test_clock()
        .build()
        .expect("it is in range");
    scheduler.block_on(procession::sleep(Duration::from_secs(1)));
    assert_eq!(scheduler.now() - procession::time::Instant::NEVER, Duration::ZERO);
}
