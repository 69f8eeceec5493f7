//! The receiving end of a channel.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::sync::channel::core::{NotReceived, Received};
use procession_protocols::sync::wait_list::{Another, Place, ServedWaiters};

use crate::process::served::{TaskWaker, WakeServed, wake};
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::budget::{charge_quietly, yield_step};
use crate::scheduler::current;
use crate::sync::channel::state::Channel;
use crate::time::{self, Timeout};
use crate::util::recv_error::RecvError;

/// The defects that the simulation plants.
mod mutation {
    pub(super) use procession_protocols::util::mutant::is;

    /// No defect.
    const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub(super) const BUILT: u8 = procession_protocols::util::mutant::planted("channel", SOUND);
    /// The last receiver leaves the channel open.
    pub(super) const STAY_OPEN: u8 = 1;
}

/// The receiving end of a channel.
///
/// Clones receive from the same channel, and each message goes to one receiver. Once all clones are
/// dropped, the channel closes: sending fails, and the messages in the channel are dropped.
///
/// ```
/// use std::time::Duration;
/// use procession::sync::{RecvError, channel};
///
/// procession::run(async {
///     let (sender, receiver) = channel::bounded(8);
///     assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
///     assert!(receiver.recv_timeout(Duration::from_millis(1)).await.is_err());
///     sender.send(1).await?;
///     sender.close();
///     assert_eq!(receiver.recv().await, Some(1), "a closed channel is still emptied");
///     assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
///     Ok::<_, procession::sync::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::sync::SendError<u32>>(())
/// ```
pub struct Receiver<T>(Arc<Channel<T>>);

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.receivers.add();
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.0.receivers.remove() && !mutation::is(mutation::BUILT, mutation::STAY_OPEN) {
            self.0.close();
            for message in self.0.core.drain() {
                drop_guarded(message);
            }
        }
    }
}

impl<T> Receiver<T> {
    pub(super) fn new(channel: Arc<Channel<T>>) -> Self {
        Self(channel)
    }

    pub(crate) fn channel(&self) -> &Channel<T> {
        &self.0
    }

    /// Receives the oldest message, and waits if there is none. Returns `None` once the channel is
    /// closed and empty. It is not empty while a message is reserved, or was handed to a receive
    /// that has not returned it: that receive may still be dropped.
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
    /// Returns [`RecvError::Empty`] if there is no message, and [`RecvError::Closed`] if there is
    /// none and the channel is closed. A closed channel answers [`RecvError::Empty`] while a
    /// message is reserved, or was handed to a receive that has not returned it.
    pub fn try_recv(&self) -> Result<T, RecvError> {
        crate::scheduler::budget::spend();
        match self.0.core.try_recv() {
            Ok((message, waiter)) => {
                wake(waiter);
                Ok(message)
            }
            Err(NotReceived::Empty) => Err(RecvError::Empty),
            Err(NotReceived::Closed) => Err(RecvError::Closed),
        }
    }

    /// Receives up to `limit` messages, and appends them to `buffer`, the oldest first. Waits until
    /// there is at least one, and does not wait for more. Returns their number, which is 0 if
    /// `limit` is 0, or once the channel is closed and empty.
    ///
    /// ```
    /// use procession::sync::channel;
    ///
    /// procession::run(async {
    ///     let (sender, receiver) = channel::unbounded();
    ///     (1..=5).try_for_each(|n| sender.try_send(n))?;
    ///     let mut batch = Vec::new();
    ///     assert_eq!(receiver.recv_many(&mut batch, 3).await, 3);
    ///     assert_eq!(receiver.recv_many(&mut batch, 3).await, 2);
    ///     assert_eq!(batch, [1, 2, 3, 4, 5]);
    ///     Ok::<_, procession::sync::SendError<u32>>(())
    /// })?;
    /// # Ok::<(), procession::sync::SendError<u32>>(())
    /// ```
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no message is lost, and `buffer` is as it was.
    #[track_caller]
    pub fn recv_many<'a>(&'a self, buffer: &'a mut Vec<T>, limit: usize) -> ReceivingMany<'a, T> {
        ReceivingMany { receiving: self.recv(), buffer, limit }
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

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish()
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
        let Self { channel, place, done, call } = self.get_mut();
        let polled = poll_recv(channel, place, done, task);
        if polled.is_pending() {
            current::note_place(call);
        }
        polled
    }
}

/// Receives a message, or waits at `place`. Sets `done` once it returns.
#[inline]
pub(crate) fn poll_recv<T>(
    channel: &Channel<T>,
    place: &mut Option<Place>,
    done: &mut bool,
    task: &TaskContext<'_>,
) -> Poll<Option<T>> {
    if !charge_quietly() {
        return poll_spent(channel, place, *done, task);
    }
    let Some(received) = take(channel, place, *done, task) else {
        current::note_waiting(Waiting::CHANNEL);
        return Poll::Pending;
    };
    *done = true;
    Poll::Ready(received)
}

/// Polls in a step that has spent its budget: leaves a message in the channel at `place`, for the
/// next step.
#[cold]
fn poll_spent<T>(
    channel: &Channel<T>,
    place: &mut Option<Place>,
    done: bool,
    task: &TaskContext<'_>,
) -> Poll<Option<T>> {
    let mut another = TaskWaker::of(task.waker());
    let is_ready = match place {
        Some(place) => channel.core.is_served(place, &mut another),
        None if done => true,
        None => match channel.core.keep_or_wait(&mut another) {
            Ok(Received::Now(kept, waiter)) => {
                *place = Some(kept);
                wake(waiter);
                true
            }
            Ok(Received::Waits(waits)) => {
                *place = Some(waits);
                false
            }
            // A channel that has ended stays so, and needs no place.
            Err(NotReceived::Closed | NotReceived::Empty) => true,
        },
    };
    if is_ready {
        yield_step(task);
    } else {
        current::note_waiting(Waiting::CHANNEL);
    }
    Poll::Pending
}

#[inline]
fn take<T>(
    channel: &Channel<T>,
    place: &mut Option<Place>,
    done: bool,
    task: &TaskContext<'_>,
) -> Option<Option<T>> {
    let mut another = TaskWaker::of(task.waker());
    if place.is_some() {
        return look_receiver(channel, place, &mut another);
    }
    if done {
        return Some(None);
    }
    match channel.core.recv_or_wait(&mut another) {
        Ok(Received::Now(message, waiter)) => {
            wake(waiter);
            Some(Some(message))
        }
        Ok(Received::Waits(waits)) => {
            *place = Some(waits);
            None
        }
        Err(NotReceived::Closed | NotReceived::Empty) => Some(None),
    }
}

/// Observes the result of a waiting receiver, and wakes the receivers that this ends.
#[inline]
pub(crate) fn look_receiver<T>(
    channel: &Channel<T>,
    place: &mut Option<Place>,
    another: &mut Another<'_>,
) -> Option<Option<T>> {
    let mut woken = ServedWaiters::default();
    let received = channel.core.look_receiver(place, another, &mut woken);
    woken.wake();
    received
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

/// Maximum number of messages that are received under one lock of a channel, some microseconds'
/// worth. Picked out of thin air: the lock costs as much as receiving one or two messages.
const MESSAGES_AT_ONCE: usize = 64;

/// The future of [`Receiver::recv_many`].
#[must_use = "futures do nothing unless awaited"]
pub struct ReceivingMany<'a, T> {
    receiving: Receiving<'a, T>,
    buffer: &'a mut Vec<T>,
    limit: usize,
}

impl<T> Unpin for ReceivingMany<'_, T> {}

impl<T> Future for ReceivingMany<'_, T> {
    type Output = usize;

    /// # Panics
    /// Never panics. If the future is polled again after completion, it returns 0.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<usize> {
        let many = self.get_mut();
        if many.limit == 0 {
            return Poll::Ready(0);
        }
        match Pin::new(&mut many.receiving).poll(task) {
            Poll::Ready(Some(first)) => many.buffer.push(first),
            Poll::Ready(None) => return Poll::Ready(0),
            Poll::Pending => return Poll::Pending,
        }
        let core = &many.receiving.channel.core;
        let mut left = many.limit - 1;
        while left > 0 {
            let before = many.buffer.len();
            let at_once = left.min(MESSAGES_AT_ONCE);
            let Some(woken) = core.recv_many(at_once, many.buffer) else { break };
            woken.wake();
            let came = many.buffer.len() - before;
            left -= came;
            if came < at_once {
                break;
            }
        }
        Poll::Ready(many.limit - left)
    }
}

impl<T> fmt::Debug for ReceivingMany<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceivingMany(..)")
    }
}
