//! The context of a coroutine.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::Event;
use crate::coroutine::wait;
use crate::relations::signal::{Down, MonitorRef};
use crate::time::Elapsed;

/// The context of a coroutine: its mailbox, its relations to other processes, and its own data. It
/// dereferences to a [`Context`](crate::Context), and its waiting methods block instead of
/// returning a future.
///
/// The context belongs to its coroutine: receiving from other code panics. The waiting methods
/// block, panic and unwind as [`wait`] does, with one exception: the methods that receive return
/// `None` when the coroutine is cancelled.
#[derive(Debug)]
pub struct Context<M: Send + 'static>(crate::Context<M>);

impl<M: Send + 'static> Context<M> {
    pub(crate) fn new(context: crate::Context<M>) -> Self {
        Self(context)
    }

    /// Receives the oldest message. Returns `None` only if the coroutine was cancelled and its
    /// mailbox is empty.
    #[inline]
    #[track_caller]
    pub fn recv(&mut self) -> Option<M> {
        wait(self.0.recv())
    }

    /// Receives the next message, if it arrives within `timeout`.
    ///
    /// # Errors
    /// [`Elapsed`] if none came.
    #[track_caller]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<M>, Elapsed> {
        wait(self.0.recv_timeout(timeout))
    }

    /// Receives the next event. See [`Context::recv_event`](crate::Context::recv_event).
    #[track_caller]
    pub fn recv_event(&mut self) -> Option<Event<M>> {
        wait(self.0.recv_event())
    }

    /// Receives the first message that matches. See
    /// [`Context::recv_matching`](crate::Context::recv_matching).
    #[track_caller]
    pub fn recv_matching(&mut self, wanted: impl FnMut(&M) -> bool) -> Option<M> {
        wait(self.0.recv_matching(wanted))
    }

    /// Waits for the down of a monitor. See [`Context::down`](crate::Context::down).
    #[track_caller]
    pub fn down(&mut self, monitor: MonitorRef) -> Option<Down> {
        wait(self.0.down(monitor))
    }

    /// Returns the context of async code, for futures that receive, such as arms of a
    /// [`Select`](crate::Select).
    pub fn as_async(&mut self) -> &mut crate::Context<M> {
        &mut self.0
    }
}

impl<M: Send + 'static> Deref for Context<M> {
    type Target = crate::Context<M>;

    fn deref(&self) -> &crate::Context<M> {
        &self.0
    }
}

impl<M: Send + 'static> DerefMut for Context<M> {
    fn deref_mut(&mut self) -> &mut crate::Context<M> {
        &mut self.0
    }
}
