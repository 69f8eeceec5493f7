//! Reserved room, receives of many messages, and weak senders. The semantics are those of
//! `tokio/tests/sync_mpsc.rs` and `sync_mpsc_weak.rs`.

use std::sync::Arc;
use std::time::Duration;

use procession::coroutine::Wait;
use procession::sync::{RecvError, Select, SendError, channel};
use procession::{sleep, spawn, timeout};

use super::probe::probe;
use crate::scene::driven;

#[test]
fn a_permit_keeps_room_for_its_message() {
    let (sender, receiver) = channel::bounded(2);
    let permit = sender.try_reserve().expect("there is room");
    sender.try_send(1).expect("there is room");
    assert_eq!(sender.try_send(2), Err(SendError::Full(2)));
    assert!(sender.try_reserve().is_err_and(|error| error == SendError::Full(())));
    permit.send(3);
    assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok(1), Ok(3)));
    let permits = [(); 2].map(|()| sender.try_reserve().expect("there is room"));
    assert!(sender.try_send(4).is_err());
    drop(permits);
    sender.try_send(5).expect("the room came back");
}

#[test]
fn senders_and_reservations_wait_in_one_order() {
    let (sender, receiver) = channel::bounded(1);
    sender.try_send(0).expect("there is room");
    let mut first = probe(sender.reserve());
    let mut second = probe(sender.send(2));
    let mut third = probe(sender.reserve());
    assert!(first.is_pending() && second.is_pending() && third.is_pending());
    assert_eq!(receiver.try_recv(), Ok(0));
    assert!(first.is_woken() && !second.is_woken());
    let permit = first.output().expect("it is open");
    assert_eq!(
        receiver.try_recv(),
        Ok(2),
        "a sender whose message is wanted need not wait for room"
    );
    assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
    permit.send(1);
    assert!(!third.is_woken());
    assert_eq!(receiver.try_recv(), Ok(1));
    drop(third.output());
    sender.try_send(3).expect("there is room again");
}

#[test]
fn a_reservation_that_is_cancelled_goes_to_the_next() {
    let (sender, _receiver) = channel::bounded::<u32>(1);
    let held = sender.try_reserve().expect("there is room");
    let mut first = probe(sender.reserve());
    let mut second = probe(sender.send(7));
    assert!(first.is_pending() && second.is_pending());
    drop(held);
    assert!(first.is_woken());
    drop(first);
    assert!(second.is_woken());
    assert_eq!(second.output(), Ok(()));
}

#[test]
fn a_message_with_a_permit_arrives_after_a_close() {
    let (sender, receiver) = channel::bounded(2);
    let (permit, unused) = (sender.try_reserve(), sender.try_reserve());
    let mut waits = probe(receiver.recv());
    let mut many = Vec::new();
    assert!(waits.is_pending());
    receiver.close();
    assert!(waits.is_pending() && !waits.is_woken(), "there are permits");
    assert_eq!(sender.try_send(9), Err(SendError::Closed(9)), "although a receiver waits");
    assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
    assert_eq!(probe(sender.reserve()).output().err().map(SendError::into_inner), Some(()));
    permit.expect("there was room").send(1);
    assert!(waits.is_woken());
    assert_eq!(waits.output(), Some(1));
    let mut end = probe(receiver.recv_many(&mut many, 5));
    assert!(end.is_pending());
    drop(unused);
    assert!(end.is_woken());
    assert_eq!(end.output(), 0);
}

/// Goal: the end of the last claim on the room of a closed channel ends a receive that waits.
#[test]
fn a_receive_ends_when_the_last_reservation_of_a_closed_channel_does() {
    // The reservation has got its room and has not looked.
    let (sender, receiver) = channel::bounded::<u32>(1);
    let held = sender.try_reserve().expect("there is room");
    let mut served = probe(sender.reserve());
    assert!(served.is_pending());
    drop(held);
    assert!(served.is_woken());
    let mut waits = probe(receiver.recv());
    assert!(waits.is_pending());
    receiver.close();
    assert!(!waits.is_woken() && waits.is_pending(), "room is reserved");
    drop(served);
    assert!(waits.is_woken());
    assert_eq!(waits.output(), None);

    // The close refuses a reservation in the queue, so that its cancel changes nothing.
    let (sender, receiver) = channel::bounded::<u32>(1);
    let held = sender.try_reserve().expect("there is room");
    let mut queued = probe(sender.reserve());
    let mut waits = probe(receiver.recv());
    assert!(queued.is_pending() && waits.is_pending());
    receiver.close();
    assert!(queued.is_woken());
    drop(queued);
    assert!(!waits.is_woken() && waits.is_pending(), "there is a permit");
    drop(held);
    assert!(waits.is_woken());
    assert_eq!(waits.output(), None);

    // A reservation in the queue has the last sender.
    let (sender, receiver) = channel::bounded::<u32>(1);
    let held = sender.clone().try_reserve_owned().expect("there is room");
    let mut queued = probe(sender.reserve_owned());
    let mut waits = probe(receiver.recv());
    assert!(queued.is_pending() && waits.is_pending());
    drop(held);
    assert!(queued.is_woken() && !waits.is_woken());
    drop(queued);
    assert!(waits.is_woken());
    assert_eq!(waits.output(), None);
}

#[test]
fn a_message_to_no_receiver_is_dropped() {
    let message = Arc::new(());
    let (sender, receiver) = channel::bounded(1);
    let permit = sender.try_reserve().expect("there is room");
    drop(receiver);
    permit.send(message.clone());
    assert_eq!(Arc::strong_count(&message), 1);
    assert!(probe(sender.reserve()).output().is_err());
}

#[test]
fn an_owned_permit_has_its_sender() {
    let (sender, receiver) = channel::bounded(1);
    let other = channel::bounded::<u32>(1).0;
    let permit = sender.clone().try_reserve_owned().expect("there is room");
    assert!(permit.same_channel_as_sender(&sender) && !permit.same_channel_as_sender(&other));
    let Err(SendError::Full(sender)) = sender.try_reserve_owned() else {
        panic!("the room is reserved");
    };
    let mut waits = probe(sender.clone().reserve_owned());
    assert!(waits.is_pending());
    drop(sender);
    let released = permit.release();
    assert!(waits.is_woken());
    drop(released);
    let sends = waits.output().expect("it is open");
    let sender = sends.send(7);
    assert_eq!(receiver.try_recv(), Ok(7));
    let permit = sender.try_reserve_owned().expect("there is room");
    assert_eq!(receiver.try_recv(), Err(RecvError::Empty), "the permit keeps it open");
    drop(permit);
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed), "its sender was the last one");
}

#[test]
fn an_owned_permit_outlives_a_close() {
    let (sender, receiver) = channel::bounded(1);
    let permit = sender.clone().try_reserve_owned().expect("there is room");
    let mut waits = probe(sender.clone().reserve_owned());
    assert!(waits.is_pending());
    receiver.close();
    assert!(waits.is_woken());
    let sender = waits.output().expect_err("it is closed").into_inner();
    let refused = sender.try_reserve_owned().expect_err("it is closed");
    assert!(matches!(&refused, SendError::Closed(back) if permit.same_channel_as_sender(back)));
    assert_eq!(receiver.try_recv(), Err(RecvError::Empty), "there is a permit");
    drop(permit.send(1));
    assert_eq!(receiver.try_recv(), Ok(1));
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
}

#[test]
fn a_reservation_that_is_cancelled_drops_its_sender() {
    let (sender, receiver) = channel::bounded(1);
    let held = sender.try_reserve().expect("there is room");
    let mut waits = probe(sender.clone().reserve_owned());
    assert!(waits.is_pending());
    drop(waits);
    drop(held);
    sender.try_send(1).expect("the room came back");
    drop(sender);
    assert_eq!(receiver.try_recv(), Ok(1));
    assert_eq!(receiver.try_recv(), Err(RecvError::Closed), "no sender is left");
}

#[test]
fn a_rendezvous_has_no_room_to_reserve() {
    let (sender, receiver) = channel::bounded(0);
    assert!(sender.try_reserve().is_err_and(|error| error == SendError::Full(())));
    let mut reserves = probe(sender.reserve());
    let mut sends = probe(sender.send(1));
    assert!(reserves.is_pending() && sends.is_pending());
    assert_eq!(receiver.try_recv(), Ok(1), "the reservation is in nobody's way");
    assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
    // A select that receives waits, instead of trying again and again.
    let mut selects = probe(Select::new().recv(&receiver, |message| message));
    assert!(selects.is_pending() && !selects.is_woken());
    sender.try_send(2).expect("a receiver waits");
    assert_eq!(selects.output(), Some(2));
    sender.close();
    assert!(reserves.is_woken());
    assert!(reserves.output().is_err());
}

#[test]
fn many_messages_are_received_at_once() {
    let (sender, receiver) = channel::bounded(200);
    let mut buffer = vec![9];
    assert_eq!(receiver.recv_many(&mut buffer, 0).wait(), 0);
    (0..200).for_each(|number| sender.try_send(number).expect("there is room"));
    let mut waiting: Vec<_> = (200..210).map(|number| probe(sender.send(number))).collect();
    assert!(waiting.iter_mut().all(|sending| sending.is_pending()));
    assert_eq!(receiver.recv_many(&mut buffer, 150).wait(), 150);
    assert!(waiting.iter().all(|sending| sending.is_woken()));
    assert_eq!(receiver.recv_many(&mut buffer, 150).wait(), 60);
    assert_eq!(buffer[0], 9);
    assert!(buffer[1..].iter().copied().eq(0..210));
    let mut waits = probe(receiver.recv_many(&mut buffer, 5));
    assert!(waits.is_pending());
    sender.try_send(1).expect("there is room");
    assert!(waits.is_woken());
    drop(waits);
    assert_eq!(buffer.len(), 211, "a cancelled receive changes nothing");
    assert_eq!(receiver.recv_many(&mut buffer, 5).wait(), 1);
    drop(waiting);
    drop(sender);
    assert_eq!(receiver.recv_many(&mut buffer, 5).wait(), 0, "the end");
}

#[test]
fn weak_senders_do_not_keep_a_channel_open() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(1);
        let weak = sender.downgrade();
        assert!(weak.upgrade().is_some_and(|strong| strong.same_channel(&sender)));
        let more = weak.clone();
        let receives = spawn(async move {
            let first = receiver.recv().await;
            (first, receiver.recv().await)
        });
        let sends = spawn(async move {
            sleep(Duration::from_secs(1)).await;
            weak.upgrade().expect("there is a sender").send(1).await
        });
        sleep(Duration::from_secs(2)).await;
        drop(sender);
        assert_eq!(sends.await, Ok(Ok(())));
        assert_eq!(receives.await, Ok((Some(1), None)));
        assert!(more.upgrade().is_none());
    });
}

#[test]
fn a_reservation_can_be_limited() {
    driven().block_on(async {
        let (sender, receiver) = channel::bounded(1);
        sender.send(1).await.expect("it is open");
        assert!(timeout(Duration::from_secs(1), sender.reserve()).await.is_err());
        assert_eq!(receiver.recv().await, Some(1));
        sender.reserve().await.expect("it is open").send(2);
        assert_eq!(receiver.recv().await, Some(2));
    });
}
