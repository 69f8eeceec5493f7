//! Intervals.

use procession::time::{Elapsed, Instant, MissedTickBehavior, interval, interval_at};
use procession::{sleep, timeout};

use super::{on_test_clock, seconds, timers};

/// Ticks after ten seconds and every ten seconds, but is busy with something else for 25 seconds
/// after the first tick. Returns for each tick the second at which it was due, and the one at which
/// it came.
fn ticks_around_a_pause(missed: MissedTickBehavior) -> [(u64, u64); 5] {
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        let second = |moment: Instant| (moment - start).as_secs();
        let mut ticks = interval_at(start + seconds(10), seconds(10)).missed_tick_behavior(missed);
        let mut log = [(0, 0); 5];
        for (n, tick) in log.iter_mut().enumerate() {
            *tick = (second(ticks.tick().await), second(Instant::now()));
            if n == 0 {
                sleep(seconds(25)).await;
            }
        }
        log
    })
}

#[test]
fn an_interval_skips_missed_ticks_and_keeps_phase() {
    let skipping = ticks_around_a_pause(MissedTickBehavior::Skip);
    assert_eq!(skipping, [(10, 10), (20, 35), (40, 40), (50, 50), (60, 60)]);
    assert_eq!(MissedTickBehavior::default(), MissedTickBehavior::Skip);
}

#[test]
fn an_interval_in_bursts_makes_up_for_missed_ticks() {
    let bursting = ticks_around_a_pause(MissedTickBehavior::Burst);
    assert_eq!(bursting, [(10, 10), (20, 35), (30, 35), (40, 40), (50, 50)]);
}

#[test]
fn an_interval_with_delay_counts_from_the_late_tick() {
    let delaying = ticks_around_a_pause(MissedTickBehavior::Delay);
    assert_eq!(delaying, [(10, 10), (20, 35), (45, 45), (55, 55), (65, 65)]);
}

#[test]
fn the_first_tick_of_an_interval_is_at_once_also_on_a_thread_without_a_scheduler() {
    let mut ticks = interval(seconds(10));
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        assert_eq!(ticks.tick().await, start);
        assert_eq!(ticks.tick().await - start, seconds(10));
    });
}

#[test]
fn a_tick_that_falls_due_with_a_late_one_is_left_out() {
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        let mut ticks = interval(seconds(10));
        assert_eq!(ticks.tick().await, start, "the first is at once");
        sleep(seconds(20)).await;
        assert_eq!(ticks.tick().await - start, seconds(10));
        // The tick of second 20 is due by now, too, and so left out.
        assert_eq!(ticks.tick().await - start, seconds(30));
    });
}

#[test]
fn a_tick_that_is_given_up_is_not_lost() {
    for missed in [MissedTickBehavior::Skip, MissedTickBehavior::Burst, MissedTickBehavior::Delay] {
        let scheduler = on_test_clock(1);
        scheduler.block_on(async {
            let start = Instant::now();
            let mut ticks = interval(seconds(10)).missed_tick_behavior(missed);
            assert_eq!(ticks.tick().await, start);
            for round in 1..=10 {
                for _ in 0..3 {
                    assert_eq!(timeout(seconds(3), ticks.tick()).await, Err(Elapsed));
                }
                let tick = timeout(seconds(3), ticks.tick()).await.expect("it is due in a second");
                assert_eq!(
                    (tick - start, Instant::now() - start),
                    (seconds(10) * round, seconds(10) * round)
                );
            }
        });
        assert_eq!(timers(&scheduler).pending, 0);
    }
}

#[test]
fn a_tick_that_was_due_when_it_was_given_up_comes_at_once() {
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        let mut ticks = interval_at(start + seconds(10), seconds(10));
        assert_eq!(timeout(seconds(4), ticks.tick()).await, Err(Elapsed));
        sleep(seconds(8)).await;
        assert_eq!(ticks.tick().await - start, seconds(10));
        assert_eq!(Instant::now() - start, seconds(12));
        assert_eq!(ticks.tick().await - start, seconds(20));
    });
}

#[test]
fn many_intervals_keep_their_phases() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let tickers: Vec<_> = (1..=50)
            .map(|period| {
                procession::spawn(async move {
                    let start = Instant::now();
                    let mut ticks = interval(seconds(period));
                    for n in 0..20 {
                        assert_eq!(ticks.tick().await, start + seconds(period * n));
                        assert_eq!(Instant::now(), start + seconds(period * n));
                    }
                })
            })
            .collect();
        for ticker in tickers {
            ticker.await.expect("it does not panic");
        }
    });
    assert_eq!(timers(&scheduler).pending, 0);
}
