//! Faults of the system, and what the scheduler promises with and without them.

use procession_sync::atomic::Ordering::Relaxed;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use procession::process::Named;
use procession::supervisor::{ChildSpec, OnceSpec, StartError, Supervisor};
use procession::time::Instant;
use procession::{Context, Exit, Reply, Scheduler, SpawnOptions, coroutine};
use procession_sim::{Check, Fault, Faults, Sim, Strategy};
use procession_sync::atomic::AtomicU32;

use crate::counters;

#[test]
fn no_fault_loses_a_message() {
    let classes = [
        Fault::Stall,
        Fault::LateWake,
        Fault::EarlyWake,
        Fault::ThreadRefused,
        Fault::ClockLeap,
        Fault::CoarseClock,
        Fault::NoMembarrier,
        Fault::StackRefused,
        Fault::ChildRefused,
    ];
    for fault in classes {
        let check = Check::new().seeds(0..20).faults(Faults::none().with(fault));
        check.run(|sim| async move {
            let sum = counters(&sim, 6, 20).await;
            sim.always("each message is counted once", sum == 120);
        });
    }
}

/// Goal: a process that is bound to a worker runs, although the system refuses the thread of that
/// worker for a while. Method: the thread retires while nothing happens, and a message arrives. The
/// laws of quiet points find a process that stays ready.
#[test]
fn a_bound_process_outlives_a_refused_thread() {
    let check = Check::new().seeds(0..100).workers(2..=2);
    check.faults(Faults::none().with(Fault::ThreadRefused)).run(|sim| async move {
        let options = SpawnOptions::new().affinity(1);
        let bound = options.start(|mut cx: Context<Reply<u32>>| async move {
            let mut calls = 0;
            while let Some(reply) = cx.recv().await {
                calls += 1;
                reply.send(calls);
            }
        });
        for number in 1..=5 {
            procession::sleep(Duration::from_secs(3600)).await;
            let called = bound.address().call(|reply| reply, Duration::from_secs(1)).await;
            sim.always("the call is answered", called.is_ok_and(|calls| calls == number));
        }
        bound.cancel();
        bound.await.expect("it ends");
    });
}

/// While one process blocks its thread without a word, the other processes continue.
#[test]
fn a_worker_that_blocks_is_replaced_in_time() {
    let check = Check::new().workers(1..=2).faults(Faults::none());
    check.scheduler(|builder| builder.max_threads(8)).run(|sim| async move {
        let (blocker, workers) = (sim.clone(), sim.choose(1..3));
        let ran = Arc::new(AtomicU32::new(0));
        let began = Instant::now();
        for _ in 0..workers {
            let blocker = blocker.clone();
            procession::spawn(async move { blocker.block(Duration::from_secs(1)) });
        }
        let other = Arc::clone(&ran);
        procession::spawn(async move { other.fetch_add(1, Relaxed) }).await.expect("it ends");
        let waited = Instant::now().saturating_duration_since(began);
        // With one worker, the second one stalls once it has replaced the first. Steps take up to
        // 0.3 ms here.
        let limit = Duration::from_millis(14) * workers as u32;
        sim.always("a stalled worker is replaced within 14 ms", waited < limit);
    });
}

/// Goal: a step is as long as it takes, in however many parts it computes. Method: the laws of the
/// run, which ask for a worker within the time of a few steps.
#[test]
fn a_step_that_computes_in_small_parts_is_one_step() {
    let check = Check::new().seeds(0..20).workers(1..=3).faults(Faults::none());
    check.scheduler(|builder| builder.max_threads(8)).run(|sim| async move {
        let own = sim.clone();
        let computes = procession::spawn(async move {
            procession::spawn(async {}).detach();
            (0..5000).for_each(|_| own.compute(Duration::from_micros(20)));
        });
        procession::spawn(procession::sleep(Duration::from_millis(1))).await.expect("it ends");
        computes.await.expect("it ends");
    });
}

#[test]
fn a_scheduler_of_the_program_is_as_wide_as_the_simulated_machine() {
    Check::new().seeds(0..3).workers(5..=5).run(|sim| async move {
        let other = Scheduler::builder().build();
        // The system may refuse the thread.
        let width = other.as_ref().map_or(5, Scheduler::worker_threads);
        sim.always("the real machine does not count", width == 5);
    });
}

/// Goal: the fences of the simulated system work, so the process in the LIFO slot of a worker that
/// blocks without a word is stolen in time.
#[test]
fn what_a_blocked_worker_has_woken_last_is_taken_over_in_time() {
    let check = Check::new().seeds(0..20).workers(2..=4).faults(Faults::none());
    check.scheduler(|builder| builder.max_threads(8)).run(|sim| async move {
        let woken = procession::start(|mut cx: Context<Instant>| async move {
            let sent = cx.recv().await.expect("it is sent");
            Instant::now().saturating_duration_since(sent)
        });
        let (own, address) = (sim.clone(), woken.address().clone());
        sim.settle().await;
        procession::spawn(async move {
            address.send(Instant::now()).expect("it lives");
            own.block(Duration::from_secs(1));
        });
        let waited = woken.await.expect("it ends");
        sim.always("it runs within 14 ms", waited < Duration::from_millis(14));
    });
}

#[test]
fn a_worker_that_is_preempted_is_not_taken_for_one_that_blocks() {
    let check = Check::new().faults(Faults::none().with(Fault::Stall));
    check.run(|sim| async move {
        let sum = counters(&sim, 4, 20).await;
        sim.always("each message is counted once", sum == 80);
    });
}

#[test]
fn a_week_passes_in_no_time_and_timers_are_in_order() {
    Check::new().seeds(0..20).run(|sim| async move {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        let began = Instant::now();
        let sleepers: Vec<_> = (1..=7)
            .map(|days| {
                sim.spawn(async move {
                    procession::sleep(DAY * days).await;
                    Instant::now()
                })
            })
            .collect();
        let mut before = began;
        for (days, sleeper) in (1..).zip(sleepers) {
            let woke = sleeper.await.expect("it ends");
            sim.always("a timer is not early", woke.saturating_duration_since(began) >= DAY * days);
            sim.always("timers fire in order", woke >= before);
            before = woke;
        }
    });
}

#[test]
fn settle_waits_until_nothing_can_happen_unless_time_passes() {
    Check::new().run(|sim| async move {
        let count = Arc::new(AtomicU32::new(0));
        for _ in 0..3 {
            let count = Arc::clone(&count);
            procession::spawn(async move {
                for _ in 0..5 {
                    procession::yield_now().await;
                    count.fetch_add(1, Relaxed);
                }
                procession::sleep(Duration::from_secs(1 << 20)).await;
                count.fetch_add(1000, Relaxed);
            });
        }
        sim.settle().await;
        sim.always("all have run as far as they could", count.load(Relaxed) == 15);
    });
}

#[test]
fn after_heal_timers_are_on_time() {
    Check::new().faults(Faults::all().without(Fault::CoarseClock)).run(|sim: Sim| async move {
        let sum = counters(&sim, 4, 10).await;
        sim.always("each message is counted once", sum == 40);
        sim.heal();
        sim.settle().await;
        let began = Instant::now();
        procession::sleep(Duration::from_millis(50)).await;
        let slept = Instant::now().saturating_duration_since(began);
        sim.always("a sleep is not late", slept < Duration::from_millis(52));
    });
}

#[test]
fn blocking_closures_run_on_threads_of_the_simulation() {
    Check::new().run(|sim| async move {
        let began = Instant::now();
        let jobs: Vec<_> = (0..3)
            .map(|_| {
                let sim = sim.clone();
                procession::spawn_blocking(move || sim.block(Duration::from_secs(100)))
            })
            .collect();
        for job in jobs {
            // The system may refuse the thread.
            drop(job.await);
        }
        let took = Instant::now().saturating_duration_since(began);
        sim.sometimes("the closures waited in virtual time", took >= Duration::from_secs(100));
    });
}

#[test]
fn a_killed_process_ends() {
    Check::new().seeds(0..30).run(|sim| async move {
        let child = sim.spawn(std::future::pending::<()>());
        sim.always("it exists", sim.kill(child.pid()));
        let ended = child.await;
        sim.always("it was killed", matches!(ended, Err(procession::Exit::Killed)));
    });
}

/// Goal: processes are killed and panic in runs that allow it, between their steps, and in no other
/// run. Method: processes of many steps, of which each reports how it ends.
#[test]
fn processes_are_killed_and_panic_if_the_check_allows_it() {
    async fn ends(sim: &Sim) -> [usize; 3] {
        let processes: Vec<_> = (0..8)
            .map(|_| {
                sim.spawn(async {
                    for _ in 0..20 {
                        procession::yield_now().await;
                    }
                })
            })
            .collect();
        let mut ends = [0; 3];
        for process in processes {
            match process.await {
                Ok(()) => ends[0] += 1,
                Err(Exit::Killed) => ends[1] += 1,
                Err(exit) if exit.is_panic() => ends[2] += 1,
                Err(exit) => panic!("an end of another kind: {exit}"),
            }
        }
        ends
    }
    let (killed, panics) = (Fault::ProcessKilled, Fault::ProcessPanics);
    for (faults, may_be) in [
        (Faults::all(), [false, false]),
        (Faults::none().with(killed), [true, false]),
        (Faults::none().with(panics), [false, true]),
        (Faults::all().with(killed).with(panics), [true, true]),
    ] {
        Check::new().seeds(0..60).faults(faults).run(move |sim| async move {
            let [_, killed, panicked] = ends(&sim).await;
            for (count, may_be, event) in [
                (killed, may_be[0], "a process is killed"),
                (panicked, may_be[1], "a process panics"),
            ] {
                sim.always(event, may_be || count == 0);
                sim.sometimes(event, count > 0 || !may_be);
            }
            sim.sometimes("some end by themselves", killed + panicked < 8);
            sim.heal();
            sim.always("a healthy system ends none", ends(&sim).await == [8, 0, 0]);
        });
    }
}

/// A report says which process was killed.
#[test]
fn a_killed_process_is_in_the_story() {
    let check = Check::new().faults(Faults::all().with(Fault::ProcessKilled));
    let report = check.try_run(|sim| async move {
        let ended = sim.spawn(async { procession::yield_now().await }).await;
        sim.always("it ends by itself", ended.is_ok());
    });
    let report = report.expect_err("some run kills it");
    assert!(report.contains("; classes of faults: ProcessKilled\n"), "{report}");
    assert!(report.contains("  process 0.") && report.contains(" is killed\n"), "{report}");
}

#[test]
fn a_process_that_is_to_panic_does_so_in_its_next_step() {
    Check::new().seeds(0..30).run(|sim| async move {
        let dropped = Arc::new(AtomicU32::new(0));
        let kept = Count(Arc::clone(&dropped));
        let child = sim.spawn(async move {
            let _kept = kept;
            pending::<()>().await;
        });
        if sim.choose(0..2) == 1 {
            sim.settle().await;
        }
        sim.always("it exists", sim.panic(child.pid()));
        let pid = child.pid();
        let ended = child.await;
        sim.always("it has panicked", matches!(ended, Err(Exit::Panicked(_))));
        sim.always("its state is dropped", dropped.load(Relaxed) == 1);
        sim.always("it does not exist any more", !sim.panic(pid));
    });
}

#[test]
fn a_process_that_lets_itself_panic_finishes_its_step() {
    Check::new().seeds(0..30).run(|sim| async move {
        let steps = Arc::new(AtomicU32::new(0));
        let (own, counted) = (sim.clone(), Arc::clone(&steps));
        let child = procession::start(|cx: Context<()>| async move {
            own.panic(cx.pid());
            counted.fetch_add(1, Relaxed);
            procession::yield_now().await;
            counted.fetch_add(1, Relaxed);
        });
        let ended = child.await;
        sim.always("it has panicked", matches!(ended, Err(Exit::Panicked(_))));
        sim.always("it had one step", steps.load(Relaxed) == 1);
    });
}

#[test]
fn a_coroutine_that_is_to_panic_is_unwound() {
    // SAFETY: none of the coroutines holds, across a suspension, a thread-local pointer that is
    // scoped to a frame.
    let check = Check::new().scheduler(|builder| unsafe { builder.enable_coroutines() });
    let check = check.faults(Faults::all().without(Fault::StackRefused));
    check.seeds(0..30).run(|sim| async move {
        let dropped = Arc::new(AtomicU32::new(0));
        let kept = Count(Arc::clone(&dropped));
        let child = procession::SpawnOptions::new().try_start_coroutine(
            move |mut cx: coroutine::Context<()>| {
                let _kept = kept;
                cx.recv();
            },
        );
        let child = child.expect("the system has stacks");
        if sim.choose(0..2) == 1 {
            sim.settle().await;
        }
        sim.always("it exists", sim.panic(child.pid()));
        let ended = child.await;
        sim.always("it has panicked", matches!(ended, Err(Exit::Panicked(_))));
        sim.always("its stack is unwound", dropped.load(Relaxed) == 1);
    });
}

/// Goal: a coroutine without a stack ends with an error before it begins, and drops what it has;
/// others go on.
#[test]
fn a_refused_stack_ends_its_coroutine() {
    let check = Check::new().faults(Faults::none().with(Fault::StackRefused));
    let check = check.expect_sometimes(["a stack is refused", "a stack is there"]);
    // SAFETY: none of the coroutines holds, across a suspension, a thread-local pointer that is
    // scoped to a frame.
    let check = check.scheduler(|builder| unsafe { builder.enable_coroutines() });
    check.run(|sim| async move {
        for _ in 0..10 {
            let (dropped, began) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let (kept, begins) = (Count(Arc::clone(&dropped)), Arc::clone(&began));
            let child = procession::SpawnOptions::new().try_start_coroutine(
                move |_: coroutine::Context<()>| {
                    let _kept = kept;
                    begins.fetch_add(1, Relaxed);
                },
            );
            let ended = child.expect("the system gives stacks later").await;
            let is_refused = matches!(&ended, Err(Exit::Failed(why)) if why.contains("no stack"));
            sim.sometimes("a stack is refused", is_refused);
            sim.sometimes("a stack is there", ended.is_ok());
            sim.always("it runs, or says why not", is_refused || ended.is_ok());
            sim.always("it runs if it has a stack", (began.load(Relaxed) == 1) == ended.is_ok());
            sim.always("what it has is dropped", dropped.load(Relaxed) == 1);
        }
    });
}

/// Goal: a function that a coroutine lends to another thread is run, or given back because the
/// system refuses the thread, also if the system refuses two threads at the same time. Method:
/// before each round, the threads of the round before have left. A coroutine would wait forever for
/// a function that is neither run nor given back.
#[test]
fn every_blocking_function_is_run_or_given_back() {
    let events = ["a function is run", "both functions are given back"];
    let check = Check::new().seeds(0..60).workers(2..=2).strategy(Strategy::Uniform);
    let check = check.faults(Faults::none().with(Fault::ThreadRefused)).expect_sometimes(events);
    // SAFETY: none of the coroutines holds, across a suspension, a thread-local pointer that is
    // scoped to a frame.
    let check = check.scheduler(|builder| unsafe { builder.enable_coroutines() });
    check.run(move |sim| async move {
        for _ in 0..20 {
            let both = [0, 1].map(|worker| {
                let lends = move |_: coroutine::Context<()>| {
                    coroutine::blocking(|| worker).map_err(|function| function())
                };
                let options = SpawnOptions::new().affinity(worker);
                options.try_start_coroutine(lends).expect("coroutines are enabled")
            });
            let mut given_back = 0;
            for (worker, child) in (0..).zip(both) {
                let ended = child.await.expect("it does not panic");
                sim.sometimes(events[0], ended.is_ok());
                given_back += u32::from(ended.is_err());
                let (Ok(value) | Err(value)) = ended;
                sim.always("it is the function of this coroutine", value == worker);
            }
            sim.sometimes(events[1], given_back == 2);
            procession::sleep(Duration::from_secs(20)).await;
        }
    });
}

/// Goal: a child that does not start counts as a restart of its supervisor, which tries again as
/// often as it tolerates restarts, and then fails.
#[test]
fn a_child_that_does_not_start_counts_as_a_restart() {
    let events = ["a restart fails and another one works", "the supervisor gives up"];
    let check = Check::new().seeds(0..300).expect_sometimes(events);
    check.faults(Faults::none().with(Fault::ChildRefused)).run(move |sim| async move {
        let tolerated = sim.choose(1..4) as u32;
        let started = Arc::new(AtomicU32::new(0));
        let starts = Arc::clone(&started);
        let child = ChildSpec::new("child", move |mut cx: Context<()>| {
            starts.fetch_add(1, Relaxed);
            async move {
                if cx.recv().await.is_some() {
                    procession::process::exit(Exit::failed("it was asked to"));
                }
            }
        });
        let tree = Supervisor::one_for_one()
            .intensity(tolerated, Duration::from_secs(60))
            .child(child.name("child"))
            .try_start()
            .await;
        let tree = match tree {
            Ok(tree) => tree,
            Err(StartError::Child { reason, .. }) => {
                return sim.always("it says why", reason.to_string().contains("limit"));
            }
            Err(_) => return sim.always("the description is right", false),
        };
        sim.settle().await;
        sim.always("the child runs", started.load(Relaxed) == 1);
        let sent = Named::new("child").send(());
        sim.always("it has its name", sent.is_ok());
        sim.settle().await;
        let Ok(count) = tree.count().await else {
            sim.sometimes(events[1], started.load(Relaxed) == 1);
            let ended = tree.await;
            return sim.always("it ends as one that gives up", matches!(ended, Exit::GaveUp(_)));
        };
        sim.always("it has the child again", count.running == 1 && started.load(Relaxed) == 2);
        // What is left of the tolerated restarts shows how many there were.
        let mut left = 0;
        while Named::new("child").send(()).is_ok() {
            sim.settle().await;
            left += 1;
        }
        sim.always("each start counts", left <= tolerated);
        sim.sometimes(events[0], left < tolerated);
        sim.always("it ends as one that gives up", matches!(tree.await, Exit::GaveUp(_)));
    });
}

/// Goal: the closure of a child that does not start returns to its caller, which can try again.
#[test]
fn the_closure_of_a_child_that_does_not_start_returns() {
    let check = Check::new().expect_sometimes(["a closure returns"]);
    check.faults(Faults::none().with(Fault::ChildRefused)).run(|sim| async move {
        let tree = Supervisor::dynamic().try_start().await.expect("it has no children");
        let dropped = Arc::new(AtomicU32::new(0));
        let kept = Count(Arc::clone(&dropped));
        let mut closure = move |_: Context<()>| async move { drop(kept) };
        for attempt in 0.. {
            match tree.add_once(OnceSpec::new(closure)).await {
                Ok(_) => break,
                Err(refused) => {
                    sim.sometimes("a closure returns", true);
                    sim.always("it is not dropped", dropped.load(Relaxed) == 0);
                    closure = refused.into_inner().expect("no process has it");
                }
            }
            if attempt == 3 {
                sim.heal();
            }
        }
        sim.settle().await;
        sim.always("it runs once", dropped.load(Relaxed) == 1);
        tree.cancel();
        sim.always("it ends", tree.await == Exit::Shutdown);
    });
}

/// Counts its drop.
struct Count(Arc<AtomicU32>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}
