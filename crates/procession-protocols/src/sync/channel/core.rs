//! # Channel protocol
//!
//! ## Problem
//! A sender finds no room and is about to wait. Before it does, a receiver makes room, sees no
//! waiting sender, and never wakes it. Or the channel is closed in between. Or a receiver is handed
//! a message and is dropped before it observes that: the message is lost.
//!
//! ## States
//! All under one lock: the messages in order, at most `room`; the waiting senders, each with its
//! message; the waiting receivers, each with an empty place for one; and whether the channel is
//! closed. A receiver waits only while there is neither a message nor a sender that waits with one.
//!
//! Room can be *reserved*. Each reservation takes one from `room` until its message is sent or its
//! room is returned. A sender that waits for a reservation is in the list of senders, without a
//! message.
//!
//! ## Steps
//! - Send: `Look`. If a receiver waits and the channel is open, hand it the message. If there is
//!   room, append the message. If the channel is closed, which leaves no room, refuse it. Else
//!   `Enlist` in the same critical section.
//! - Receive: `Look`. If there is a message, take the first one, and append the message of the
//!   first waiting sender. If there is no message but a sender waits, take its message. If the
//!   channel is closed, return the end. Else `Enlist` in the same critical section.
//! - Reserve: `Look` for room and take it, or `Enlist` in the same critical section.
//! - Send with a reservation: return the room, and hand the message to a waiting receiver or append
//!   it. Without a message: return the room, and let the first waiting sender have it, in the same
//!   critical section.
//! - Close: set the flag, and serve all waiters with nothing. While there are reservations, or
//!   messages that were handed over and not observed, receivers continue to wait, because the
//!   reserved messages are still sent, and the others may be passed on.
//! - Keep: a receiver that may not take a message yet is handed the first one, as if it had waited,
//!   in the critical section of its `Look`. If it was handed one before, the message stays.
//! - Observe: a receiver that was handed a message takes it. In a closed channel without another
//!   such message and without reservations, serve all receivers with nothing.
//! - Cancel: leave the list. A receiver that was handed a message passes it to the next waiting
//!   receiver, or puts it first.
//!
//! `Wake` happens outside the lock.
//!
//! ## Why it works
//! `Look` and `Enlist` are one critical section, so a change of the answer is later and finds the
//! waiter in the list. A message is in one place at each moment: with its sender, in the queue, or
//! with the receiver that it was handed to. If that receiver is cancelled, it passes the message
//! on.
//!
//! ## Allowed
//! - Messages that cancelled receivers pass on may exceed `room`, by one for each such receiver.
//!   The next senders then wait longer.
//! - If several receives of one channel are cancelled after they were handed messages, the messages
//!   return in the order of the cancels and not in the order of the sends. To keep the order, each
//!   message would need a number.
//!
//! ## Rejected
//! - Waking a receiver so that it looks again. Another receiver may take the message in between,
//!   and under load the waiting receiver starves.
//! - A close that serves all receivers while one has been handed a message. If that receiver is
//!   cancelled, nobody is left to receive its message.
//! - Taking a message, and returning it to the place of the receiver in a second critical section.
//!   In between, a closed channel tells other receivers the end.
//! - A lock-free ring, as in `crossbeam-channel`. Its waiters are threads, and a wait cannot be
//!   withdrawn without losing the wake-up or the order.
//!
//! ## Checked by
//! `models::*`.

use std::sync::Arc;

use crate::sync::wait_list::{
    Another, Choice, Looked, Place, ServedWaiters, WaitList, Waiter, look,
};
use crate::util::biased_lock::Lock;
use crate::util::block_queue::BlockQueue;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Enlist` happens in a separate critical section.
    #[cfg(all(test, procession_loom))]
    pub const ENLIST_WITHOUT_LOOK: u8 = 1;
    /// A cancelled receiver drops the message that it was handed.
    #[cfg(all(test, procession_loom))]
    pub const CANCEL_DROPS: u8 = 2;
    /// Returned room goes to the first waiting sender in a separate critical section, before the
    /// room is returned.
    #[cfg(all(test, procession_loom))]
    pub const GIVE_UP_IN_TWO: u8 = 3;
    /// A close does not wait for messages that were handed over.
    #[cfg(all(test, procession_loom))]
    pub const CLOSE_FORGETS_HANDED: u8 = 4;
    /// `Keep` happens in a separate critical section.
    #[cfg(all(test, procession_loom))]
    pub const KEEP_IN_TWO: u8 = 5;
    /// `Observe` serves nobody.
    #[cfg(all(test, procession_loom))]
    pub const OBSERVE_ENDS_NOBODY: u8 = 6;
}

/// The reason why nothing was sent, with the message.
#[derive(Debug, PartialEq, Eq)]
pub enum NotSent<T> {
    /// The channel is full.
    Full(T),
    /// The channel is closed.
    Closed(T),
}

/// The reason why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReceived {
    /// The channel is empty.
    Empty,
    /// The channel is closed and empty.
    Closed,
}

/// What a waiting sender is there for.
#[derive(Debug)]
enum Offer<T> {
    Message(T),
    /// It wants to reserve room.
    Reservation,
    /// The message was taken, or the room is reserved.
    Served,
}

impl<T> Offer<T> {
    fn serve(&mut self) -> Self {
        std::mem::replace(self, Self::Served)
    }

    fn has_message(&self) -> bool {
        matches!(self, Self::Message(_))
    }

    fn into_message(self) -> Option<T> {
        match self {
            Self::Message(message) => Some(message),
            Self::Reservation | Self::Served => None,
        }
    }
}

/// The fields are in this order so that, while there are no waiters, a send touches one cache line
/// and a receive only reads a second one.
#[derive(Debug)]
#[repr(C)]
struct ChannelState<T> {
    messages: BlockQueue<T>,
    /// Maximum number of messages, less the room that is reserved. Zero once the channel is closed.
    room: usize,
    /// The waiting receivers. The content is the message, once it is handed over.
    receivers: WaitList<Option<T>>,
    /// The waiting senders.
    senders: WaitList<Offer<T>>,
    closed: bool,
    /// Number of reservations.
    reserved: usize,
    /// Number of messages that receivers were handed and have not observed.
    handed: usize,
}

/// The state of a channel, without its public types. Aligned to a cache line for the field order of
/// `ChannelState`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ChannelCore<T, const MUTATION: u8 = { mutation::SOUND }> {
    state: Lock<ChannelState<T>>,
    capacity: usize,
}

impl<T> ChannelState<T> {
    #[inline]
    fn send(&mut self, message: T) -> Result<Option<Waiter>, NotSent<T>> {
        let mut message = Some(message);
        // Receivers of a closed channel may wait for a message that is reserved, or that was handed
        // over and may be passed on.
        if !self.receivers.is_empty()
            && !self.closed
            && let Some(waiter) = self.hand_over(&mut message)
        {
            return Ok(Some(waiter));
        }
        let message = message.expect("no receiver took it");
        if self.messages.len() >= self.room {
            return Err(if self.closed {
                NotSent::Closed(message)
            } else {
                NotSent::Full(message)
            });
        }
        self.messages.push_back(message);
        Ok(None)
    }

    #[inline]
    fn recv(&mut self) -> Result<(T, Option<Waiter>), NotReceived> {
        if let Some(message) = self.messages.pop_front() {
            return Ok((message, self.refill()));
        }
        match self.senders.serve_where(Offer::has_message, Offer::serve) {
            Some((waiter, offer)) => {
                Ok((offer.into_message().expect("it offers a message"), Some(waiter)))
            }
            None if self.is_over() => Err(NotReceived::Closed),
            None => Err(NotReceived::Empty),
        }
    }

    /// Lets the first waiting sender have room, if there is any.
    #[inline]
    fn refill(&mut self) -> Option<Waiter> {
        if self.messages.len() >= self.room {
            return None;
        }
        let (sender, offer) = self.senders.serve(Offer::serve)?;
        match offer.into_message() {
            Some(message) => self.messages.push_back(message),
            None => self.reserve(),
        }
        Some(sender)
    }

    fn reserve(&mut self) {
        self.room -= 1;
        self.reserved += 1;
    }

    /// Returns the room of a reservation.
    fn unreserve(&mut self) {
        self.reserved -= 1;
        if !self.closed {
            self.room += 1;
        }
    }

    /// Hands the message to the first waiting receiver, if there is one.
    #[inline]
    fn hand_over(&mut self, message: &mut Option<T>) -> Option<Waiter> {
        let (waiter, ()) = self.receivers.serve(|place| *place = message.take())?;
        self.handed += 1;
        Some(waiter)
    }

    /// Returns `true` if no further message will be sent or passed on.
    fn is_over(&self) -> bool {
        self.closed && self.reserved == 0 && self.handed == 0
    }

    /// Serves all receivers with nothing, if no further message will come.
    fn end_receivers(&mut self, woken: &mut ServedWaiters) {
        if self.is_over() {
            while let Some((waiter, ())) = self.receivers.serve(|_| ()) {
                woken.push(waiter);
            }
        }
    }

    /// `Keep`.
    fn keep(&mut self, message: T) -> Place {
        self.handed += 1;
        self.receivers.push_served(Some(message))
    }

    /// Passes on a message that was handed to a receiver that no longer wants it.
    fn pass_on(&mut self, message: T) -> Option<Waiter> {
        let mut message = Some(message);
        let next = self.hand_over(&mut message);
        if let Some(message) = message {
            // Before the messages that came after it.
            self.messages.push_front(message);
        }
        next
    }
}

impl<T, const MUTATION: u8> ChannelCore<T, MUTATION> {
    /// Creates a channel that holds `capacity` messages, not counting messages that were handed to
    /// waiting receivers.
    pub fn new(capacity: usize) -> Self {
        let state = ChannelState {
            messages: BlockQueue::new(),
            room: capacity,
            receivers: WaitList::new(),
            senders: WaitList::new(),
            closed: false,
            reserved: 0,
            handed: 0,
        };
        Self { state: Lock::new(state), capacity }
    }

    #[inline]
    fn change<R>(&self, change: impl FnOnce(&mut ChannelState<T>) -> R) -> R {
        change(&mut self.state.lock())
    }

    /// Sends, if that is possible without waiting. Returns the receiver to wake.
    pub fn try_send(&self, message: T) -> Result<Option<Waiter>, NotSent<T>> {
        self.change(|state| state.send(message))
    }

    /// Receives, if that is possible without waiting. Returns the message, and the sender to wake.
    pub fn try_recv(&self) -> Result<(T, Option<Waiter>), NotReceived> {
        self.change(ChannelState::recv)
    }

    /// Sends like `try_send`, or enlists the sender. The message is therefore never refused as
    /// `Full`.
    pub fn send_or_wait(
        &self,
        mut message: T,
        another: &mut Another<'_>,
    ) -> Result<Sent, NotSent<T>> {
        loop {
            let mut enlist = |state: &mut ChannelState<T>, message| match another.take() {
                Some(waker) => {
                    let offer = Offer::Message(message);
                    Ok(Sent::Waits(state.senders.push(Waiter::Alone(waker), offer)))
                }
                None => Err(NotSent::Full(message)),
            };
            let sent = if cfg!(procession_loom) && MUTATION == 1 {
                match self.try_send(message) {
                    Err(NotSent::Full(message)) => self.change(|state| enlist(state, message)),
                    sent => sent.map(Sent::Now),
                }
            } else {
                self.change(|state| match state.send(message) {
                    Err(NotSent::Full(message)) => enlist(state, message),
                    sent => sent.map(Sent::Now),
                })
            };
            match sent {
                Err(NotSent::Full(back)) => message = back,
                sent => return sent,
            }
            another.prepare();
        }
    }

    /// Receives like `try_recv`, or enlists the receiver. So `NotReceived` is returned only for a
    /// closed channel.
    pub fn recv_or_wait(&self, another: &mut Another<'_>) -> Result<Received<T>, NotReceived> {
        self.receive_or_wait(another, |_, message| message)
    }

    /// Receives like `recv_or_wait`, but keeps the message for the receiver, as if the receiver had
    /// waited. Returns the place of the message.
    #[cold]
    pub fn keep_or_wait(&self, another: &mut Another<'_>) -> Result<Received<Place>, NotReceived> {
        if cfg!(procession_loom) && MUTATION == 5 {
            return self.recv_or_wait(another).map(|received| match received {
                Received::Now(message, waiter) => {
                    Received::Now(self.change(|state| state.keep(message)), waiter)
                }
                Received::Waits(place) => Received::Waits(place),
            });
        }
        self.receive_or_wait(another, ChannelState::keep)
    }

    #[inline]
    fn receive_or_wait<R>(
        &self,
        another: &mut Another<'_>,
        take: impl Fn(&mut ChannelState<T>, T) -> R,
    ) -> Result<Received<R>, NotReceived> {
        loop {
            let received = self.change(|state| match state.recv() {
                Ok((message, waiter)) => Ok(Received::Now(take(state, message), waiter)),
                Err(NotReceived::Empty) => match another.take() {
                    Some(waker) => {
                        Ok(Received::Waits(state.receivers.push(Waiter::Alone(waker), None)))
                    }
                    None => Err(NotReceived::Empty),
                },
                Err(NotReceived::Closed) => Err(NotReceived::Closed),
            });
            if !matches!(received, Err(NotReceived::Empty)) {
                return received;
            }
            another.prepare();
        }
    }

    /// Enlists a sending arm of a select, unless it is ready now. The message goes into the list.
    /// If the arm is ready, returns the message.
    pub fn enlist_sender(&self, message: T, choice: &Arc<Choice>, arm: u32) -> Result<Place, T> {
        self.change(|state| {
            if state.closed
                || state.messages.len() < state.room
                || state.receivers.has_other(Some(choice), |_| true)
            {
                return Err(message);
            }
            let waiter = Waiter::Arm(Arc::clone(choice), arm);
            Ok(state.senders.push(waiter, Offer::Message(message)))
        })
    }

    /// Enlists a receiving arm of a select. Returns `None` if it is ready now.
    pub fn enlist_receiver(&self, choice: &Arc<Choice>, arm: u32) -> Option<Place> {
        self.change(|state| {
            if state.is_over()
                || !state.messages.is_empty()
                || state.senders.has_other(Some(choice), Offer::has_message)
            {
                return None;
            }
            Some(state.receivers.push(Waiter::Arm(Arc::clone(choice), arm), None))
        })
    }

    /// Observes the result of a waiting sender, which keeps its place while it waits.
    pub fn look_sender(
        &self,
        place: &mut Option<Place>,
        another: &mut Another<'_>,
    ) -> Option<Result<(), T>> {
        let left = look(place, another, |place, another| {
            self.change(|state| state.senders.look(place, another))
        })?;
        Some(left.into_message().map_or(Ok(()), Err))
    }

    /// Observes the result of a waiting receiver, which keeps its place while it waits. A receiver
    /// that was served without a message has seen the channel close. Adds the receivers that this
    /// ends to `woken`.
    pub fn look_receiver(
        &self,
        place: &mut Option<Place>,
        another: &mut Another<'_>,
        woken: &mut ServedWaiters,
    ) -> Option<Option<T>> {
        look(place, another, |place, another| {
            self.change(|state| {
                let looked = state.receivers.look(place, another);
                if let Looked::ServedWaiters(Some(_)) = looked {
                    state.handed -= 1;
                    if !(cfg!(procession_loom) && MUTATION == 6) {
                        state.end_receivers(woken);
                    }
                }
                looked
            })
        })
    }

    /// Keeps the place of a sender that was served without waiting.
    #[cold]
    pub fn keep_served(&self) -> Place {
        self.change(|state| state.senders.push_served(Offer::Served))
    }

    /// Returns `true` if a waiting receiver was served. It keeps its place, and its message.
    #[cold]
    pub fn is_served(&self, place: &Place, another: &mut Another<'_>) -> bool {
        loop {
            let is_served = self.change(|state| {
                let is_served = state.receivers.is_served(place);
                (is_served || state.receivers.renew(place, another)).then_some(is_served)
            });
            if let Some(is_served) = is_served {
                return is_served;
            }
            another.prepare();
        }
    }

    /// Removes a waiting sender. Returns its message, unless that was taken.
    pub fn cancel_sender(&self, place: Place) -> (Option<T>, Option<Waiter>) {
        let (offer, own) = self.change(|state| state.senders.remove(place));
        (offer.into_message(), own)
    }

    /// Receives up to `limit` messages, as many as there are, in one critical section. Returns the
    /// senders to wake, unless there is no message.
    pub fn recv_many(&self, limit: usize, into: &mut Vec<T>) -> Option<ServedWaiters> {
        self.change(|state| {
            let mut woken = ServedWaiters::default();
            let mut count = 0;
            while count < limit
                && let Ok((message, waiter)) = state.recv()
            {
                into.push(message);
                waiter.into_iter().for_each(|waiter| woken.push(waiter));
                count += 1;
            }
            (count > 0).then_some(woken)
        })
    }

    /// Removes a waiting receiver. A message that it was handed goes to the next one, which is to
    /// be woken.
    pub fn cancel_receiver(&self, place: Place) -> Cancelled<T> {
        self.change(|state| {
            let (handed, own) = state.receivers.remove(place);
            state.handed -= usize::from(handed.is_some());
            if cfg!(procession_loom) && MUTATION == 2 {
                return Cancelled { own, next: None, message: handed };
            }
            let next = handed.and_then(|message| state.pass_on(message));
            Cancelled { own, next, message: None }
        })
    }

    /// Passes on a message that was received and is not wanted. Returns the receiver that has the
    /// message now, to be woken.
    pub fn pass_on(&self, message: T) -> Option<Waiter> {
        self.change(|state| state.pass_on(message))
    }

    /// Closes the channel, and returns all waiters, to be woken.
    pub fn close(&self) -> ServedWaiters {
        self.change(|state| {
            let mut woken = ServedWaiters::default();
            state.closed = true;
            state.room = 0;
            while let Some((waiter, ())) = state.senders.serve(|_| ()) {
                woken.push(waiter);
            }
            let handed = if cfg!(procession_loom) && MUTATION == 4 {
                std::mem::take(&mut state.handed)
            } else {
                0
            };
            state.end_receivers(&mut woken);
            state.handed += handed;
            woken
        })
    }

    /// Takes the messages that no receiver is left for.
    pub fn drain(&self) -> BlockQueue<T> {
        self.change(|state| std::mem::take(&mut state.messages))
    }

    /// Returns `true` if the channel is closed.
    pub fn is_closed(&self) -> bool {
        self.change(|state| state.closed)
    }

    /// Returns `true` if a sender would have to wait.
    #[cold]
    pub fn must_wait(&self) -> bool {
        self.change(|state| {
            !state.closed
                && state.messages.len() >= state.room
                && !state.receivers.has_other(None, |_| true)
        })
    }

    /// Returns the number of messages in the channel.
    pub fn len(&self) -> usize {
        self.change(|state| state.messages.len())
    }

    /// Returns the maximum number of messages in the channel.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// The result of a send.
#[derive(Debug)]
pub enum Sent {
    /// The message is in the channel or with the receiver, which is to be woken.
    Now(Option<Waiter>),
    /// The sender waits at this place.
    Waits(Place),
}

/// The result of a receive.
#[derive(Debug)]
pub enum Received<T> {
    /// The message, and the sender that it made room for, which is to be woken.
    Now(T, Option<Waiter>),
    /// The receiver waits at this place.
    Waits(Place),
}

/// The parts of a cancelled receiver, to be dropped and woken outside the lock.
#[derive(Debug)]
pub struct Cancelled<T> {
    /// The waiter of the cancelled receiver, to be dropped.
    pub own: Option<Waiter>,
    /// The receiver that was served in its place, to be woken.
    pub next: Option<Waiter>,
    /// The message that was handed over, and that no receiver gets.
    pub message: Option<T>,
}

mod reserve;

#[cfg(all(test, procession_loom))]
mod models;
