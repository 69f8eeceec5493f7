//! # Channel protocol
//!
//! ## Problem
//! A sender finds no room and goes to wait; before it has, the receiver makes room, sees nobody waiting, and never wakes it. Or the channel is
//! closed in between. Or a receiver is handed a message and dropped before it has looked: the message is gone.
//!
//! ## States
//! All under one lock: the messages in order, at most `room` of them; those who wait to send, each with his message; those who wait to
//! receive, each with an empty place; whether the channel is closed. At most one of the two lists has anybody who can be served: who waits to
//! receive waits because there is neither a message nor a sender.
//!
//! ## Steps
//! Send: `Look` somebody waits to receive → hand him the message; room → put it last; closed, which leaves no room → refuse; else `Enlist` in the same critical
//! section. Receive: `Look` a message → take the first, and let the first who waits to send put his last; none, but somebody waits to send →
//! take his; closed → end; else `Enlist`, likewise. Close: set the flag, and serve everybody who waits, with nothing.
//! Cancel: leave the list; a receiver that was handed a message gives it to the next who waits, or puts it first. `Wake` outside the lock.
//!
//! ## Why it works
//! `Look` and `Enlist` are one critical section, so whatever changes the answer comes later and finds him in the list. A message is in one place
//! at each moment: with its sender, in the queue, or with the receiver it was handed to, whose cancel passes it on.
//!
//! ## Allowed
//! A message that is passed on by a cancelled receiver may be one more than `room`; the next senders wait the longer.
//!
//! ## Rejected
//! - Waking a receiver, to let it look again: another that comes in between takes the message, and under load the one that waits starves.
//! - A lock-free ring (as of `crossbeam-channel`): its waiters are threads, and a wait cannot be withdrawn without losing the wake-up or the order.
//!
//! ## Checked by
//! `models::*`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::wait_list::{Another, Choice, Place, Waiters, Who, Woken, look};
use crate::util::biased_lock::Lock;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `Enlist` in a critical section of its own.
    #[cfg(all(test, procession_loom))]
    pub(crate) const ENLIST_WITHOUT_LOOK: u8 = 1;
    /// A cancelled receiver drops what it was handed.
    #[cfg(all(test, procession_loom))]
    pub(crate) const CANCEL_DROPS: u8 = 2;
}

/// Why nothing was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused<T> {
    Full(T),
    Closed(T),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    Empty,
    Closed,
}

/// In this order, so that while nobody waits a send touches one cache line, and a receive only reads another.
#[derive(Debug)]
#[repr(C)]
struct State<T> {
    messages: VecDeque<T>,
    /// How many messages there may be at most; none once the channel is closed.
    room: usize,
    /// With the message, once it is handed over.
    receivers: Waiters<Option<T>>,
    /// With the message, until it is taken.
    senders: Waiters<Option<T>>,
    closed: bool,
}

/// A channel without its faces. From the beginning of a cache line, for the order of the above.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Core<T, const MUTATION: u8 = { mutation::SOUND }> {
    state: Lock<State<T>>,
    capacity: usize,
}

impl<T> State<T> {
    #[inline]
    fn send(&mut self, message: T) -> Result<Option<Who>, Refused<T>> {
        let mut message = Some(message);
        if let Some((who, ())) = self.receivers.serve(|place| *place = message.take()) {
            return Ok(Some(who));
        }
        let message = message.expect("nobody took it");
        if self.messages.len() >= self.room {
            return Err(if self.closed { Refused::Closed(message) } else { Refused::Full(message) });
        }
        self.messages.push_back(message);
        Ok(None)
    }

    #[inline]
    fn receive(&mut self) -> Result<(T, Option<Who>), Nothing> {
        if let Some(message) = self.messages.pop_front() {
            let mut who = None;
            if self.messages.len() < self.room
                && let Some((sender, next)) = self.senders.serve(Option::take)
            {
                self.messages.extend(next);
                who = Some(sender);
            }
            return Ok((message, who));
        }
        match self.senders.serve(Option::take) {
            Some((who, message)) => Ok((message.expect("who waits to send has his message"), Some(who))),
            None if self.closed => Err(Nothing::Closed),
            None => Err(Nothing::Empty),
        }
    }

    /// A message that was handed to somebody who does not want it any more.
    fn pass_on(&mut self, message: T) -> Option<Who> {
        let mut message = Some(message);
        let next = self.receivers.serve(|place| *place = message.take());
        if let Some(message) = message {
            // Before those that came after it.
            self.messages.push_front(message);
        }
        next.map(|(who, ())| who)
    }
}

impl<T, const MUTATION: u8> Core<T, MUTATION> {
    /// A channel that holds `capacity` messages that nobody waits for.
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            messages: VecDeque::new(),
            room: capacity,
            receivers: Waiters::new(),
            senders: Waiters::new(),
            closed: false,
        };
        Self { state: Lock::new(state), capacity }
    }

    #[inline]
    fn change<R>(&self, change: impl FnOnce(&mut State<T>) -> R) -> R {
        change(&mut self.state.lock())
    }

    /// Sends, if that is possible at once; gives back who is to be woken for it.
    pub(crate) fn try_send(&self, message: T) -> Result<Option<Who>, Refused<T>> {
        self.change(|state| state.send(message))
    }

    /// Receives, if that is possible at once; likewise.
    pub(crate) fn try_receive(&self) -> Result<(T, Option<Who>), Nothing> {
        self.change(State::receive)
    }

    /// As `try_send`, or waits; so it is not refused for want of room.
    pub(crate) fn send_or_wait(&self, mut message: T, another: &mut Another<'_>) -> Result<Sent, Refused<T>> {
        loop {
            let mut enlist = |state: &mut State<T>, message| match another.take() {
                Some(waker) => Ok(Sent::Waits(state.senders.push(Who::Alone(waker), Some(message)))),
                None => Err(Refused::Full(message)),
            };
            let sent = if cfg!(procession_loom) && MUTATION == 1 {
                match self.try_send(message) {
                    Err(Refused::Full(message)) => self.change(|state| enlist(state, message)),
                    sent => sent.map(Sent::Now),
                }
            } else {
                self.change(|state| match state.send(message) {
                    Err(Refused::Full(message)) => enlist(state, message),
                    sent => sent.map(Sent::Now),
                })
            };
            match sent {
                Err(Refused::Full(back)) => message = back,
                sent => return sent,
            }
            another.prepare();
        }
    }

    /// As `try_receive`, or waits; so there is only nothing if the channel is closed.
    pub(crate) fn receive_or_wait(&self, another: &mut Another<'_>) -> Result<Received<T>, Nothing> {
        loop {
            let received = self.change(|state| match state.receive() {
                Ok((message, who)) => Ok(Received::Now(message, who)),
                Err(Nothing::Empty) => match another.take() {
                    Some(waker) => Ok(Received::Waits(state.receivers.push(Who::Alone(waker), None))),
                    None => Err(Nothing::Empty),
                },
                Err(Nothing::Closed) => Err(Nothing::Closed),
            });
            if !matches!(received, Err(Nothing::Empty)) {
                return received;
            }
            another.prepare();
        }
    }

    /// Enlists an arm of a select, unless it is ready now. Its message goes with it, and comes back if it is.
    pub(crate) fn enlist_sender(&self, message: T, choice: &Arc<Choice>, arm: u32) -> Result<Place, T> {
        self.change(|state| {
            if state.closed || state.messages.len() < state.room || state.receivers.has_other(Some(choice)) {
                return Err(message);
            }
            Ok(state.senders.push(Who::Arm(Arc::clone(choice), arm), Some(message)))
        })
    }

    /// Likewise.
    pub(crate) fn enlist_receiver(&self, choice: &Arc<Choice>, arm: u32) -> Option<Place> {
        self.change(|state| {
            if state.closed || !state.messages.is_empty() || state.senders.has_other(Some(choice)) {
                return None;
            }
            Some(state.receivers.push(Who::Arm(Arc::clone(choice), arm), None))
        })
    }

    /// What became of a sender that waits; it keeps its place while it does.
    pub(crate) fn look_sender(&self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<Result<(), T>> {
        let left = look(place, another, |place, another| self.change(|state| state.senders.look(place, another)))?;
        Some(left.map_or(Ok(()), Err))
    }

    /// Likewise; a receiver that was served with nothing has seen the channel close.
    pub(crate) fn look_receiver(&self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<Option<T>> {
        look(place, another, |place, another| self.change(|state| state.receivers.look(place, another)))
    }

    /// A sender waits no longer: its message, unless that was taken.
    pub(crate) fn cancel_sender(&self, place: Place) -> (Option<T>, Option<Who>) {
        self.change(|state| state.senders.remove(place))
    }

    /// A receiver waits no longer. What it was handed goes to the next, who is to be woken.
    pub(crate) fn cancel_receiver(&self, place: Place) -> Cancelled<T> {
        self.change(|state| {
            let (handed, own) = state.receivers.remove(place);
            if cfg!(procession_loom) && MUTATION == 2 {
                return Cancelled { own, next: None, message: handed };
            }
            let next = handed.and_then(|message| state.pass_on(message));
            Cancelled { own, next, message: None }
        })
    }

    /// Closes the channel: everybody who waits is to be woken.
    pub(crate) fn close(&self) -> Woken {
        self.change(|state| {
            let mut woken = Woken::default();
            state.closed = true;
            state.room = 0;
            while let Some((who, ())) = state.senders.serve(|_| ()) {
                woken.push(who);
            }
            while let Some((who, ())) = state.receivers.serve(|_| ()) {
                woken.push(who);
            }
            woken
        })
    }

    /// What nobody will receive any more.
    pub(crate) fn drain(&self) -> VecDeque<T> {
        self.change(|state| std::mem::take(&mut state.messages))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.change(|state| state.closed)
    }

    pub(crate) fn len(&self) -> usize {
        self.change(|state| state.messages.len())
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

/// How a send went.
pub(crate) enum Sent {
    Now(Option<Who>),
    Waits(Place),
}

/// How a receive went.
pub(crate) enum Received<T> {
    Now(T, Option<Who>),
    Waits(Place),
}

/// What a receiver leaves that waits no longer; dropped and woken outside the lock.
pub(crate) struct Cancelled<T> {
    pub(crate) own: Option<Who>,
    pub(crate) next: Option<Who>,
    pub(crate) message: Option<T>,
}

#[cfg(all(test, procession_loom))]
mod models;
