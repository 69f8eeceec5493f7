//! Only decisions are modelled: a wake-up is a result of an operation.

use std::num::NonZeroU32;
use std::task::Waker;

use procession_queue::Event;
use procession_sync::{Arc, explore, thread};

use super::{Bounded, FullPolicy, Offered, Reserved, Standing, Stood, mutation};

type Mailbox<const MUTATION: u8> = Bounded<u32, (), MUTATION>;

fn mailbox<const MUTATION: u8>(when_full: FullPolicy) -> Arc<Mailbox<MUTATION>> {
    Arc::new(Bounded::new(NonZeroU32::MIN, when_full))
}

fn full<const MUTATION: u8>() -> Arc<Mailbox<MUTATION>> {
    let mailbox = mailbox(FullPolicy::Wait);
    assert_eq!(mailbox.offer(1, None), Offered::Queued { wake: false });
    mailbox
}

#[test]
fn push_against_take() {
    explore(|| {
        let mailbox = mailbox::<{ mutation::SOUND }>(FullPolicy::Reject);
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.offer(1, None) == Offered::Queued { wake: true })
        };
        let taken = mailbox.take().entry;
        let sleeps = taken.is_none() && mailbox.arm();
        let woken = sender.join().expect("the sender does not panic");
        assert_eq!(sleeps, woken, "the receiver is woken if and only if it sleeps");
    });
}

#[test]
fn push_against_close() {
    explore(|| {
        let mailbox = mailbox::<{ mutation::SOUND }>(FullPolicy::Reject);
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.offer(1, None) == Offered::Closed(1))
        };
        let drained = mailbox.close().0.len() == 1;
        let refused = sender.join().expect("the sender does not panic");
        assert!(drained != refused, "the message is discarded or comes back");
    });
}

/// The mailbox is full. A sender waits for room while the receiver takes a message out.
fn wait<const MUTATION: u8>() {
    explore(|| {
        let mailbox = full::<MUTATION>();
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.stand(2, None, Waker::noop().clone()))
        };
        assert_eq!(mailbox.take().entry, Some(Event::Message(1)));
        if let Stood::Waits(number) = sender.join().expect("the sender does not panic") {
            let (standing, _) = mailbox.standing(number, Waker::noop().clone());
            assert_eq!(standing, Standing::Taken, "it waits beside an empty mailbox");
        }
        assert_eq!(mailbox.take().entry, Some(Event::Message(2)));
    });
}

#[test]
fn wait_against_take() {
    wait::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "it waits beside an empty mailbox")]
fn canary_stand_apart() {
    wait::<{ mutation::STAND_APART }>();
}

/// The mailbox is full. A sender waits for room while the receiver ends.
fn death<const MUTATION: u8>() {
    explore(|| {
        let mailbox = full::<MUTATION>();
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.stand(2, None, Waker::noop().clone()))
        };
        assert_eq!(mailbox.close().0.len(), 1);
        match sender.join().expect("the sender does not panic") {
            Stood::Waits(number) => {
                let (standing, _) = mailbox.standing(number, Waker::noop().clone());
                assert_eq!(standing, Standing::Closed(2), "its message comes back");
            }
            stood => assert_eq!(stood, Stood::Closed(2), "its message comes back"),
        }
    });
}

#[test]
fn wait_against_close() {
    death::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "its message comes back")]
fn canary_close_forgets() {
    death::<{ mutation::CLOSE_FORGETS }>();
}

/// A sender has reserved room, and fills it while the receiver ends.
fn fill<const MUTATION: u8>() {
    explore(|| {
        let mailbox = mailbox::<MUTATION>(FullPolicy::Reject);
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || match mailbox.reserve() {
                Reserved::Room => mailbox.fill(1, None).is_ok(),
                reserved => {
                    assert_eq!(reserved, Reserved::Closed, "nothing else is in the mailbox");
                    false
                }
            })
        };
        let drained = mailbox.close().0.len() == 1;
        let accepted = sender.join().expect("the sender does not panic");
        assert_eq!(drained, accepted, "the message is discarded or comes back");
    });
}

#[test]
fn fill_against_close() {
    fill::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "the message is discarded or comes back")]
fn canary_fill_after_close() {
    fill::<{ mutation::FILL_AFTER_CLOSE }>();
}

/// A sender frees the room that it has reserved, while another sender waits for room.
fn give_up<const MUTATION: u8>() {
    explore(|| {
        let mailbox = mailbox::<MUTATION>(FullPolicy::Wait);
        assert_eq!(mailbox.reserve(), Reserved::Room);
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.stand(2, None, Waker::noop().clone()))
        };
        let admitted = mailbox.give_up().len();
        match sender.join().expect("the sender does not panic") {
            Stood::Waits(number) => {
                let (standing, _) = mailbox.standing(number, Waker::noop().clone());
                assert_eq!(standing, Standing::Taken, "it waits beside an empty mailbox");
                assert_eq!(admitted, 1, "it is woken");
            }
            stood => assert_eq!(stood, Stood::Queued { wake: false }),
        }
        assert_eq!(mailbox.take().entry, Some(Event::Message(2)));
    });
}

#[test]
fn give_up_against_wait() {
    give_up::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "it waits beside an empty mailbox")]
fn canary_give_up_alone() {
    give_up::<{ mutation::GIVE_UP_ALONE }>();
}

fn urgent<const MUTATION: u8>() -> Arc<Mailbox<MUTATION>> {
    let two = NonZeroU32::new(2).expect("it is not 0");
    Arc::new(Bounded::with_urgent(two, FullPolicy::Reject, true))
}

/// Two urgent messages come while the receiver looks and goes to sleep. An ordinary message would
/// keep it awake.
fn urgent_take<const MUTATION: u8>() {
    explore(|| {
        let mailbox = urgent::<MUTATION>();
        let senders = [1, 2].map(|message| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.offer_urgent(message, None))
        });
        let taken = mailbox.take().entry;
        let sleeps = taken.is_none() && mailbox.arm();
        let offered = senders.map(|sender| sender.join().expect("the sender does not panic"));
        let wakes = offered.into_iter().filter(|offered| match offered {
            Offered::Queued { wake } => *wake,
            offered => panic!("there is room: {offered:?}"),
        });
        assert_eq!(usize::from(sleeps), wakes.count(), "one sender wakes a sleeper");
    });
}

#[test]
fn urgent_push_against_take() {
    urgent_take::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "one sender wakes a sleeper")]
fn canary_arm_forgets_urgent() {
    urgent_take::<{ mutation::ARM_FORGETS_URGENT }>();
}

/// The receiver ends while an urgent message comes.
fn urgent_death<const MUTATION: u8>() {
    explore(|| {
        let mailbox = urgent::<MUTATION>();
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.offer_urgent(1, None) == Offered::Closed(1))
        };
        let drained = mailbox.close().0.len() == 1;
        let refused = sender.join().expect("the sender does not panic");
        assert!(drained != refused, "the message is discarded or comes back");
    });
}

#[test]
fn urgent_push_against_close() {
    urgent_death::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "the message is discarded or comes back")]
fn canary_urgent_in_two() {
    urgent_death::<{ mutation::URGENT_IN_TWO }>();
}
