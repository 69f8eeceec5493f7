//! Starting processes, waiting for them, and their properties: scheduler, parent, label, location,
//! worker, PID.

mod handles;
mod inherited;
mod limits;
mod locals;

use crate::home::mpsc;
use std::sync::Arc;
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::Event;
use procession::observe::ProcessState;
use procession::process::Outcome;
use procession::{Context, Pid, Scheduler, SpawnOptions};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Mutex, hint};

use crate::scene::{driven, soon, threaded};

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
    SpawnOptions::new()
        .on(scheduler)
        .try_start_machine(Machine, "run", ())
        .expect("it has this method")
}

/// Keeps its sender until it is dropped.
struct Held(#[expect(dead_code, reason = "its drop is the message")] mpsc::Sender<()>);

impl Outcome for Held {}

async fn for_ever() -> u32 {
    std::future::pending().await
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
                crate::home::others_may_run();
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
        let own = procession::process::current_pid();
        let child = procession::start(who).await;
        let grandchild = procession::spawn(async move {
            let own = procession::process::current_pid();
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
    assert_eq!(procession::process::current_pid(), None);
}

#[test]
fn the_default_scheduler_is_there_for_all_threads_that_have_none() {
    let pid = procession::spawn(async { procession::process::current_pid() })
        .join()
        .expect("it ends")
        .expect("a process has one");
    assert_eq!(pid.scheduler(), Scheduler::global().id());
    let inside = procession::run(async {
        procession::spawn(async { procession::process::current_pid() }).await
    });
    assert_eq!(
        inside.expect("it ends").expect("a process has one").scheduler(),
        Scheduler::global().id()
    );
}

#[test]
fn the_snapshot_names_kind_label_location_and_parent() {
    let scheduler = driven();
    let options = || SpawnOptions::new().on(&scheduler);
    let line = line!();
    let plain = scheduler.spawn(for_ever());
    let started = scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await });
    let machine = options().try_start_machine(Machine, "run", ()).expect("it has this method");
    let labelled = options().label("the labelled one");
    let labelled = labelled.spawn(for_ever());
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
    let running =
        scheduler.spawn(async move { (procession::process::current_pid(), states(&observer)) });
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
                            crate::home::thread::current().id(),
                            crate::home::thread::current().name().map(str::to_owned),
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
            assert!(!procession::process::cancel(old) && !procession::process::kill(old));
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
        assert!(!procession::process::cancel(other));
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
        crate::home::thread::scope(|scope| {
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
    crate::home::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| joins(&scheduler));
        }
    });
}
