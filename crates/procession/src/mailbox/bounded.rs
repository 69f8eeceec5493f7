//! Bounded mailboxes: what they do when they are full, and who waits for room.
//!
//! # Bounded-mailbox protocol
//!
//! ## Problem
//! A sender finds the mailbox full. Before it has said that it waits, the receiver takes a message
//! out and finds nobody waiting: the sender waits for ever beside an empty mailbox. Or the receiver
//! ends meanwhile, and nobody gives the sender its message back.
//!
//! ## States
//! One lock over the entries, the queue of those who wait, and what is to be given back. Messages
//! count against the capacity from their push until they are taken out one by one; what the runtime
//! pushes does not. `armed`: the receiver found nothing, and wants to be woken. `closed`, for ever:
//! the receiver has ended.
//!
//! ## Steps
//! Push: `Refuse` if closed; `Queue` if there is room and nobody waits; else what the policy says.
//! Wait: as push, but behind those who wait already: `Stand` in the queue with message and waker.
//! Take: one entry (a state machine frees the room of the messages it takes later, all at once,
//! when it is handed them); while there is room, `Admit` the first who waits: its message goes into
//! the mailbox, and it is woken. Withdraw (the sender gives up): out of the queue, if it still
//! stands there; else its message has been taken. Close: everything out; who waits finds its
//! message among the `returned`, and is woken.
//!
//! ## Why it works
//! Finding no room and standing in the queue are one critical section, so every `Take` after it
//! finds the one who waits, and moves its message itself: no permit can be lost with a sender that
//! goes away between being woken and sending. Whoever comes while others wait stands behind them or
//! is refused, so it is first come, first served.
//!
//! ## Allowed
//! A mailbox may hold more than its capacity in what the runtime pushed: each is bounded by what
//! the process itself asked for, monitors, links and commands.
//!
//! ## Checked by
//! `models::push_against_take`, `models::push_against_close`, `models::wait_against_take`,
//! `models::wait_against_close`, `models::canary_stand_apart`, `models::canary_close_forgets`.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::task::Waker;

use procession_queue::{Entry, Event};
use procession_sync::Mutex;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// Who finds no room gives the lock back before it stands in the queue.
    pub(crate) const STAND_APART: u8 = 1;
    /// `Close` leaves those who wait where they are.
    pub(crate) const CLOSE_FORGETS: u8 = 2;
}

/// What a bounded mailbox does with a message for which it has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// It refuses the message: the sender gets it back.
    Reject,
    /// As `Reject` for who cannot wait; [`Address::send_wait`](crate::Address::send_wait) waits for
    /// room, first come, first served.
    Wait,
    /// It drops the message that comes.
    DropNewest,
    /// It drops the oldest message, and takes the new one.
    DropOldest,
    /// The process ends, with [`Exit::MailboxFull`](crate::Exit::MailboxFull); the sender gets the
    /// message back.
    Kill,
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Offered<M> {
    /// It is in the mailbox; whether to wake the receiver.
    Queued { wake: bool },
    /// It is in the mailbox, in place of this one; a full mailbox has woken its receiver.
    Replaced(M),
    /// It is not taken, and the policy is to drop it.
    Dropped(M),
    /// There is no room.
    Full(M),
    /// There is no room, and the policy is that the receiver ends.
    Kills(M),
    /// The receiver has ended.
    Closed(M),
}

/// What became of a message whose sender waits if need be.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Stood<M> {
    Queued {
        wake: bool,
    },
    /// It waits, under this number.
    Waits(u64),
    Closed(M),
}

/// How the waiting goes.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Standing<M> {
    Waits,
    Taken,
    Closed(M),
}

#[derive(Debug)]
struct Waiting<M> {
    number: u64,
    message: M,
    waker: Waker,
}

#[derive(Debug)]
struct Ring<M, S> {
    /// Allocated with the first entry.
    entries: VecDeque<Event<M, S>>,
    /// Messages that count against the capacity.
    messages: u32,
    /// Messages ever queued, but for those that were dropped to make room; it goes round.
    sent: u32,
    high_water: u32,
    armed: bool,
    closed: bool,
    /// Oldest first, so by number.
    waiting: VecDeque<Waiting<M>>,
    last_number: u64,
    /// Of those who waited when the mailbox was closed.
    returned: BTreeMap<u64, M>,
    refused: u64,
    dropped: u64,
}

/// How a bounded mailbox is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MailboxSnapshot {
    /// Messages that it takes at most.
    pub capacity: u32,
    /// What it does when it is full.
    pub when_full: WhenFull,
    /// Senders that wait for room.
    pub waiting: usize,
    /// Messages that were refused.
    pub refused: u64,
    /// Messages that were dropped, new ones or old ones.
    pub dropped: u64,
}

/// A bounded mailbox.
#[derive(Debug)]
pub(crate) struct Bounded<M, S, const MUTATION: u8 = { mutation::SOUND }> {
    capacity: NonZeroU32,
    when_full: WhenFull,
    ring: Mutex<Ring<M, S>>,
}

/// What `Take` gives: an entry, and who is to be woken for the room.
pub(crate) type Taken<M, S> = (Option<Event<M, S>>, Vec<Waker>);

impl<M, S, const MUTATION: u8> Bounded<M, S, MUTATION> {
    pub(crate) fn new(capacity: NonZeroU32, when_full: WhenFull) -> Self {
        let ring = Ring {
            entries: VecDeque::new(),
            messages: 0,
            sent: 0,
            high_water: 0,
            armed: false,
            closed: false,
            waiting: VecDeque::new(),
            last_number: 0,
            returned: BTreeMap::new(),
            refused: 0,
            dropped: 0,
        };
        Self { capacity, when_full, ring: Mutex::new(ring) }
    }

    pub(crate) fn when_full(&self) -> WhenFull {
        self.when_full
    }

    fn with<R>(&self, access: impl FnOnce(&mut Ring<M, S>) -> R) -> R {
        access(&mut self.ring.lock())
    }

    fn has_room(&self, ring: &Ring<M, S>) -> bool {
        ring.messages < self.capacity.get() && ring.waiting.is_empty()
    }

    /// Push, with what the policy says when there is no room.
    pub(crate) fn offer(&self, message: M) -> Offered<M> {
        self.with(|ring| {
            if ring.closed {
                return Offered::Closed(message);
            }
            if self.has_room(ring) {
                return Offered::Queued { wake: ring.push(message) };
            }
            match self.when_full {
                WhenFull::Reject | WhenFull::Wait => {
                    ring.refused += 1;
                    Offered::Full(message)
                }
                WhenFull::DropNewest => {
                    ring.dropped += 1;
                    Offered::Dropped(message)
                }
                WhenFull::DropOldest => {
                    ring.dropped += 1;
                    let Some(oldest) = ring.take_oldest_message() else {
                        return Offered::Dropped(message);
                    };
                    let wake = ring.push(message);
                    debug_assert!(!wake, "[armed] only an empty mailbox is armed");
                    Offered::Replaced(oldest)
                }
                WhenFull::Kill => {
                    ring.refused += 1;
                    Offered::Kills(message)
                }
            }
        })
    }

    /// Push without a policy: it is taken, or comes back.
    pub(crate) fn offer_politely(&self, message: M) -> Offered<M> {
        self.with(|ring| {
            if ring.closed {
                Offered::Closed(message)
            } else if self.has_room(ring) {
                Offered::Queued { wake: ring.push(message) }
            } else {
                ring.refused += 1;
                Offered::Full(message)
            }
        })
    }

    /// Wait.
    pub(crate) fn stand(&self, message: M, waker: Waker) -> Stood<M> {
        // Taken only if it is kept: else it is dropped outside the lock.
        let mut waker = Some(waker);
        let mut stand = |ring: &mut Ring<M, S>, message| {
            Stood::Waits(
                ring.stand(message, waker.take().expect("a sender stands in the queue once")),
            )
        };
        if MUTATION == mutation::STAND_APART {
            let no_room = self.with(|ring| !self.has_room(ring));
            if no_room {
                return self.with(|ring| stand(ring, message));
            }
        }
        self.with(|ring| {
            if ring.closed {
                Stood::Closed(message)
            } else if self.has_room(ring) {
                Stood::Queued { wake: ring.push(message) }
            } else {
                stand(ring, message)
            }
        })
    }

    /// How it goes with who stands under this number; it goes on standing with this waker. The old
    /// one comes back, to be dropped outside.
    pub(crate) fn standing(&self, number: u64, mut waker: Waker) -> (Standing<M>, Waker) {
        let standing = self.with(|ring| match ring.place(number) {
            Some(place) => {
                std::mem::swap(&mut ring.waiting[place].waker, &mut waker);
                Standing::Waits
            }
            None => ring.returned.remove(&number).map_or(Standing::Taken, Standing::Closed),
        });
        (standing, waker)
    }

    /// Withdraw: the message, unless the mailbox has taken it, and the waker that it waited with.
    /// Both are to be dropped outside.
    pub(crate) fn withdraw(&self, number: u64) -> (Option<M>, Option<Waker>) {
        self.with(|ring| match ring.place(number).and_then(|place| ring.waiting.remove(place)) {
            Some(waiting) => (Some(waiting.message), Some(waiting.waker)),
            None => (ring.returned.remove(&number), None),
        })
    }

    /// Pushes what is exempt; says whether to wake the receiver.
    pub(crate) fn push_exempt(&self, entry: Entry<S>) -> Result<bool, Entry<S>> {
        self.with(|ring| {
            if ring.closed {
                return Err(entry);
            }
            ring.entries.push_back(Event::System(entry));
            Ok(std::mem::take(&mut ring.armed))
        })
    }

    /// Take.
    pub(crate) fn take(&self) -> Taken<M, S> {
        self.with(|ring| {
            let entry = ring.entries.pop_front();
            let wakers = match entry {
                Some(Event::Message(_)) => ring.free(1, self.capacity),
                _ => Vec::new(),
            };
            (entry, wakers)
        })
    }

    /// Takes one entry; if it is a message, its room is still taken, until `release`.
    pub(crate) fn take_kept(&self) -> Option<Event<M, S>> {
        self.with(|ring| ring.entries.pop_front())
    }

    /// The room of messages that were taken and kept is free; who is to be woken for it.
    pub(crate) fn release(&self, messages: u32) -> Vec<Waker> {
        self.with(|ring| if ring.closed { Vec::new() } else { ring.free(messages, self.capacity) })
    }

    /// The receiver wants to be woken by the next push, unless there is something to take.
    pub(crate) fn arm(&self) -> bool {
        self.with(|ring| {
            ring.armed = ring.entries.is_empty() && !ring.closed;
            ring.armed
        })
    }

    pub(crate) fn disarm(&self) {
        self.with(|ring| ring.armed = false);
    }

    /// Close: what is in it, and who is to be woken.
    pub(crate) fn close(&self) -> (VecDeque<Event<M, S>>, Vec<Waker>) {
        self.with(|ring| {
            ring.closed = true;
            ring.armed = false;
            ring.messages = 0;
            let mut wakers = Vec::new();
            if MUTATION != mutation::CLOSE_FORGETS {
                for waiting in ring.waiting.drain(..) {
                    ring.returned.insert(waiting.number, waiting.message);
                    wakers.push(waiting.waker);
                }
            }
            (std::mem::take(&mut ring.entries), wakers)
        })
    }

    /// What was returned to senders that have not asked for it, and never will: their futures were
    /// forgotten. For the end of the mailbox.
    pub(crate) fn take_returned(&self) -> BTreeMap<u64, M> {
        self.with(|ring| std::mem::take(&mut ring.returned))
    }

    /// Returns `true` if the receiver has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.with(|ring| ring.closed)
    }

    /// How many messages are to be received, if so many were; none if it is closed.
    pub(crate) fn length(&self, received: u32) -> u32 {
        self.with(|ring| if ring.closed { 0 } else { ring.sent.wrapping_sub(received) })
    }

    pub(crate) fn high_water(&self) -> u32 {
        self.with(|ring| ring.high_water)
    }

    pub(crate) fn snapshot(&self) -> MailboxSnapshot {
        self.with(|ring| MailboxSnapshot {
            capacity: self.capacity.get(),
            when_full: self.when_full,
            waiting: ring.waiting.len(),
            refused: ring.refused,
            dropped: ring.dropped,
        })
    }
}

impl<M, S> Ring<M, S> {
    /// Queues a message; says whether to wake the receiver.
    fn push(&mut self, message: M) -> bool {
        self.entries.push_back(Event::Message(message));
        self.messages += 1;
        self.sent = self.sent.wrapping_add(1);
        self.high_water = self.high_water.max(self.messages);
        std::mem::take(&mut self.armed)
    }

    /// Frees the room of messages, and admits who waits for it; at most as many as were freed.
    fn free(&mut self, messages: u32, capacity: NonZeroU32) -> Vec<Waker> {
        self.messages -= messages;
        let mut wakers = Vec::new();
        while self.messages < capacity.get()
            && let Some(first) = self.waiting.pop_front()
        {
            self.push(first.message);
            wakers.push(first.waker);
        }
        wakers
    }

    fn stand(&mut self, message: M, waker: Waker) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.waiting.push_back(Waiting { number, message, waker });
        number
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()
    }

    fn take_oldest_message(&mut self) -> Option<M> {
        let place = self.entries.iter().position(|entry| matches!(entry, Event::Message(_)))?;
        self.messages -= 1;
        self.sent = self.sent.wrapping_sub(1);
        match self.entries.remove(place)? {
            Event::Message(message) => Some(message),
            Event::System(_) => None,
        }
    }
}

#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;
