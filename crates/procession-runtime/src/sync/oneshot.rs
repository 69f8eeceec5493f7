//! Channels for one value, from one sender to one receiver.
//!
//! The sender sends without waiting. The receiver is a future. If one side is dropped, the opposite
//! side notices.
//!
//! ```
//! use procession::sync::oneshot;
//!
//! procession::run(async {
//!     let (sender, receiver) = oneshot::channel();
//!     procession::spawn(async move { sender.send(7) });
//!     assert_eq!(receiver.await, Ok(7));
//! });
//! ```
//!
//! A process that asks another process for an answer need not make a channel:
//! [`Address::call`](crate::Address::call) does so, and also ends if the other process ends.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

use procession_protocols::sync::oneshot::core::OneshotCore;
use procession_protocols::util::twin::Twin;

use crate::process::served::TaskWaker;
use crate::process::unwind::{drop_guarded, guarded};
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::sync::error::SendError;
use crate::util::recv_error::RecvError;

/// Creates a channel for one value.
///
/// ```
/// use procession::sync::oneshot;
///
/// procession::run(async {
///     let (ready, is_ready) = oneshot::channel();
///     let server = procession::spawn(async move {
///         // For example, it has bound its socket.
///         drop(ready.send(8080)); // Ignored: nobody may want to know.
///     });
///     assert_eq!(is_ready.await, Ok(8080));
///     server.await
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
#[track_caller]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = Twin::new(OneshotCore::new());
    let receiver = Receiver { core: Some(receiver), made: Location::caller() };
    (Sender { core: Some(sender) }, receiver)
}

/// The sending end of a oneshot channel.
///
/// If it is dropped without a value, the receiver gets a [`RecvError`].
pub struct Sender<T> {
    /// Present until the value is sent.
    core: Option<Twin<OneshotCore<T>>>,
}

/// The receiving end of a oneshot channel: a future that returns the value.
///
/// ```
/// use procession::sync::{RecvError, oneshot};
///
/// let (sender, mut receiver) = oneshot::channel();
/// assert_eq!(receiver.try_recv(), Err(RecvError::Empty));
/// sender.send("value")?;
/// assert_eq!(receiver.try_recv(), Ok("value"));
/// assert_eq!(receiver.try_recv(), Err(RecvError::Closed));
/// # Ok::<(), procession::sync::SendError<&str>>(())
/// ```
///
/// # Errors
/// Returns [`RecvError`] if the sender was dropped without a value, or if this end was closed
/// before a value was sent.
///
/// # Cancellation
/// The future may be polled by `&mut`. If that reference is dropped before the value was sent,
/// nothing is lost. If the receiver itself is dropped, the channel is closed.
///
/// # Panics
/// Polling it again after it has returned a value or an error panics.
#[must_use = "a receiver that is dropped closes the channel"]
pub struct Receiver<T> {
    /// Present until the value or an error is returned.
    core: Option<Twin<OneshotCore<T>>>,
    /// The call that made the channel. A future that is awaited itself does not know where.
    made: &'static Location<'static>,
}

#[inline]
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        drop(guarded(|| waker.wake()));
    }
}

#[inline]
fn forget(waker: Option<Waker>) {
    if let Some(waker) = waker {
        drop_guarded(waker);
    }
}

impl<T> Sender<T> {
    fn core(&self) -> &OneshotCore<T> {
        self.core.as_ref().expect("a sender has its channel until it sends")
    }

    /// Sends the value. It never waits.
    ///
    /// A value that was sent may still be dropped without being received, if the receiver is
    /// dropped afterwards.
    ///
    /// # Errors
    /// Returns [`SendError`] with the value if the receiver was dropped or has closed the channel.
    pub fn send(mut self, value: T) -> Result<(), SendError<T>> {
        crate::scheduler::budget::spend();
        let core = self.core.take().expect("a sender has its channel until it sends");
        match core.send(value) {
            Ok((receiver, own)) => {
                forget(own);
                wake(receiver);
                Ok(())
            }
            Err(value) => Err(SendError::Closed(value)),
        }
    }

    /// Waits until the receiver is dropped or closes the channel.
    ///
    /// ```
    /// use procession::sync::oneshot;
    ///
    /// procession::run(async {
    ///     let (mut sender, receiver) = oneshot::channel::<u32>();
    ///     procession::spawn(async move { drop(receiver) });
    ///     // A computation for the receiver could stop here.
    ///     sender.closed().await;
    ///     assert!(sender.is_closed());
    /// });
    /// ```
    ///
    /// # Cancellation
    /// If the future is dropped, the wait ends without an effect.
    #[track_caller]
    pub fn closed(&mut self) -> impl Future<Output = ()> {
        crate::scheduler::placed::placed(async move {
            let mut wait = ClosedWait { core: self.core(), waits: false };
            poll_fn(|task| wait.poll(task)).await;
        })
    }

    /// Returns `true` if the receiver was dropped or has closed the channel.
    pub fn is_closed(&self) -> bool {
        self.core().is_closed()
    }
}

/// A sender that waits for the close of its channel.
struct ClosedWait<'a, T> {
    core: &'a OneshotCore<T>,
    /// Set while the waker of the sender is in the channel.
    waits: bool,
}

impl<T> ClosedWait<'_, T> {
    fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<()> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        self.waits = !self.core.closed_or_wait(&mut TaskWaker::of(task.waker()));
        if self.waits {
            current::note_waiting(Waiting::CHANNEL);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl<T> Drop for ClosedWait<'_, T> {
    fn drop(&mut self) {
        if self.waits {
            drop_guarded(self.core.leave_sender());
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            let (receiver, own) = core.drop_sender();
            forget(own);
            wake(receiver);
        }
    }
}

impl<T> Receiver<T> {
    /// Returns the value without waiting.
    ///
    /// # Errors
    /// Returns [`RecvError::Empty`] if a value may still be sent, and [`RecvError::Closed`]
    /// if the value was received already or will never be sent.
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        crate::scheduler::budget::spend();
        let core = self.core.as_ref().ok_or(RecvError::Closed)?;
        let received = core.try_recv().ok_or(RecvError::Empty)?;
        self.core = None;
        received.ok_or(RecvError::Closed)
    }

    /// Closes the channel without dropping this end. From now on, the sender cannot send. A value
    /// that was sent before can still be received.
    ///
    /// ```
    /// use procession::sync::oneshot;
    ///
    /// procession::run(async {
    ///     let (sender, mut receiver) = oneshot::channel();
    ///     receiver.close();
    ///     assert_eq!(sender.send(1).map_err(procession::sync::SendError::into_inner), Err(1));
    ///     assert!(receiver.await.is_err());
    /// });
    /// ```
    pub fn close(&mut self) {
        if let Some(core) = &self.core {
            let (sender, own) = core.close();
            wake(sender);
            forget(own);
        }
    }

    /// Returns `true` if the receive is over: the value or an error was returned. Polling the
    /// receiver then panics.
    pub fn is_terminated(&self) -> bool {
        self.core.is_none()
    }

    /// Returns `true` if there is no value to receive at the moment.
    pub fn is_empty(&self) -> bool {
        self.core.as_ref().is_none_or(|core| !core.has_value())
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let receiver = self.get_mut();
        let core =
            receiver.core.take().expect("a oneshot receiver is polled after it has completed");
        let core = match core.into_inner() {
            Ok(core) => {
                let abandoned = core.into_abandoned();
                forget(abandoned.own);
                return Poll::Ready(abandoned.value.ok_or(RecvError::Closed));
            }
            Err(core) => receiver.core.insert(core),
        };
        match core.recv_or_wait(&mut TaskWaker::of(task.waker())) {
            Poll::Ready(received) => {
                receiver.core = None;
                Poll::Ready(received.ok_or(RecvError::Closed))
            }
            Poll::Pending => {
                current::note_waiting_at(Waiting::CHANNEL, receiver.made);
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            let abandoned = match core.into_inner() {
                Ok(core) => core.into_abandoned(),
                Err(core) => core.drop_receiver(),
            };
            wake(abandoned.sender);
            forget(abandoned.own);
            drop_guarded(abandoned.value);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}
