//! The limit of timers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession::time::{Instant, run_after, run_every};
use procession::{Context, Scheduler, SpawnOptions, sleep, timeout};

use super::{counting, set};
use crate::time::{HOUR, joined, polled, seconds, timers};

fn with_one_timer() -> Scheduler {
    Scheduler::builder().worker_threads(1).max_timers(1).build().expect("the system has threads")
}

#[test]
fn beyond_the_limit_what_was_to_be_timed_comes_back() {
    let scheduler = with_one_timer();
    let receiver = scheduler.start(|mut cx: Context<&str>| async move {
        let only = set(run_after(HOUR, || {}));
        assert!(run_every(HOUR, || {}).is_err());
        let (call, calls) = counting();
        let refused = run_after(HOUR, call).map(drop).expect_err("there is one already");
        assert_eq!(calls(), 0);
        refused.into_inner()();
        assert_eq!(calls(), 1);
        let refused = cx.address().send_after(HOUR, "message");
        let refused = refused.expect_err("there is one already");
        assert!(refused.is_timer_limit());
        let text = format!(
            "cannot send to {} later: the scheduler has reached its limit of timers",
            cx.pid()
        );
        assert_eq!(refused.to_string(), text);
        assert_eq!(refused.into_inner(), "message");
        assert!(only.cancel());
        set(cx.address().send_after(Duration::ZERO, "there is room again"));
        cx.recv().await
    });
    assert_eq!(receiver.join(), Ok(Some("there is room again")));
    let timers = timers(&scheduler);
    assert_eq!((timers.armed, timers.pending), (2, 0), "what is refused was not armed");
}

#[test]
fn beyond_the_limit_a_sleep_is_neither_lost_nor_early() {
    let scheduler = with_one_timer();
    let sleepers: Vec<_> = (0..20)
        .map(|n| {
            scheduler.spawn(async move {
                let before = Instant::now();
                let wanted = Duration::from_millis(n);
                sleep(wanted).await;
                assert!(Instant::now() - before >= wanted);
            })
        })
        .collect();
    sleepers.into_iter().for_each(joined);
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn beyond_the_limit_a_sleep_keeps_no_process() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .max_timers(1)
        .max_processes(1)
        .test_clock()
        .build()
        .expect("it starts no thread");
    scheduler.block_on(async {
        let mut longer = Box::pin(sleep(HOUR));
        assert!(polled(longer.as_mut()).await.is_pending());
        let begun = procession::spawn(async {
            let mut slept = Box::pin(sleep(HOUR));
            assert!(polled(slept.as_mut()).await.is_pending());
            slept
        });
        let slept = begun.await.expect("it waits for no timer");
        // A process that waits for a timer is woken, and forgotten.
        drop(longer);
        let next = SpawnOptions::new().try_spawn(async {});
        assert!(next.is_ok(), "the one before has ended");
        drop(slept);
    });
}

#[test]
fn beyond_the_limit_the_test_clock_still_moves() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .max_timers(1)
        .test_clock()
        .build()
        .expect("it starts no thread");
    scheduler.block_on(async {
        let start = Instant::now();
        let sleepers: Vec<_> = (1..=20)
            .map(|n| {
                procession::spawn(async move {
                    sleep(seconds(n)).await;
                    assert!(Instant::now() >= start + seconds(n));
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.await.expect("it is not early");
        }
    });
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn each_worker_and_the_outside_have_a_limit_of_their_own() {
    let scheduler = with_one_timer();
    let receiver = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    set(receiver.send_after(HOUR, 1));
    assert_eq!(receiver.send_after(HOUR, 2).map_err(|error| error.into_inner()), Err(2));
    let address = receiver.address().clone();
    let inside = joined(
        scheduler.spawn(async move { (address.send_after(HOUR, 3), address.send_after(HOUR, 4)) }),
    );
    assert_eq!((inside.0, inside.1.map_err(|error| error.into_inner())), (Ok(()), Err(4)));
    assert_eq!(timers(&scheduler).pending, 2);
}

type Step = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the only timer. The returned step, if there is one, gives it up; otherwise it fires after
/// two seconds.
type Hold = fn(&Scheduler) -> Option<Step>;

const HOLDS: &[(&str, Hold)] = &[
    ("a function", |_| {
        set(run_after(seconds(2), || {}));
        None
    }),
    ("a function that is cancelled", |_| {
        let timer = set(run_after(HOUR, || {}));
        Some(Box::pin(async move { assert!(timer.cancel()) }))
    }),
    ("a repeated function that is cancelled", |_| {
        let timer = set(run_every(HOUR, || {}));
        Some(Box::pin(async move { assert!(timer.cancel()) }))
    }),
    ("a message for later", |_| {
        let receiver = procession::start(|mut cx: Context<()>| async move { cx.recv().await });
        set(receiver.send_after(seconds(2), ()));
        None
    }),
    ("a sleep", |_| {
        let mut slept = Box::pin(sleep(seconds(2)));
        assert!(polled_now(slept.as_mut()).is_pending());
        Some(slept)
    }),
    ("a sleep that is dropped", |_| {
        let mut slept = Box::pin(sleep(HOUR));
        assert!(polled_now(slept.as_mut()).is_pending());
        Some(Box::pin(async move { drop(slept) }))
    }),
    ("a timeout of what is ready", |_| {
        let (sender, receiver) = procession::sync::oneshot::channel::<()>();
        let mut timed = Box::pin(timeout(HOUR, receiver));
        assert!(polled_now(timed.as_mut()).is_pending());
        Some(Box::pin(async move {
            sender.send(()).expect("it waits");
            assert!(matches!(timed.await, Ok(Ok(()))));
        }))
    }),
    ("a process that is suspended", |scheduler| {
        let waits = procession::spawn(std::future::pending::<()>());
        scheduler.suspend_for(waits.pid(), seconds(2)).expect("there is a timer");
        None
    }),
    ("a process that ends in its sleep", |_| {
        let sleeps = procession::spawn(sleep(HOUR));
        Some(Box::pin(async move {
            procession::yield_now().await;
            sleeps.cancel();
            drop(sleeps.await);
        }))
    }),
];

/// A wait of a second, which has no timer at first.
type WaitForTimer = fn() -> Step;

const WAITS: &[(&str, WaitForTimer)] = &[
    ("a sleep", || Box::pin(sleep(seconds(1)))),
    ("a timeout", || {
        Box::pin(async {
            assert!(timeout(seconds(1), std::future::pending::<()>()).await.is_err());
        })
    }),
];

/// Whatever holds the only timer, and however it gives it up, the next that waits gets it.
#[test]
fn a_timer_that_is_given_up_in_any_way_goes_to_what_waits_for_one() {
    for &(holder, hold) in HOLDS {
        for &(waiter, wait) in WAITS {
            for waiters in 1..=2 {
                let builder = Scheduler::builder().worker_threads(1).max_timers(1).test_clock();
                let scheduler = builder.build().expect("it starts no thread");
                let own = scheduler.clone();
                let main = scheduler.spawn(async move {
                    let before = Instant::now();
                    let gives_up = hold(&own);
                    drop(own);
                    // The process of the holder has its turn.
                    procession::yield_now().await;
                    let all: Vec<_> = (0..waiters).map(|_| procession::spawn(wait())).collect();
                    procession::yield_now().await;
                    procession::yield_now().await;
                    if let Some(gives_up) = gives_up {
                        gives_up.await;
                    }
                    for one in all {
                        one.await.expect("it ends");
                    }
                    Instant::now() - before
                });
                // Without a timer that fires, nothing else moves the clock.
                for _ in 0..20 {
                    scheduler.run_until_idle();
                    scheduler.advance(Duration::from_millis(500));
                }
                scheduler.run_until_idle();
                let case = format!("{holder}, then {waiters} times {waiter}");
                assert!(main.is_finished(), "{case}: it waits for ever");
                let took = main.join().expect("it ends");
                let expected = seconds(1)..=seconds(3 + waiters);
                assert!(expected.contains(&took), "{case}: {took:?}");
                assert_eq!(timers(&scheduler).pending, 0, "{case}");
            }
        }
    }
}

/// Polls once, with a waker that nobody needs.
fn polled_now<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(Waker::noop()))
}
