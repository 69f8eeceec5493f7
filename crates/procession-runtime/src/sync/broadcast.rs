//! Channels in which each message is received by all receivers.
//!
//! The channel keeps the last messages, up to its capacity, until all receivers have received them.
//! A sender never waits. If there is no room, the oldest message makes room. A receiver that had
//! not received it *lags*: its next receive returns [`RecvError::Lagged`] with the number of
//! messages that it has missed, and the receive after that returns the oldest message that is left.
//!
//! ```
//! use procession::sync::{RecvError, broadcast};
//!
//! procession::run(async {
//!     let (sender, mut first) = broadcast::channel(2);
//!     let mut second = sender.subscribe();
//!     let receives = procession::spawn(async move { (first.recv().await, first.recv().await) });
//!     sender.send("a")?;
//!     sender.send("b")?;
//!     assert_eq!(receives.await, Ok((Ok("a"), Ok("b"))));
//!     sender.send("c")?;
//!     assert_eq!(second.recv().await, Err(RecvError::Lagged(1)));
//!     assert_eq!(second.recv().await, Ok("b"));
//!     Ok::<_, procession::sync::SendError<&str>>(())
//! })?;
//! # Ok::<(), procession::sync::SendError<&str>>(())
//! ```
//!
//! Each receiver gets a clone of the message. The last receiver gets the message itself, unless
//! another receiver is cloning it. Receivers clone concurrently and not under a lock, so messages
//! must be [`Sync`] to be sent between threads. If messages are expensive to clone, send them in an
//! [`Arc`]. A receiver takes up to 16 messages from the channel in one step, and may keep messages
//! that it has missed until it receives again.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::sync::bell::{Bell, Ringing};
use procession_protocols::sync::broadcast::core::{BroadcastCore, Cursor, NotBroadcast};
use procession_protocols::sync::end_count::EndCount;
use procession_protocols::sync::wait_list::Place;
use procession_protocols::util::shares::Shares;

use crate::process::served::WakeServed;
use crate::process::unwind::drop_guarded;
use crate::scheduler::budget::in_turn;
use crate::scheduler::listener::{BellWait, leave, look_or_wait};
use crate::sync::error::SendError;
use crate::util::recv_error::RecvError;

struct BroadcastChannel<T> {
    core: BroadcastCore<T>,
    senders: EndCount,
    /// Rings when no receiver is left.
    left: Bell,
}

impl<T> BroadcastChannel<T> {
    fn new(capacity: usize, receivers: usize) -> Arc<Self> {
        let core = BroadcastCore::new(capacity.max(1), receivers);
        Arc::new(Self { core, senders: EndCount::new(1), left: Bell::new(()) })
    }

    fn subscribe(self: &Arc<Self>) -> Receiver<T> {
        Receiver { cursor: self.core.subscribe(), channel: Arc::clone(self), place: None }
    }
}

/// Creates a channel that keeps at most `capacity` messages. A capacity of 0 counts as 1.
///
/// ```
/// use procession::sync::broadcast;
///
/// procession::run(async {
///     let (prices, first) = broadcast::channel(16);
///     let listeners = [first, prices.subscribe()].map(|mut prices| {
///         procession::spawn(async move {
///             let mut sum = 0;
///             while let Ok(price) = prices.recv().await {
///                 sum += price;
///             }
///             sum
///         })
///     });
///     prices.send(40).expect("somebody listens");
///     prices.send(2).expect("somebody listens");
///     drop(prices); // Ends the listeners, once they have received both.
///     for listener in listeners {
///         assert_eq!(listener.await, Ok(42));
///     }
/// });
/// ```
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let channel = BroadcastChannel::new(capacity, 1);
    (Sender(Arc::clone(&channel)), Receiver { channel, cursor: Cursor::new(0), place: None })
}

/// The sending end of a broadcast channel.
///
/// Clones send to the same channel. Once all clones are dropped, receivers get the messages that
/// are left, and then [`RecvError::Closed`].
pub struct Sender<T>(Arc<BroadcastChannel<T>>);

impl<T> Sender<T> {
    /// Creates a channel like [`channel`], without a receiver.
    pub fn new(capacity: usize) -> Self {
        Self(BroadcastChannel::new(capacity, 0))
    }

    /// Sends a message to all receivers that exist now, and returns their number. It never waits.
    ///
    /// # Errors
    /// Returns [`SendError`] with the message if there is no receiver.
    pub fn send(&self, message: T) -> Result<usize, SendError<T>> {
        crate::scheduler::budget::spend();
        match self.0.core.send(message) {
            Ok(sent) => {
                sent.woken.wake();
                drop_guarded(sent.overwritten);
                Ok(sent.receivers)
            }
            Err(message) => Err(SendError::Closed(message)),
        }
    }

    /// Returns a new receiver. It receives the messages that are sent from now on.
    pub fn subscribe(&self) -> Receiver<T> {
        self.0.subscribe()
    }

    /// Returns the number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.0.core.receivers()
    }

    /// Waits until there is no receiver. Completes immediately if there is none.
    ///
    /// # Cancellation
    /// If the future is dropped, the wait ends without an effect.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        crate::scheduler::placed::placed(async move {
            let mut wait = BellWait::new(&self.0.left);
            in_turn(|task| wait.poll(task, |()| (self.receiver_count() == 0).then_some(()))).await;
        })
    }

    /// Returns the number of messages in the channel. A message is in the channel until every
    /// receiver has taken it.
    ///
    /// A receiver takes up to 16 messages in one step. Messages that it has taken and not returned
    /// yet are no longer in the channel, so this number may be lower than [`Receiver::len`] by up
    /// to 15.
    ///
    /// ```
    /// use procession::sync::broadcast;
    ///
    /// let (sender, mut receiver) = broadcast::channel(4);
    /// sender.send("a")?;
    /// sender.send("b")?;
    /// assert_eq!((sender.len(), receiver.len()), (2, 2));
    /// assert_eq!(receiver.try_recv(), Ok("a"));
    /// // It has taken both.
    /// assert_eq!((sender.len(), receiver.len()), (0, 1));
    /// # Ok::<(), procession::sync::SendError<&str>>(())
    /// ```
    pub fn len(&self) -> usize {
        self.0.core.len()
    }

    /// Returns `true` if the channel has no messages, because each receiver has taken all messages.
    /// A receiver may still have messages to return; see [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a sender that does not keep the channel open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(Arc::clone(&self.0))
    }

    /// Returns `true` for senders of the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.add();
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.remove() {
            self.0.core.close().wake();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("len", &self.len())
            .field("receivers", &self.receiver_count())
            .finish()
    }
}

/// A sender that does not keep its broadcast channel open, made by [`Sender::downgrade`].
///
/// ```
/// use procession::sync::{RecvError, broadcast};
///
/// let (sender, mut receiver) = broadcast::channel(4);
/// let weak = sender.downgrade();
/// weak.upgrade().expect("there is a sender").send(1)?;
/// drop(sender);
/// assert!(weak.upgrade().is_none());
/// assert_eq!(receiver.try_recv(), Ok(1));
/// assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
/// # Ok::<(), procession::sync::SendError<u32>>(())
/// ```
pub struct WeakSender<T>(Arc<BroadcastChannel<T>>);

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

/// The receiving end of a broadcast channel. It receives each message that is sent while it exists.
///
/// It is not `Clone`, because it is not obvious where a clone would begin. Use
/// [`resubscribe`](Self::resubscribe), which begins with the next message.
pub struct Receiver<T> {
    channel: Arc<BroadcastChannel<T>>,
    cursor: Cursor<T>,
    place: Option<Place>,
}

impl<T> Receiver<T> {
    /// Returns a new receiver. It receives the messages that are sent from now on. It does not
    /// receive earlier messages, even if this receiver has still to receive them.
    pub fn resubscribe(&self) -> Self {
        self.channel.subscribe()
    }

    /// Returns the number of messages that this receiver has not received, including messages that
    /// it has missed.
    pub fn len(&self) -> usize {
        self.channel.core.len_from(&self.cursor)
    }

    /// Returns `true` if this receiver has received all messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if all senders are dropped. There may be messages left.
    pub fn is_closed(&self) -> bool {
        self.channel.core.is_closed()
    }

    /// Returns `true` for receivers of the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.channel, &other.channel)
    }
}

fn is_empty<T>(received: &Result<Shares<T>, NotBroadcast>) -> bool {
    matches!(received, Err(NotBroadcast::Empty))
}

/// Returns the message for one receiver: the message itself if no other receiver shares it, else a
/// clone.
fn take<T: Clone>(message: Shares<T>) -> T {
    message.into_inner().unwrap_or_else(|shared| T::clone(&shared))
}

impl<T: Clone> Receiver<T> {
    /// Receives the next message, and waits if there is none.
    ///
    /// # Errors
    /// - [`RecvError::Lagged`] if this receiver has missed messages. The next call returns the
    ///   oldest message that is left.
    /// - [`RecvError::Closed`] if all senders are dropped and all messages were received.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no message is lost.
    #[track_caller]
    pub fn recv(&mut self) -> Recv<'_, T> {
        Recv { receiver: self, call: Location::caller() }
    }

    /// Receives the next message without waiting.
    ///
    /// # Errors
    /// Returns [`RecvError::Empty`] if there is none, and otherwise the same errors as
    /// [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        crate::scheduler::budget::spend();
        match self.channel.core.try_recv(&mut self.cursor, drop_guarded) {
            Ok(message) => Ok(take(message)),
            Err(NotBroadcast::Empty) => Err(RecvError::Empty),
            Err(NotBroadcast::Closed) => Err(RecvError::Closed),
            Err(NotBroadcast::Lagged(missed)) => Err(RecvError::Lagged(missed)),
        }
    }

    pub(crate) fn poll_recv(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<T, RecvError>> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let Self { channel, cursor, place } = self;
        let received = match channel.core.recv_taken(cursor, drop_guarded) {
            Some(received) => Poll::Ready(received),
            None => look_or_wait(&channel.core.bell, place, task, |state| {
                Some(state.recv(cursor)).filter(|received| !is_empty(received))
            }),
        };
        received.map(|received| match received {
            Ok(message) => Ok(take(message)),
            Err(NotBroadcast::Lagged(missed)) => Err(RecvError::Lagged(missed)),
            Err(NotBroadcast::Closed | NotBroadcast::Empty) => Err(RecvError::Closed),
        })
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        leave(&self.channel.core.bell, &mut self.place);
        let (messages, is_last) = self.channel.core.unsubscribe(&self.cursor);
        if is_last {
            self.channel.left.change(Ringing::ring_all).wake();
        }
        self.cursor.taken().chain(messages).for_each(drop_guarded);
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

/// The future of [`Receiver::recv`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Recv<'a, T> {
    receiver: &'a mut Receiver<T>,
    call: &'static Location<'static>,
}

impl<T: Clone> Future for Recv<'_, T> {
    type Output = Result<T, RecvError>;

    /// # Panics
    /// Panics if the message is cloned and its `Clone` panics. If the future is polled again after
    /// completion, it receives the next message.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let recv = self.get_mut();
        let polled = recv.receiver.poll_recv(task);
        if polled.is_pending() {
            crate::scheduler::current::note_place(recv.call);
        }
        polled
    }
}

impl<T> Drop for Recv<'_, T> {
    fn drop(&mut self) {
        leave(&self.receiver.channel.core.bell, &mut self.receiver.place);
    }
}
