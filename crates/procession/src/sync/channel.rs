//! Channels: any number of senders, any number of receivers, and each message is received once.
//!
//! All kinds of processes can use channels. Plain threads can, too, with the trait
//! [`Wait`](crate::coroutine::Wait). Unlike a mailbox, a channel belongs to no process; it exists
//! as long as one of its ends. Waiting senders and receivers are served in the order in which they
//! came.
//!
//! [`bounded`] makes senders wait for room, which slows them down to the pace of the receivers.
//! [`unbounded`] never makes a sender wait.
//!
//! ```
//! use procession::sync::channel;
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
//!     // Ends once the sender is dropped and the channel is empty.
//!     while let Some(square) = receiver.recv().await {
//!         sum += square;
//!     }
//!     assert_eq!(sum, 385);
//!     assert_eq!(squares.await, Ok(Ok(())));
//! });
//! ```

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::sync::wait_list::{Another, Place, wake};
use crate::time::{self, Timeout};

pub(crate) mod core;

use self::core::{ChannelCore, NotReceived, NotSent, Received, Sent};

pub(crate) struct Channel<T> {
    pub(crate) core: ChannelCore<T>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl<T> Channel<T> {
    fn close(&self) {
        self.core.close().wake();
    }
}

/// Creates a channel that holds at most `capacity` messages.
///
/// While the channel is full, senders wait. With a capacity of 0 it is a rendezvous: each message
/// is handed from a sender to a waiting receiver.
///
/// ```
/// use procession::sync::channel::{self, TrySendError};
///
/// let (sender, receiver) = channel::bounded(1);
/// assert!(sender.try_send("first").is_ok());
/// assert_eq!(sender.try_send("second"), Err(TrySendError::Full("second")));
/// assert_eq!(receiver.try_recv(), Ok("first"));
/// ```
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (senders, receivers) = (AtomicUsize::new(1), AtomicUsize::new(1));
    let channel = Arc::new(Channel { core: ChannelCore::new(capacity), senders, receivers });
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

/// Creates a channel without a capacity. A sender never waits.
///
/// Only memory limits the number of messages, so the receivers must keep up with the senders.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// The sending end of a channel.
///
/// Clones send to the same channel. Once all of them are dropped, the channel closes: receivers get
/// the messages that are left, and then the end.
///
/// ```
/// use procession::sync::channel;
///
/// procession::run(async {
///     let (sender, receiver) = channel::unbounded();
///     let senders = [sender.clone(), sender];
///     for (n, sender) in senders.into_iter().enumerate() {
///         drop(procession::spawn(async move { sender.send(n).await }));
///     }
///     let mut received = vec![receiver.recv().await, receiver.recv().await];
///     received.sort();
///     assert_eq!(received, [Some(0), Some(1)]);
///     assert_eq!(receiver.recv().await, None, "both senders are dropped");
/// });
/// ```
pub struct Sender<T>(Arc<Channel<T>>);

/// The receiving end of a channel.
///
/// Clones receive from the same channel, and each message goes to one of them. Once all of them are
/// dropped, the channel closes: sending fails, and the messages in the channel are dropped.
///
/// ```
/// use std::time::Duration;
/// use procession::sync::channel::{self, TryRecvError};
///
/// procession::run(async {
///     let (sender, receiver) = channel::bounded(8);
///     assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
///     assert!(receiver.recv_timeout(Duration::from_millis(1)).await.is_err());
///     sender.send(1).await?;
///     sender.close();
///     assert_eq!(receiver.recv().await, Some(1), "a closed channel is still emptied");
///     assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
///     Ok::<_, channel::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::sync::channel::SendError<u32>>(())
/// ```
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
        // Ordering: the channel's lock orders the sends of all senders before the close, so no
        // partner needs this AcqRel. It is the customary ordering of a count.
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

    /// Sends a message, and waits for room if the channel is full. In a rendezvous, waits for a
    /// receiver.
    ///
    /// # Errors
    /// Returns [`SendError`] with the message if the channel is closed.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, nothing is sent, and the message is dropped
    /// with the future. [`Sending::take_back`] returns the message instead.
    #[track_caller]
    pub fn send(&self, message: T) -> Sending<'_, T> {
        Sending { channel: &self.0, message: Some(message), place: None, call: Location::caller() }
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    /// Returns [`TrySendError`] with the message if there is no room or the channel is closed.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        crate::scheduler::budget::spend();
        match self.0.core.try_send(message) {
            Ok(waiter) => {
                wake(waiter);
                Ok(())
            }
            Err(NotSent::Full(message)) => Err(TrySendError::Full(message)),
            Err(NotSent::Closed(message)) => Err(TrySendError::Closed(message)),
        }
    }

    /// Like [`send`](Self::send), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`SendTimeoutError`] with the message if the timeout elapses first or the channel is
    /// closed.
    #[track_caller]
    pub fn send_timeout(
        &self,
        message: T,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), SendTimeoutError<T>>> {
        crate::scheduler::placed::placed(async move {
            let mut sending = self.send(message);
            match time::timeout(timeout, &mut sending).await {
                Ok(sent) => sent.map_err(|error| SendTimeoutError::Closed(error.0)),
                Err(_) => sending
                    .take_back()
                    .map_or(Ok(()), |message| Err(SendTimeoutError::Elapsed(message))),
            }
        })
    }

    /// Closes the channel for all senders and receivers. From now on sending fails. The messages in
    /// the channel can still be received.
    pub fn close(&self) {
        self.0.close();
    }

    /// Returns `true` if the channel is closed.
    pub fn is_closed(&self) -> bool {
        self.0.core.is_closed()
    }

    /// Returns the number of messages in the channel.
    pub fn len(&self) -> usize {
        self.0.core.len()
    }

    /// Returns `true` if the channel has no messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of messages in the channel, or `None` for an unbounded channel.
    pub fn capacity(&self) -> Option<usize> {
        Some(self.0.core.capacity()).filter(|&capacity| capacity != usize::MAX)
    }
}

impl<T> Receiver<T> {
    pub(crate) fn channel(&self) -> &Channel<T> {
        &self.0
    }

    /// Receives the oldest message, and waits if there is none. Returns `None` once the channel is
    /// closed and empty.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no message is lost. A message that was already
    /// handed to it goes to the next waiting receiver, or back to the front of the channel.
    #[track_caller]
    pub fn recv(&self) -> Receiving<'_, T> {
        Receiving { channel: &self.0, place: None, done: false, call: Location::caller() }
    }

    /// Receives the oldest message without waiting.
    ///
    /// # Errors
    /// Returns [`TryRecvError::Empty`] if there is no message, and [`TryRecvError::Closed`]
    /// if there is none and the channel is closed.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        crate::scheduler::budget::spend();
        match self.0.core.try_recv() {
            Ok((message, waiter)) => {
                wake(waiter);
                Ok(message)
            }
            Err(NotReceived::Empty) => Err(TryRecvError::Empty),
            Err(NotReceived::Closed) => Err(TryRecvError::Closed),
        }
    }

    /// Like [`recv`](Self::recv), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`](crate::time::Elapsed) if the timeout elapses first.
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Timeout<Receiving<'_, T>> {
        time::timeout(timeout, self.recv())
    }

    /// Closes the channel for all senders and receivers. From now on sending fails. The messages in
    /// the channel can still be received.
    pub fn close(&self) {
        self.0.close();
    }

    /// Returns `true` if the channel is closed.
    pub fn is_closed(&self) -> bool {
        self.0.core.is_closed()
    }

    /// Returns the number of messages in the channel.
    pub fn len(&self) -> usize {
        self.0.core.len()
    }

    /// Returns `true` if the channel has no messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish()
    }
}

/// The future of [`Sender::send`].
///
/// ```
/// use procession::sync::channel;
///
/// let (sender, _receiver) = channel::bounded(0);
/// let mut sending = sender.send("not lost");
/// assert_eq!(sending.take_back(), Some("not lost"));
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Sending<'a, T> {
    channel: &'a Channel<T>,
    /// The message, until it is sent or its sender waits in the channel.
    message: Option<T>,
    place: Option<Place>,
    /// The place of the call.
    call: &'static Location<'static>,
}

// No pointer refers into the future.
impl<T> Unpin for Sending<'_, T> {}

impl<T> Sending<'_, T> {
    /// Abandons the send and returns the message, or `None` if the message was sent.
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
    /// Never panics. If the future is polled again after completion, it stays pending forever.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let send = self.get_mut();
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let core = &send.channel.core;
        let mut another = Another::of(task.waker());
        if let Some(message) = send.message.take() {
            match core.send_or_wait(message, &mut another) {
                Ok(Sent::Now(waiter)) => {
                    wake(waiter);
                    return Poll::Ready(Ok(()));
                }
                Err(NotSent::Closed(message) | NotSent::Full(message)) => {
                    return Poll::Ready(Err(SendError(message)));
                }
                Ok(Sent::Waits(place)) => send.place = Some(place),
            }
        } else if let Some(went) = core.look_sender(&mut send.place, &mut another) {
            return Poll::Ready(went.map_err(SendError));
        }
        current::note_waiting_at(Waiting::CHANNEL, send.call);
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

/// The future of [`Receiver::recv`].
#[must_use = "futures do nothing unless awaited"]
pub struct Receiving<'a, T> {
    channel: &'a Channel<T>,
    place: Option<Place>,
    done: bool,
    /// The place of the call.
    call: &'static Location<'static>,
}

impl<T> Unpin for Receiving<'_, T> {}

impl<T> Future for Receiving<'_, T> {
    type Output = Option<T>;

    /// # Panics
    /// Never panics. If the future is polled again after completion, it returns `None`.
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
            match core.recv_or_wait(&mut another) {
                Ok(Received::Now(message, waiter)) => {
                    wake(waiter);
                    Some(Some(message))
                }
                Ok(Received::Waits(place)) => {
                    receive.place = Some(place);
                    None
                }
                Err(NotReceived::Closed | NotReceived::Empty) => Some(None),
            }
        };
        match came {
            Some(message) => {
                receive.done = true;
                Poll::Ready(message)
            }
            None => {
                current::note_waiting_at(Waiting::CHANNEL, receive.call);
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

/// The error of [`Sender::send`]: the channel is closed. It contains the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub(crate) T);

/// The error of [`Sender::try_send`]. It contains the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full, or no receiver waits in a rendezvous.
    Full(T),
    /// The channel is closed.
    Closed(T),
}

/// The error of [`Sender::send_timeout`]. It contains the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// The timeout elapsed first.
    Elapsed(T),
    /// The channel is closed.
    Closed(T),
}

/// The error of [`Receiver::try_recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// The channel is empty.
    Empty,
    /// The channel is empty and closed, so no message will come.
    Closed,
}

impl<T> SendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }
}

impl<T> SendTimeoutError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
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
            Self::Elapsed(_) => "cannot send: the channel was full until the timeout elapsed",
            Self::Closed(_) => "cannot send: the channel is closed",
        })
    }
}

impl fmt::Display for TryRecvError {
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
impl Error for TryRecvError {}
