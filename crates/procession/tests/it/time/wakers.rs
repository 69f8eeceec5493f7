//! Sleeps that are polled with one waker after another, and wakers that change timers.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Wake, Waker};
use std::time::Duration;

use procession::time::{Instant, Sleep, sleep_until};
use procession::{Context, Scheduler, sleep};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::SeqCst;

use super::{HOUR, joined, on_real_clock, on_test_clock, polled, seconds, timers};
use crate::home::mpsc;
use crate::scene::TIMEOUT;

#[derive(Default)]
struct Counting(AtomicU32);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waker that drops its content when it is woken or dropped.
struct Dropping(Mutex<Option<Pin<Box<Sleep>>>>);

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().take());
    }
}

fn poll_with(waker: &Waker, slept: Pin<&mut Sleep>) -> bool {
    slept.poll(&mut TaskContext::from_waker(waker)).is_ready()
}

#[test]
fn only_the_last_waker_is_woken() {
    on_test_clock(1).block_on(async {
        let counts = [(); 3].map(|()| Arc::new(Counting::default()));
        let mut slept = pin!(sleep(seconds(10)));
        for count in &counts {
            assert!(!poll_with(&Waker::from(Arc::clone(count)), slept.as_mut()));
            sleep(seconds(1)).await;
        }
        sleep(seconds(20)).await;
        assert_eq!(counts.each_ref().map(|count| count.0.load(SeqCst)), [0, 0, 1]);
        assert!(counts.iter().all(|count| Arc::strong_count(count) == 1), "no waker is kept");
        assert!(poll_with(Waker::noop(), slept));
    });
}

/// A sleep that finds no room for a timer keeps one waker, and none once it is dropped.
#[test]
fn a_sleep_that_waits_for_a_timer_keeps_its_last_waker_alone() {
    let builder = Scheduler::builder().worker_threads(1).max_timers(1).test_clock();
    let scheduler = builder.build().expect("it is valid");
    scheduler.block_on(async {
        let mut only = Box::pin(sleep(HOUR));
        assert!(!poll_with(Waker::noop(), only.as_mut()));
        let counts = [(); 3].map(|()| Arc::new(Counting::default()));
        let mut others = [HOUR; 2].map(|hour| Box::pin(sleep(hour)));
        for count in &counts {
            let waker = Waker::from(Arc::clone(count));
            for other in &mut others {
                (0..3).for_each(|_| assert!(!poll_with(&waker, other.as_mut())));
            }
        }
        let kept = || counts.each_ref().map(|count| Arc::strong_count(count) - 1);
        assert_eq!(kept(), [0, 0, 2], "each keeps its last waker");
        let [other, dropped] = others;
        drop(dropped);
        assert_eq!(kept(), [0, 0, 1]);
        drop(only);
        assert_eq!(counts.each_ref().map(|count| count.0.load(SeqCst)), [0, 0, 1], "there is room");
        other.await;
        assert_eq!(kept(), [0, 0, 0]);
    });
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn a_process_may_poll_with_other_wakers_in_between() {
    let scheduler = on_test_clock(1);
    let sleeper = scheduler.spawn(async {
        let start = Instant::now();
        let mut slept = pin!(sleep(seconds(10)));
        for _ in 0..10 {
            let count = Arc::new(Counting::default());
            assert!(!poll_with(&count.into(), slept.as_mut()));
            assert!(polled(slept.as_mut()).await.is_pending());
        }
        slept.await;
        Instant::now() - start
    });
    assert_eq!(sleeper.join(), Ok(seconds(10)));
    assert_eq!(timers(&scheduler).armed, 1);
}

#[test]
fn a_sleep_wakes_the_process_that_polled_it_last() {
    for width in [1, 2, 4] {
        for first_stays in [true, false] {
            let scheduler = on_test_clock(width);
            let start = scheduler.now();
            let second = scheduler.start(|mut cx: Context<Pin<Box<Sleep>>>| async move {
                let slept = cx.recv().await.expect("the first sends it");
                slept.await;
                Instant::now()
            });
            let address = second.address().clone();
            let first = scheduler.spawn(async move {
                let mut slept = Box::pin(sleep(seconds(10)));
                assert!(polled(slept.as_mut()).await.is_pending());
                address.send(slept).expect("the second waits for it");
                if first_stays {
                    pending::<()>().await;
                }
            });
            let end = scheduler.block_on(second).expect("it does not panic");
            assert_eq!(end - start, seconds(10), "width {width}, the first stays: {first_stays}");
            if first_stays {
                let snapshot = scheduler.snapshot();
                let process = snapshot.processes.iter().find(|process| process.pid == first.pid());
                assert_eq!(
                    process.map(|process| process.steps),
                    Some(1),
                    "the first has not been woken"
                );
            }
            assert_eq!(timers(&scheduler).pending, 0);
        }
    }
}

#[test]
fn a_sleep_moves_from_a_process_to_a_thread_and_back() {
    let scheduler = on_test_clock(1);
    let start = scheduler.now();
    let slept = scheduler.spawn(async {
        let mut slept = Box::pin(sleep(seconds(10)));
        assert!(polled(slept.as_mut()).await.is_pending());
        slept
    });
    let mut slept = slept.join().expect("it does not panic");
    scheduler.block_on(async {
        assert!(polled(slept.as_mut()).await.is_pending());
        sleep(seconds(4)).await;
    });
    let end = scheduler.spawn(async move {
        slept.await;
        Instant::now()
    });
    assert_eq!(end.join().map(|end| end - start), Ok(seconds(10)));
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn a_sleep_outlives_the_process_that_made_it() {
    for width in [1, 2] {
        let scheduler = on_test_clock(width);
        let start = scheduler.now();
        let slept = scheduler.block_on(scheduler.spawn(async move {
            let mut slept = Box::pin(sleep_until(start + seconds(10)));
            assert!(polled(slept.as_mut()).await.is_pending());
            slept
        }));
        scheduler.block_on(slept.expect("it does not panic"));
        assert_eq!(scheduler.now() - start, seconds(10));
    }
}

#[test]
fn a_waker_may_drop_other_sleeps_when_it_is_woken() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let mut others = [0, 1, 2].map(|n| Box::pin(sleep(seconds(10 + n))));
        for other in &mut others {
            assert!(!poll_with(Waker::noop(), other.as_mut()));
        }
        let mut sleeps = others.map(|other| {
            let waker = Waker::from(Arc::new(Dropping(Mutex::new(Some(other)))));
            let mut slept = Box::pin(sleep(seconds(10)));
            assert!(!poll_with(&waker, slept.as_mut()));
            slept
        });
        sleep(seconds(11)).await;
        let timers = timers(&scheduler);
        // The other timer of the first sleep was due before. Those of the second and third were
        // dropped by their wakers.
        assert_eq!((timers.cancelled, timers.pending), (2, 0));
        assert!(sleeps.iter_mut().all(|slept| poll_with(Waker::noop(), slept.as_mut())));
    });
}

/// Goal: a sleep keeps the clock of its first poll.
#[test]
fn a_sleep_that_was_polled_on_a_test_clock_ends_on_that_clock() {
    let (first, second) = (on_test_clock(1), on_real_clock(1));
    let mut slept = first.block_on(async {
        let mut slept = Box::pin(sleep(seconds(10)));
        assert!(polled(slept.as_mut()).await.is_pending());
        slept
    });
    let (waiting, waits) = mpsc::channel();
    let sleeper = second.spawn(async move {
        poll_fn(|task| {
            let polled = slept.as_mut().poll(task);
            // Ignored: the test has heard of an earlier poll.
            let _ = waiting.send(polled.is_pending());
            polled
        })
        .await;
    });
    let pending = waits.recv_timeout(TIMEOUT);
    assert_eq!(pending, Ok(true), "the real clock has been past the deadline since its start");
    assert_eq!(timers(&second).armed, 0);
    first.advance(seconds(9));
    first.run_until_idle();
    assert_eq!(timers(&first).pending, 1);
    first.advance(seconds(1));
    first.run_until_idle();
    joined(sleeper);
    assert_eq!(timers(&first).pending, 0);
}

/// The reverse: years pass on a test clock, and a sleep on the real clock is not over.
#[test]
fn a_sleep_that_was_polled_on_the_real_clock_ends_on_that_clock() {
    let (first, second) = (on_real_clock(1), on_test_clock(1));
    let (leaves, left) = mpsc::channel();
    // The sleep is so long that a slow machine cannot end it before it is reset.
    drop(first.spawn(async move {
        let mut slept = Box::pin(sleep(HOUR));
        assert!(polled(slept.as_mut()).await.is_pending());
        leaves.send(slept).expect("the test listens");
    }));
    let mut slept = left.recv_timeout(TIMEOUT).expect("it leaves its process");
    second.block_on(async {
        assert!(polled(slept.as_mut()).await.is_pending());
        sleep(HOUR * 100_000).await;
        assert!(polled(slept.as_mut()).await.is_pending(), "no hour has passed on the real clock");
        let end = first.now() + Duration::from_millis(1);
        slept.as_mut().reset(end);
        slept.as_mut().await;
        assert!(end <= first.now(), "it is early");
    });
    assert_eq!((timers(&first).pending, timers(&second).pending), (0, 0));
}

#[test]
fn a_waker_may_drop_another_sleep_when_it_is_replaced() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let mut other = Box::pin(sleep(HOUR));
        assert!(!poll_with(Waker::noop(), other.as_mut()));
        let waker = Waker::from(Arc::new(Dropping(Mutex::new(Some(other)))));
        let mut slept = pin!(sleep(seconds(10)));
        assert!(!poll_with(&waker, slept.as_mut()));
        drop(waker);
        assert_eq!(timers(&scheduler).pending, 2);
        assert!(
            !poll_with(Waker::noop(), slept.as_mut()),
            "this drops the waker, and so the other sleep"
        );
        assert_eq!(timers(&scheduler).pending, 1);
        slept.await;
    });
    assert_eq!(timers(&scheduler).pending, 0);
}

#[test]
fn a_waker_that_panics_harms_nobody() {
    struct Panicking;
    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            panic!("woken");
        }
    }
    on_test_clock(1).block_on(async {
        let start = Instant::now();
        let mut sleeps = [9, 10, 10].map(|n| Box::pin(sleep(seconds(n))));
        for slept in &mut sleeps {
            assert!(!poll_with(&Arc::new(Panicking).into(), slept.as_mut()));
        }
        sleep(seconds(10)).await;
        assert_eq!(Instant::now() - start, seconds(10));
        assert!(sleeps.iter_mut().all(|slept| poll_with(Waker::noop(), slept.as_mut())));
    });
}
