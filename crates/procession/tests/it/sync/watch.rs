//! Watches. The semantics are those of `tokio/tests/sync_watch.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use procession::coroutine::Wait;
use procession::sync::{RecvError, SendError, watch};
use procession::time::Instant;
use procession::{sleep, spawn, timeout};

use super::probe::{plain_thread, probe};
use crate::scene::{driven, panic_quietly, threaded};

#[test]
fn a_change_wakes_all_receivers() {
    let (sender, mut first) = watch::channel("one");
    let mut second = first.clone();
    for value in ["two", "three"] {
        let (mut waits, mut too) = (probe(first.changed()), probe(second.changed()));
        assert!(waits.is_pending() && too.is_pending());
        sender.send(value).expect("there are receivers");
        assert!(waits.is_woken() && too.is_woken());
        assert_eq!((waits.output(), too.output()), (Ok(()), Ok(())));
        drop((waits, too));
        assert_eq!((*first.borrow(), *second.borrow()), (value, value));
    }
}

#[test]
fn changes_while_nobody_looks_count_as_one() {
    let (sender, mut receiver) = watch::channel(0);
    let mut slow = receiver.clone();
    for value in 1..=3 {
        sender.send(value).expect("there are receivers");
        assert_eq!(probe(receiver.changed()).output(), Ok(()));
    }
    assert_eq!(probe(slow.changed()).output(), Ok(()));
    assert!(probe(slow.changed()).is_pending());
    assert_eq!(*slow.borrow(), 3);
}

#[test]
fn the_last_value_is_seen_after_the_last_sender() {
    let (sender, mut receiver) = watch::channel("one");
    let other = sender.clone();
    assert_eq!(sender.sender_count(), 2);
    drop(sender);
    other.send("two").expect("there is a receiver");
    let mut waits = probe(receiver.changed());
    waits.output().expect("it has changed");
    drop(waits);
    let mut waits = probe(receiver.changed());
    assert!(waits.is_pending());
    other.send("three").expect("there is a receiver");
    drop(other);
    assert!(waits.is_woken());
    waits.output().expect("it has changed");
    drop(waits);
    assert_eq!(probe(receiver.changed()).output(), Err(RecvError::Closed));
    assert_eq!(receiver.has_changed(), Err(RecvError::Closed));
    assert!(receiver.is_closed());
    assert_eq!(*receiver.borrow(), "three");
}

#[test]
fn a_close_wakes_receivers() {
    let (sender, mut receiver) = watch::channel(());
    let mut waits = probe(receiver.changed());
    assert!(waits.is_pending());
    drop(sender);
    assert!(waits.is_woken());
    assert_eq!(waits.output(), Err(RecvError::Closed));
}

#[test]
fn a_receiver_marks_what_it_has_seen() {
    let (sender, mut receiver) = watch::channel(1);
    assert_eq!(receiver.has_changed(), Ok(false));
    sender.send(2).expect("there is a receiver");
    assert!(receiver.borrow().has_changed());
    assert_eq!(receiver.has_changed(), Ok(true), "a borrow marks nothing");
    assert!(receiver.borrow_and_update().has_changed());
    assert_eq!(receiver.has_changed(), Ok(false));
    assert!(probe(receiver.changed()).is_pending());
    receiver.mark_changed();
    assert_eq!(receiver.has_changed(), Ok(true));
    probe(receiver.changed()).output().expect("it is marked");
    sender.send(3).expect("there is a receiver");
    receiver.mark_unchanged();
    assert!(probe(receiver.changed()).is_pending());
    assert!(!sender.borrow().has_changed());
    // The last change of all is told, too.
    receiver.mark_changed();
    drop(sender);
    assert_eq!(probe(receiver.changed()).output(), Ok(()));
    assert_eq!(probe(receiver.changed()).output(), Err(RecvError::Closed));
}

#[test]
fn a_sender_learns_of_the_last_receiver() {
    let (sender, receiver) = watch::channel("one");
    let other = receiver.clone();
    assert_eq!(sender.receiver_count(), 2);
    let mut closed = probe(sender.closed());
    assert!(closed.is_pending());
    drop(receiver);
    assert!(closed.is_pending() && !sender.is_closed());
    drop(other);
    assert!(closed.is_woken());
    closed.output();
    assert_eq!(sender.send("two").map_err(SendError::into_inner), Err("two"));
    assert_eq!(*sender.borrow(), "one");
    assert_eq!(sender.send_replace("three"), "one");
    let receiver = sender.subscribe();
    assert!(!sender.is_closed());
    assert_eq!((receiver.has_changed(), *receiver.borrow()), (Ok(false), "three"));
}

#[test]
fn a_modification_tells_only_if_it_says_so() {
    let (sender, mut receiver) = watch::channel(0);
    let mut waits = probe(receiver.changed());
    assert!(waits.is_pending());
    assert!(!sender.send_if_modified(|value| {
        *value = 1;
        false
    }));
    assert!(!waits.is_woken() && waits.is_pending());
    sender.send_modify(|value| *value += 1);
    assert!(waits.is_woken());
    waits.output().expect("it has changed");
    drop(waits);
    assert_eq!(*receiver.borrow(), 2);
}

#[test]
fn a_panic_of_a_modification_tells_nobody_and_breaks_nothing() {
    let (sender, mut receiver) = watch::channel("one");
    let mut waiting = receiver.clone();
    let mut waits = probe(waiting.changed());
    assert!(waits.is_pending());
    catch_unwind(AssertUnwindSafe(|| {
        sender.send_modify(|value| {
            *value = "changed";
            panic_quietly("in a modification")
        });
    }))
    .expect_err("it panics");
    assert!(!waits.is_woken() && waits.is_pending());
    assert_eq!(*receiver.borrow(), "changed");
    sender.send_modify(|value| *value = "two");
    assert!(waits.is_woken());
    let mut wanted = probe(receiver.wait_for(|_| panic_quietly("in a condition")));
    assert!(catch_unwind(AssertUnwindSafe(|| wanted.poll().is_ready())).is_err());
    drop(wanted);
    assert_eq!(*receiver.borrow_and_update(), "two");
}

#[test]
fn a_receiver_waits_for_a_condition() {
    let (sender, mut receiver) = watch::channel(0);
    assert_eq!(*probe(receiver.wait_for(|value| *value == 0)).output().expect("it is so"), 0);
    let mut waits = probe(receiver.wait_for(|value| *value > 1));
    assert!(waits.is_pending());
    sender.send(1).expect("there is a receiver");
    assert!(waits.is_woken() && waits.is_pending());
    sender.send(2).expect("there is a receiver");
    let value = waits.output().expect("it is so");
    assert!(value.has_changed() && *value == 2);
    drop(value);
    drop(waits);
    assert_eq!(receiver.has_changed(), Ok(false));
    // The last value counts although there is no sender.
    sender.send(3).expect("there is a receiver");
    drop(sender);
    assert_eq!(*probe(receiver.wait_for(|value| *value == 3)).output().expect("it is so"), 3);
    assert!(probe(receiver.wait_for(|value| *value == 4)).output().is_err());
}

#[test]
fn dropped_waits_keep_no_wakers() {
    let (sender, mut receiver) = watch::channel(0);
    let mut waits = probe(receiver.changed());
    assert!(waits.is_pending());
    assert_eq!(waits.wakers_held(), 1);
    let mut closed = probe(sender.closed());
    assert!(closed.is_pending());
    assert_eq!(closed.wakers_held(), 1);
    sender.send(1).expect("there is a receiver");
    assert_eq!(waits.wakers_held(), 0);
}

#[test]
fn same_watches_are_the_same() {
    let ((sender, receiver), (other, others)) = (watch::channel(0), watch::channel(0));
    assert!(sender.same_channel(&sender.clone()) && !sender.same_channel(&other));
    assert!(receiver.same_channel(&sender.subscribe()) && !receiver.same_channel(&others));
}

#[test]
fn every_receiver_sees_the_last_value_under_threads() {
    let scheduler = threaded(2);
    let (sender, receiver) = watch::channel(0_u32);
    let watchers: Vec<_> = (0..4)
        .map(|_| {
            let mut receiver = receiver.clone();
            scheduler.spawn(async move {
                let mut last = 0;
                while receiver.changed().await.is_ok() {
                    let value = *receiver.borrow_and_update();
                    assert!(value >= last, "values do not go back");
                    last = value;
                }
                last
            })
        })
        .collect();
    let mut own = receiver;
    let plain =
        plain_thread(move || *own.wait_for(|value| *value >= 5_000).wait().expect("it comes"));
    let senders = [sender.clone(), sender];
    let senders = senders.map(|sender| {
        plain_thread(move || (0..5_000).for_each(|_| sender.send_modify(|value| *value += 1)))
    });
    for sender in senders {
        sender.join().expect("it does not panic");
    }
    for watcher in watchers {
        assert_eq!(watcher.join(), Ok(10_000));
    }
    assert!(plain.join().expect("it does not panic") >= 5_000);
}

#[test]
fn a_wait_can_be_limited_on_the_test_clock() {
    driven().block_on(async {
        let (sender, mut receiver) = watch::channel(Arc::new(0));
        let begin = Instant::now();
        assert!(timeout(Duration::from_secs(5), receiver.changed()).await.is_err());
        let process =
            spawn(async move { timeout(Duration::from_secs(9), receiver.changed()).await });
        sleep(Duration::from_secs(1)).await;
        sender.send(Arc::new(1)).expect("there is a receiver");
        assert_eq!(process.await, Ok(Ok(Ok(()))));
        assert_eq!(Instant::now() - begin, Duration::from_secs(6));
    });
}
