//! What is refused at a spawn, and the ranges of a builder.

use std::sync::Arc;
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::WhenFull;
use procession::{Context, Exit, Scheduler, SpawnOptions};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scene::threaded;

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
    let options = || SpawnOptions::new().on(&scheduler);
    for _ in 0..100 {
        for (options, reason) in [
            (options().affinity(1000), "it is bound to worker 1000, but there are only 1, from 0"),
            (options().stack_size(1 << 20), "only coroutines have stacks"),
            (options().mailbox(8, WhenFull::Wait), "it was spawned without a mailbox"),
        ] {
            let refused = options.try_spawn(async { 1 }).expect_err("there is no such thing");
            assert!(!refused.is_limit() && refused.to_string().ends_with(reason), "{refused}");
        }
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
    let first = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Counted(Arc::clone(&calls)), "", ())
        .expect("there is room for one");
    let error = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Counted(Arc::clone(&calls)), "", ())
        .expect_err("there is room for one");
    assert!(error.is_limit());
    drop(error.into_inner());
    assert_eq!(calls.load(Relaxed), 1, "the second was neither initialised nor closed");
    procession::process::kill(first.pid());
    assert_eq!(first.join(), Err(Exit::Killed));
    assert_eq!(calls.load(Relaxed), 101);
}

#[test]
fn builder_errors_name_value_and_range() {
    let cases: [(procession::scheduler::Builder, &str); 9] = [
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
    let builders: [fn() -> procession::scheduler::Builder; 5] = [
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
