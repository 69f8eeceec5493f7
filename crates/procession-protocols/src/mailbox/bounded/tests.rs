use std::num::NonZeroU32;
use std::task::Waker;

use procession_queue::{Entry, Event};

use super::{Bounded, FullPolicy, Offered, Standing, Stood, Taken};

type Mailbox = Bounded<u32, &'static str>;

fn mailbox(capacity: u32, when_full: FullPolicy) -> Mailbox {
    Bounded::new(NonZeroU32::new(capacity).expect("not 0"), when_full)
}

fn fill(mailbox: &Mailbox, messages: std::ops::Range<u32>) {
    for message in messages {
        assert_eq!(mailbox.offer(message, None), Offered::Queued { wake: false });
    }
}

fn stand(mailbox: &Mailbox, message: u32) -> u64 {
    match mailbox.stand(message, None, Waker::noop().clone()) {
        Stood::Waits(number) => number,
        other => panic!("{other:?}"),
    }
}

fn messages(mailbox: &Mailbox) -> Vec<u32> {
    let mut messages = Vec::new();
    while let Some(entry) = mailbox.take().entry {
        if let Event::Message(message) = entry {
            messages.push(message);
        }
    }
    messages
}

#[test]
fn each_policy_does_what_it_says() {
    for (when_full, answer, left) in [
        (FullPolicy::Reject, Offered::Full(9), vec![0, 1]),
        (FullPolicy::Wait, Offered::Full(9), vec![0, 1]),
        (FullPolicy::DropNewest, Offered::Dropped(9), vec![0, 1]),
        (FullPolicy::DropOldest, Offered::Replaced(0), vec![1, 9]),
        (FullPolicy::Kill, Offered::Kills(9), vec![0, 1]),
    ] {
        let mailbox = mailbox(2, when_full);
        fill(&mailbox, 0..2);
        assert_eq!(mailbox.offer(9, None), answer);
        assert_eq!(mailbox.offer_politely(8, None), Offered::Full(8), "whatever the policy");
        assert_eq!(messages(&mailbox), left, "{when_full:?}");
    }
}

#[test]
fn what_is_exempt_has_room_and_keeps_its_place() {
    let mailbox = mailbox(1, FullPolicy::DropOldest);
    assert!(mailbox.arm());
    assert_eq!(mailbox.push_exempt(Entry::new("a"), false), Ok(true), "it wakes");
    fill(&mailbox, 0..1);
    assert_eq!(mailbox.push_exempt(Entry::new("b"), false), Ok(false));
    assert_eq!(mailbox.offer(1, None), Offered::Replaced(0));
    let order: Vec<_> = std::iter::from_fn(|| mailbox.take().entry).collect();
    assert_eq!(
        order,
        [Event::System(Entry::new("a")), Event::System(Entry::new("b")), Event::Message(1)]
    );
}

#[test]
fn waiting_senders_are_served_in_order_and_not_overtaken() {
    let mailbox = mailbox(2, FullPolicy::Wait);
    fill(&mailbox, 0..2);
    let (first, second) = (stand(&mailbox, 2), stand(&mailbox, 3));
    let Taken { entry: taken, wakers, .. } = mailbox.take();
    assert_eq!((taken, wakers.len()), (Some(Event::Message(0)), 1));
    assert_eq!(mailbox.standing(first, Waker::noop().clone()).0, Standing::Taken);
    assert_eq!(mailbox.standing(second, Waker::noop().clone()).0, Standing::Waits);
    assert_eq!(mailbox.offer(9, None), Offered::Full(9), "there is no room, and somebody waits");
    assert_eq!(messages(&mailbox), [1, 2, 3]);
}

#[test]
fn a_sender_that_gives_up_gets_its_message_back_unless_it_was_taken() {
    let mailbox = mailbox(1, FullPolicy::Wait);
    fill(&mailbox, 0..1);
    let (first, second) = (stand(&mailbox, 1), stand(&mailbox, 2));
    assert_eq!(mailbox.withdraw(first).0, Some(1));
    assert_eq!(mailbox.take().entry, Some(Event::Message(0)));
    assert_eq!(mailbox.withdraw(second).0, None, "the room went to the next");
    assert_eq!(messages(&mailbox), [2]);
}

#[test]
fn a_closed_mailbox_gives_everything_back() {
    let mailbox = mailbox(1, FullPolicy::Wait);
    fill(&mailbox, 0..1);
    let (first, second) = (stand(&mailbox, 1), stand(&mailbox, 2));
    let (entries, wakers) = mailbox.close();
    assert_eq!((entries.len(), wakers.len()), (1, 2));
    assert_eq!(mailbox.standing(first, Waker::noop().clone()).0, Standing::Closed(1));
    assert_eq!(mailbox.withdraw(second).0, Some(2));
    assert_eq!(mailbox.offer(3, None), Offered::Closed(3));
    assert_eq!(mailbox.push_exempt(Entry::new("late"), false), Err(Entry::new("late")));
    assert!(!mailbox.arm(), "nothing will come");
}

/// Panics in its drop. Under the lock, that would poison it.
struct PanicsInDrop;

impl std::task::Wake for PanicsInDrop {
    fn wake(self: std::sync::Arc<Self>) {}
}

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("in a waker's drop"));
    }
}

fn harmful() -> Waker {
    Waker::from(std::sync::Arc::new(PanicsInDrop))
}

/// Drops a harmful waker in `access`, and ignores its panic.
fn quietly<R>(access: impl FnOnce() -> R) {
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(access()))));
}

#[test]
fn no_waker_is_dropped_under_the_lock() {
    let mailbox = mailbox(1, FullPolicy::Wait);
    quietly(|| mailbox.stand(0, None, harmful()));
    assert_eq!(mailbox.length(0), 1, "the mailbox still works after it took a message at once");
    let Stood::Waits(number) = mailbox.stand(1, None, harmful()) else { panic!("it is full") };
    quietly(|| mailbox.withdraw(number));
    assert_eq!(mailbox.figures().waiting, 0, "the mailbox still works after a sender gave up");
    let _ = mailbox.close();
    quietly(|| mailbox.stand(2, None, harmful()));
    assert_eq!(mailbox.length(0), 0, "the mailbox still works after it refused a message");
}

#[test]
fn urgent_messages_are_first_in_their_order_and_have_one_place_more() {
    let capacity = NonZeroU32::new(2).expect("not 0");
    let mailbox = Bounded::<u32, &str>::with_urgent(capacity, FullPolicy::DropOldest, true);
    assert_eq!(mailbox.offer(1, None), Offered::Queued { wake: false });
    assert_eq!(mailbox.offer(2, None), Offered::Queued { wake: false });
    assert_eq!(mailbox.offer_urgent(3, None), Offered::Queued { wake: false });
    assert_eq!(mailbox.offer_urgent(4, None), Offered::Full(4), "whatever the policy");
    assert_eq!(mailbox.offer(5, None), Offered::Replaced(1), "no urgent message is dropped");
    assert_eq!(mailbox.push_exempt(Entry::new("down"), true), Ok(false));
    assert_eq!((mailbox.length(0), mailbox.high_water()), (3, 3));
    let taken = mailbox.take();
    assert_eq!((taken.entry, taken.is_urgent), (Some(Event::Message(3)), true));
    assert_eq!(mailbox.offer_urgent(6, None), Offered::Queued { wake: false });
    let (urgent, _) = mailbox.take_urgent();
    let urgent: Vec<_> = urgent.into_iter().collect();
    assert_eq!(urgent, [Event::System(Entry::new("down")), Event::Message(6)]);
    let order: Vec<_> = std::iter::from_fn(|| mailbox.take().entry).collect();
    assert_eq!(order, [Event::Message(2), Event::Message(5)]);
}

#[test]
fn a_full_mailbox_is_told_once_until_half_of_it_is_free() {
    let capacity = NonZeroU32::new(4).expect("not 0");
    let mailbox = Bounded::<u32, &str>::with_urgent(capacity, FullPolicy::Reject, true);
    let fill = || while let Offered::Queued { .. } = mailbox.offer(0, None) {};
    fill();
    assert_eq!(mailbox.tell_full(Entry::new("full")), Ok(false));
    assert_eq!(mailbox.tell_full(Entry::new("again")), Err(Entry::new("again")));
    assert_eq!(mailbox.take().entry, Some(Event::System(Entry::new("full"))));
    assert_eq!(mailbox.take().entry, Some(Event::Message(0)));
    fill();
    assert_eq!(mailbox.tell_full(Entry::new("again")), Err(Entry::new("again")));
    drop((mailbox.take(), mailbox.take()));
    fill();
    assert_eq!(mailbox.tell_full(Entry::new("again")), Ok(false));
    assert_eq!(mailbox.close().0.len(), 5);
    assert_eq!(mailbox.tell_full(Entry::new("late")), Err(Entry::new("late")));
}
