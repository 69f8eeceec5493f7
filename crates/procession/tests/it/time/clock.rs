//! The test clock: when it moves, and when it stands still.

use crate::home::{mpsc, thread};
use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use procession::machine::{
    CommandError, CommandId, Completion, Events, InitError, Process, Status, Value, WaitingFor,
    Yields,
};
use procession::mailbox::Event;
use procession::time::Instant;
use procession::{Context, Scheduler, SpawnOptions, sleep, start, yield_now};
use procession_sync::Mutex;
use procession_sync::hint;

use crate::scene::TIMEOUT;

use super::{HOUR, on_test_clock, seconds, timers};

#[test]
fn the_clock_of_a_test_starts_at_zero_and_is_its_own() {
    let (one, other) = (on_test_clock(1), on_test_clock(1));
    assert_eq!(one.now(), other.now());
    one.block_on(async { sleep(HOUR).await });
    assert_eq!(one.now() - other.now(), HOUR);
    other.advance(HOUR);
    assert_eq!(one.now(), other.now());
}

#[test]
fn run_until_idle_does_not_move_the_clock() {
    for width in [1, 2, 4] {
        let scheduler = on_test_clock(width);
        let start = scheduler.now();
        // Set by a process, so that no worker parks with a timer before `run_until_idle` holds the
        // clock.
        let (begin, begun) = mpsc::channel();
        let sleeper = scheduler.start(move |mut cx: Context<()>| async move {
            begin.send(()).expect("the test listens");
            cx.recv().await.expect("it is sent one");
            sleep(HOUR).await;
        });
        scheduler.run_until_idle();
        begun.recv_timeout(TIMEOUT).expect("it has run");
        if width == 1 {
            sleeper.send(()).expect("it waits");
            let waiting = scheduler.run_until_idle();
            assert_eq!(scheduler.now(), start);
            assert_eq!(
                waiting.iter().map(|process| process.pid).collect::<Vec<_>>(),
                [sleeper.pid()]
            );
            assert!(waiting[0].waiting.for_timer() && !waiting[0].waiting.for_messages());
            assert_eq!(timers(&scheduler).pending, 1);
        } else {
            sleeper.cancel();
        }
    }
}

#[test]
fn advance_moves_the_clock_and_fires_what_is_due_then() {
    let scheduler = on_test_clock(1);
    let start = scheduler.now();
    let sleeper = scheduler.spawn(async {
        sleep(seconds(10)).await;
        Instant::now()
    });
    scheduler.run_until_idle();
    scheduler.advance(seconds(9));
    scheduler.run_until_idle();
    assert_eq!(scheduler.now() - start, seconds(9));
    assert!(!sleeper.is_finished());
    scheduler.advance(seconds(4));
    assert!(!sleeper.is_finished(), "nothing runs in `advance` itself");
    scheduler.run_until_idle();
    assert!(sleeper.is_finished());
    assert_eq!(scheduler.now() - start, seconds(13));
    assert_eq!(sleeper.join(), Ok(start + seconds(13)), "it saw the clock as it was moved");
}

#[test]
fn on_the_real_clock_advance_does_nothing() {
    let scheduler = super::on_real_clock(1);
    let sleeper = scheduler.spawn(async { sleep(HOUR).await });
    scheduler.run_until_idle();
    let before = scheduler.now();
    scheduler.advance(HOUR * 2);
    scheduler.run_until_idle();
    assert!(!sleeper.is_finished());
    assert!(scheduler.now() - before < HOUR);
}

#[test]
fn a_process_that_computes_holds_the_clock() {
    for width in [1, 2, 4] {
        let scheduler = on_test_clock(width);
        let start = scheduler.now();
        let (log, logged) = mpsc::channel();
        let entry = |name| {
            let log = log.clone();
            move || log.send((name, Instant::now())).expect("the test listens")
        };
        let (computed, slept) = (entry("computed"), entry("slept"));
        scheduler.block_on(async {
            let sleeper = procession::spawn(async move {
                sleep(seconds(1)).await;
                slept();
            });
            let computing = procession::spawn(async move {
                for _ in 0..100 {
                    for _ in 0..20_000 {
                        hint::spin_loop();
                    }
                    yield_now().await;
                }
                computed();
            });
            computing.await.expect("it does not panic");
            sleeper.await.expect("it does not panic");
        });
        let log: Vec<_> = logged.try_iter().collect();
        assert_eq!(log, [("computed", start), ("slept", start + seconds(1))], "width {width}");
    }
}

/// Yields one command, and ends when it is complete.
struct Commands(CommandId, Option<Value>);

impl Process for Commands {
    type Input = ();
    type Message = ();
    type Output = Instant;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Instant>, Box<dyn Error + Send + Sync>> {
        if let Some(Event::Completion { result, .. }) = events.next() {
            result?;
            return Ok(Status::Done(Instant::now()));
        }
        match self.1.take() {
            Some(input) => match input.downcast::<Duration>() {
                Ok(duration) => yields.command(self.0, 1, *duration),
                Err(input) => yields.command(self.0, 1, input),
            },
            None => yields.command(self.0, 1, ()),
        }
        Ok(Status::Wait(WaitingFor::Completions))
    }
}

/// The clock moves by 3 ms while a process that was woken waits for the worker. The number of these
/// waits is an estimate, with a standard error of a ninth.
#[test]
fn the_time_from_a_wake_up_to_its_step_is_in_the_histogram() {
    const ROUNDS: u64 = 20_000;
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let server = start(async |mut cx: Context<()>| while cx.recv().await.is_some() {});
        yield_now().await;
        for _ in 0..ROUNDS {
            server.send(()).expect("it receives");
            scheduler.advance(Duration::from_millis(3));
            yield_now().await;
        }
    });
    let waits = scheduler.snapshot().wake_to_run;
    assert_eq!(
        (waits.len(), waits[0].0, waits[26].0),
        (27, Duration::from_nanos(256), Duration::MAX)
    );
    let bucket = Duration::from_nanos(1 << 22);
    let count = waits.iter().find(|wait| wait.0 == bucket).expect("it is a bound").1;
    assert!((ROUNDS * 4 / 10..ROUNDS * 16 / 10).contains(&count), "{waits:?}");
    let others = waits[1..].iter().filter(|wait| wait.0 != bucket);
    assert!(others.into_iter().all(|wait| wait.1 == 0), "{waits:?}");
}

#[test]
fn the_sleep_command_moves_the_clock() {
    let scheduler = on_test_clock(1);
    let start = scheduler.now();
    let machine = Commands(CommandId::SLEEP, Some(Box::new(HOUR)));
    let machine = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(machine, "", ())
        .expect("it accepts all");
    assert_eq!(machine.join(), Ok(start + HOUR));
    let timers = timers(&scheduler);
    assert_eq!((timers.fired, timers.pending), (1, 0));
    // On a test clock, it fires exactly when it is due.
    let lateness = scheduler.snapshot().timer_lateness;
    assert_eq!((lateness.len(), lateness[0]), (21, (Duration::from_nanos(1 << 14), 1)));
    assert!(lateness[1..].iter().all(|bucket| bucket.1 == 0), "{lateness:?}");
    assert_eq!(lateness[20].0, Duration::MAX);
}

#[test]
fn beyond_the_limit_the_sleep_command_fails() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .max_timers(1)
        .test_clock()
        .build()
        .expect("it starts no thread");
    let machines = [(); 2].map(|()| {
        let machine = Commands(CommandId::SLEEP, Some(Box::new(HOUR)));
        SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(machine, "", ())
            .expect("it accepts all")
    });
    let mut results = machines.map(|machine| machine.join().map_err(|exit| exit.to_string()));
    results.sort();
    let refused = format!("the process failed: {}", CommandError::TimerLimit);
    assert_eq!(results, [Ok(scheduler.now()), Err(refused)]);
}

#[test]
fn a_completion_that_is_out_holds_the_clock() {
    const LATER: CommandId = CommandId::FIRST_FREE;
    for width in [1, 2] {
        let kept: Arc<Mutex<Option<Completion>>> = Arc::default();
        let keep = Arc::clone(&kept);
        let builder = Scheduler::builder().worker_threads(width).test_clock().max_timers(1 << 10);
        let builder = builder.handler(LATER, move |_: Value, completion: Completion| {
            *keep.lock() = Some(completion);
        });
        let scheduler = builder.build().expect("the system has threads");
        let start = scheduler.now();
        let machine = SpawnOptions::new()
            .on(&scheduler)
            .try_start_machine(Commands(LATER, None), "", ())
            .expect("it accepts all");
        let (sleeper, completed) = crate::home::thread::scope(|scope| {
            scope.spawn(|| {
                // Waits until both wait. Apart from the completion, nothing can run then.
                while scheduler
                    .snapshot()
                    .processes
                    .iter()
                    .filter(|process| process.waiting.for_timer())
                    .count()
                    < 1
                    || kept.lock().is_none()
                {
                    thread::yield_now();
                }
                for _ in 0..1000 {
                    assert_eq!(scheduler.now(), start);
                    thread::yield_now();
                }
                let completion = kept.lock().take();
                completion.expect("just seen").complete(Ok(Box::new(())));
            });
            scheduler.block_on(async {
                let sleeper = procession::spawn(async {
                    sleep(seconds(1)).await;
                    Instant::now()
                });
                (sleeper.await, machine.await)
            })
        });
        assert_eq!(completed, Ok(start), "width {width}");
        assert_eq!(sleeper, Ok(start + seconds(1)), "width {width}");
    }
}

#[test]
fn run_until_idle_waits_for_completions_that_are_out() {
    const LATER: CommandId = CommandId::FIRST_FREE;
    let (keep, kept) = mpsc::channel();
    let keep = Mutex::new(keep);
    let builder = Scheduler::builder().worker_threads(1).test_clock().max_timers(1 << 10);
    let builder = builder.handler(LATER, move |_: Value, completion: Completion| {
        keep.lock().send(completion).expect("the test listens");
    });
    let scheduler = builder.build().expect("the system has threads");
    let machine = SpawnOptions::new()
        .on(&scheduler)
        .try_start_machine(Commands(LATER, None), "", ())
        .expect("it accepts all");
    crate::home::thread::scope(|scope| {
        scope.spawn(move || {
            let completion: Completion = kept.recv().expect("the command is handled");
            for _ in 0..1000 {
                thread::yield_now();
            }
            completion.complete(Ok(Box::new(())));
        });
        assert!(scheduler.run_until_idle().is_empty());
    });
    assert!(machine.join().is_ok());
}

#[test]
fn the_clock_stands_while_nobody_sleeps() {
    let scheduler = on_test_clock(1);
    let start = scheduler.now();
    drop(scheduler.spawn(pending::<()>()));
    let sum = scheduler.block_on(async {
        let mut sum = 0;
        for n in 0..100 {
            sum += procession::spawn(async move { n }).await.expect("it does not panic");
        }
        sum
    });
    assert_eq!((sum, scheduler.now()), (4950, start));
}

#[test]
fn the_clock_of_several_workers_stops_at_every_timer() {
    for width in [1, 2, 4] {
        let scheduler = on_test_clock(width);
        let (log, logged) = mpsc::channel();
        scheduler.block_on(async {
            let start = Instant::now();
            let far = procession::spawn(sleep(HOUR * 24 * 400));
            let sleepers: Vec<_> = (0..20)
                .map(|seed| {
                    let log = log.clone();
                    procession::spawn(async move {
                        let mut random = fastrand::Rng::with_seed(seed);
                        for _ in 0..100 {
                            let deadline = Instant::now() + seconds(random.u64(1..1000));
                            sleep(deadline - Instant::now()).await;
                            assert_eq!(Instant::now(), deadline);
                            log.send(deadline - start).expect("the test listens");
                            for _ in 0..random.u32(0..100) {
                                hint::spin_loop();
                            }
                        }
                    })
                })
                .collect();
            for sleeper in sleepers {
                sleeper.await.expect("it is woken in time");
            }
            drop(far);
        });
        let log: Vec<_> = logged.try_iter().collect();
        assert_eq!(log.len(), 2000);
        assert!(log.is_sorted(), "in the order of virtual time, width {width}");
    }
}
