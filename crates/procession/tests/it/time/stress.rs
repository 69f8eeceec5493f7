//! Many timers on the real clock, set, reset and cancelled by workers and by other threads.

use crate::home::{mpsc, thread};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use procession::time::{Elapsed, Instant, interval, run_after};
use procession::{
    Address, Child, Context, JoinHandle, Scheduler, SpawnOptions, sleep, timeout, yield_now,
};
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32};
use procession_sync::hint;

use crate::scene::{TIMEOUT, soon};

use super::{HOUR, joined, on_real_clock, timers};

fn spin_until(scheduler: &Scheduler, moment: Instant) {
    while scheduler.now() < moment {
        hint::spin_loop();
    }
}

#[test]
fn a_timer_is_cancelled_or_fires_and_never_both() {
    const TIMERS: usize = 1000;
    // Set by a process, and by the thread that cancels them.
    for inside in [true, false] {
        let scheduler = on_real_clock(2);
        let (ran, runs) = mpsc::channel();
        let mut random = fastrand::Rng::with_seed(5);
        let mut cancelled = vec![false; TIMERS];
        for number in 0..TIMERS {
            let delay = Duration::from_nanos(random.u64(0..200_000));
            let ran = ran.clone();
            let set = async move {
                let deadline = Instant::now() + delay;
                let timer = run_after(delay, move || ran.send(number).expect("the test listens"));
                (deadline, timer.expect("the limit is not reached"))
            };
            let (deadline, timer) =
                if inside { joined(scheduler.spawn(set)) } else { scheduler.block_on(set) };
            // From a little before the deadline to a little after it.
            spin_until(&scheduler, deadline);
            for _ in 0..random.u32(0..3000) {
                hint::spin_loop();
            }
            cancelled[number] = timer.cancel();
            assert!(!timer.cancel());
        }
        drop(ran);
        let mut fired = vec![false; TIMERS];
        for _ in 0..cancelled.iter().filter(|cancelled| !**cancelled).count() {
            let number = runs.recv_timeout(TIMEOUT).expect("what was not cancelled fires");
            assert!(!fired[number], "once");
            fired[number] = true;
        }
        assert!(
            fired.iter().zip(&cancelled).all(|(fired, cancelled)| fired != cancelled),
            "inside: {inside}"
        );
        assert_eq!(
            runs.recv_timeout(TIMEOUT),
            Err(mpsc::RecvTimeoutError::Disconnected),
            "no function is kept"
        );
        assert_eq!(timers(&scheduler).pending, 0);
    }
}

#[test]
fn thousands_of_sleeps_all_end() {
    const SLEEPERS: u64 = 5000;
    for width in [1, 2, 4] {
        let scheduler = on_real_clock(width);
        let sleepers: Vec<_> = (0..SLEEPERS)
            .map(|seed| {
                scheduler.spawn(async move {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let wanted = Duration::from_micros(random.u64(0..20_000));
                    let before = Instant::now();
                    // One in three is given up early.
                    let at_most = if seed % 3 == 0 { wanted / 2 } else { HOUR };
                    let slept = timeout(at_most, sleep(wanted)).await;
                    assert!(Instant::now() - before >= wanted.min(at_most));
                    slept == Err(Elapsed)
                })
            })
            .collect();
        let given_up = sleepers.into_iter().map(joined).filter(|given_up| *given_up).count();
        assert!(given_up <= SLEEPERS.div_ceil(3) as usize);
        let timers = timers(&scheduler);
        assert_eq!(timers.pending, 0);
        assert!(timers.armed >= SLEEPERS && timers.cancelled > 0);
    }
}

#[test]
fn timers_of_plain_threads_all_fire() {
    const THREADS: u64 = 4;
    const TIMERS: u64 = 250;
    for width in [1, 2, 4] {
        let scheduler = on_real_clock(width);
        let receiver = scheduler.start(|mut cx: Context<Instant>| async move {
            for _ in 0..THREADS * TIMERS {
                let deadline = cx.recv().await.expect("it is not cancelled");
                assert!(deadline <= Instant::now(), "never early");
            }
        });
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let (scheduler, address) = (&scheduler, receiver.address().clone());
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..TIMERS {
                        let delay = Duration::from_nanos(random.u64(0..5_000_000));
                        let deadline = scheduler.now() + delay;
                        address.send_after(delay, deadline).expect("the limit is not reached");
                    }
                });
            }
        });
        let (_, handle) = receiver.into_parts();
        joined(handle);
        let timers = timers(&scheduler);
        assert!(timers.fired >= THREADS * TIMERS);
        assert_eq!(timers.pending, 0);
    }
}

#[test]
fn plain_threads_sleep_side_by_side() {
    for width in [1, 2] {
        let scheduler = on_real_clock(width);
        thread::scope(|scope| {
            for seed in 0..8 {
                let scheduler = &scheduler;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..50 {
                        let wanted = Duration::from_nanos(random.u64(0..1_000_000));
                        let before = scheduler.now();
                        scheduler.block_on(async { sleep(wanted).await });
                        assert!(scheduler.now() - before >= wanted);
                    }
                });
            }
        });
        assert_eq!(timers(&scheduler).pending, 0);
    }
}

#[test]
fn timers_that_other_threads_reset_and_cancel_are_not_lost() {
    const TIMERS: u32 = 400;
    let fired = Arc::new(AtomicU32::new(0));
    let scheduler = on_real_clock(2);
    let counted = Arc::clone(&fired);
    let timers_of_a_worker = joined(scheduler.spawn(async move {
        let fire = || {
            let counted = Arc::clone(&counted);
            move || {
                counted.fetch_add(1, SeqCst);
            }
        };
        (0..TIMERS)
            .map(|_| run_after(HOUR, fire()).expect("the limit is not reached"))
            .collect::<Vec<_>>()
    }));
    // Keeps the worker's timers busy, so that the other threads sometimes find them locked.
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let busy = scheduler.spawn(async move {
        while !stopped.load(Relaxed) {
            assert_eq!(timeout(Duration::ZERO, pending::<()>()).await, Err(Elapsed));
            assert_eq!(timeout(HOUR, yield_now()).await, Ok(()));
        }
    });
    let cancelled: u32 = thread::scope(|scope| {
        let threads = [1, 2, 3].map(|seed| {
            let (scheduler, timers) = (&scheduler, &timers_of_a_worker);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut cancelled = 0;
                for _ in 0..20 {
                    for timer in timers {
                        match random.u32(0..20) {
                            0 => cancelled += u32::from(timer.cancel()),
                            1..10 => drop(timer.reset(scheduler.now() + HOUR * random.u32(1..100))),
                            // Soon, but not before this test is over.
                            _ => drop(timer.reset(scheduler.now() + TIMEOUT)),
                        }
                    }
                }
                cancelled
            })
        });
        threads.map(|thread| thread.join().expect("it does not panic")).iter().sum()
    });
    stop.store(true, Relaxed);
    joined(busy);
    assert_eq!(timers(&scheduler).pending, u64::from(TIMERS - cancelled));
    let left =
        timers_of_a_worker.iter().filter(|timer| timer.reset(scheduler.now())).count() as u32;
    assert_eq!(left, TIMERS - cancelled);
    let counted = Arc::clone(&fired);
    joined(scheduler.spawn(async move {
        let mut ticks = interval(Duration::from_millis(1));
        while counted.load(SeqCst) < left {
            ticks.tick().await;
        }
    }));
    assert_eq!(timers(&scheduler).pending, 0);
    assert_eq!(fired.load(SeqCst), left);
}

#[test]
fn an_earlier_timer_is_not_lost_on_a_worker_that_keeps_a_later_one() {
    for width in [2, 4] {
        let scheduler = on_real_clock(width);
        let far = scheduler.spawn(async { sleep(HOUR).await });
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..300 {
            // Each is set by a worker that then parks, beside others that are parked already.
            let delays = [(); 2].map(|()| Duration::from_nanos(random.u64(0..300_000)));
            let sleepers = delays.map(|delay| {
                scheduler.spawn(async move {
                    sleep(delay).await;
                    sleep(delay).await;
                })
            });
            sleepers.into_iter().for_each(joined);
        }
        assert!(!far.is_finished());
    }
}

#[test]
fn an_earlier_timer_of_a_thread_is_not_lost_on_a_worker_that_keeps_a_later_one() {
    let scheduler = on_real_clock(2);
    let far = scheduler.spawn(async { sleep(HOUR).await });
    let receiver = scheduler.start(|mut cx: Context<mpsc::Sender<()>>| async move {
        while let Some(reply) = cx.recv().await {
            reply.send(()).expect("the test listens");
        }
    });
    let mut random = fastrand::Rng::with_seed(13);
    for _ in 0..300 {
        let (reply, replied) = mpsc::channel();
        let delay = Duration::from_nanos(random.u64(0..300_000));
        receiver.send_after(delay, reply).expect("the limit is not reached");
        let came = replied.recv_timeout(TIMEOUT);
        assert!(came.is_ok(), "it is lost: {:#?}", scheduler.snapshot());
    }
    assert!(!far.is_finished());
}

#[test]
fn a_caller_that_found_all_idle_keeps_the_time_no_longer() {
    let scheduler = Scheduler::builder()
        .worker_threads(2)
        .callers_drive()
        .build()
        .expect("the system has threads");
    let far = scheduler.spawn(async { sleep(HOUR).await });
    let receiver = SpawnOptions::new().on(&scheduler).affinity(1).start(
        |mut cx: Context<mpsc::Sender<()>>| async move {
            while let Some(reply) = cx.recv().await {
                reply.send(()).expect("the test listens");
            }
        },
    );
    for _ in 0..10 {
        // The other worker is busy until the caller has parked, and is the driver for both.
        let (release, released) = mpsc::channel();
        let parks = || scheduler.snapshot().workers[0].parks;
        let before = parks();
        let busy =
            SpawnOptions::new().on(&scheduler).affinity(1).spawn(async move { released.recv() });
        thread::scope(|scope| {
            scope.spawn(|| {
                while parks() == before {
                    thread::yield_now();
                }
                release.send(()).expect("it waits");
            });
            scheduler.run_until_idle();
        });
        assert!(busy.is_finished());
        drop(busy);
        let (reply, replied) = mpsc::channel();
        receiver.send_after(Duration::from_micros(100), reply).expect("the limit is not reached");
        soon(&replied);
    }
    assert!(!far.is_finished());
}

enum Play {
    Opponent(Address<Play>),
    Ball,
}

/// Starts a process that sends a ball for each one that it receives.
fn player(scheduler: &Scheduler, stop: &Arc<AtomicBool>) -> Child<Play, ()> {
    let stop = Arc::clone(stop);
    scheduler.start(|mut cx: Context<Play>| async move {
        // The opponent may have learned of this process, and have played, before this process
        // learns of it.
        let first = cx.recv_matching(|play| matches!(play, Play::Opponent(_))).await;
        let Some(Play::Opponent(opponent)) = first else { unreachable!("it is not cancelled") };
        while !stop.load(Relaxed) {
            if opponent.send(Play::Ball).is_err() {
                // The opponent has seen `stop` since this process looked.
                return;
            }
            cx.recv().await;
        }
        // Ignored: one of the two ends first.
        drop(opponent.send(Play::Ball));
    })
}

fn pair(scheduler: &Scheduler, stop: &Arc<AtomicBool>) -> [JoinHandle<()>; 2] {
    let players = [player(scheduler, stop), player(scheduler, stop)];
    for (own, other) in [(0, 1), (1, 0)] {
        players[own].send(Play::Opponent(players[other].address().clone())).expect("it waits");
    }
    players.map(|player| player.into_parts().1)
}

fn yielding(scheduler: &Scheduler, stop: &Arc<AtomicBool>) -> [JoinHandle<()>; 2] {
    [(); 2].map(|()| {
        let stop = Arc::clone(stop);
        scheduler.spawn(async move {
            while !stop.load(Relaxed) {
                yield_now().await;
            }
        })
    })
}

/// Go's TestAfterFuncStarvation, for everything that keeps a worker busy without an end.
#[test]
fn a_timer_fires_beside_processes_that_never_wait() {
    const SOON: Duration = Duration::from_millis(1);
    type Stop = Arc<AtomicBool>;
    let busy: [fn(&Scheduler, &Stop) -> [JoinHandle<()>; 2]; 2] = [pair, yielding];
    let stopping: [fn(&Scheduler, Stop); 4] = [
        |scheduler, stop| {
            joined(scheduler.spawn(async move {
                run_after(SOON, move || stop.store(true, Relaxed))
                    .expect("the limit is not reached");
            }));
        },
        |scheduler, stop| {
            scheduler.block_on(async move {
                run_after(SOON, move || stop.store(true, Relaxed))
                    .expect("the limit is not reached");
            });
        },
        |scheduler, stop| {
            joined(scheduler.spawn(async move {
                let mut ticks = interval(SOON);
                for _ in 0..10 {
                    ticks.tick().await;
                }
                stop.store(true, Relaxed);
            }));
        },
        |scheduler, stop| {
            let receiver = scheduler.start(|mut cx: Context<Stop>| async move {
                cx.recv().await.expect("it is sent one").store(true, Relaxed);
            });
            receiver.send_after(SOON, stop).expect("the limit is not reached");
            joined(receiver.into_parts().1);
        },
    ];
    for width in [1, 2] {
        for busy in busy {
            for stopping in stopping {
                let scheduler = on_real_clock(width);
                let stop = Stop::default();
                let handles: Vec<_> = (0..width).flat_map(|_| busy(&scheduler, &stop)).collect();
                stopping(&scheduler, stop);
                handles.into_iter().for_each(joined);
            }
        }
    }
}
