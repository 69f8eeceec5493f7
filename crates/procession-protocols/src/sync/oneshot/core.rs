//! # Oneshot protocol
//!
//! ## Problem
//! A receiver looks for the value, finds none, and is about to leave its waker. The sender sends in
//! between, finds no waker, and wakes nothing. Or the receiver closes the channel while the sender
//! sends: the value must come back to the sender or reach the receiver, and must not stay between
//! the two.
//!
//! ## States
//! All under one lock: the value; whether the sender is *done*, which means that it has sent or was
//! dropped; whether the channel is *closed* by the receiver; and the waker of each side, if it
//! waits.
//!
//! ## Steps
//! - Send: if the channel is closed, return the value. Else store it, mark the sender as done, and
//!   take the receiver's waker, in one critical section.
//! - Receive: `Look` for the value, or for a sender that is done. If there is neither, `Enlist`:
//!   leave the waker in the same critical section.
//! - Close: mark the channel as closed and take the sender's waker. The drop of the receiver also
//!   takes the value, in the same critical section.
//! - Wait for the close: look at the mark, and leave the waker, in one critical section.
//!
//! `Wake` happens outside the lock. A receiver without its sender takes the channel apart without
//! the lock: `Twin` orders this after all that the sender has done.
//!
//! ## Why it works
//! A send is before `Look` and is seen, or after it and finds the waker. A send is before the drop
//! of the receiver, which takes the value, or after it and returns the value to the sender.
//!
//! ## Allowed
//! A value that was sent can be received after the channel is closed.
//!
//! ## Checked by
//! `models::send_against_receive`, `models::send_against_drop`, `models::close_against_wait`, and
//! their canaries.

use std::task::{Poll, Waker};

use crate::sync::wait_list::{Another, renew};
use crate::util::biased_lock::Lock;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Enlist` happens in a separate critical section.
    #[cfg(all(test, procession_loom))]
    pub const ENLIST_WITHOUT_LOOK: u8 = 1;
    /// The drop of the receiver takes the value before it closes the channel.
    #[cfg(all(test, procession_loom))]
    pub const TAKE_BEFORE_CLOSE: u8 = 2;
    /// The sender leaves its waker without a look at the mark.
    #[cfg(all(test, procession_loom))]
    pub const WAIT_WITHOUT_LOOK: u8 = 3;
}

#[derive(Debug)]
struct OneshotState<T> {
    value: Option<T>,
    is_sent_or_dropped: bool,
    is_closed: bool,
    receiver: Option<Waker>,
    sender: Option<Waker>,
}

/// The state of a oneshot channel, without its public types.
#[derive(Debug)]
pub struct OneshotCore<T, const MUTATION: u8 = { mutation::SOUND }>(Lock<OneshotState<T>>);

/// What the drop of the receiver leaves, to be dropped and woken outside the lock.
#[derive(Debug)]
pub struct Abandoned<T> {
    /// The value that nobody received.
    pub value: Option<T>,
    /// The waker of the receiver, to be dropped.
    pub own: Option<Waker>,
    /// The waker of the sender, to be woken.
    pub sender: Option<Waker>,
}

impl<T> OneshotState<T> {
    /// `Look`. Returns `None` while a value may be sent.
    fn look(&mut self) -> Option<Option<T>> {
        match self.value.take() {
            Some(value) => Some(Some(value)),
            None if self.is_sent_or_dropped || self.is_closed => Some(None),
            None => None,
        }
    }
}

impl<T, const MUTATION: u8> OneshotCore<T, MUTATION> {
    /// Creates an open channel without a value.
    pub fn new() -> Self {
        Self(Lock::new(OneshotState {
            value: None,
            is_sent_or_dropped: false,
            is_closed: false,
            receiver: None,
            sender: None,
        }))
    }

    fn change<R>(&self, change: impl FnOnce(&mut OneshotState<T>) -> R) -> R {
        change(&mut self.0.lock())
    }

    /// Sends the value. Returns the wakers of the receiver, to be woken, and of the sender, to be
    /// dropped.
    ///
    /// # Errors
    /// Returns the value if the channel is closed.
    #[inline]
    pub fn send(&self, value: T) -> Result<(Option<Waker>, Option<Waker>), T> {
        self.change(|state| {
            if state.is_closed {
                return Err(value);
            }
            state.value = Some(value);
            state.is_sent_or_dropped = true;
            Ok((state.receiver.take(), state.sender.take()))
        })
    }

    /// Marks the sender as done without a value. Returns the wakers as [`send`](Self::send) does.
    pub fn drop_sender(&self) -> (Option<Waker>, Option<Waker>) {
        self.change(|state| {
            state.is_sent_or_dropped = true;
            (state.receiver.take(), state.sender.take())
        })
    }

    /// Returns the value, if it is there, `Some(None)` if no value will be sent, and `None` while a
    /// value may be sent.
    pub fn try_recv(&self) -> Option<Option<T>> {
        self.change(OneshotState::look)
    }

    /// Receives like [`try_recv`](Self::try_recv), or leaves the receiver's waker.
    #[inline]
    pub fn recv_or_wait(&self, another: &mut Another<'_>) -> Poll<Option<T>> {
        loop {
            if cfg!(procession_loom)
                && MUTATION == 1
                && let Some(received) = self.try_recv()
            {
                return Poll::Ready(received);
            }
            let polled = self.change(|state| {
                let looks = !(cfg!(procession_loom) && MUTATION == 1);
                match looks.then(|| state.look()).flatten() {
                    Some(received) => Some(Poll::Ready(received)),
                    None => renew(&mut state.receiver, another).then_some(Poll::Pending),
                }
            });
            if let Some(polled) = polled {
                return polled;
            }
            another.prepare();
        }
    }

    /// Returns `true` once the channel is closed. Until then, leaves the sender's waker.
    pub fn closed_or_wait(&self, another: &mut Another<'_>) -> bool {
        loop {
            let looks = !(cfg!(procession_loom) && MUTATION == 3);
            if !looks && self.is_closed() {
                return true;
            }
            let closed = self.change(|state| {
                if looks && state.is_closed {
                    return Some(true);
                }
                renew(&mut state.sender, another).then_some(false)
            });
            if let Some(closed) = closed {
                return closed;
            }
            another.prepare();
        }
    }

    /// Removes the sender's waker, to be dropped outside the lock.
    pub fn leave_sender(&self) -> Option<Waker> {
        self.change(|state| state.sender.take())
    }

    /// Closes the channel. Returns the wakers of the sender, to be woken, and of the receiver, to
    /// be dropped: the receiver is not waiting, because it closes.
    pub fn close(&self) -> (Option<Waker>, Option<Waker>) {
        self.change(|state| {
            state.is_closed = true;
            (state.sender.take(), state.receiver.take())
        })
    }

    /// Closes the channel for a receiver that is dropped.
    pub fn drop_receiver(&self) -> Abandoned<T> {
        let early = if cfg!(procession_loom) && MUTATION == 2 {
            self.change(|state| Some(state.value.take()))
        } else {
            None
        };
        self.change(|state| {
            state.is_closed = true;
            Abandoned {
                value: early.unwrap_or_else(|| state.value.take()),
                own: state.receiver.take(),
                sender: state.sender.take(),
            }
        })
    }

    /// Takes apart a channel without its sender.
    #[cfg(not(procession_loom))]
    #[inline]
    pub fn into_abandoned(self) -> Abandoned<T> {
        let OneshotState { value, receiver, sender, .. } = self.0.into_inner();
        Abandoned { value, own: receiver, sender }
    }

    /// Returns `true` if the channel is closed.
    pub fn is_closed(&self) -> bool {
        self.change(|state| state.is_closed)
    }

    /// Returns `true` if there is a value to receive.
    pub fn has_value(&self) -> bool {
        self.change(|state| state.value.is_some())
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Poll;

    use procession_sync::{Arc, explore, thread};

    use super::{OneshotCore, mutation};
    use crate::sync::wait_list::Another;

    /// The sender sends while the receiver begins to wait.
    fn receive<const MUTATION: u8>() {
        explore(|| {
            let channel = Arc::new(OneshotCore::<u32, MUTATION>::new());
            let sender = {
                let channel = Arc::clone(&channel);
                thread::spawn(move || channel.send(7).map(|(receiver, _)| receiver.is_some()))
            };
            let first = channel.recv_or_wait(&mut Another::none());
            let wakes = sender.join().expect("it does not panic").expect("it is not closed");
            let received = match first {
                Poll::Ready(received) => received,
                Poll::Pending => {
                    assert!(wakes, "the receiver waits forever");
                    channel.try_recv().flatten()
                }
            };
            assert_eq!(received, Some(7));
        });
    }

    #[test]
    fn send_against_receive() {
        receive::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the receiver waits forever")]
    fn canary_enlist_without_look() {
        receive::<{ mutation::ENLIST_WITHOUT_LOOK }>();
    }

    /// The sender sends while the receiver is dropped.
    fn abandon<const MUTATION: u8>() {
        explore(|| {
            let channel = Arc::new(OneshotCore::<u32, MUTATION>::new());
            let sender = {
                let channel = Arc::clone(&channel);
                thread::spawn(move || channel.send(7).err())
            };
            let taken = channel.drop_receiver().value;
            let back = sender.join().expect("it does not panic");
            assert_eq!(taken.xor(back), Some(7), "the value stays in the channel");
        });
    }

    #[test]
    fn send_against_drop() {
        abandon::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the value stays in the channel")]
    fn canary_take_before_close() {
        abandon::<{ mutation::TAKE_BEFORE_CLOSE }>();
    }

    /// The receiver closes the channel while the sender begins to wait for that.
    fn close<const MUTATION: u8>() {
        explore(|| {
            let channel = Arc::new(OneshotCore::<u32, MUTATION>::new());
            let receiver = {
                let channel = Arc::clone(&channel);
                thread::spawn(move || channel.close().0.is_some())
            };
            let is_closed = channel.closed_or_wait(&mut Another::none());
            let wakes = receiver.join().expect("it does not panic");
            assert!(is_closed || wakes, "the sender waits forever");
        });
    }

    #[test]
    fn close_against_wait() {
        close::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the sender waits forever")]
    fn canary_wait_without_look() {
        close::<{ mutation::WAIT_WITHOUT_LOOK }>();
    }
}
