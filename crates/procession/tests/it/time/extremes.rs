//! Durations of zero and without end, moments in the past and moments that never come: each has a
//! defined result.

use std::future::{pending, poll_fn, ready};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use procession::sync::channel;
use procession::time::{
    Elapsed, Instant, MissedTickBehavior, interval, run_after, run_every, sleep_until,
};
use procession::{Context, sleep, timeout};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::SeqCst;

use crate::scene::driven;

use super::{HOUR, on_real_clock, on_test_clock, polled, seconds, timers};

/// Longer than any clock runs.
const ENDLESS: [Duration; 3] =
    [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX)];

/// The end of time for tests. The clock can still move after it.
const AGES: Duration = Duration::from_secs(500 * 365 * 86_400);

#[test]
fn instants_saturate() {
    let scheduler = on_test_clock(1);
    scheduler.advance(seconds(1));
    let now = scheduler.now();
    for endless in ENDLESS {
        assert_eq!(now + endless, Instant::NEVER);
        assert_eq!(Instant::NEVER + endless, Instant::NEVER);
    }
    assert_eq!(now + Duration::ZERO, now);
    assert_eq!(now - Instant::NEVER, Duration::ZERO);
    assert_eq!(now.duration_since(now + seconds(1)), Duration::ZERO);
    assert_eq!(now.saturating_duration_since(now + seconds(1)), Duration::ZERO);
    assert_eq!(now - seconds(5), now - seconds(1), "no moment is before the start of the clock");
    assert_eq!(now - (now - seconds(5)), seconds(1));
    assert_eq!((now + seconds(3)) - now, seconds(3));
    assert!(Instant::NEVER - now > AGES);
}

#[test]
fn instants_are_counted_with() {
    on_test_clock(1).block_on(async {
        let begin = Instant::now();
        assert_eq!(begin.elapsed(), Duration::ZERO);
        sleep(seconds(5)).await;
        assert_eq!(begin.elapsed(), seconds(5));
        assert_eq!((begin + seconds(9)).elapsed(), Duration::ZERO, "it is in the future");
        let mut moment = begin;
        moment += seconds(7);
        assert_eq!(moment.duration_since(begin), seconds(7));
        moment -= seconds(3);
        assert_eq!(moment, begin + seconds(4));
        assert_eq!(moment - seconds(4), begin);
    });
}

#[test]
fn only_moments_of_the_real_clock_are_moments_of_std() {
    let now = on_real_clock(1).block_on(async {
        let now = Instant::now();
        for moment in [now, now + HOUR, now - HOUR, Instant::NEVER] {
            let for_std = moment.into_std().expect("std's type has room for all of them");
            assert_eq!(Instant::from_std(for_std), Some(moment));
        }
        let difference = (now + HOUR).into_std().zip(now.into_std());
        assert_eq!(difference.map(|(later, earlier)| later - earlier), Some(HOUR));
        now.into_std().expect("it is")
    });
    on_test_clock(1).block_on(async {
        assert_eq!(Instant::now().into_std(), None);
        assert_eq!(Instant::from_std(now), None);
    });
}

#[test]
fn a_sleep_of_nothing_is_over_at_once() {
    for scheduler in [on_test_clock(1), on_real_clock(1)] {
        scheduler.block_on(async {
            let past = Instant::now();
            assert!(polled(pin!(sleep(Duration::ZERO))).await.is_ready());
            assert!(polled(pin!(sleep_until(past))).await.is_ready());
            assert!(sleep_until(past).is_elapsed());
            assert_eq!(timeout(Duration::ZERO, ready(1)).await, Ok(1));
            assert_eq!(timeout(Duration::ZERO, pending::<()>()).await, Err(Elapsed));
        });
        assert_eq!(timers(&scheduler).armed, 0, "none of this needs a timer");
    }
}

#[test]
fn a_sleep_without_end_goes_on_until_it_is_dropped() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let mut sleeps: Vec<_> = ENDLESS.map(|endless| Box::pin(sleep(endless))).into();
        sleeps.push(Box::pin(sleep_until(Instant::NEVER)));
        for slept in &mut sleeps {
            assert_eq!(slept.deadline(), Instant::NEVER);
            assert!(polled(slept.as_mut()).await.is_pending());
        }
        sleep(AGES).await;
        for slept in &mut sleeps {
            assert!(!slept.is_elapsed() && polled(slept.as_mut()).await.is_pending());
        }
        assert_eq!(timers(&scheduler).pending, 4);
    });
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn what_is_ready_when_the_time_is_over_is_complete() {
    driven().block_on(async {
        let mut polls = 0;
        let ready_at_last = poll_fn(|_| {
            polls += 1;
            if polls < 2 { Poll::Pending } else { Poll::Ready(polls) }
        });
        assert_eq!(timeout(Duration::ZERO, ready_at_last).await, Ok(2));
    });
}

#[test]
fn a_future_that_spends_the_budget_does_not_outlast_its_time() {
    let scheduler = driven();
    let ended = scheduler.spawn(async {
        let (_sender, receiver) = channel::bounded::<()>(1);
        let mut polls = 0;
        let spends = poll_fn(|task| {
            polls += 1;
            assert!(polls < 10, "the time is over");
            for _ in 0..100_000 {
                let _ = receiver.try_recv();
            }
            task.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        timeout(Duration::ZERO, spends).await
    });
    assert_eq!(ended.join(), Ok(Err(Elapsed)));
}

#[test]
fn a_timeout_without_end_is_no_limit() {
    for endless in ENDLESS {
        on_test_clock(1).block_on(async {
            assert_eq!(timeout(endless, sleep(AGES)).await, Ok(()));
            assert_eq!(timeout(seconds(1), timeout(endless, pending::<()>())).await, Err(Elapsed));
        });
    }
}

#[test]
fn a_receive_with_an_extreme_timeout() {
    let scheduler = on_test_clock(1);
    let receiver = scheduler.start(|mut cx: Context<u32>| async move {
        let address = cx.address();
        assert_eq!(cx.recv_timeout(Duration::ZERO).await, Err(Elapsed));
        for endless in ENDLESS {
            address.send_after(HOUR, 1).expect("the limit is not reached");
            assert_eq!(cx.recv_timeout(endless).await, Ok(Some(1)));
        }
        address.send(2).expect("it is alive");
        assert_eq!(cx.recv_timeout(Duration::ZERO).await, Ok(Some(2)));
    });
    assert_eq!(receiver.join(), Ok(()));
}

#[test]
fn an_interval_of_nothing_ticks_every_nanosecond() {
    for missed in [MissedTickBehavior::Skip, MissedTickBehavior::Burst, MissedTickBehavior::Delay] {
        on_test_clock(1).block_on(async {
            let start = Instant::now();
            let mut ticks = interval(Duration::ZERO).missed_tick_behavior(missed);
            for n in 0..5 {
                assert_eq!(ticks.tick().await - start, Duration::from_nanos(n));
            }
        });
    }
    on_real_clock(1).block_on(async {
        let mut last = Instant::now();
        let mut ticks = interval(Duration::ZERO);
        for _ in 0..100 {
            let due = ticks.tick().await;
            assert!(last <= due && due <= Instant::now());
            last = due;
        }
    });
}

#[test]
fn an_interval_without_end_never_ticks() {
    for endless in ENDLESS {
        on_test_clock(1).block_on(async {
            let mut ticks = interval(endless);
            assert_eq!(ticks.tick().await, Instant::now());
            assert_eq!(timeout(AGES, ticks.tick()).await, Err(Elapsed));
        });
    }
}

#[test]
fn an_interval_stops_at_the_end_of_time() {
    for missed in [MissedTickBehavior::Skip, MissedTickBehavior::Burst, MissedTickBehavior::Delay] {
        on_test_clock(1).block_on(async {
            let mut ticks = interval(AGES).missed_tick_behavior(missed);
            ticks.tick().await;
            let second = ticks.tick().await;
            assert_eq!(second, Instant::now());
            assert_eq!(
                timeout(HOUR, ticks.tick()).await,
                Err(Elapsed),
                "the third would be after the end"
            );
        });
    }
}

#[test]
fn a_function_after_nothing_runs_at_once_and_one_after_all_time_never() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = || {
        RUNS.fetch_add(1, SeqCst);
    };
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let at_once = run_after(Duration::ZERO, run).expect("the limit is not reached");
        let never =
            ENDLESS.map(|endless| run_after(endless, run).expect("the limit is not reached"));
        sleep(Duration::from_nanos(1)).await;
        assert_eq!(RUNS.load(SeqCst), 1);
        assert!(!at_once.cancel());
        sleep(AGES).await;
        assert_eq!(RUNS.load(SeqCst), 1);
        let [first, second, third] = &never;
        assert!(first.reset(Instant::now()) && second.reset(Instant::NEVER) && third.cancel());
        sleep(seconds(1)).await;
        assert_eq!(RUNS.load(SeqCst), 2, "a timer without end can be reset to a deadline");
        assert_eq!(never.map(|timer| timer.cancel()), [false, true, false]);
    });
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn a_function_every_nothing_runs_once_for_each_move_of_the_clock() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let scheduler = on_test_clock(1);
    let (timer, never) = scheduler.block_on(async {
        let run = || {
            RUNS.fetch_add(1, SeqCst);
        };
        let timer = run_every(Duration::ZERO, run).expect("the limit is not reached");
        (
            timer,
            run_every(Duration::MAX, || unreachable!("in all time"))
                .expect("the limit is not reached"),
        )
    });
    for n in 1..=10 {
        scheduler.advance(HOUR);
        scheduler.run_until_idle();
        assert_eq!(RUNS.load(SeqCst), n);
    }
    assert!(timer.cancel() && never.cancel());
    scheduler.advance(AGES);
    scheduler.run_until_idle();
    assert_eq!(RUNS.load(SeqCst), 10);
}

#[test]
fn a_message_after_nothing_comes_at_once_and_one_after_all_time_never() {
    let scheduler = on_test_clock(1);
    let receiver = scheduler.start(|mut cx: Context<u32>| async move {
        assert_eq!(cx.recv().await, Some(1));
        cx.recv_timeout(AGES).await
    });
    for endless in ENDLESS {
        receiver.send_after(endless, 2).expect("the limit is not reached");
    }
    receiver.send_after(Duration::ZERO, 1).expect("the limit is not reached");
    assert_eq!(receiver.join(), Ok(Err(Elapsed)));
    assert_eq!(timers(&scheduler).pending, 3);
}

#[test]
fn a_timer_reset_into_the_past_fires_at_once() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let past = Instant::now();
        sleep(HOUR).await;
        let (ran, runs) = crate::home::mpsc::channel();
        let timer = run_after(HOUR, move || ran.send(Instant::now()).expect("the test listens"));
        assert!(timer.expect("the limit is not reached").reset(past));
        sleep(Duration::from_nanos(1)).await;
        assert_eq!(runs.recv().map(|ran| ran - past), Ok(HOUR));
    });
}

#[test]
fn the_clock_moves_by_nothing_and_by_ages() {
    let scheduler = on_test_clock(1);
    let start = scheduler.now();
    let sleeper = scheduler.spawn(async { sleep(AGES).await });
    scheduler.advance(Duration::ZERO);
    scheduler.run_until_idle();
    assert_eq!(scheduler.now(), start);
    assert!(!sleeper.is_finished());
    scheduler.advance(AGES);
    scheduler.run_until_idle();
    assert_eq!(scheduler.now() - start, AGES);
    assert!(sleeper.is_finished());
}

#[test]
fn the_clock_never_reaches_the_end_of_time() {
    let scheduler = on_test_clock(1);
    let start = scheduler.now();
    let sleepers = scheduler.block_on(async {
        [sleep(AGES), sleep_until(Instant::NEVER)].map(|slept| procession::spawn(slept))
    });
    scheduler.run_until_idle();
    for endless in ENDLESS {
        scheduler.advance(endless);
        scheduler.run_until_idle();
        assert!(start + AGES < scheduler.now() && scheduler.now() < Instant::NEVER);
    }
    assert_eq!(sleepers.each_ref().map(|sleeper| sleeper.is_finished()), [true, false]);
    scheduler.block_on(async {
        assert!(polled(pin!(sleep(Duration::ZERO))).await.is_ready());
        assert!(polled(pin!(sleep(HOUR))).await.is_pending(), "it would end after the end");
    });
    assert_eq!(timers(&scheduler).pending, 1);
}
