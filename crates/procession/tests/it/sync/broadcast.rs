//! Broadcast channels. The semantics are those of `tokio/tests/sync_broadcast.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use procession::coroutine::Wait;
use procession::sync::{RecvError, SendError, broadcast};
use procession::{sleep, spawn, timeout};
use procession_sync::Mutex;

use super::probe::{plain_thread, probe};
use crate::scene::{driven, panic_quietly, threaded};

#[test]
fn each_receiver_gets_each_message() {
    let (sender, mut first) = broadcast::channel(16);
    let mut second = sender.subscribe();
    assert_eq!(first.try_recv(), Err(RecvError::Empty));
    assert_eq!(sender.send("a"), Ok(2));
    assert_eq!(sender.send("b"), Ok(2));
    assert_eq!((sender.len(), first.len()), (2, 2));
    for receiver in [&mut first, &mut second] {
        assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok("a"), Ok("b")));
        assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
    }
    assert!(sender.is_empty() && first.is_empty());
}

#[test]
fn a_message_wakes_all_that_wait() {
    let (sender, mut first) = broadcast::channel(16);
    let (mut second, mut third) = (sender.subscribe(), sender.subscribe());
    let (mut waits, mut too) = (probe(first.recv()), probe(second.recv()));
    assert!(waits.is_pending() && too.is_pending());
    sender.send(1).expect("there are receivers");
    assert!(waits.is_woken() && too.is_woken());
    sender.send(2).expect("there are receivers");
    assert_eq!((waits.output(), too.output()), (Ok(1), Ok(1)));
    drop(waits);
    assert_eq!(probe(third.recv()).output(), Ok(1));
    assert_eq!(probe(first.recv()).output(), Ok(2));
}

#[test]
fn the_last_waker_is_woken_and_dropped_waits_keep_none() {
    let (sender, mut receiver) = broadcast::channel(1);
    let mut waits = probe(receiver.recv());
    let mut noop = TaskContext::from_waker(Waker::noop());
    assert!(waits.pinned().poll(&mut noop).is_pending() && waits.is_pending());
    sender.send("hello").expect("there is a receiver");
    assert!(waits.is_woken());
    assert_eq!(waits.output(), Ok("hello"));
    assert!(waits.is_pending());
    assert_eq!(waits.wakers_held(), 1);
    let mut closed = probe(sender.closed());
    assert!(closed.is_pending());
    drop(waits);
    drop(receiver);
    assert!(closed.is_woken());
    closed.output();
    assert_eq!(closed.wakers_held(), 0);
}

#[test]
fn a_slow_receiver_is_told_how_many_it_has_missed() {
    let (sender, mut fast) = broadcast::channel(2);
    let mut slow = sender.subscribe();
    sender.send(1).expect("there are receivers");
    sender.send(2).expect("there are receivers");
    assert_eq!(fast.try_recv(), Ok(1));
    sender.send(3).expect("there are receivers");
    assert_eq!(slow.len(), 3);
    assert_eq!(slow.try_recv(), Err(RecvError::Lagged(1)));
    assert_eq!(slow.try_recv(), Ok(2));
    assert_eq!((fast.try_recv(), fast.try_recv()), (Ok(2), Ok(3)));
    sender.send(4).expect("there are receivers");
    sender.send(5).expect("there are receivers");
    assert_eq!(probe(slow.recv()).output(), Err(RecvError::Lagged(1)));
    sender.send(6).expect("there are receivers");
    assert_eq!(slow.try_recv(), Err(RecvError::Lagged(1)));
    assert_eq!((slow.try_recv(), slow.try_recv()), (Ok(5), Ok(6)));
}

/// tokio's `sender_len`, but for messages that a receiver takes together with the one that it
/// returns: they are in the channel no more.
#[test]
fn a_sender_counts_the_messages_that_some_receiver_has_not_taken() {
    let (sender, mut first) = broadcast::channel(4);
    let mut second = sender.subscribe();
    assert!(sender.is_empty());
    (1..4).for_each(|message| assert_eq!(sender.send(message), Ok(2)));
    assert_eq!((sender.len(), sender.is_empty()), (3, false));
    assert_eq!((first.try_recv(), first.try_recv()), (Ok(1), Ok(2)));
    assert_eq!((sender.len(), first.len(), second.len()), (3, 1, 3));
    assert_eq!(second.try_recv(), Ok(1));
    assert_eq!((sender.len(), first.len(), second.len()), (0, 1, 2));
    (4..9).for_each(|message| assert_eq!(sender.send(message), Ok(2)));
    assert_eq!((sender.len(), sender.is_empty()), (4, false));
    // At most 16 messages are taken at once.
    let (sender, mut receiver) = broadcast::channel(32);
    (0..20).for_each(|message| assert_eq!(sender.send(message), Ok(1)));
    assert_eq!(receiver.try_recv(), Ok(0));
    assert_eq!((sender.len(), receiver.len()), (4, 19));
}

/// Receivers take several messages at a time, which must show neither in the order nor in a lag.
#[test]
fn a_lag_among_many_messages_is_exact() {
    let (sender, mut receiver) = broadcast::channel(32);
    let counted = Arc::new(());
    let send = |messages: std::ops::Range<u32>| {
        for message in messages {
            sender.send((message, counted.clone())).expect("there is a receiver");
        }
    };
    let mut receive = || receiver.try_recv().map(|(message, _)| message);
    send(0..32);
    assert_eq!(receive(), Ok(0));
    send(32..40);
    assert_eq!(receive(), Err(RecvError::Lagged(7)));
    assert!((8..40).all(|message| receive() == Ok(message)));
    assert_eq!(receive(), Err(RecvError::Empty));
    send(40..50);
    assert_eq!(receive(), Ok(40));
    send(50..100);
    assert_eq!(receive(), Err(RecvError::Lagged(27)));
    assert_eq!(receive(), Ok(68));
    assert_eq!(receiver.len(), 31);
    drop(receiver);
    assert!(sender.is_empty());
    assert_eq!(Arc::strong_count(&counted), 1, "no message is left");
}

#[test]
fn a_closed_channel_is_emptied_first() {
    for (sent, missed) in [(1, 0), (2, 0), (3, 1), (4, 2)] {
        let (sender, mut receiver) = broadcast::channel(2);
        for message in 0..sent {
            sender.send(message).expect("there is a receiver");
        }
        drop(sender);
        assert!(receiver.is_closed());
        if missed > 0 {
            assert_eq!(receiver.try_recv(), Err(RecvError::Lagged(missed)));
        }
        (missed..sent).for_each(|message| assert_eq!(receiver.try_recv(), Ok(message)));
        assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
        assert_eq!(probe(receiver.recv()).output(), Err(RecvError::Closed));
    }
}

#[test]
fn the_last_sender_wakes_receivers() {
    let (sender, mut receiver) = broadcast::channel::<()>(16);
    let other = sender.clone();
    let mut waits = probe(receiver.recv());
    assert!(waits.is_pending());
    drop(sender);
    assert!(waits.is_pending());
    drop(other);
    assert!(waits.is_woken());
    assert_eq!(waits.output(), Err(RecvError::Closed));
}

#[test]
fn a_weak_sender_keeps_no_channel_open() {
    let (sender, mut receiver) = broadcast::channel(4);
    let weak = sender.downgrade();
    let other = weak.clone().upgrade().expect("there is a sender");
    assert!(other.same_channel(&sender));
    drop(sender);
    other.send(1).expect("there is a receiver");
    let mut waits = probe(async {
        assert_eq!(receiver.recv().await, Ok(1));
        receiver.recv().await
    });
    assert!(waits.is_pending());
    drop(other);
    assert!(waits.is_woken(), "the last sender has gone, although a weak one is left");
    assert_eq!(waits.output(), Err(RecvError::Closed));
    assert!(weak.upgrade().is_none());
}

#[test]
fn without_receivers_the_message_comes_back() {
    let sender = broadcast::Sender::new(0);
    assert_eq!(sender.send("a").map_err(SendError::into_inner), Err("a"));
    let mut receiver = sender.subscribe();
    assert_eq!(sender.send("b"), Ok(1));
    assert_eq!(receiver.try_recv(), Ok("b"));
    let mut later = receiver.resubscribe();
    assert_eq!(sender.receiver_count(), 2);
    sender.send("c").expect("there are receivers");
    assert_eq!((receiver.try_recv(), later.try_recv()), (Ok("c"), Ok("c")));
    let other = broadcast::Sender::<&str>::new(1);
    assert!(sender.same_channel(&sender.clone()) && !sender.same_channel(&other));
    assert!(later.same_channel(&receiver) && !later.same_channel(&other.subscribe()));
}

#[test]
fn a_message_is_dropped_as_soon_as_all_have_it_or_have_gone() {
    let message = Arc::new(());
    let (sender, mut first) = broadcast::channel(2);
    let second = sender.subscribe();
    sender.send(message.clone()).expect("there are receivers");
    sender.send(message.clone()).expect("there are receivers");
    drop(first.try_recv());
    drop(first.try_recv());
    assert_eq!(Arc::strong_count(&message), 3);
    drop(second);
    assert_eq!(Arc::strong_count(&message), 1);
    sender.send(message.clone()).expect("there are receivers");
    sender.send(message.clone()).expect("there are receivers");
    sender.send(message.clone()).expect("there are receivers");
    assert_eq!(Arc::strong_count(&message), 3, "the oldest made room");
    drop(first);
    assert_eq!(Arc::strong_count(&message), 1);
}

#[derive(Debug)]
struct Fragile(bool);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if !self.0 {
            panic_quietly("in a clone");
        }
        Self(self.0)
    }
}

#[test]
fn a_panic_in_a_clone_loses_that_message_only() {
    let (sender, mut receiver) = broadcast::channel(4);
    let _other = sender.subscribe();
    for clones in [false, true] {
        sender.send(Fragile(clones)).expect("there are receivers");
    }
    assert!(catch_unwind(AssertUnwindSafe(|| receiver.try_recv().is_ok())).is_err());
    assert!(receiver.try_recv().expect("it is there").0);
}

/// A message that uses its channel when it is cloned and when it is dropped.
struct Busy(Arc<Mutex<Option<broadcast::Sender<Busy>>>>);

impl Busy {
    fn look(&self) {
        let sender = self.0.lock().take();
        if let Some(sender) = sender {
            assert!(sender.receiver_count() > 0);
            let nested = Busy(Arc::default());
            let _ = sender.send(nested);
            self.0.lock().replace(sender);
        }
    }
}

impl Clone for Busy {
    fn clone(&self) -> Self {
        self.look();
        Busy(self.0.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.look();
    }
}

#[test]
fn messages_may_use_their_channel() {
    let (sender, mut first) = broadcast::channel(1);
    let mut second = sender.subscribe();
    let to_self = Arc::new(Mutex::new(Some(sender.clone())));
    for _ in 0..3 {
        sender.send(Busy(to_self.clone())).expect("there are receivers");
        let _ = (first.try_recv().is_ok(), second.try_recv().is_ok());
    }
    to_self.lock().take();
}

#[test]
fn all_receivers_get_the_same_order_under_threads() {
    const MESSAGES: u64 = 20_000;
    let scheduler = threaded(2);
    let (sender, receiver) = broadcast::channel(64);
    let receive = |mut receiver: broadcast::Receiver<u64>| async move {
        let (mut next, mut missed) = (0, 0);
        loop {
            match receiver.recv().await {
                Ok(message) => {
                    assert_eq!(message, next + missed, "in order, and each is accounted for");
                    next += 1;
                }
                Err(RecvError::Lagged(count)) => missed += count,
                Err(_) => return next + missed,
            }
        }
    };
    let receivers: Vec<_> = (0..3).map(|_| scheduler.spawn(receive(sender.subscribe()))).collect();
    let plain = plain_thread(move || receive(receiver).wait());
    let sends = plain_thread(move || {
        for message in 0..MESSAGES {
            sender.send(message).expect("there are receivers");
        }
    });
    sends.join().expect("it does not panic");
    assert_eq!(plain.join().expect("it does not panic"), MESSAGES);
    for receiver in receivers {
        assert_eq!(receiver.join(), Ok(MESSAGES));
    }
}

#[test]
fn a_receive_can_be_limited_on_the_test_clock() {
    driven().block_on(async {
        let (sender, mut receiver) = broadcast::channel(4);
        assert!(timeout(Duration::from_secs(5), receiver.recv()).await.is_err());
        let process = spawn(async move { timeout(Duration::from_secs(9), receiver.recv()).await });
        sleep(Duration::from_secs(1)).await;
        sender.send(1).expect("there is a receiver");
        assert_eq!(process.await, Ok(Ok(Ok(1))));
    });
}
