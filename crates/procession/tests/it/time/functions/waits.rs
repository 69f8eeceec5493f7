//! Removals of timers that wait until the function does not run any more.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession::coroutine::Wait;
use procession::time::{Timer, run_after, run_every};
use procession::{Scheduler, sleep, timeout};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::SeqCst;

use super::{counting, set};
use crate::home::mpsc;
use crate::home::mpsc::{Receiver, Sender};
use crate::scene::{TIMEOUT, panic_quietly, soon};
use crate::time::{HOUR, joined, on_real_clock, on_test_clock, polled, seconds, timers};

/// Polls a future once on this thread.
fn now<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut TaskContext::from_waker(Waker::noop()))
}

/// Sets a timer that a worker fires at once, and waits until its function runs. The function goes
/// on when the returned sender is dropped, and then sets the flag.
fn running(scheduler: &Scheduler, every: bool) -> (Timer, Sender<()>, Arc<AtomicBool>) {
    let (begins, begun) = mpsc::channel();
    let (over, is_over) = mpsc::channel::<()>();
    let has_run = Arc::new(AtomicBool::new(false));
    let (begins, is_over) = (Mutex::new(begins), Mutex::new(is_over));
    let runs = Arc::clone(&has_run);
    let function = move || {
        begins.lock().send(()).expect("the test listens");
        let is_over: &Receiver<()> = &is_over.lock();
        is_over.recv().expect_err("nothing is sent");
        runs.store(true, SeqCst);
    };
    // A process sets it, so that no thread in `block_on` fires it.
    let timer = joined(scheduler.spawn(async move {
        if every { set(run_every(HOUR, function)) } else { set(run_after(seconds(1), function)) }
    }));
    assert!(timer.reset(scheduler.now()));
    soon(&begun);
    (timer, over, has_run)
}

#[test]
fn without_a_running_function_nothing_is_waited_for() {
    let scheduler = on_test_clock(1);
    scheduler.block_on(async {
        let held = Arc::new(());
        for every in [false, true] {
            let used = Arc::clone(&held);
            let function = move || assert!(Arc::strong_count(&used) > 1);
            let timer = if every {
                set(run_every(seconds(10), function))
            } else {
                set(run_after(seconds(10), function))
            };
            assert_eq!(now(timer.cancel_and_wait()), Poll::Ready(true));
            assert_eq!(Arc::strong_count(&held), 1);
            assert_eq!(now(timer.cancel_and_wait()), Poll::Ready(false), "it is removed");
        }
        let timer = set(run_after(seconds(1), || {}));
        sleep(seconds(2)).await;
        assert_eq!(now(timer.cancel_and_wait()), Poll::Ready(false), "it has fired");
    });
    assert_eq!((timers(&scheduler).cancelled, timers(&scheduler).pending), (2, 0));
}

#[test]
fn a_function_that_runs_on_another_thread_is_waited_for() {
    for (width, every) in [(1, false), (1, true), (2, false), (2, true)] {
        let scheduler = on_real_clock(width);
        let (timer, over, has_run) = running(&scheduler, every);
        scheduler.block_on(async {
            let mut wait = pin!(timer.cancel_and_wait());
            let mut other = Box::pin(timer.cancel_and_wait());
            let mut given_up = Box::pin(timer.cancel_and_wait());
            assert!(polled(wait.as_mut()).await.is_pending());
            assert!(polled(other.as_mut()).await.is_pending());
            assert!(polled(given_up.as_mut()).await.is_pending());
            drop(given_up);
            assert!(!has_run.load(SeqCst));
            drop(over);
            let removed = timeout(TIMEOUT, wait).await.expect("the function ends");
            assert_eq!(removed, every, "the next firing was prevented");
            assert!(has_run.load(SeqCst));
            assert_eq!(timeout(TIMEOUT, other).await, Ok(false), "the other one removed it");
            assert_eq!(now(timer.cancel_and_wait()), Poll::Ready(false));
        });
        assert_eq!(timers(&scheduler).pending, 0);
    }
}

#[test]
fn a_process_and_a_thread_may_wait() {
    let scheduler = on_real_clock(2);
    let (timer, over, has_run) = running(&scheduler, true);
    let waits = {
        let timer = timer.clone();
        scheduler.spawn(async move { timer.cancel_and_wait().await })
    };
    drop(over);
    let removed_here = timer.cancel_and_wait().wait();
    assert!(has_run.load(SeqCst));
    assert_ne!(joined(waits), removed_here, "one of them removed it");
}

#[test]
fn a_function_does_not_wait_for_itself() {
    // Each test clock stops at each firing, in the thread that drives the scheduler.
    for every in [false, true] {
        let scheduler = on_test_clock(1);
        let own = Arc::new(Mutex::new(None::<Timer>));
        let (call, calls) = counting();
        let itself = Arc::clone(&own);
        let function = move || {
            let timer = itself.lock().take().expect("it fires once");
            assert_eq!(now(timer.cancel_and_wait()), Poll::Ready(every));
            call();
        };
        scheduler.block_on(async {
            let timer = if every {
                set(run_every(HOUR, function))
            } else {
                set(run_after(seconds(1), function))
            };
            *own.lock() = Some(timer);
            sleep(HOUR).await;
        });
        assert_eq!(calls(), 1);
    }
    // The thread that waits by blocking is the one that runs the function.
    let scheduler = on_real_clock(2);
    let own = Arc::new(Mutex::new(None::<Timer>));
    let (waits, waited) = mpsc::channel();
    let itself = Arc::clone(&own);
    let timer = joined(scheduler.spawn(async move {
        set(run_after(HOUR, move || {
            let timer = itself.lock().take().expect("it was set");
            waits.send(timer.cancel_and_wait().wait()).expect("the test listens");
        }))
    }));
    *own.lock() = Some(timer.clone());
    assert!(timer.reset(scheduler.now()));
    assert!(!soon(&waited));
}

/// A value that removes a timer when it is dropped.
struct Removes(Arc<Mutex<Option<Timer>>>, Sender<bool>);

impl Drop for Removes {
    fn drop(&mut self) {
        if let Some(timer) = self.0.lock().take() {
            let waited = now(timer.cancel_and_wait()).is_ready();
            self.1.send(waited).expect("the test listens");
        }
    }
}

#[test]
fn a_value_of_the_function_does_not_wait_for_its_own_drop() {
    for fires in [false, true] {
        let scheduler = on_test_clock(1);
        let own = Arc::new(Mutex::new(None));
        let (drops, dropped) = mpsc::channel();
        let held = Removes(Arc::clone(&own), drops);
        scheduler.block_on(async {
            let timer = set(run_after(seconds(1), move || drop(held)));
            *own.lock() = Some(timer.clone());
            if fires {
                sleep(seconds(2)).await;
            } else {
                assert!(timer.cancel());
            }
        });
        assert_eq!(dropped.try_recv(), Ok(true), "fires: {fires}");
    }
}

#[test]
fn a_panic_and_the_end_of_the_scheduler_end_a_wait() {
    let scheduler = on_test_clock(1);
    let timer = scheduler.block_on(async {
        let timer = set(run_after(seconds(1), || panic_quietly("in a timer")));
        sleep(seconds(2)).await;
        assert_eq!(now(timer.cancel_and_wait()), Poll::Ready(false));
        set(run_every(HOUR, || {}))
    });
    let unfinished = scheduler.block_on(scheduler.shutdown(seconds(1)));
    assert!(unfinished.is_empty());
    assert_eq!(now(timer.cancel_and_wait()), Poll::Ready(false));
}

#[test]
fn no_function_runs_after_a_wait() {
    let scheduler = on_real_clock(2);
    let rounds = scheduler.spawn(async {
        for _ in 0..200 {
            let held = Arc::new(());
            let used = Arc::clone(&held);
            let function = move || assert!(Arc::strong_count(&used) > 1);
            let timer = set(run_every(Duration::from_nanos(100), function));
            procession::yield_now().await;
            timer.cancel_and_wait().await;
            assert_eq!(Arc::strong_count(&held), 1);
        }
    });
    joined(rounds);
    assert_eq!(timers(&scheduler).pending, 0);
}
