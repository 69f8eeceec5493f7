//! # Broadcast protocol
//!
//! ## Problem
//! A receiver finds no message and is about to wait. A message arrives in between, and the receiver
//! must be woken. A receiver that is slow must not stop the sender: the oldest message makes room,
//! and the receiver must learn how many messages it has missed. A receiver that goes away while a
//! message is sent must not leave that message behind for itself.
//!
//! ## States
//! All under the lock of a bell (`sync/bell.rs`): the messages in order, each with a share for each
//! receiver that it is *due* to; the position of the first message; the number of receivers; and
//! whether the channel is closed. Each receiver has the position of its next message.
//!
//! ## Steps
//! - Send: if there is no receiver, return the message. If there is no room, drop the first
//!   message. Append the message, due to all receivers, and `Ring`, in one critical section.
//! - Receive: if the next position lies before the first message, `Skip` to it, and return the
//!   number of messages in between. Else `Take` a share of up to `AT_ONCE` messages from there.
//!   With its last share a message leaves the channel. If there is no message, enlist in the same
//!   critical section.
//! - Return a message that was taken: if more messages than the capacity were sent since, `Skip`
//!   this message and all later messages that the capacity has no room for. For this, the number of
//!   all messages can be read without the lock.
//! - Drop of a receiver: drop its shares, and lower the number of receivers, in one critical
//!   section. Messages that are due to it alone leave the channel, and are dropped afterwards.
//! - Close: set the flag, and `Ring`.
//!
//! `Wake`, and the drop and the clone of messages, happen outside the lock: a message has as many
//! shares as receivers (`util/shares.rs`), and each receiver takes its own share.
//!
//! ## Why it works
//! A receiver that a message is due to has not passed its position. So messages leave the channel
//! only at its front, and the numbers of shares do not fall from front to back. A position before
//! the first message means that messages were dropped, because otherwise all messages stay that are
//! due to the receiver.
//!
//! ## Rejected
//! A lock for each message, as in tokio, under which receivers clone. User code would run under it:
//! a `Clone` that sends to the same channel could wait for itself.
//!
//! A critical section for each message and receiver: `broadcast` took 64 ns per message instead of
//! 48.
//!
//! An `Arc` for each message, of which each receiver makes a clone under the lock: `broadcast` took
//! 41 ns per message instead of 25.
//!
//! ## Checked by
//! `models::send_against_receive`, `models::overwrite_against_receive`,
//! `models::send_against_drop`, `models::overwrite_against_taken_message`, and their canaries.

use std::collections::VecDeque;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::sync::bell::{Bell, Ringing};
use crate::sync::wait_list::ServedWaiters;
use crate::util::block_queue::BlockQueue;
use crate::util::shares::Shares;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Ring` in a critical section before the message is appended.
    #[cfg(all(test, procession_loom))]
    pub const RING_FIRST: u8 = 1;
    /// `Skip` is decided in a critical section before the message is copied.
    #[cfg(all(test, procession_loom))]
    pub const SKIP_APART: u8 = 2;
    /// A receiver that is dropped leaves the number of receivers in a second critical section.
    #[cfg(all(test, procession_loom))]
    pub const LEAVE_IN_TWO: u8 = 3;
    /// Messages that were taken are never skipped.
    #[cfg(all(test, procession_loom))]
    pub const KEEP_TAKEN: u8 = 4;
}

/// Maximum number of messages that a receiver takes in one critical section. More save little: the
/// section is entered a sixteenth as often.
const AT_ONCE: usize = 16;

/// The state of a broadcast channel, under the lock of its bell.
#[derive(Debug)]
pub struct BroadcastState<T> {
    /// Each with a share for each receiver that has not received it.
    messages: BlockQueue<Shares<T>>,
    /// The position of the first message.
    first: u64,
    receivers: usize,
    is_closed: bool,
}

/// The reason why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBroadcast {
    /// There is no message now.
    Empty,
    /// There is no message, and there will be none.
    Closed,
    /// The number of messages that were missed.
    Lagged(u64),
}

/// The place of a receiver among the messages.
#[derive(Debug)]
pub struct Cursor<T> {
    /// The position of the next message.
    next: u64,
    /// The messages from there on that were taken from the channel, fewer than [`AT_ONCE`].
    taken: VecDeque<Shares<T>>,
}

impl<T> Cursor<T> {
    /// Creates the cursor of a receiver with its next message at this position.
    pub fn new(next: u64) -> Self {
        Self { next, taken: VecDeque::new() }
    }

    /// Removes the messages that were taken.
    pub fn taken(&mut self) -> impl Iterator<Item = Shares<T>> {
        self.taken.drain(..)
    }

    /// Returns the position of the first message that was not taken.
    fn end(&self) -> u64 {
        self.next + self.taken.len() as u64
    }
}

/// A message that was sent.
#[derive(Debug)]
pub struct Broadcast<T> {
    /// The number of receivers.
    pub receivers: usize,
    /// The message that has made room, to be dropped outside the lock.
    pub overwritten: Option<Shares<T>>,
    /// The receivers that waited, to be woken.
    pub woken: ServedWaiters,
}

impl<T> BroadcastState<T> {
    fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// `Take`. Returns the first message.
    pub fn recv(&mut self, cursor: &mut Cursor<T>) -> Result<Shares<T>, NotBroadcast> {
        let Some(mut index) = cursor.next.checked_sub(self.first) else {
            let missed = self.first - cursor.next;
            cursor.next = self.first;
            return Err(NotBroadcast::Lagged(missed));
        };
        let first = self.take(&mut index).ok_or(if self.is_closed {
            NotBroadcast::Closed
        } else {
            NotBroadcast::Empty
        })?;
        cursor.next += 1;
        while cursor.taken.len() < AT_ONCE - 1
            && let Some(message) = self.take(&mut index)
        {
            cursor.taken.push_back(message);
        }
        Ok(first)
    }

    /// Takes the message at `index` for one receiver, and advances the index.
    #[inline]
    fn take(&mut self, index: &mut u64) -> Option<Shares<T>> {
        let share = self.messages.get_mut(*index as usize)?.split();
        if share.is_some() {
            *index += 1;
            return share;
        }
        self.first += 1;
        // The receivers of a message have taken all messages before it.
        self.messages.pop_front()
    }

    /// Drops the shares of a receiver with the next position `next`. Returns the messages that were
    /// due to it alone.
    fn leave(&mut self, next: u64) -> Vec<Shares<T>> {
        let passed = next.saturating_sub(self.first) as usize;
        let mut alone = 0;
        for message in self.messages.iter_mut().skip(passed) {
            // A message that is due to others keeps their shares, so it is not dropped here.
            if message.split().is_none() {
                alone += 1;
            }
        }
        // The numbers of shares do not fall from front to back.
        self.first += alone as u64;
        (0..alone).filter_map(|_| self.messages.pop_front()).collect()
    }
}

/// The state of a broadcast channel, without its public types.
#[derive(Debug)]
pub struct BroadcastCore<T, const MUTATION: u8 = { mutation::SOUND }> {
    /// The bell that rings for each message, with the messages.
    pub bell: Bell<BroadcastState<T>>,
    /// The number of messages that were ever sent. Changed under the lock.
    sent: AtomicU64,
    capacity: usize,
}

impl<T, const MUTATION: u8> BroadcastCore<T, MUTATION> {
    /// Creates a channel with a number of receivers, all at position zero.
    pub fn new(capacity: usize, receivers: usize) -> Self {
        let (messages, is_closed) = (BlockQueue::new(), false);
        let state = BroadcastState { messages, first: 0, receivers, is_closed };
        Self { bell: Bell::new(state), sent: AtomicU64::new(0), capacity }
    }

    fn change<R>(&self, change: impl FnOnce(&mut BroadcastState<T>) -> R) -> R {
        self.bell.change(|ringing| change(&mut ringing.about))
    }

    /// Sends a message to all receivers.
    ///
    /// # Errors
    /// Returns the message if there is no receiver.
    pub fn send(&self, message: T) -> Result<Broadcast<T>, T> {
        let message = Shares::new(message);
        let is_early = cfg!(procession_loom) && MUTATION == 1;
        let mut early = is_early.then(|| self.bell.change(Ringing::ring_all));
        self.bell.change(|ringing| {
            let state = &mut ringing.about;
            let receivers = state.receivers;
            if receivers == 0 {
                return Err(message.into_alone());
            }
            let mut overwritten = None;
            if state.messages.len() >= self.capacity {
                state.first += 1;
                overwritten = state.messages.pop_front();
            }
            state.messages.push_back(message.into_shares(receivers));
            // Relaxed: a receiver that learns of this send reads this number or a later one.
            self.sent.store(state.end(), Relaxed);
            let woken = early.take().unwrap_or_else(|| ringing.ring_all());
            Ok(Broadcast { receivers, overwritten, woken })
        })
    }

    /// Receives the next message. A message that was taken and is missed now is passed to
    /// `drop_message`.
    pub fn try_recv(
        &self,
        cursor: &mut Cursor<T>,
        drop_message: impl FnMut(Shares<T>),
    ) -> Result<Shares<T>, NotBroadcast> {
        if let Some(received) = self.recv_taken(cursor, drop_message) {
            return received;
        }
        if cfg!(procession_loom) && MUTATION == 2 {
            let first = self.change(|state| state.first);
            let missed = first.saturating_sub(cursor.next);
            cursor.next += missed;
            if missed > 0 {
                return Err(NotBroadcast::Lagged(missed));
            }
            return self.change(|state| {
                let mut here = Cursor::new(state.first + (cursor.next - first));
                let received = state.recv(&mut here);
                cursor.next += u64::from(received.is_ok());
                cursor.taken = here.taken;
                received
            });
        }
        self.change(|state| state.recv(cursor))
    }

    /// Returns the next message, if it was taken. A message that was taken and is missed now is
    /// passed to `drop_message`.
    #[inline]
    pub fn recv_taken(
        &self,
        cursor: &mut Cursor<T>,
        drop_message: impl FnMut(Shares<T>),
    ) -> Option<Result<Shares<T>, NotBroadcast>> {
        if cursor.taken.is_empty() {
            return None;
        }
        // Relaxed: see `send`.
        let kept = self.sent.load(Relaxed).saturating_sub(self.capacity as u64);
        let missed = kept.saturating_sub(cursor.next);
        if missed > 0 && !(cfg!(procession_loom) && MUTATION == 4) {
            cursor.next = kept;
            let taken = (missed as usize).min(cursor.taken.len());
            cursor.taken.drain(..taken).for_each(drop_message);
            return Some(Err(NotBroadcast::Lagged(missed)));
        }
        cursor.next += 1;
        cursor.taken.pop_front().map(Ok)
    }

    /// Adds a receiver.
    pub fn subscribe(&self) -> Cursor<T> {
        Cursor::new(self.change(|state| {
            state.receivers += 1;
            state.end()
        }))
    }

    /// Removes a receiver. Returns the messages that were due to it alone, to be dropped outside
    /// the lock, and `true` if no receiver is left.
    pub fn unsubscribe(&self, cursor: &Cursor<T>) -> (Vec<Shares<T>>, bool) {
        let next = cursor.end();
        if cfg!(procession_loom) && MUTATION == 3 {
            let dropped = self.change(|state| state.leave(next));
            self.change(|state| state.receivers -= 1);
            return (dropped, false);
        }
        self.change(|state| {
            state.receivers -= 1;
            (state.leave(next), state.receivers == 0)
        })
    }

    /// Closes the channel. Returns the waiting receivers, to be woken.
    pub fn close(&self) -> ServedWaiters {
        self.bell.ring_all_if(|state| {
            state.is_closed = true;
            true
        })
    }

    /// Returns `true` if no message will be sent any more.
    pub fn is_closed(&self) -> bool {
        self.change(|state| state.is_closed)
    }

    /// Returns the number of receivers.
    pub fn receivers(&self) -> usize {
        self.change(|state| state.receivers)
    }

    /// Returns the number of messages that some receiver has not taken.
    pub fn len(&self) -> usize {
        self.change(|state| state.messages.len())
    }

    /// Returns the number of messages that a receiver has not received, including messages that it
    /// has missed.
    pub fn len_from(&self, cursor: &Cursor<T>) -> usize {
        self.change(|state| state.end() - cursor.next) as usize
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicBool;
    use procession_sync::atomic::Ordering::{Acquire, Release};
    use procession_sync::{Arc, explore, thread};

    use super::{BroadcastCore, Cursor, NotBroadcast, mutation};
    use crate::sync::wait_list::Another;

    fn send<const MUTATION: u8>(channel: &BroadcastCore<u32, MUTATION>, message: u32) {
        drop(channel.send(message));
    }

    /// A message is sent while a receiver begins to wait.
    fn receive<const MUTATION: u8>() {
        explore(|| {
            let channel = Arc::new(BroadcastCore::<u32, MUTATION>::new(1, 1));
            let sender = {
                let channel = Arc::clone(&channel);
                thread::spawn(move || send(&channel, 7))
            };
            let (mut cursor, mut place) = (Cursor::new(0), None);
            let first = channel.bell.change(|ringing| {
                ringing
                    .look_or_enlist(&mut place, &mut Another::none(), |state| {
                        state.recv(&mut cursor).ok()
                    })
                    .is_some_and(|looked| looked.is_ready())
            });
            sender.join().expect("it does not panic");
            let is_rung = channel.bell.look(&mut place, &mut Another::none()).is_some();
            assert!(first || is_rung, "the receiver waits forever");
        });
    }

    #[test]
    fn send_against_receive() {
        receive::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the receiver waits forever")]
    fn canary_ring_first() {
        receive::<{ mutation::RING_FIRST }>();
    }

    /// Later messages overwrite earlier messages while a receiver receives them.
    fn overwrite<const MUTATION: u8>() {
        explore(|| {
            let channel = Arc::new(BroadcastCore::<u32, MUTATION>::new(1, 1));
            let sender = {
                let channel = Arc::clone(&channel);
                thread::spawn(move || (0..2).for_each(|message| send(&channel, message)))
            };
            // The number of messages so far that were received or missed is the next message.
            let (mut cursor, mut seen) = (Cursor::new(0), 0);
            let mut take = || match channel.try_recv(&mut cursor, drop) {
                Ok(message) => {
                    assert_eq!(*message, seen, "a message is skipped and not counted");
                    seen += 1;
                }
                Err(NotBroadcast::Lagged(missed)) => seen += missed as u32,
                Err(_) => {}
            };
            take();
            take();
            sender.join().expect("it does not panic");
            (0..3).for_each(|_| take());
            assert_eq!(seen, 2, "a message is skipped and not counted");
        });
    }

    #[test]
    fn overwrite_against_receive() {
        overwrite::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a message is skipped and not counted")]
    fn canary_skip_apart() {
        overwrite::<{ mutation::SKIP_APART }>();
    }

    /// A message is sent while one of two receivers is dropped.
    fn leave<const MUTATION: u8>() {
        explore(|| {
            let channel = Arc::new(BroadcastCore::<u32, MUTATION>::new(2, 2));
            let sender = {
                let channel = Arc::clone(&channel);
                thread::spawn(move || send(&channel, 7))
            };
            drop(channel.unsubscribe(&Cursor::new(0)));
            sender.join().expect("it does not panic");
            assert_eq!(channel.try_recv(&mut Cursor::new(0), drop).ok().as_deref(), Some(&7));
            assert_eq!(channel.len(), 0, "a message stays for a receiver that is gone");
        });
    }

    #[test]
    fn send_against_drop() {
        leave::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a message stays for a receiver that is gone")]
    fn canary_leave_in_two() {
        leave::<{ mutation::LEAVE_IN_TWO }>();
    }

    /// A receiver takes two messages in one step. A third message is sent, which makes room of the
    /// second, and the receiver learns of that send.
    fn lag<const MUTATION: u8>() {
        explore(|| {
            let channel = Arc::new(BroadcastCore::<u32, MUTATION>::new(2, 1));
            (0..2).for_each(|message| send(&channel, message));
            let told = Arc::new(AtomicBool::new(false));
            let sender = {
                let (channel, told) = (Arc::clone(&channel), Arc::clone(&told));
                thread::spawn(move || {
                    send(&channel, 2);
                    send(&channel, 3);
                    told.store(true, Release);
                })
            };
            let mut cursor = Cursor::new(0);
            let first = channel.try_recv(&mut cursor, drop).ok();
            let is_told = told.load(Acquire);
            let second = channel.try_recv(&mut cursor, drop);
            let has_second = second.as_deref() == Ok(&1);
            assert!(
                !(first.as_deref() == Some(&0) && is_told && has_second),
                "a message is received after it was overwritten"
            );
            sender.join().expect("it does not panic");
        });
    }

    #[test]
    fn overwrite_against_taken_message() {
        lag::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a message is received after it was overwritten")]
    fn canary_keep_taken() {
        lag::<{ mutation::KEEP_TAKEN }>();
    }
}
