//! Bounded mailboxes: their policies, and the senders that wait for room.
//!
//! # Bounded-mailbox protocol
//!
//! ## Problem
//! - A sender finds the mailbox full. Before it has queued itself, the receiver takes a message and
//!   finds no sender waiting. The sender then waits forever, although the mailbox is empty.
//! - The receiver ends while a sender waits, and the message of the sender is never returned.
//!
//! ## States
//! One lock guards the entries, the queue of waiting senders, and the messages to return. A message
//! counts against the capacity from its push until it is taken out. Entries that the runtime pushes
//! do not count. `armed`: the receiver found nothing, and the next push wakes it. `closed`: the
//! receiver has ended. This state is final.
//!
//! ## Steps
//! - Push: `Refuse` the message if the mailbox is closed. `Queue` it if there is room and no sender
//!   waits. Otherwise do what the policy says.
//! - Wait: as push, but if there is no room, `Stand` behind the senders in the queue, with message
//!   and waker.
//! - Take: take one entry out. While there is room, `Admit` the first waiting sender: move its
//!   message into the mailbox, and wake it. A state machine takes its messages first, and frees the
//!   room of all these messages together when it receives them.
//! - Reserve, by a sender that makes its message only once it will be accepted: count a message
//!   that is not there yet, if there is room and no sender waits. `Fill` puts the message in, and
//!   returns it if the mailbox was closed after the reservation. A sender that makes no message
//!   after all frees the room, as a take does.
//! - Take over, before the receiver runs: queue a message that an earlier process of the same
//!   supervised child has left, whatever the capacity is.
//! - Push urgently, if the mailbox takes urgent messages: as push, but behind the urgent entries
//!   and before all others. There is one place more than the capacity, and no sender in the queue
//!   is waited for. If that place is occupied too, the message is refused, whatever the policy.
//! - Tell, by a sender that finds no room: push an entry that says so, once until half of the
//!   capacity is free.
//! - Withdraw, by a sender that no longer waits: leave the queue. If a sender is not in the queue
//!   any more, its message was accepted.
//! - Close: take all entries out. The message of each waiting sender goes to `returned`, and the
//!   sender is woken.
//!
//! ## Why it works
//! A sender finds no room and stands in the queue in one critical section. Every later `Take`
//! therefore finds the sender, and moves the message itself. No permit can be lost with a sender
//! that goes away between its wake-up and its send. A sender that arrives while others wait is
//! queued behind them or refused, so the order is first come, first served.
//!
//! The urgent entries are in a queue of their own, under the same lock. So every `Take` sees both
//! queues at one moment, and a message that was pushed urgently before it is taken before all
//! ordinary messages.
//!
//! ## Allowed
//! A mailbox may hold more entries than its capacity, because of what the runtime pushed. The
//! process itself bounds the number of these entries, because each entry answers a monitor, link or
//! command of the process. A mailbox may also hold more messages than its capacity: if a process
//! takes over messages that an earlier process had put aside, their room was already free.
//!
//! ## Rejected
//! - Urgent messages in the lock-free queue of unbounded mailboxes, as another kind of node. The
//!   receiver takes all nodes together, so it would have to look for newer urgent nodes before each
//!   message that it has taken already. An unbounded mailbox that takes urgent messages is a
//!   bounded mailbox with the largest capacity instead.
//! - A second mailbox for urgent messages. Two words then say that the receiver sleeps, and a
//!   message in one place of the other has no common order with it.
//!
//! ## Checked by
//! `models::push_against_take`, `models::push_against_close`, `models::wait_against_take`,
//! `models::wait_against_close`, `models::fill_against_close`, `models::give_up_against_wait`,
//! `models::canary_stand_apart`, `models::canary_close_forgets`,
//! `models::canary_fill_after_close`, `models::canary_give_up_alone`,
//! `models::urgent_push_against_take`, `models::urgent_push_against_close`,
//! `models::canary_arm_forgets_urgent`, `models::canary_urgent_in_two`.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::task::Waker;

use procession_queue::{Entry, Event};
use procession_sync::Mutex;

use crate::util::block_queue::BlockQueue;
use crate::util::sorted_map::SortedMap;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("bounded", SOUND);
    /// A sender that finds no room releases the lock before it stands in the queue.
    pub const STAND_APART: u8 = 1;
    /// `Close` leaves the waiting senders in the queue.
    pub const CLOSE_FORGETS: u8 = 2;
    /// `Fill` puts the message into a closed mailbox.
    pub const FILL_AFTER_CLOSE: u8 = 3;
    /// A sender that returns its room admits no waiting sender.
    pub const GIVE_UP_ALONE: u8 = 4;
    /// A process waits for room in its own mailbox. No model plants this: the runtime refuses it.
    pub const WAIT_FOR_ITSELF: u8 = 5;
    /// The receiver arms the mailbox although there are urgent entries.
    pub const ARM_FORGETS_URGENT: u8 = 6;
    /// An urgent push looks for room in one critical section, and pushes in another.
    pub const URGENT_IN_TWO: u8 = 7;
}

/// What a full mailbox does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullPolicy {
    /// Refuses the message.
    Reject,
    /// Refuses the message, unless its sender can wait for room.
    Wait,
    /// Drops the new message.
    DropNewest,
    /// Drops the oldest message, and accepts the new one.
    DropOldest,
    /// Refuses the message. The caller ends the receiver.
    Kill,
}

/// The result of a push.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Offered<M> {
    /// The message is in the mailbox.
    Queued {
        /// `true` if the receiver is to be woken.
        wake: bool,
    },
    /// The message is in the mailbox, in place of this one. The receiver of a full mailbox was
    /// woken before.
    Replaced(M),
    /// The message was not accepted, and the policy is to drop it.
    Dropped(M),
    /// There is no room.
    Full(M),
    /// There is no room, and the policy is to end the receiver.
    Kills(M),
    /// The receiver has ended.
    Closed(M),
}

/// The result of `Reserve`.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Reserved {
    /// The sender has room for one message, to fill or to free.
    Room,
    /// The policy accepts or drops every message, so the sender needs no room.
    Needless,
    /// There is no room.
    Full,
    /// There is no room, and the policy is to end the receiver.
    Kills,
    /// The receiver has ended.
    Closed,
}

/// The result of a push by a sender that can wait.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Stood<M> {
    /// The message is in the mailbox.
    Queued {
        /// `true` if the receiver is to be woken.
        wake: bool,
    },
    /// The message waits, under this number.
    Waits(u64),
    /// The receiver has ended.
    Closed(M),
}

/// The state of a waiting message.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Standing<M> {
    /// The message waits for room.
    Waits,
    /// The mailbox has accepted the message.
    Taken,
    /// The receiver has ended.
    Closed(M),
}

/// Number of places in the queue of waiting senders that stay allocated while nobody waits.
const PLACES_KEPT: usize = 64;

#[derive(Debug)]
struct WaitingSender<M, S> {
    number: u64,
    message: M,
    header: Option<S>,
    waker: Waker,
}

#[derive(Debug)]
struct Ring<M, S> {
    /// Allocated with the first entry.
    entries: BlockQueue<Event<M, S>>,
    /// The number of messages that count against the capacity.
    messages: u32,
    /// The number of messages ever queued, without messages that were dropped to make room. It
    /// wraps around.
    sent: u32,
    high_water: u32,
    armed: bool,
    closed: bool,
    /// Ordered by number, oldest first.
    waiting: VecDeque<WaitingSender<M, S>>,
    last_number: u64,
    /// The messages of senders that waited when the mailbox was closed, by number.
    returned: Option<Box<SortedMap<u64, M>>>,
    refused: u64,
    dropped: u64,
    /// `Some` if the mailbox takes urgent entries.
    urgent: Option<Box<BlockQueue<Event<M, S>>>>,
    /// The receiver was told that the mailbox is full.
    has_told: bool,
}

/// The figures of a bounded mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedFigures {
    /// The maximum number of messages.
    pub capacity: u32,
    /// The policy of the full mailbox.
    pub when_full: FullPolicy,
    /// The number of senders that wait for room.
    pub waiting: usize,
    /// The number of messages that were refused.
    pub refused: u64,
    /// The number of messages that were dropped, new or old.
    pub dropped: u64,
}

/// A bounded mailbox of messages `M` with headers `S`.
#[derive(Debug)]
pub struct Bounded<M, S, const MUTATION: u8 = { mutation::BUILT }> {
    capacity: NonZeroU32,
    when_full: FullPolicy,
    takes_urgent: bool,
    ring: Mutex<Ring<M, S>>,
}

/// The result of `Take`.
#[derive(Debug)]
pub struct Taken<M, S> {
    /// The oldest urgent entry, or the oldest entry.
    pub entry: Option<Event<M, S>>,
    /// Set if the entry is urgent.
    pub is_urgent: bool,
    /// The wakers of the senders that were admitted.
    pub wakers: Vec<Waker>,
}

impl<M, S, const MUTATION: u8> Bounded<M, S, MUTATION> {
    /// Creates an empty mailbox.
    pub fn new(capacity: NonZeroU32, when_full: FullPolicy) -> Self {
        Self::with_urgent(capacity, when_full, false)
    }

    /// Creates an empty mailbox, which takes urgent entries if `takes_urgent` is set.
    pub fn with_urgent(capacity: NonZeroU32, when_full: FullPolicy, takes_urgent: bool) -> Self {
        let ring = Ring {
            entries: BlockQueue::new(),
            messages: 0,
            sent: 0,
            high_water: 0,
            armed: false,
            closed: false,
            waiting: VecDeque::new(),
            last_number: 0,
            returned: None,
            refused: 0,
            dropped: 0,
            urgent: takes_urgent.then(Box::default),
            has_told: false,
        };
        Self { capacity, when_full, takes_urgent, ring: Mutex::new(ring) }
    }

    /// Returns `true` if the mailbox takes urgent entries.
    pub fn takes_urgent(&self) -> bool {
        self.takes_urgent
    }

    /// Push urgently. The caller has found that the mailbox takes urgent messages.
    pub fn offer_urgent(&self, message: M, header: Option<S>) -> Offered<M> {
        let refusal = |ring: &mut Ring<M, S>, message| {
            if ring.closed {
                return Err(Offered::Closed(message));
            }
            // One place more than the capacity.
            if ring.messages > self.capacity.get() {
                ring.refused += 1;
                return Err(Offered::Full(message));
            }
            Ok(message)
        };
        let push = |ring: &mut Ring<M, S>, message| {
            ring.messages += 1;
            Offered::Queued { wake: ring.fill(message, header, true) }
        };
        if mutation::is(MUTATION, mutation::URGENT_IN_TWO) {
            return match self.with(|ring| refusal(ring, message)) {
                Ok(message) => self.with(|ring| push(ring, message)),
                Err(refused) => refused,
            };
        }
        self.with(|ring| match refusal(ring, message) {
            Ok(message) => push(ring, message),
            Err(refused) => refused,
        })
    }

    /// Tell. Returns `true` if the receiver is to be woken. Returns the entry if the receiver was
    /// told already, or has ended.
    pub fn tell_full(&self, entry: Entry<S>) -> Result<bool, Entry<S>> {
        self.with(|ring| match &mut ring.urgent {
            Some(urgent) if !ring.closed && !ring.has_told => {
                ring.has_told = true;
                urgent.push_back(Event::System(entry));
                Ok(std::mem::take(&mut ring.armed))
            }
            _ => Err(entry),
        })
    }

    /// Takes all urgent entries. Returns the wakers of the senders that it admits.
    pub fn take_urgent(&self) -> (BlockQueue<Event<M, S>>, Vec<Waker>) {
        self.with(|ring| {
            let mut taken = BlockQueue::new();
            let mut messages = 0;
            while let Some(entry) = ring.urgent.as_mut().and_then(|urgent| urgent.pop_front()) {
                messages += u32::from(!matches!(entry, Event::System(_)));
                taken.push_back(entry);
            }
            let wakers = if messages > 0 { ring.free(messages, self.capacity) } else { Vec::new() };
            (taken, wakers)
        })
    }

    /// Returns the policy of the full mailbox.
    pub fn when_full(&self) -> FullPolicy {
        self.when_full
    }

    fn with<R>(&self, access: impl FnOnce(&mut Ring<M, S>) -> R) -> R {
        access(&mut self.ring.lock())
    }

    fn has_room(&self, ring: &Ring<M, S>) -> bool {
        ring.messages < self.capacity.get() && ring.waiting.is_empty()
    }

    /// Returns `true` if a sender that can wait would have to.
    pub fn must_wait(&self) -> bool {
        self.with(|ring| !ring.closed && !self.has_room(ring))
    }

    /// Push, with the policy of the mailbox. The header of a refused message is dropped, here and
    /// below.
    pub fn offer(&self, message: M, header: Option<S>) -> Offered<M> {
        self.with(|ring| {
            if ring.closed {
                return Offered::Closed(message);
            }
            if self.has_room(ring) {
                return Offered::Queued { wake: ring.push(message, header) };
            }
            match self.when_full {
                FullPolicy::Reject | FullPolicy::Wait => {
                    ring.refused += 1;
                    Offered::Full(message)
                }
                FullPolicy::DropNewest => {
                    ring.dropped += 1;
                    Offered::Dropped(message)
                }
                FullPolicy::DropOldest => {
                    ring.dropped += 1;
                    let Some(oldest) = ring.take_oldest_message() else {
                        return Offered::Dropped(message);
                    };
                    let wake = ring.push(message, header);
                    debug_assert!(!wake, "[armed] only an empty mailbox is armed");
                    Offered::Replaced(oldest)
                }
                FullPolicy::Kill => {
                    ring.refused += 1;
                    Offered::Kills(message)
                }
            }
        })
    }

    /// Push without a policy: accepts the message or returns it.
    pub fn offer_politely(&self, message: M, header: Option<S>) -> Offered<M> {
        self.with(|ring| {
            if ring.closed {
                Offered::Closed(message)
            } else if self.has_room(ring) {
                Offered::Queued { wake: ring.push(message, header) }
            } else {
                ring.refused += 1;
                Offered::Full(message)
            }
        })
    }

    /// Take over. Returns the message if the mailbox is closed.
    pub fn take_over(&self, message: M, header: Option<S>) -> Result<(), M> {
        self.with(|ring| {
            if ring.closed {
                return Err(message);
            }
            ring.push(message, header);
            Ok(())
        })
    }

    /// Reserve.
    pub fn reserve(&self) -> Reserved {
        self.with(|ring| {
            if ring.closed {
                return Reserved::Closed;
            }
            match self.when_full {
                FullPolicy::DropNewest | FullPolicy::DropOldest => Reserved::Needless,
                _ if self.has_room(ring) => {
                    ring.messages += 1;
                    Reserved::Room
                }
                when_full => {
                    ring.refused += 1;
                    if when_full == FullPolicy::Kill { Reserved::Kills } else { Reserved::Full }
                }
            }
        })
    }

    /// Fill. Returns `true` if the receiver is to be woken, or the message if the mailbox is
    /// closed.
    pub fn fill(&self, message: M, header: Option<S>) -> Result<bool, M> {
        self.with(|ring| {
            if ring.closed && !mutation::is(MUTATION, mutation::FILL_AFTER_CLOSE) {
                return Err(message);
            }
            Ok(ring.fill(message, header, false))
        })
    }

    /// Frees the room of a message that is not made after all. Returns the wakers of the senders
    /// that it admits.
    pub fn give_up(&self) -> Vec<Waker> {
        if mutation::is(MUTATION, mutation::GIVE_UP_ALONE) {
            self.with(|ring| ring.messages -= 1);
            return Vec::new();
        }
        self.release(1)
    }

    /// Wait.
    pub fn stand(&self, message: M, header: Option<S>, waker: Waker) -> Stood<M> {
        // Taken only if the queue keeps it. Otherwise it is dropped outside the lock.
        let mut waker = Some(waker);
        let mut stand = |ring: &mut Ring<M, S>, message, header| {
            let waker = waker.take().expect("a sender stands in the queue once");
            Stood::Waits(ring.stand(message, header, waker))
        };
        if mutation::is(MUTATION, mutation::STAND_APART) {
            let no_room = self.with(|ring| !self.has_room(ring));
            if no_room {
                return self.with(|ring| stand(ring, message, header));
            }
        }
        self.with(|ring| {
            if ring.closed {
                Stood::Closed(message)
            } else if self.has_room(ring) {
                Stood::Queued { wake: ring.push(message, header) }
            } else {
                stand(ring, message, header)
            }
        })
    }

    /// Returns the state of the message with this number, and replaces its waker. The old waker is
    /// returned, to be dropped outside the lock.
    pub fn standing(&self, number: u64, mut waker: Waker) -> (Standing<M>, Waker) {
        let standing = self.with(|ring| match ring.place(number) {
            Some(place) => {
                std::mem::swap(&mut ring.waiting[place].waker, &mut waker);
                Standing::Waits
            }
            None => ring.take_returned(number).map_or(Standing::Taken, Standing::Closed),
        });
        (standing, waker)
    }

    /// Withdraw. Returns the message, unless the mailbox has accepted it, and the waker that waited
    /// with it. Both are to be dropped outside the lock.
    pub fn withdraw(&self, number: u64) -> (Option<M>, Option<Waker>) {
        self.with(|ring| match ring.place(number).and_then(|place| ring.waiting.remove(place)) {
            Some(waiting) => (Some(waiting.message), Some(waiting.waker)),
            None => (ring.take_returned(number), None),
        })
    }

    /// Pushes an entry that does not count. Returns `true` if the receiver is to be woken. It is
    /// urgent only if the mailbox takes urgent entries.
    pub fn push_exempt(&self, entry: Entry<S>, is_urgent: bool) -> Result<bool, Entry<S>> {
        self.with(|ring| {
            if ring.closed {
                return Err(entry);
            }
            ring.queue(is_urgent).push_back(Event::System(entry));
            Ok(std::mem::take(&mut ring.armed))
        })
    }

    /// Take.
    pub fn take(&self) -> Taken<M, S> {
        self.with(|ring| {
            let (entry, is_urgent) = ring.pop();
            let wakers = match entry {
                Some(Event::Message(_) | Event::Headed(_)) => ring.free(1, self.capacity),
                _ => Vec::new(),
            };
            Taken { entry, is_urgent, wakers }
        })
    }

    /// Takes one entry. If it is a message, its room stays occupied until `release`.
    pub fn take_kept(&self) -> Taken<M, S> {
        self.with(|ring| {
            let (entry, is_urgent) = ring.pop();
            Taken { entry, is_urgent, wakers: Vec::new() }
        })
    }

    /// Frees the room of messages that were taken and kept. Returns the wakers of the senders that
    /// it admits.
    pub fn release(&self, messages: u32) -> Vec<Waker> {
        self.with(|ring| if ring.closed { Vec::new() } else { ring.free(messages, self.capacity) })
    }

    /// Arms the mailbox, so that the next push wakes the receiver. Returns `false` if the receiver
    /// need not wait, because there are entries or the mailbox is closed.
    pub fn arm(&self) -> bool {
        self.with(|ring| {
            let has_urgent = ring.urgent.as_ref().is_some_and(|urgent| !urgent.is_empty())
                && !mutation::is(MUTATION, mutation::ARM_FORGETS_URGENT);
            ring.armed = ring.entries.is_empty() && !has_urgent && !ring.closed;
            ring.armed
        })
    }

    /// Forgets that the receiver waits.
    pub fn disarm(&self) {
        self.with(|ring| ring.armed = false);
    }

    /// Close. Returns the entries, and the wakers of the waiting senders.
    pub fn close(&self) -> (BlockQueue<Event<M, S>>, Vec<Waker>) {
        self.with(|ring| {
            ring.closed = true;
            ring.armed = false;
            ring.messages = 0;
            let mut wakers = Vec::new();
            if !mutation::is(MUTATION, mutation::CLOSE_FORGETS) {
                for waiting in std::mem::take(&mut ring.waiting) {
                    let returned = ring.returned.get_or_insert_default();
                    returned.insert(waiting.number, waiting.message);
                    wakers.push(waiting.waker);
                }
            }
            let entries = std::mem::take(&mut ring.entries);
            let Some(urgent) = ring.urgent.as_mut().filter(|urgent| !urgent.is_empty()) else {
                return (entries, wakers);
            };
            let mut all = std::mem::take(&mut **urgent);
            entries.into_iter().for_each(|entry| all.push_back(entry));
            (all, wakers)
        })
    }

    /// Takes the messages that were returned to senders that never ask for them, because their
    /// futures were forgotten. Called at the end of the mailbox.
    pub fn take_returned(&self) -> SortedMap<u64, M> {
        let returned = self.with(|ring| ring.returned.take());
        returned.map(|returned| *returned).unwrap_or_default()
    }

    /// Returns `true` if the receiver has ended.
    pub fn is_closed(&self) -> bool {
        self.with(|ring| ring.closed)
    }

    /// Returns the number of messages to receive, given the number received. For a closed mailbox,
    /// this is 0.
    pub fn length(&self, received: u32) -> u32 {
        self.with(|ring| if ring.closed { 0 } else { ring.sent.wrapping_sub(received) })
    }

    /// Returns the number of entries, with those that are no messages.
    pub fn entries(&self) -> usize {
        self.with(|ring| ring.entries.len() + ring.urgent.as_ref().map_or(0, |urgent| urgent.len()))
    }

    /// Returns the greatest number of messages that the mailbox has had.
    pub fn high_water(&self) -> u32 {
        self.with(|ring| ring.high_water)
    }

    /// Returns the figures of the mailbox.
    pub fn figures(&self) -> BoundedFigures {
        self.with(|ring| BoundedFigures {
            capacity: self.capacity.get(),
            when_full: self.when_full,
            waiting: ring.waiting.len(),
            refused: ring.refused,
            dropped: ring.dropped,
        })
    }
}

impl<M, S> Ring<M, S> {
    /// Queues a message. Returns `true` if the receiver is to be woken.
    fn push(&mut self, message: M, header: Option<S>) -> bool {
        self.messages += 1;
        self.fill(message, header, false)
    }

    /// Returns the queue of urgent entries, or of the others.
    fn queue(&mut self, is_urgent: bool) -> &mut BlockQueue<Event<M, S>> {
        match &mut self.urgent {
            Some(urgent) if is_urgent => urgent,
            _ => &mut self.entries,
        }
    }

    /// Takes the next entry, and returns whether it is urgent.
    #[inline]
    fn pop(&mut self) -> (Option<Event<M, S>>, bool) {
        if let Some(urgent) = &mut self.urgent
            && let Some(entry) = urgent.pop_front()
        {
            return (Some(entry), true);
        }
        (self.entries.pop_front(), false)
    }

    fn take_returned(&mut self, number: u64) -> Option<M> {
        self.returned.as_mut()?.remove(&number)
    }

    /// Queues a message that is counted already. Returns `true` if the receiver is to be woken.
    fn fill(&mut self, message: M, header: Option<S>, is_urgent: bool) -> bool {
        self.queue(is_urgent).push_back(match header {
            None => Event::Message(message),
            Some(header) => Event::Headed(Entry::new((header, message))),
        });
        self.sent = self.sent.wrapping_add(1);
        self.high_water = self.high_water.max(self.messages);
        std::mem::take(&mut self.armed)
    }

    /// Frees the room of `messages`, and admits waiting senders, at most as many.
    fn free(&mut self, messages: u32, capacity: NonZeroU32) -> Vec<Waker> {
        self.messages -= messages;
        self.has_told &= self.messages > capacity.get() / 2;
        let mut wakers = Vec::new();
        while self.messages < capacity.get()
            && let Some(first) = self.waiting.pop_front()
        {
            self.push(first.message, first.header);
            wakers.push(first.waker);
        }
        if self.waiting.is_empty() && self.waiting.capacity() > PLACES_KEPT {
            self.waiting = VecDeque::new();
        }
        wakers
    }

    fn stand(&mut self, message: M, header: Option<S>, waker: Waker) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.waiting.push_back(WaitingSender { number, message, header, waker });
        number
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()
    }

    fn take_oldest_message(&mut self) -> Option<M> {
        let is_message = |entry: &Event<M, S>| !matches!(entry, Event::System(_));
        let oldest = self.entries.remove_first(is_message)?;
        self.messages -= 1;
        self.sent = self.sent.wrapping_sub(1);
        match oldest {
            Event::Message(message) => Some(message),
            Event::Headed(entry) => Some(entry.into_inner().1),
            Event::System(_) => None,
        }
    }
}

#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;
