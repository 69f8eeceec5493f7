//! Cancellation tokens, with the cases of tokio-util's own tests.

use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use procession::coroutine::Wait;
use procession::sync::CancellationToken;
use procession::{Exit, Scheduler, spawn};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use super::scheduler;

/// Counts its wake-ups.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Counts {
    fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut TaskContext::from_waker(&Waker::from(Arc::clone(self))))
    }

    fn woken(&self) -> usize {
        self.0.load(Relaxed)
    }
}

#[test]
fn a_cancel_wakes_those_that_wait_and_completes_all() {
    let (counts, token) = (Arc::new(Counts::default()), CancellationToken::new());
    let (mut polled, mut fresh) = (pin!(token.cancelled()), pin!(token.cancelled()));
    let mut owned = pin!(token.clone().cancelled_owned());
    assert!(!token.is_cancelled());
    assert!(counts.poll(polled.as_mut()).is_pending() && counts.poll(owned.as_mut()).is_pending());
    token.cancel();
    assert!(token.is_cancelled());
    assert_eq!(counts.woken(), 2);
    assert!(counts.poll(polled.as_mut()).is_ready() && counts.poll(fresh.as_mut()).is_ready());
    assert!(counts.poll(owned.as_mut()).is_ready());
    token.cancel();
    assert_eq!(counts.woken(), 2, "a second cancel has no effect");
}

#[test]
fn a_wait_that_is_dropped_is_not_woken() {
    let (counts, token) = (Arc::new(Counts::default()), CancellationToken::new());
    {
        let mut owned = pin!(token.clone().cancelled_owned());
        assert!(counts.poll(owned.as_mut()).is_pending());
    }
    token.cancel();
    assert_eq!((counts.woken(), Arc::strong_count(&counts)), (0, 1));
}

#[test]
fn a_cancel_goes_down_and_never_up() {
    let parent = CancellationToken::new();
    let (token, sibling) = (parent.child_token(), parent.child_token());
    let (first, second) = (token.child_token(), token.child_token());
    let grandchild = first.child_token();
    drop(first);
    let counts = Arc::new(Counts::default());
    let below = [&token, &second, &grandchild];
    let beside = [&parent, &sibling];
    let mut waits: Vec<_> =
        below.iter().chain(&beside).map(|token| Box::pin(token.cancelled())).collect();
    assert!(waits.iter_mut().all(|wait| counts.poll(wait.as_mut()).is_pending()));
    token.cancel();
    assert_eq!(counts.woken(), below.len());
    assert!(below.iter().all(|token| token.is_cancelled()), "even below a dropped token");
    assert!(beside.iter().all(|token| !token.is_cancelled()));
    let ready = waits.iter_mut().map(|wait| counts.poll(wait.as_mut()).is_ready());
    assert!(ready.eq([true, true, true, false, false]));
    parent.cancel();
    assert!(sibling.is_cancelled());
    assert_eq!(counts.woken(), below.len() + beside.len());
}

#[test]
fn the_child_of_a_cancelled_token_is_cancelled() {
    let token = CancellationToken::new();
    token.cancel();
    let child = token.child_token();
    assert!(child.is_cancelled() && child.child_token().is_cancelled());
    assert!(Arc::new(Counts::default()).poll(pin!(child.cancelled())).is_ready());
    drop(token);
    assert!(child.is_cancelled());
}

#[test]
fn tokens_are_dropped_in_any_order() {
    for parent_first in [true, false] {
        let token = CancellationToken::new();
        let mut children: Vec<_> = (0..3).map(|_| token.child_token()).collect();
        let kept = token.child_token();
        if parent_first {
            drop(token);
            assert!(!kept.is_cancelled());
            drop(children);
        } else {
            children.remove(1);
            children.clear();
            token.cancel();
            assert!(kept.is_cancelled());
        }
    }
}

#[test]
fn a_future_runs_until_the_cancel_and_is_not_polled_after_it() {
    let (counts, token) = (Arc::new(Counts::default()), CancellationToken::new());
    assert_eq!(counts.poll(pin!(token.run_until_cancelled(async { 42 }))), Poll::Ready(Some(42)));
    let mut runs = pin!(token.run_until_cancelled(std::future::pending::<()>()));
    let mut owned = pin!(token.clone().run_until_cancelled_owned(std::future::pending::<()>()));
    assert!(counts.poll(runs.as_mut()).is_pending() && counts.poll(owned.as_mut()).is_pending());
    token.cancel();
    assert_eq!(counts.poll(runs), Poll::Ready(None));
    assert_eq!(counts.poll(owned), Poll::Ready(None));
    let mut late = pin!(token.run_until_cancelled(async { panic!("it was polled") }));
    assert_eq!(counts.poll(late.as_mut()), Poll::Ready(None::<()>));
}

#[test]
fn clones_are_one_token_and_children_are_not() {
    fn shared<T: Send + Sync>(value: T) -> T {
        value
    }
    let token = shared(CancellationToken::new());
    drop(shared(token.cancelled()));
    let child = token.child_token();
    assert_eq!(token, token.clone());
    assert_ne!(token, child);
    assert_ne!(token, CancellationToken::default());
    let hash =
        |token: &CancellationToken| BuildHasherDefault::<DefaultHasher>::new().hash_one(token);
    assert_eq!(hash(&token), hash(&token.clone()));
    assert_ne!(hash(&token), hash(&child));
}

#[test]
fn a_guard_cancels_unless_it_is_disarmed() {
    let token = CancellationToken::new();
    drop(token.clone().drop_guard().disarm());
    assert!(!token.is_cancelled());
    drop(token.clone().drop_guard());
    assert!(token.is_cancelled());
}

#[test]
fn processes_and_threads_wait_for_a_token() {
    for width in [0, 1, 2] {
        let scheduler = scheduler(width);
        let token = CancellationToken::new();
        let child = token.child_token();
        let waits: Vec<_> = (0..100)
            .map(|number| {
                let token = if number % 2 == 0 { token.clone() } else { child.child_token() };
                scheduler.spawn(token.cancelled_owned())
            })
            .collect();
        scheduler.run_until_idle();
        crate::home::thread::scope(|scope| {
            let thread = scope.spawn(|| child.cancelled().wait());
            token.cancel();
            thread.join().expect("it does not panic");
        });
        for wait in waits {
            assert_eq!(wait.join(), Ok(()));
        }
    }
}

/// The waker and its drop use the token again, and panic.
#[test]
fn wakers_are_woken_and_dropped_outside_of_the_lock() {
    struct Reenters(CancellationToken);
    impl Wake for Reenters {
        fn wake(self: Arc<Self>) {
            assert!(self.0.is_cancelled() && self.0.child_token().is_cancelled());
            self.0.cancel();
            crate::scene::panic_quietly("in a waker");
        }
    }
    impl Drop for Reenters {
        fn drop(&mut self) {
            drop(self.0.child_token());
        }
    }
    let (counts, token) = (Arc::new(Counts::default()), CancellationToken::new());
    let waker = Waker::from(Arc::new(Reenters(token.clone())));
    let (mut hostile, mut dropped) = (pin!(token.cancelled()), Box::pin(token.cancelled()));
    let mut after = pin!(token.cancelled());
    let mut task = TaskContext::from_waker(&waker);
    assert!(hostile.as_mut().poll(&mut task).is_pending());
    assert!(dropped.as_mut().poll(&mut task).is_pending());
    assert!(counts.poll(after.as_mut()).is_pending());
    drop(dropped);
    token.cancel();
    assert_eq!(counts.woken(), 1, "the others are woken");
}

#[test]
fn cancels_race_with_waits_and_children() {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("there are threads");
    for _ in 0..500 {
        let token = CancellationToken::new();
        let waits: Vec<_> = (0..8)
            .map(|_| {
                let token = token.clone();
                scheduler.spawn(async move {
                    let child = token.child_token();
                    let nested = spawn(child.child_token().cancelled_owned());
                    child.cancelled().await;
                    nested.await
                })
            })
            .collect();
        token.cancel();
        for wait in waits {
            let ended = wait.join_timeout(std::time::Duration::from_secs(60));
            assert_eq!(ended.expect("it is woken"), Ok(Ok::<(), Exit>(())));
        }
    }
}
