use std::sync::Arc as StdArc;
use std::task::Waker;

use procession_sync::{Arc, explore, thread};

use super::{ChannelCore, NotSent, Received, Sent, mutation};
use crate::sync::wait_list::{Another, Choice, Place, ServedWaiters};

/// Observes the result of a waiting receiver.
fn look_receiver<const MUTATION: u8>(
    channel: &ChannelCore<u32, MUTATION>,
    place: &mut Option<Place>,
) -> Option<Option<u32>> {
    channel.look_receiver(place, &mut Another::none(), &mut ServedWaiters::default())
}

/// One thread sends, one receives, and one closes the channel.
fn close_send_receive<const MUTATION: u8>() {
    explore(|| {
        let channel = Arc::new(ChannelCore::<u32, MUTATION>::new(0));
        let sender = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || channel.send_or_wait(7, &mut Another::none()))
        };
        let receiver = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || channel.recv_or_wait(&mut Another::none()))
        };
        drop(channel.close());
        let sent = match sender.join().expect("it does not panic") {
            Ok(Sent::Now(_)) => true,
            Err(NotSent::Closed(7)) => false,
            Ok(Sent::Waits(place)) => {
                let went = channel.look_sender(&mut Some(place), &mut Another::none());
                went.expect("no waiter is left in a closed channel").is_ok()
            }
            Err(_) => unreachable!("a sender that may wait is not refused as full"),
        };
        let received = match receiver.join().expect("it does not panic") {
            Ok(Received::Now(message, _)) => Some(message),
            Err(_) => None,
            Ok(Received::Waits(place)) => look_receiver(&channel, &mut Some(place))
                .expect("no waiter is left in a closed channel"),
        };
        assert_eq!(sent, received.is_some(), "a message is received, or comes back");
    });
}

#[test]
fn close_against_send_against_receive() {
    close_send_receive::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "no waiter is left in a closed channel")]
fn canary_enlist_without_look() {
    close_send_receive::<{ mutation::ENLIST_WITHOUT_LOOK }>();
}

/// A receiver is cancelled while a message is handed to it.
fn cancel_receive<const MUTATION: u8>() {
    explore(|| {
        let channel = Arc::new(ChannelCore::<u32, MUTATION>::new(0));
        let Ok(Received::Waits(place)) = channel.recv_or_wait(&mut Another::none()) else {
            unreachable!("nothing was sent")
        };
        let sender = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || channel.try_send(7).is_ok())
        };
        drop(channel.cancel_receiver(place));
        let sent = sender.join().expect("it does not panic");
        let received = channel.try_recv().is_ok();
        assert_eq!(sent, received, "a message that was sent is there to be received");
    });
}

#[test]
fn cancel_against_hand_over() {
    cancel_receive::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a message that was sent is there to be received")]
fn canary_cancel_drops() {
    cancel_receive::<{ mutation::CANCEL_DROPS }>();
}

/// A select waits in two channels, and both get a message at the same time.
#[test]
fn a_select_takes_one_of_two() {
    explore(|| {
        let choice = StdArc::new(Choice::new(Waker::noop().clone()));
        let channels = Arc::new([ChannelCore::<u32>::new(0), ChannelCore::<u32>::new(0)]);
        let mut places = [0, 1].map(|arm| channels[arm].enlist_receiver(&choice, arm as u32));
        let other = {
            let channels = Arc::clone(&channels);
            thread::spawn(move || channels[0].try_send(0).is_ok())
        };
        let sent = [channels[1].try_send(1).is_ok(), other.join().expect("it does not panic")];
        assert!(sent[0] != sent[1], "exactly one sender learns that its message arrived");
        let arm = choice.chosen().expect("one was served") as usize;
        let message = look_receiver(&channels[arm], &mut places[arm]);
        assert_eq!(message, Some(Some(arm as u32)), "and that message is there");
    });
}

/// Two selects wait for one another in one channel. Each tries and enlists as `sync/select.rs`
/// does.
#[test]
fn two_selects_meet() {
    explore(|| {
        let channel = Arc::new(ChannelCore::<u32>::new(0));
        let sender = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || {
                let choice = StdArc::new(Choice::new(Waker::noop().clone()));
                match channel.enlist_sender(7, &choice, 0) {
                    Ok(place) => Some((choice, place)),
                    // A receiver waits, and there is no other sender.
                    Err(message) => {
                        assert!(channel.try_send(message).is_ok(), "the receiver still waits");
                        None
                    }
                }
            })
        };
        let choice = StdArc::new(Choice::new(Waker::noop().clone()));
        let mut place = channel.enlist_receiver(&choice, 0);
        let received = if place.is_none() {
            channel.try_recv().ok().map(|(message, _)| message)
        } else {
            None
        };
        let waits = sender.join().expect("it does not panic");
        let handed = choice.chosen().and_then(|_| look_receiver(&channel, &mut place)).flatten();
        assert_eq!(received.or(handed), Some(7), "one select finds the other");
        assert!(waits.is_none_or(|(choice, _)| choice.chosen().is_some()), "and both selects know");
    });
}

/// Room that was reserved is given up while a sender begins to wait for room.
fn give_up<const MUTATION: u8>() {
    explore(|| {
        let channel = Arc::new(ChannelCore::<u32, MUTATION>::new(1));
        assert!(channel.try_reserve().is_ok(), "there is room");
        let sender = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || channel.send_or_wait(7, &mut Another::none()))
        };
        drop(channel.unreserve());
        let went = match sender.join().expect("it does not panic") {
            Ok(Sent::Now(_)) => true,
            Ok(Sent::Waits(place)) => {
                channel.look_sender(&mut Some(place), &mut Another::none()).is_some()
            }
            Err(_) => unreachable!("the channel is open"),
        };
        assert!(went, "a sender waits although there is room");
    });
}

#[test]
fn give_up_against_send() {
    give_up::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a sender waits although there is room")]
fn canary_give_up_in_two() {
    give_up::<{ mutation::GIVE_UP_IN_TWO }>();
}

/// The channel is closed while a message is sent for which room is reserved, and while a receiver
/// waits. The receiver gets the message, and then the end.
#[test]
fn close_against_reserved_send() {
    explore(|| {
        let channel = Arc::new(ChannelCore::<u32>::new(1));
        assert!(channel.try_reserve().is_ok(), "there is room");
        let Ok(Received::Waits(place)) = channel.recv_or_wait(&mut Another::none()) else {
            unreachable!("nothing was sent")
        };
        let sender = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || drop(channel.send_reserved(7)))
        };
        drop(channel.close());
        sender.join().expect("it does not panic");
        let received = look_receiver(&channel, &mut Some(place));
        assert_eq!(received, Some(Some(7)), "a reserved message is received");
        assert!(channel.try_recv().is_err_and(|error| error == super::NotReceived::Closed));
    });
}

/// Two receivers wait, and the first one has been handed a message when the channel is closed.
/// At the same time, `first` gets the place of the first one. The second one then sees `expected`.
fn close_after_hand_over<const MUTATION: u8>(
    first: impl Fn(&ChannelCore<u32, MUTATION>, Place) + Sync + Send + 'static,
    expected: Option<Option<u32>>,
    rule: &'static str,
) {
    explore(move || {
        let channel = Arc::new(ChannelCore::<u32, MUTATION>::new(1));
        let [one, two] = [(); 2].map(|()| match channel.recv_or_wait(&mut Another::none()) {
            Ok(Received::Waits(place)) => place,
            _ => unreachable!("nothing was sent"),
        });
        assert!(channel.try_send(7).is_ok(), "two receivers wait");
        let closes = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || drop(channel.close()))
        };
        first(&channel, one);
        closes.join().expect("it does not panic");
        assert_eq!(look_receiver(&channel, &mut Some(two)), expected, "{rule}");
    });
}

fn close_and_cancel<const MUTATION: u8>() {
    close_after_hand_over::<MUTATION>(
        |channel, place| drop(channel.cancel_receiver(place)),
        Some(Some(7)),
        "a message that is passed on finds the receiver that waits",
    );
}

#[test]
fn close_against_cancel_after_hand_over() {
    close_and_cancel::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a message that is passed on finds the receiver that waits")]
fn canary_close_forgets_handed() {
    close_and_cancel::<{ mutation::CLOSE_FORGETS_HANDED }>();
}

fn close_and_look<const MUTATION: u8>() {
    close_after_hand_over::<MUTATION>(
        |channel, place| assert_eq!(look_receiver(channel, &mut Some(place)), Some(Some(7))),
        Some(None),
        "a receiver is told the end once nothing can be passed on",
    );
}

#[test]
fn close_against_look_after_hand_over() {
    close_and_look::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a receiver is told the end once nothing can be passed on")]
fn canary_observe_ends_nobody() {
    close_and_look::<{ mutation::OBSERVE_ENDS_NOBODY }>();
}

/// A receiver keeps the only message of a closed channel, and is then cancelled. Another one
/// receives at the same time.
fn keep_and_cancel<const MUTATION: u8>() {
    explore(|| {
        let channel = Arc::new(ChannelCore::<u32, MUTATION>::new(1));
        assert!(channel.try_send(7).is_ok(), "there is room");
        drop(channel.close());
        let other = {
            let channel = Arc::clone(&channel);
            thread::spawn(move || channel.recv_or_wait(&mut Another::none()))
        };
        if let Ok(Received::Now(place, _)) = channel.keep_or_wait(&mut Another::none()) {
            assert!(channel.is_served(&place, &mut Another::none()));
            drop(channel.cancel_receiver(place));
        }
        let received = match other.join().expect("it does not panic") {
            Ok(Received::Now(message, _)) => Some(message),
            Ok(Received::Waits(place)) => look_receiver(&channel, &mut Some(place)).flatten(),
            Err(_) => None,
        };
        assert_eq!(received, Some(7), "nobody is told the end while a message is kept");
    });
}

#[test]
fn keep_against_receive() {
    keep_and_cancel::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "nobody is told the end while a message is kept")]
fn canary_keep_in_two() {
    keep_and_cancel::<{ mutation::KEEP_IN_TWO }>();
}
