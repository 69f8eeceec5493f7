//! Channels: many may send, many may receive, each message once.
//!
//! All kinds of process use them, and plain threads ([`Wait`](crate::Wait)). Unlike a mailbox a channel belongs to nobody: it is there as
//! long as somebody has one of its ends. Who waits is served first come, first served.
//!
//! ```
//! use procession::channel;
//!
//! procession::run(async {
//!     let (sender, receiver) = channel::bounded(2);
//!     let squares = procession::spawn(async move {
//!         for n in 1..=10 {
//!             sender.send(n * n).await?;
//!         }
//!         Ok::<_, channel::SendError<u32>>(())
//!     });
//!     let mut sum = 0;
//!     while let Some(square) = receiver.receive().await {
//!         sum += square;
//!     }
//!     assert_eq!(sum, 385);
//!     assert_eq!(squares.await, Ok(Ok(())));
//! });
//! ```

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::Waiting;
use crate::process::unwind::drop_guarded;
use crate::scheduler::current;
use crate::sync::wait_list::{Another, Place, wake};
use crate::time::{Timeout, timeout};

pub(crate) mod core;

use self::core::{Core, Nothing, Received, Refused, Sent};

pub(crate) struct Channel<T> {
    pub(crate) core: Core<T>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl<T> Channel<T> {
    fn close(&self) {
        self.core.close().wake();
    }
}

/// A channel that holds `capacity` messages; who sends more waits. With 0, a rendezvous: each message is handed from one to the other.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (senders, receivers) = (AtomicUsize::new(1), AtomicUsize::new(1));
    let channel = Arc::new(Channel { core: Core::new(capacity), senders, receivers });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

/// A channel that holds as many messages as memory does: who sends never waits. Nothing bounds it but who receives.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// The end that sends. Clones are of the same channel; once all are dropped, who receives gets what is left, then the end.
pub struct Sender<T>(Arc<Channel<T>>);

/// The end that receives. Clones are of the same channel, and each message goes to one of them. Once all are dropped, sends fail.
pub struct Receiver<T>(Arc<Channel<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        // Relaxed: this end keeps the count above 0.
        self.0.senders.fetch_add(1, Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        // Relaxed: as above.
        self.0.receivers.fetch_add(1, Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Ordering: the last one's sends, and the others', are ordered by the channel's lock; AcqRel for form.
        if self.0.senders.fetch_sub(1, AcqRel) == 1 {
            self.0.close();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Ordering: as above.
        if self.0.receivers.fetch_sub(1, AcqRel) == 1 {
            self.0.close();
            for message in self.0.core.drain() {
                drop_guarded(message);
            }
        }
    }
}

impl<T> Sender<T> {
    pub(crate) fn channel(&self) -> &Channel<T> {
        &self.0
    }

    /// Sends a message, and waits for room if there is none: for a receiver, in a rendezvous.
    ///
    /// # Errors
    /// [`SendError`] gives the message back if the channel was closed.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has sent nothing, and the message is dropped with it; [`Sending::take_back`] saves it.
    pub fn send(&self, message: T) -> Sending<'_, T> {
        Sending { channel: &self.0, message: Some(message), place: None }
    }

    /// Sends a message if there is room now.
    ///
    /// # Errors
    /// [`TrySendError`] gives the message back.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        crate::scheduler::budget::spend();
        match self.0.core.try_send(message) {
            Ok(who) => {
                wake(who);
                Ok(())
            }
            Err(Refused::Full(message)) => Err(TrySendError::Full(message)),
            Err(Refused::Closed(message)) => Err(TrySendError::Closed(message)),
        }
    }

    /// As [`send`](Self::send), for at most `patience`.
    ///
    /// # Errors
    /// [`SendTimeoutError`] gives the message back.
    pub async fn send_timeout(&self, message: T, patience: Duration) -> Result<(), SendTimeoutError<T>> {
        let mut sending = self.send(message);
        match timeout(patience, &mut sending).await {
            Ok(sent) => sent.map_err(|error| SendTimeoutError::Closed(error.0)),
            Err(_) => sending.take_back().map_or(Ok(()), |message| Err(SendTimeoutError::Elapsed(message))),
        }
    }

    /// Closes the channel: sends fail from now on. What it holds can be received.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether the channel was closed.
    pub fn is_closed(&self) -> bool {
        self.0.core.is_closed()
    }

    /// Messages that it holds now.
    pub fn len(&self) -> usize {
        self.0.core.len()
    }

    /// Whether it holds none now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages it holds at most; `None` if nothing bounds it.
    pub fn capacity(&self) -> Option<usize> {
        Some(self.0.core.capacity()).filter(|&capacity| capacity != usize::MAX)
    }
}

impl<T> Receiver<T> {
    pub(crate) fn channel(&self) -> &Channel<T> {
        &self.0
    }

    /// Receives the oldest message; waits for one if there is none. `None` once the channel is closed and empty.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has taken nothing: a message that was handed to it already goes to the next who waits, or back to the
    /// front.
    pub fn receive(&self) -> Receiving<'_, T> {
        Receiving { channel: &self.0, place: None, done: false }
    }

    /// Receives the oldest message if there is one now.
    ///
    /// # Errors
    /// [`TryReceiveError`]: there is none, or there will be none.
    pub fn try_receive(&self) -> Result<T, TryReceiveError> {
        crate::scheduler::budget::spend();
        match self.0.core.try_receive() {
            Ok((message, who)) => {
                wake(who);
                Ok(message)
            }
            Err(Nothing::Empty) => Err(TryReceiveError::Empty),
            Err(Nothing::Closed) => Err(TryReceiveError::Closed),
        }
    }

    /// As [`receive`](Self::receive), for at most `patience`.
    ///
    /// # Errors
    /// [`Elapsed`](crate::Elapsed) if nothing came in time.
    pub fn receive_timeout(&self, patience: Duration) -> Timeout<Receiving<'_, T>> {
        timeout(patience, self.receive())
    }

    /// Closes the channel: sends fail from now on. What it holds can be received.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether the channel was closed.
    pub fn is_closed(&self) -> bool {
        self.0.core.is_closed()
    }

    /// Messages that it holds now.
    pub fn len(&self) -> usize {
        self.0.core.len()
    }

    /// Whether it holds none now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("len", &self.len()).field("closed", &self.is_closed()).finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).field("closed", &self.is_closed()).finish()
    }
}

/// The future of [`Sender::send`].
#[must_use = "futures do nothing unless awaited"]
pub struct Sending<'a, T> {
    channel: &'a Channel<T>,
    /// Until it was sent or waits.
    message: Option<T>,
    place: Option<Place>,
}

// Nothing points into it.
impl<T> Unpin for Sending<'_, T> {}

impl<T> Sending<'_, T> {
    /// Gives up, and takes the message back; `None` if it was sent.
    pub fn take_back(&mut self) -> Option<T> {
        if let Some(place) = self.place.take() {
            let (message, own) = self.channel.core.cancel_sender(place);
            drop_guarded(own);
            return message;
        }
        self.message.take()
    }
}

impl<T> Future for Sending<'_, T> {
    type Output = Result<(), SendError<T>>;

    /// # Panics
    /// Never. Polled again after it was complete, it waits for ever.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let send = self.get_mut();
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let core = &send.channel.core;
        let mut another = Another::of(task.waker());
        if let Some(message) = send.message.take() {
            match core.send_or_wait(message, &mut another) {
                Ok(Sent::Now(who)) => {
                    wake(who);
                    return Poll::Ready(Ok(()));
                }
                Err(Refused::Closed(message) | Refused::Full(message)) => return Poll::Ready(Err(SendError(message))),
                Ok(Sent::Waits(place)) => send.place = Some(place),
            }
        } else if let Some(went) = core.look_sender(&mut send.place, &mut another) {
            return Poll::Ready(went.map_err(SendError));
        }
        current::note_waiting(Waiting::CHANNEL);
        Poll::Pending
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        drop_guarded(self.take_back());
    }
}

impl<T> fmt::Debug for Sending<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sending(..)")
    }
}

/// The future of [`Receiver::receive`].
#[must_use = "futures do nothing unless awaited"]
pub struct Receiving<'a, T> {
    channel: &'a Channel<T>,
    place: Option<Place>,
    done: bool,
}

impl<T> Unpin for Receiving<'_, T> {}

impl<T> Future for Receiving<'_, T> {
    type Output = Option<T>;

    /// # Panics
    /// Never. Polled again after it was complete, it answers `None`.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<T>> {
        let receive = self.get_mut();
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let core = &receive.channel.core;
        let mut another = Another::of(task.waker());
        let came = if receive.place.is_some() {
            core.look_receiver(&mut receive.place, &mut another)
        } else if receive.done {
            Some(None)
        } else {
            match core.receive_or_wait(&mut another) {
                Ok(Received::Now(message, who)) => {
                    wake(who);
                    Some(Some(message))
                }
                Ok(Received::Waits(place)) => {
                    receive.place = Some(place);
                    None
                }
                Err(Nothing::Closed | Nothing::Empty) => Some(None),
            }
        };
        match came {
            Some(message) => {
                receive.done = true;
                Poll::Ready(message)
            }
            None => {
                current::note_waiting(Waiting::CHANNEL);
                Poll::Pending
            }
        }
    }
}

pub(crate) fn cancel_receiver<T>(channel: &Channel<T>, place: Place) {
    let left = channel.core.cancel_receiver(place);
    drop_guarded(left.own);
    drop_guarded(left.message);
    wake(left.next);
}

impl<T> Drop for Receiving<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            cancel_receiver(self.channel, place);
        }
    }
}

impl<T> fmt::Debug for Receiving<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiving(..)")
    }
}

/// The channel was closed; this is the message that was not sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why a message was not sent; it comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room, or, in a rendezvous, nobody who receives.
    Full(T),
    /// The channel was closed.
    Closed(T),
}

/// Why a message was not sent in time; it comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// The time was over first.
    Elapsed(T),
    /// The channel was closed.
    Closed(T),
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryReceiveError {
    /// There is no message now.
    Empty,
    /// There is none, and the channel was closed.
    Closed,
}

impl<T> TrySendError<T> {
    /// The message.
    pub fn into_message(self) -> T {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }
}

impl<T> SendTimeoutError<T> {
    /// The message.
    pub fn into_message(self) -> T {
        match self {
            Self::Elapsed(message) | Self::Closed(message) => message,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elapsed(_) => "Elapsed(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot send: the channel is closed")
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "cannot send: the channel is full",
            Self::Closed(_) => "cannot send: the channel is closed",
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elapsed(_) => "cannot send: the channel was full until the time was over",
            Self::Closed(_) => "cannot send: the channel is closed",
        })
    }
}

impl fmt::Display for TryReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "cannot receive: the channel is empty",
            Self::Closed => "cannot receive: the channel is empty and closed",
        })
    }
}

impl<T> Error for SendError<T> {}
impl<T> Error for TrySendError<T> {}
impl<T> Error for SendTimeoutError<T> {}
impl Error for TryReceiveError {}
