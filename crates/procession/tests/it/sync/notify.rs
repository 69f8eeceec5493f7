//! Notifications. The semantics are those of `tokio/tests/sync_notify.rs`.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Wake, Waker};
use std::time::Duration;

use procession::coroutine::Wait;
use procession::observe::ProcessState;
use procession::sync::Notify;
use procession::time::Instant;
use procession::{Scheduler, sleep, spawn, timeout, yield_now};

use super::poll_once;
use super::probe::{plain_thread, probe};
use crate::home::thread;
use crate::scene::{driven, panic_quietly, threaded};

#[test]
fn a_permit_is_stored_once() {
    let notify = Notify::new();
    notify.notify_one();
    notify.notify_one();
    let (mut first, mut second) = (probe(notify.notified()), probe(notify.notified()));
    first.output();
    assert!(second.is_pending());
    notify.notify_one();
    assert!(second.is_woken());
    second.output();
    second.output();
}

#[test]
fn one_notification_wakes_one_waiter_in_order() {
    let notify = Notify::new();
    let mut waiters = [(); 3].map(|()| probe(notify.notified()));
    assert!(waiters.iter_mut().all(|waiter| waiter.is_pending()));
    notify.notify_one();
    assert_eq!(waiters.each_ref().map(|waiter| waiter.is_woken()), [true, false, false]);
    notify.notify_last();
    assert_eq!(waiters.each_ref().map(|waiter| waiter.is_woken()), [true, false, true]);
    let [mut first, mut second, mut third] = waiters;
    first.output();
    third.output();
    assert!(second.is_pending());
}

#[test]
fn a_notification_of_a_waiter_that_is_dropped_goes_to_another() {
    let notify = Notify::new();
    let [mut first, mut second, mut third] = [(); 3].map(|()| probe(notify.notified()));
    assert!(first.is_pending() && second.is_pending() && third.is_pending());
    notify.notify_one();
    drop(first);
    assert!(second.is_woken() && !third.is_woken());
    second.output();
    notify.notify_one();
    drop(third);
    probe(notify.notified()).output();
}

#[test]
fn the_last_waiter_passes_its_notification_to_the_last() {
    let notify = Notify::new();
    let [mut first, mut second, mut third] = [(); 3].map(|()| probe(notify.notified()));
    assert!(first.is_pending() && second.is_pending() && third.is_pending());
    notify.notify_last();
    drop(third);
    assert!(second.is_woken() && !first.is_woken());
}

#[test]
fn a_notification_of_all_is_not_passed_on_and_not_stored() {
    let notify = Notify::new();
    let mut first = probe(notify.notified());
    assert!(first.is_pending());
    notify.notify_waiters();
    drop(first);
    let mut later = probe(notify.notified());
    assert!(later.is_pending());
    // A permit beside it is kept.
    notify.notify_waiters();
    notify.notify_one();
    drop(later);
    probe(notify.notified()).output();
}

/// A waiter that a notification of all releases leaves a permit to the waiters after it.
#[test]
fn a_waiter_of_an_earlier_round_takes_no_permit() {
    let notify = Arc::new(Notify::new());
    let mut polled = probe(notify.notified());
    let mut owned = probe(notify.clone().notified_owned());
    let mut enabled = Box::pin(notify.notified());
    notify.notify_waiters();
    notify.notify_one();
    polled.output();
    owned.output();
    assert!(enabled.as_mut().enable());
    probe(notify.notified()).output();
    assert!(probe(notify.notified()).is_pending());
}

#[test]
fn a_waiter_that_was_made_before_a_notification_of_all_has_it() {
    let notify = Arc::new(Notify::new());
    let (mut before, mut owned) = (probe(notify.notified()), notify.clone().notified_owned());
    notify.notify_waiters();
    let mut after = probe(notify.notified());
    before.output();
    probe(&mut owned).output();
    assert!(after.is_pending());
}

#[test]
fn an_enabled_waiter_can_be_chosen_before_its_first_poll() {
    let notify = Notify::new();
    let [mut first, mut second] = [(); 2].map(|()| probe(notify.notified()));
    assert!(!first.pinned().enable() && !second.pinned().enable());
    notify.notify_one();
    assert!(second.is_pending() && !second.pinned().enable());
    assert!(first.pinned().enable());
    first.output();
    // An enable takes a permit.
    drop(second);
    notify.notify_one();
    let [mut first, mut second] = [(); 2].map(|()| probe(notify.notified()));
    assert!(first.pinned().enable() && !second.pinned().enable());
}

#[test]
fn the_last_waker_is_woken() {
    let notify = Notify::new();
    let mut waits = probe(notify.notified());
    assert!(waits.pinned().poll_with_noop());
    assert!(waits.is_pending());
    notify.notify_one();
    assert!(waits.is_woken());
}

trait PollWithNoop {
    fn poll_with_noop(self) -> bool;
}

impl<F: Future> PollWithNoop for std::pin::Pin<&mut F> {
    fn poll_with_noop(self) -> bool {
        self.poll(&mut TaskContext::from_waker(Waker::noop())).is_pending()
    }
}

/// Notifies when it is woken and when it is dropped.
struct Notifying(Arc<Notify>);

impl Wake for Notifying {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Drop for Notifying {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

#[test]
fn a_waker_may_notify() {
    let notify = Arc::new(Notify::new());
    let mut waits = probe(notify.notified());
    for _ in 0..2 {
        let waker = Waker::from(Arc::new(Notifying(notify.clone())));
        let _ = waits.pinned().poll(&mut TaskContext::from_waker(&waker));
    }
    notify.notify_waiters();
    notify.notify_one();
}

/// Panics when it is woken.
struct Fragile;

impl Wake for Fragile {
    fn wake(self: Arc<Self>) {
        panic_quietly("woken");
    }
}

/// Between two processes wait a future with a waker of the user's, a process that is cancelled, and
/// one of another scheduler.
#[test]
fn waiters_of_all_kinds_hear_a_notification_of_all() {
    let (scheduler, other) = (driven(), threaded(1));
    let notify = Arc::new(Notify::new());
    let waits = |scheduler: &Scheduler| {
        let waits = Arc::clone(&notify).notified_owned();
        scheduler.spawn(waits)
    };
    scheduler.block_on(async {
        let first = waits(&scheduler);
        yield_now().await;
        let waker = Waker::from(Arc::new(Fragile));
        let mut fragile = probe(notify.notified());
        assert!(fragile.pinned().poll(&mut TaskContext::from_waker(&waker)).is_pending());
        let cancelled = waits(&scheduler);
        let distant = waits(&other);
        while other.process(distant.pid()).is_some_and(|row| row.state != ProcessState::Blocked) {
            thread::yield_now();
        }
        let last = waits(&scheduler);
        yield_now().await;
        cancelled.cancel();
        let notifies = Arc::clone(&notify);
        let notifier = spawn(async move { notifies.notify_waiters() });
        assert_eq!(notifier.await, Ok(()));
        assert_eq!((first.await, last.await, distant.await), (Ok(()), Ok(()), Ok(())));
        fragile.output();
        drop(cancelled.await);
    });
}

#[test]
fn processes_coroutines_and_threads_wait() {
    let notify = Arc::new(Notify::new());
    let scheduler = threaded(2);
    let process = scheduler.spawn({
        let notify = notify.clone();
        async move { notify.notified().await }
    });
    let plain = plain_thread({
        let notify = notify.clone();
        move || notify.notified().wait()
    });
    // Whichever comes first: the second permit waits for the other.
    notify.notify_one();
    let waits = || procession::coroutine::wait(notify.notified());
    while !plain.is_finished() || !process.is_finished() {
        notify.notify_one();
        thread::yield_now();
    }
    plain.join().expect("it does not panic");
    process.join().expect("it does not panic");
    notify.notify_one();
    waits();
}

#[test]
fn a_wait_can_be_limited_on_the_test_clock() {
    driven().block_on(async {
        let notify = Arc::new(Notify::new());
        let begin = Instant::now();
        assert!(timeout(Duration::from_secs(5), notify.notified()).await.is_err());
        assert_eq!(Instant::now() - begin, Duration::from_secs(5));
        let own = notify.clone();
        let process = spawn(async move { timeout(Duration::from_secs(9), own.notified()).await });
        sleep(Duration::from_secs(1)).await;
        notify.notify_one();
        assert_eq!(process.await, Ok(Ok(())));
    });
}

#[test]
fn a_notification_that_was_enabled_and_not_awaited_is_passed_on() {
    // A permit, the first waiter, and the last one.
    let notify = Notify::new();
    notify.notify_one();
    assert!(pin!(notify.notified()).as_mut().enable(), "there is a permit");
    assert!(poll_once(pin!(notify.notified())).is_ready(), "the permit came back");

    for last in [false, true] {
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(notify.notified())).collect();
        assert!(waiting.iter_mut().all(|notified| !notified.as_mut().enable()));
        let (chosen, next) = if last { (2, 1) } else { (0, 1) };
        if last {
            notify.notify_last();
        } else {
            notify.notify_one();
        }
        assert!(waiting[chosen].as_mut().enable());
        assert!(!waiting[next].as_mut().enable());
        waiting[chosen] = Box::pin(notify.notified());
        assert!(waiting[next].as_mut().enable(), "the next one has it");
        // It is the last one, so its notification becomes a permit, which it takes here.
        drop(waiting);
        assert!(poll_once(pin!(notify.notified())).is_ready());
    }

    // All were notified, so each has its own.
    let mut both = [Box::pin(notify.notified()), Box::pin(notify.notified())];
    let [first, second] = &mut both;
    notify.notify_one();
    assert!(first.as_mut().enable(), "there is a permit");
    *first = Box::pin(notify.notified());
    assert!(second.as_mut().enable(), "it came back");
    assert!(poll_once(second.as_mut()).is_ready());
    assert!(poll_once(second.as_mut()).is_ready(), "again after completion");
    notify.notify_waiters();
    assert!(first.as_mut().enable());
    drop(both);
    assert!(!pin!(notify.notified()).as_mut().enable(), "nothing is passed on");
}
