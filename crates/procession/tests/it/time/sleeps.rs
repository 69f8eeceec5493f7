//! Sleeps and timeouts: when they end, and what they leave.

use crate::home::mpsc;
use std::future::{pending, ready};
use std::pin::pin;
use std::time::Duration;

use procession::time::{Elapsed, Instant, sleep_until};
use procession::{Context, Exit, SpawnOptions, sleep, timeout, yield_now};

use super::{HOUR, joined, on_real_clock, on_test_clock, polled, seconds, timers};

#[test]
fn a_sleep_is_never_early() {
    let scheduler = on_real_clock(2);
    let sleeper = |seed| {
        scheduler.spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..25 {
                let wanted = Duration::from_nanos(random.u64(0..3_000_000));
                let before = Instant::now();
                sleep(wanted).await;
                let slept = Instant::now() - before;
                assert!(slept >= wanted, "it slept {slept:?} instead of {wanted:?}");
            }
        })
    };
    let sleepers: Vec<_> = (0..8).map(sleeper).collect();
    sleepers.into_iter().for_each(joined);
}

#[test]
fn on_the_test_clock_a_sleep_is_exact() {
    let days = |days| HOUR * 24 * days;
    for width in [1, 2, 4] {
        on_test_clock(width).block_on(async {
            for wanted in
                [Duration::ZERO, Duration::from_nanos(1), seconds(1), HOUR, days(400), days(40_000)]
            {
                let before = Instant::now();
                sleep(wanted).await;
                assert_eq!(Instant::now() - before, wanted);
                sleep_until(before + wanted * 2).await;
                assert_eq!(Instant::now() - before, wanted * 2);
            }
        });
    }
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let start = Instant::now();
        let mut random = fastrand::Rng::with_seed(7);
        let (log, logged) = mpsc::channel();
        let sleepers: Vec<_> = (0..1000)
            .map(|_| {
                // Some of the deadlines are far: 400 days and more.
                let furthest = if random.bool() { 1000 } else { 100_000_000 };
                let wanted = seconds(random.u64(1..furthest));
                let log = log.clone();
                procession::spawn(async move {
                    sleep_until(start + wanted).await;
                    log.send((wanted, Instant::now() - start)).expect("the test listens");
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.await.expect("it does not panic");
        }
        drop(log);
        let log: Vec<_> = logged.iter().collect();
        assert_eq!(log.len(), 1000);
        assert!(log.iter().all(|(wanted, slept)| wanted == slept), "each is exact");
        assert!(log.is_sorted(), "the clock never goes back");
    });
}

#[test]
fn sleepers_with_one_deadline_go_on_in_the_order_of_their_sleeps() {
    // More timers than fire in one pass, and more processes than a deque holds. With several
    // workers, another one may help to fire, and overtake.
    {
        let scheduler = on_test_clock(1);
        let (log, logged) = mpsc::channel();
        let sleepers: Vec<_> = (0..500)
            .map(|_| {
                let log = log.clone();
                // Bound to one worker: on several, equal deadlines have no order.
                SpawnOptions::new().on(&scheduler).affinity(0).start(
                    move |mut cx: Context<usize>| async move {
                        let number = cx.recv().await.expect("it is not cancelled");
                        sleep_until(Instant::now() + seconds(1)).await;
                        log.send(number).expect("the test listens");
                    },
                )
            })
            .collect();
        scheduler.block_on(async {
            let start = Instant::now();
            for (number, sleeper) in sleepers.iter().enumerate() {
                sleeper.send(number).expect("it waits");
                // One after the other, all at the same moment.
                while timers(&scheduler).armed <= number as u64 {
                    yield_now().await;
                }
            }
            assert_eq!(Instant::now(), start);
            for sleeper in sleepers {
                sleeper.await.expect("it does not panic");
            }
        });
        assert!(logged.try_iter().eq(0..500));
    }
}

#[test]
fn one_advance_wakes_sleepers_in_the_order_of_their_deadlines() {
    let scheduler = on_test_clock(1);
    let (log, logged) = mpsc::channel();
    let mut delays: Vec<u64> = (1..=300).collect();
    fastrand::Rng::with_seed(2).shuffle(&mut delays);
    for delay in delays {
        let log = log.clone();
        drop(scheduler.spawn(async move {
            sleep(seconds(delay)).await;
            log.send(delay).expect("the test listens");
        }));
    }
    scheduler.run_until_idle();
    scheduler.advance(seconds(200));
    scheduler.run_until_idle();
    assert!(logged.try_iter().eq(1..=200));
}

#[test]
fn a_sleep_knows_its_deadline_and_whether_it_is_over() {
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        let mut slept = pin!(sleep(seconds(2)));
        assert_eq!(slept.deadline(), start + seconds(2));
        assert!(!slept.is_elapsed());
        slept.as_mut().await;
        assert!(slept.is_elapsed());
        assert!(polled(slept).await.is_ready(), "what is over stays over");
    });
}

#[test]
fn a_reset_moves_the_end() {
    // At second 2, a sleep until second 10 is reset to the first number of each pair. It ends at
    // the second one.
    for (to, end) in [(5, 5), (20, 20), (10, 10), (1, 2), (2, 2)] {
        for polled_before in [true, false] {
            let scheduler = on_test_clock(1);
            scheduler.block_on(async {
                let start = Instant::now();
                let mut slept = pin!(sleep(seconds(10)));
                if polled_before {
                    assert!(polled(slept.as_mut()).await.is_pending());
                }
                sleep(seconds(2)).await;
                slept.as_mut().reset(start + seconds(to));
                assert_eq!(slept.deadline(), start + seconds(to));
                slept.await;
                assert_eq!(
                    Instant::now() - start,
                    seconds(end),
                    "reset to {to}, polled before: {polled_before}"
                );
            });
            assert_eq!(timers(&scheduler).pending, 0);
        }
    }
}

#[test]
fn a_sleep_that_is_over_can_be_reset() {
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        let mut slept = pin!(sleep(seconds(10)));
        slept.as_mut().await;
        slept.as_mut().reset(start + seconds(15));
        assert!(!slept.is_elapsed());
        slept.as_mut().await;
        assert_eq!(Instant::now() - start, seconds(15));

        slept.as_mut().reset(start + seconds(20));
        assert!(polled(slept.as_mut()).await.is_pending());
        sleep(seconds(60)).await;
        // Its timer has fired, but it was not polled since.
        slept.as_mut().reset(start + seconds(100));
        slept.as_mut().await;
        assert_eq!(Instant::now() - start, seconds(100));
    });
}

#[test]
fn a_sleep_without_end_can_be_reset() {
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        let mut slept = pin!(sleep(seconds(10)));
        assert!(polled(slept.as_mut()).await.is_pending());
        slept.as_mut().reset(Instant::NEVER);
        assert_eq!(timeout(HOUR * 24 * 400, slept.as_mut()).await, Err(Elapsed));
        let end = Instant::now() + seconds(1);
        slept.as_mut().reset(end);
        slept.await;
        assert_eq!(Instant::now(), end, "{:?} after the start", end - start);
    });
}

#[test]
fn a_sleep_that_is_reset_again_and_again_is_one_timer() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let start = Instant::now();
        let mut random = fastrand::Rng::with_seed(3);
        let mut slept = pin!(sleep(HOUR));
        assert!(polled(slept.as_mut()).await.is_pending());
        for _ in 0..1000 {
            slept.as_mut().reset(start + Duration::from_millis(random.u64(1..1_000_000)));
            if random.bool() {
                assert!(polled(slept.as_mut()).await.is_pending());
            }
            assert_eq!(timers(&scheduler).pending, 1);
        }
        let end = slept.deadline();
        slept.await;
        assert_eq!(Instant::now(), end);
    });
    let timers = timers(&scheduler);
    assert_eq!((timers.armed, timers.pending), (1, 0));
}

#[test]
fn a_sleep_that_is_never_polled_sets_no_timer() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        drop(sleep(HOUR));
        drop(sleep_until(Instant::NEVER));
        drop(timeout(HOUR, pending::<()>()));
        drop(procession::time::interval(HOUR));
        assert_eq!(timeout(HOUR, ready(1)).await, Ok(1), "the future is polled first");
        sleep(Duration::ZERO).await;
        sleep_until(Instant::now()).await;
    });
    assert_eq!(timers(&scheduler).armed, 0);
}

#[test]
fn a_sleep_that_is_dropped_removes_its_timer() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        for n in 0..1000 {
            let mut slept = Box::pin(sleep(HOUR + seconds(n % 7)));
            assert!(polled(slept.as_mut()).await.is_pending());
            assert_eq!(timers(&scheduler).pending, 1);
        }
    });
    let timers = timers(&scheduler);
    assert_eq!((timers.armed, timers.cancelled, timers.pending), (1000, 1000, 0));
}

#[test]
fn a_process_that_ends_takes_its_timers_along() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum End {
        Returns,
        Panics,
        Cancelled,
        Terminated,
    }
    for width in [1, 2] {
        for end in [End::Returns, End::Panics, End::Cancelled, End::Terminated] {
            let scheduler = on_real_clock(width);
            let process = scheduler.start(move |mut cx: Context<()>| async move {
                let mut sleeps = [1, 2, 3].map(|n| Box::pin(sleep(HOUR * n)));
                for slept in &mut sleeps {
                    assert!(polled(slept.as_mut()).await.is_pending());
                }
                let message = timeout(HOUR, cx.recv()).await;
                assert_ne!(end, End::Panics, "{message:?}");
            });
            scheduler.run_until_idle();
            assert_eq!(timers(&scheduler).pending, 4);
            match end {
                End::Returns | End::Panics => process.send(()).expect("it waits"),
                End::Cancelled => process.cancel(),
                End::Terminated => assert!(procession::process::kill(process.pid())),
            }
            let result = process.join();
            match end {
                End::Panics => assert!(result.is_err_and(|exit| exit.is_panic())),
                End::Terminated => assert_eq!(result, Err(Exit::Killed)),
                End::Returns | End::Cancelled => assert_eq!(result, Ok(())),
            }
            let timers = timers(&scheduler);
            assert_eq!((timers.cancelled, timers.pending), (4, 0), "{end:?} with width {width}");
        }
    }
}

/// A process polls a sleep, which sets its timer. The sleep leaves the process, which then ends,
/// and perhaps its scheduler, too.
#[test]
fn a_sleep_that_has_left_its_process_ends_elsewhere() {
    for outlives_its_scheduler in [false, true] {
        for finishes in [false, true] {
            let first = on_real_clock(1);
            // A short sleep may end before it is looked at.
            let length = if finishes { Duration::from_millis(20) } else { HOUR };
            let leaver = first.spawn(async move {
                let mut slept = Box::pin(sleep(length));
                assert!(polled(slept.as_mut()).await.is_pending() || finishes);
                slept
            });
            let slept = joined(leaver);
            assert!(timers(&first).pending == 1 || finishes);
            let end = slept.deadline();
            if outlives_its_scheduler {
                assert!(first.block_on(first.shutdown(HOUR)).is_empty());
            }
            let kept = (!outlives_its_scheduler).then_some(first);
            let second = on_real_clock(1);
            let finished = second.spawn(async move {
                if finishes {
                    slept.await;
                }
            });
            joined(finished);
            assert!(!finishes || end <= second.now(), "it is early");
            assert!(
                kept.is_none_or(|first| timers(&first).pending == 0),
                "it leaves its timer behind"
            );
        }
    }
}

#[test]
fn a_timeout_prefers_its_future() {
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        assert_eq!(timeout(seconds(1), sleep(seconds(1))).await, Ok(()), "both end at once");
        assert_eq!(timeout(seconds(2), sleep(seconds(1))).await, Ok(()));
        assert_eq!(Instant::now() - start, seconds(2));
        assert_eq!(timeout(seconds(1), sleep(seconds(2))).await, Err(Elapsed));
        assert_eq!(Instant::now() - start, seconds(3));
        assert_eq!(timeout(Duration::ZERO, ready(())).await, Ok(()));
        assert_eq!(timeout(Duration::ZERO, pending::<()>()).await, Err(Elapsed));
        assert_eq!(Instant::now() - start, seconds(3));
    });
}

#[test]
fn timeouts_nest() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let start = Instant::now();
        for (inner, outer, wanted) in [
            (1, 2, Ok(Err(Elapsed))),
            (2, 1, Err(Elapsed)),
            (1, 1, Ok(Err(Elapsed))),
            (5, 5, Ok(Ok(()))),
        ] {
            let slept = timeout(seconds(outer), timeout(seconds(inner), sleep(seconds(3)))).await;
            assert_eq!(slept, wanted, "{inner} in {outer}");
        }
        assert_eq!(Instant::now() - start, seconds(1 + 1 + 1 + 3));
    });
    assert_eq!(timers(&scheduler).pending, 0);
}
