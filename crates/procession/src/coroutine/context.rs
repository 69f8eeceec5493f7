//! What a coroutine is given.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::Event;
use crate::coroutine::{sleep, wait, yield_now};
use crate::mailbox::address::Address;
use crate::mailbox::call::CallError;
use crate::mailbox::reply::Reply;
use crate::relations::signal::{Down, MonitorRef};
use crate::time::Elapsed;

/// What a coroutine works with: its mailbox, its relations to others, and what it is. It is a
/// [`Context`](crate::Context), whose waiting methods wait here in blocking style.
///
/// It belongs to its coroutine: receiving elsewhere panics. What waits here blocks, panics, and
/// unwinds as [`wait`] does; those that receive answer a cancel with `None` instead.
#[derive(Debug)]
pub struct Context<M: Send + 'static>(crate::Context<M>);

impl<M: Send + 'static> Context<M> {
    pub(crate) fn new(context: crate::Context<M>) -> Self {
        Self(context)
    }

    /// Receives the next message, the oldest first. `None` only after this coroutine was cancelled,
    /// once its mailbox is empty.
    #[inline]
    pub fn recv(&mut self) -> Option<M> {
        wait(self.0.recv())
    }

    /// Receives the next message if it comes within `timeout`.
    ///
    /// # Errors
    /// [`Elapsed`] if none came.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<M>, Elapsed> {
        wait(self.0.recv_timeout(timeout))
    }

    /// As [`Context::recv_event`](crate::Context::recv_event).
    pub fn recv_event(&mut self) -> Option<Event<M>> {
        wait(self.0.recv_event())
    }

    /// As [`Context::recv_matching`](crate::Context::recv_matching).
    pub fn recv_matching(&mut self, wanted: impl FnMut(&M) -> bool) -> Option<M> {
        wait(self.0.recv_matching(wanted))
    }

    /// As [`Context::down`](crate::Context::down).
    pub fn down(&mut self, monitor: MonitorRef) -> Option<Down> {
        wait(self.0.down(monitor))
    }

    /// Sends a message with a [`Reply`] in it to another process, and waits for the reply, at most
    /// for `timeout`.
    ///
    /// # Errors
    /// As for [`Address::call`].
    pub fn call<N, T>(
        &self,
        address: &Address<N>,
        message: impl FnOnce(Reply<T>) -> N,
        timeout: Duration,
    ) -> Result<T, CallError<N>>
    where
        N: Send + 'static,
        T: Send + 'static,
    {
        wait(address.call(message, timeout))
    }

    /// As [`sleep`].
    pub fn sleep(&self, duration: Duration) {
        sleep(duration);
    }

    /// As [`yield_now`].
    #[inline(always)]
    pub fn yield_now(&self) {
        yield_now();
    }

    /// As [`wait`]: for anything that processes can await.
    #[inline]
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        wait(future)
    }

    /// The context as async code has it: for futures that receive, as arms of a
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
