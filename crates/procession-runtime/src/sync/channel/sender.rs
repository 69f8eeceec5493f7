//! The sending end of a channel.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::sync::channel::core::{NotSent, Sent};
use procession_protocols::sync::wait_list::Place;

use crate::process::served::{TaskWaker, WakeServed, wake};
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::budget::{charge_act, charge_after};
use crate::scheduler::current;
use crate::sync::channel::state::Channel;
use crate::sync::error::SendError;
use crate::time;

/// The sending end of a channel.
///
/// Clones send to the same channel. Once all clones are dropped, the channel closes: receivers get
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

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.add();
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.remove() {
            self.0.close();
        }
    }
}

impl<T> Sender<T> {
    pub(super) fn new(channel: Arc<Channel<T>>) -> Self {
        Self(channel)
    }

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
    /// If the future is dropped before it completes, the message is dropped with the future, unless
    /// a receiver has made room for it, or taken it, since the last poll. To know what has become
    /// of the message, call [`Sending::take_back`], which returns it if it was not sent.
    #[track_caller]
    pub fn send(&self, message: T) -> Sending<'_, T> {
        let call = Location::caller();
        Sending { channel: &self.0, message: Some(message), place: None, call }
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    /// Returns [`SendError`] with the message if there is no room or the channel is closed.
    pub fn try_send(&self, message: T) -> Result<(), SendError<T>> {
        crate::scheduler::budget::spend();
        match self.0.core.try_send(message) {
            Ok(waiter) => {
                wake(waiter);
                Ok(())
            }
            Err(NotSent::Full(message)) => Err(SendError::Full(message)),
            Err(NotSent::Closed(message)) => Err(SendError::Closed(message)),
        }
    }

    /// Like [`send`](Self::send), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`SendError`] with the message if the timeout elapses first or the channel is
    /// closed.
    #[track_caller]
    pub fn send_timeout(
        &self,
        message: T,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), SendError<T>>> {
        crate::scheduler::placed::placed(async move {
            let mut sending = self.send(message);
            match time::timeout(timeout, &mut sending).await {
                Ok(sent) => sent,
                Err(_) => {
                    sending.take_back().map_or(Ok(()), |message| Err(SendError::Elapsed(message)))
                }
            }
        })
    }

    /// Waits for room for one message, and reserves it. Then send the message with
    /// [`Permit::send`], which cannot fail. So you need not make the message, or take it from
    /// elsewhere, before there is room for it.
    ///
    /// Other senders find the channel full while a permit is kept. In a rendezvous there is no room
    /// to reserve, so this waits until the channel is closed.
    ///
    /// ```
    /// use procession::sync::channel;
    ///
    /// procession::run(async {
    ///     let (sender, receiver) = channel::bounded(1);
    ///     let permit = sender.reserve().await?;
    ///     assert!(sender.try_send(2).is_err(), "the room is reserved");
    ///     permit.send(1);
    ///     assert_eq!(receiver.recv().await, Some(1));
    ///     Ok::<_, procession::sync::SendError<()>>(())
    /// })?;
    /// # Ok::<(), procession::sync::SendError<()>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`SendError`] if the channel is closed.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has reserved nothing.
    #[track_caller]
    pub fn reserve(&self) -> impl Future<Output = Result<Permit<'_, T>, SendError<()>>> {
        crate::scheduler::placed::placed(async move {
            Reserving::new(&self.0).await?;
            Ok(Permit { channel: &self.0 })
        })
    }

    /// Reserves room for one message without waiting; see [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// Returns [`SendError`] if there is no room or the channel is closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, SendError<()>> {
        crate::scheduler::budget::spend();
        match self.0.core.try_reserve() {
            Ok(()) => Ok(Permit { channel: &self.0 }),
            Err(NotSent::Full(())) => Err(SendError::Full(())),
            Err(NotSent::Closed(())) => Err(SendError::Closed(())),
        }
    }

    /// Reserves room like [`reserve`](Self::reserve). The permit owns this sender, so it can be
    /// moved into another process. It returns the sender when its message is sent.
    ///
    /// ```
    /// use procession::sync::channel;
    ///
    /// procession::run(async {
    ///     let (sender, receiver) = channel::bounded(1);
    ///     let permit = sender.reserve_owned().await.expect("there is room");
    ///     let sends = procession::spawn(async move { permit.send(1) });
    ///     assert_eq!(receiver.recv().await, Some(1));
    ///     let sender = sends.await.expect("it does not panic");
    ///     sender.send(2).await.expect("it is open");
    /// });
    /// ```
    ///
    /// # Errors
    /// Returns [`SendError`] with this sender if the channel is closed.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has reserved nothing. This sender is
    /// dropped with it, so keep a clone if the channel is to stay open.
    #[track_caller]
    pub fn reserve_owned(self) -> impl Future<Output = Result<OwnedPermit<T>, SendError<Self>>> {
        crate::scheduler::placed::placed(async move {
            match Reserving::new(&self.0).await {
                Ok(()) => Ok(OwnedPermit { sender: Some(self) }),
                Err(_) => Err(SendError::Closed(self)),
            }
        })
    }

    /// Reserves room for one message without waiting; see [`reserve_owned`](Self::reserve_owned).
    ///
    /// # Errors
    /// Returns [`SendError`] with this sender if there is no room or the channel is closed.
    pub fn try_reserve_owned(self) -> Result<OwnedPermit<T>, SendError<Self>> {
        crate::scheduler::budget::spend();
        match self.0.core.try_reserve() {
            Ok(()) => Ok(OwnedPermit { sender: Some(self) }),
            Err(NotSent::Full(())) => Err(SendError::Full(self)),
            Err(NotSent::Closed(())) => Err(SendError::Closed(self)),
        }
    }

    /// Returns a sender that does not keep the channel open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(Arc::clone(&self.0))
    }

    /// Returns `true` for senders of the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
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
        let Self { channel, message, place, call } = self.get_mut();
        let polled = poll_send(channel, message, place, task);
        if polled.is_pending() {
            current::note_place(call);
        }
        polled
    }
}

/// Sends a message, or waits with it at `place`.
#[inline]
pub(crate) fn poll_send<T>(
    channel: &Channel<T>,
    message: &mut Option<T>,
    place: &mut Option<Place>,
    task: &TaskContext<'_>,
) -> Poll<Result<(), SendError<T>>> {
    if !charge_act(task) && message.is_some() && !channel.core.must_wait() {
        return Poll::Pending;
    }
    let mut another = TaskWaker::of(task.waker());
    if let Some(message) = message.take() {
        match channel.core.send_or_wait(message, &mut another) {
            Ok(Sent::Now(waiter)) => {
                wake(waiter);
                return Poll::Ready(Ok(()));
            }
            Err(NotSent::Closed(message) | NotSent::Full(message)) => {
                return Poll::Ready(Err(SendError::Closed(message)));
            }
            Ok(Sent::Waits(waits)) => *place = Some(waits),
        }
    } else if let Some(went) = channel.core.look_sender(place, &mut another) {
        return Poll::Ready(went.map_err(SendError::Closed));
    }
    current::note_waiting(Waiting::CHANNEL);
    Poll::Pending
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

/// The wait of [`Sender::reserve`].
struct Reserving<'a, T> {
    channel: &'a Channel<T>,
    place: Option<Place>,
}

impl<'a, T> Reserving<'a, T> {
    fn new(channel: &'a Channel<T>) -> Self {
        Self { channel, place: None }
    }
}

impl<T> Future for Reserving<'_, T> {
    type Output = Result<(), SendError<()>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let core = &self.channel.core;
        let mut another = TaskWaker::of(task.waker());
        let reserved = if self.place.is_some() {
            core.look_reservation(&mut self.place, &mut another)
        } else {
            match core.reserve_or_wait(&mut another) {
                Ok(Sent::Now(_)) => Some(true),
                Ok(Sent::Waits(place)) => {
                    self.place = Some(place);
                    None
                }
                Err(_) => Some(false),
            }
        };
        let reserved = match reserved {
            Some(true) => Poll::Ready(Ok(())),
            Some(false) => Poll::Ready(Err(SendError::Closed(()))),
            None => {
                current::note_waiting(Waiting::CHANNEL);
                Poll::Pending
            }
        };
        charge_after(task, reserved, |reserved| {
            // A channel that is closed stays so, and needs no place.
            self.place = reserved.is_ok().then(|| core.keep_served());
        })
    }
}

impl<T> Drop for Reserving<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let (own, woken) = self.channel.core.cancel_reservation(place);
            drop_guarded(own);
            woken.wake();
        }
    }
}

/// Room for one message in a channel, made by [`Sender::reserve`]. Dropping this value releases the
/// room.
#[must_use = "a dropped permit gives its room back"]
pub struct Permit<'a, T> {
    channel: &'a Channel<T>,
}

impl<T> Permit<'_, T> {
    /// Sends the message. It never waits.
    ///
    /// This works even if the channel was closed after the room was reserved, because receivers get
    /// the end only after the messages of all permits. If all receivers are dropped, the message is
    /// dropped, like every message in the channel.
    pub fn send(self, message: T) {
        let channel = self.channel;
        // The send releases the room.
        std::mem::forget(self);
        channel.send_reserved(message);
    }
}

impl<T> Drop for Permit<'_, T> {
    fn drop(&mut self) {
        self.channel.core.unreserve().wake();
    }
}

impl<T> fmt::Debug for Permit<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}

/// Room for one message in a channel, and the sender that has reserved it by
/// [`Sender::reserve_owned`]. Dropping this value releases the room and drops the sender.
#[must_use = "a dropped permit gives its room back"]
pub struct OwnedPermit<T> {
    /// Taken when the room is used or given back.
    sender: Option<Sender<T>>,
}

impl<T> OwnedPermit<T> {
    /// Sends the message and returns the sender. It never waits.
    ///
    /// This works even if the channel was closed after the room was reserved; see [`Permit::send`].
    pub fn send(mut self, message: T) -> Sender<T> {
        // The send releases the room.
        let sender = self.sender.take().expect("only the end of the permit takes it");
        sender.0.send_reserved(message);
        sender
    }

    /// Releases the room and returns the sender.
    pub fn release(mut self) -> Sender<T> {
        self.unreserve().expect("only the end of the permit takes it")
    }

    /// Returns `true` if the room is in the channel of this sender.
    pub fn same_channel_as_sender(&self, sender: &Sender<T>) -> bool {
        self.sender.as_ref().is_some_and(|own| own.same_channel(sender))
    }

    fn unreserve(&mut self) -> Option<Sender<T>> {
        let sender = self.sender.take()?;
        sender.0.core.unreserve().wake();
        Some(sender)
    }
}

impl<T> Drop for OwnedPermit<T> {
    fn drop(&mut self) {
        drop(self.unreserve());
    }
}

impl<T> fmt::Debug for OwnedPermit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnedPermit(..)")
    }
}

/// A sender that does not keep its channel open, made by [`Sender::downgrade`].
///
/// ```
/// use procession::sync::channel;
///
/// let (sender, receiver) = channel::unbounded();
/// let weak = sender.downgrade();
/// weak.upgrade().expect("there is a sender").try_send(1)?;
/// drop(sender);
/// assert!(weak.upgrade().is_none());
/// assert_eq!(receiver.try_recv(), Ok(1));
/// assert_eq!(receiver.try_recv(), Err(procession::sync::RecvError::Closed));
/// # Ok::<(), procession::sync::SendError<u32>>(())
/// ```
pub struct WeakSender<T>(Arc<Channel<T>>);

impl<T> WeakSender<T> {
    /// Returns a sender, or `None` if all senders are dropped.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.0.senders.add_if_any().then(|| Sender(Arc::clone(&self.0)))
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for WeakSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakSender(..)")
    }
}
