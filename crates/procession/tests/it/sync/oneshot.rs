//! Oneshot channels. The semantics are those of `tokio/tests/sync_oneshot.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession::coroutine::Wait;
use procession::sync::{RecvError, oneshot};
use procession::{sleep, spawn, timeout};

use super::probe::{plain_thread, probe};
use crate::scene::{driven, threaded};

#[test]
fn a_value_wakes_its_receiver() {
    let (sender, receiver) = oneshot::channel();
    let mut receiver = probe(receiver);
    assert!(receiver.is_pending());
    sender.send(1).expect("the receiver waits");
    assert!(receiver.is_woken());
    assert_eq!(receiver.output(), Ok(1));
    assert!(receiver.pinned().is_terminated());
    assert_eq!(receiver.pinned().try_recv(), Err(RecvError::Closed));
    receiver.pinned().close();
}

#[test]
fn a_dropped_sender_is_an_error() {
    let (sender, receiver) = oneshot::channel::<u32>();
    let mut receiver = probe(receiver);
    assert!(receiver.is_pending());
    drop(sender);
    assert!(receiver.is_woken());
    assert_eq!(receiver.output(), Err(RecvError::Closed));
}

#[test]
fn a_closed_channel_gives_the_value_back() {
    let (sender, receiver) = oneshot::channel();
    drop(receiver);
    assert_eq!(sender.send(1).map_err(|error| error.into_inner()), Err(1));
    let (sender, mut receiver) = oneshot::channel();
    receiver.close();
    assert!(sender.is_closed());
    assert_eq!(sender.send(1).map_err(|error| error.into_inner()), Err(1));
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
}

#[test]
fn a_value_that_was_sent_before_the_close_is_received() {
    let (sender, mut receiver) = oneshot::channel();
    sender.send(1).expect("it is open");
    assert!(!receiver.is_empty());
    receiver.close();
    assert_eq!(probe(&mut receiver).output(), Ok(1));
    assert!(receiver.is_empty());
    let (sender, mut receiver) = oneshot::channel();
    sender.send(1).expect("it is open");
    receiver.close();
    assert_eq!(receiver.try_recv(), Ok(1));
    receiver.close();
}

#[test]
fn a_sender_learns_of_the_close() {
    for close in [|mut receiver: oneshot::Receiver<u32>| receiver.close(), drop] {
        let (mut sender, receiver) = oneshot::channel();
        let mut closed = probe(sender.closed());
        assert!(closed.is_pending());
        close(receiver);
        assert!(closed.is_woken());
        closed.output();
        drop(closed);
        assert!(sender.is_closed());
        sender.send(1).expect_err("it is closed");
    }
}

#[test]
fn a_sender_learns_of_a_close_while_the_receiver_lives() {
    let (mut sender, mut receiver) = oneshot::channel::<u32>();
    let mut closed = probe(sender.closed());
    assert!(closed.is_pending());
    receiver.close();
    assert!(closed.is_woken());
    closed.output();
}

#[test]
fn each_side_wakes_the_last_waker_and_drops_the_others() {
    let (mut sender, mut receiver) = oneshot::channel::<u32>();
    let (mut first, mut second) = (probe(std::future::pending::<()>()), probe(async {}));
    let _ = (first.poll(), second.poll());
    let mut before = probe(&mut receiver);
    assert!(before.is_pending());
    assert_eq!(before.wakers_held(), 1);
    let mut noop = TaskContext::from_waker(Waker::noop());
    assert!(before.pinned().as_mut().poll(&mut noop).is_pending());
    assert_eq!(before.wakers_held(), 0);
    let mut closed = probe(sender.closed());
    assert!(closed.is_pending());
    assert_eq!(closed.wakers_held(), 1);
    assert!(closed.pinned().poll(&mut noop).is_pending());
    assert_eq!(closed.wakers_held(), 0);
    drop(closed);
    assert!(before.is_pending());
    sender.send(1).expect("it is open");
    assert!(before.is_woken());
    assert_eq!(before.wakers_held(), 0);
}

#[test]
fn dropped_ends_keep_no_wakers_and_no_value() {
    let (mut sender, mut receiver) = oneshot::channel::<Arc<()>>();
    let mut receives = probe(std::future::poll_fn(|task| Pin::new(&mut receiver).poll(task)));
    let mut closed = probe(sender.closed());
    assert!(receives.is_pending() && closed.is_pending());
    let left = closed.wakers_held();
    assert_eq!(left, 1);
    drop(closed);
    drop(sender);
    assert_eq!(receives.wakers_held(), 0);
    drop(receives);
    let (value, (sender, receiver)) = (Arc::new(()), oneshot::channel());
    sender.send(value.clone()).expect("it is open");
    drop(receiver);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
#[should_panic(expected = "polled after it has completed")]
fn a_receive_that_is_over_is_not_polled() {
    let (sender, mut receiver) = oneshot::channel::<u32>();
    drop(sender);
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
    let _ = probe(receiver).poll();
}

#[test]
fn a_receive_by_reference_loses_nothing() {
    driven().block_on(async {
        let (sender, mut receiver) = oneshot::channel();
        assert!(timeout(Duration::from_secs(1), &mut receiver).await.is_err());
        let process = spawn(async move {
            sleep(Duration::from_secs(1)).await;
            sender.send(7)
        });
        assert_eq!(timeout(Duration::from_secs(5), &mut receiver).await, Ok(Ok(7)));
        assert_eq!(process.await, Ok(Ok(())));
    });
}

#[test]
fn threads_and_processes_exchange_values() {
    let scheduler = threaded(2);
    for number in 0..200 {
        let (to_process, at_process) = oneshot::channel();
        let (to_thread, at_thread) = oneshot::channel();
        let process = scheduler.spawn(async move { to_thread.send(at_process.await) });
        let plain = plain_thread(move || to_process.send(number));
        assert_eq!(at_thread.wait(), Ok(Ok(number)));
        plain.join().expect("it does not panic").expect("the process waits");
        process.join().expect("it does not panic").expect("this thread waits");
    }
}

/// A receiver that is polled on a wake-up, until it is complete.
#[test]
fn a_poll_after_each_wake_up_is_enough() {
    let (sender, mut receiver) = oneshot::channel();
    let sends = plain_thread(move || sender.send(1));
    let received = procession::coroutine::wait(std::future::poll_fn(|task| {
        match Pin::new(&mut receiver).poll(task) {
            Poll::Ready(received) => Poll::Ready(received),
            Poll::Pending => Poll::Pending,
        }
    }));
    assert_eq!(received, Ok(1));
    sends.join().expect("it does not panic").expect("it is open");
}
