//! Waiting for the result of a process.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin as StdPin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use crate::mailbox::address::Address;
use crate::process::life::HandleShare;
use crate::relations::signal::MonitorRef;
use crate::scheduler::block_on;
use crate::scheduler::current;
use crate::time::timeout;
use crate::variance::Typed;
use crate::{Exit, Pid, Waiting};

/// A handle to the result of a process: a future of it, which threads can [`join`](Self::join).
///
/// Dropping the handle detaches the process, which goes on; its result is dropped when it ends.
/// Waiting for a handle does not keep the process that is waited for alive.
#[must_use = "dropping a handle detaches the process; write `drop(handle)` to say so"]
pub struct Handle<T>(Option<Joined<T>>);

struct Joined<T> {
    owner: HandleShare,
    monitor: Option<MonitorRef>,
    result: Typed<T>,
}

impl<T: Send + 'static> Handle<T> {
    /// The handle of a process that was just made; there is one for each.
    pub(crate) fn new(owner: HandleShare, monitor: Option<MonitorRef>) -> Self {
        Self(Some(Joined { owner, monitor, result: PhantomData }))
    }

    /// The handle of a process that was not taken.
    pub(crate) fn refused() -> Self {
        Self(None)
    }

    /// The process. `None` if it was refused ([`Exit::Refused`]), or after its result was taken.
    pub fn pid(&self) -> Option<Pid> {
        self.0.as_ref().map(|joined| joined.owner.slot().pid())
    }

    /// The monitor with which it was spawned
    /// ([`SpawnOptions::monitor`](crate::SpawnOptions::monitor)).
    pub fn monitor_ref(&self) -> Option<MonitorRef> {
        self.0.as_ref()?.monitor
    }

    /// Whether the process has ended, and the result waits to be taken.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(|joined| joined.owner.slot().state.see().is_complete())
    }

    /// Asks the process to end (see [`Scheduler::cancel`](crate::Scheduler::cancel)).
    pub fn cancel(&self) {
        if let Some(joined) = &self.0 {
            crate::process::wake::cancel(joined.owner.slot());
        }
    }

    /// Waits for the result on a plain thread.
    ///
    /// # Errors
    /// The [`Exit`] of a process that ended without a result.
    ///
    /// # Blocking
    /// Blocks the thread; in a process, await the handle instead: there this is
    /// [`Scheduler::block_on`](crate::Scheduler::block_on).
    pub fn join(self) -> Result<T, Exit> {
        match self.0.as_ref().map(|joined| joined.owner.slot().shared().arc()) {
            Some(shared) => block_on::block_on(&shared, self),
            None => Err(Exit::Refused),
        }
    }

    /// As [`join`](Self::join), for at most `patience`.
    ///
    /// # Errors
    /// The handle itself, if the time is over first.
    pub fn join_timeout(mut self, patience: Duration) -> Result<Result<T, Exit>, Self> {
        let Some(joined) = &self.0 else {
            return Ok(Err(Exit::Refused));
        };
        let shared = joined.owner.slot().shared().arc();
        match block_on::block_on(&shared, async { timeout(patience, &mut self).await }) {
            Ok(result) => Ok(result),
            Err(_) => Err(self),
        }
    }
}

impl<T: Send + 'static> Future for Handle<T> {
    type Output = Result<T, Exit>;

    /// # Panics
    /// Never. Polled again after its result was taken, it answers [`Exit::Refused`].
    fn poll(mut self: StdPin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let Some(joined) = &mut self.0 else {
            return Poll::Ready(Err(Exit::Refused));
        };
        if !joined.owner.slot().state.see().is_complete()
            && !joined.owner.leave_waiter(task.waker())
        {
            current::note_waiting(Waiting::PROCESS);
            return Poll::Pending;
        }
        let mut result: Option<Result<T, Exit>> = None;
        joined.owner.take_result(&mut result as &mut dyn Any);
        self.0 = None;
        Poll::Ready(result.unwrap_or(Err(Exit::Refused)))
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle")
            .field(&self.0.as_ref().map(|joined| joined.owner.slot().pid()))
            .finish()
    }
}

/// A process with a mailbox, as its starter has it: its [`Address`], to which this dereferences,
/// and its [`Handle`], whose future this is too.
#[must_use = "dropping the handle in it detaches the process; write `drop(child)` to say so"]
pub struct Child<M, T> {
    address: Address<M>,
    handle: Handle<T>,
}

impl<M: Send + 'static, T: Send + 'static> Child<M, T> {
    pub(crate) fn new(
        address: Option<Address<M>>,
        owner: HandleShare,
        monitor: Option<MonitorRef>,
    ) -> Self {
        let address = address.expect("it was made before the process was");
        Self { address, handle: Handle::new(owner, monitor) }
    }

    pub(crate) fn refused() -> Self {
        Self { address: Address::nobody(), handle: Handle::refused() }
    }

    /// Where to send messages; may be cloned and kept.
    pub fn address(&self) -> &Address<M> {
        &self.address
    }

    /// The monitor with which it was spawned
    /// ([`SpawnOptions::monitor`](crate::SpawnOptions::monitor)).
    pub fn monitor_ref(&self) -> Option<MonitorRef> {
        self.handle.monitor_ref()
    }

    /// Both parts, by themselves.
    pub fn into_parts(self) -> (Address<M>, Handle<T>) {
        (self.address, self.handle)
    }

    /// Asks the process to end (see [`Scheduler::cancel`](crate::Scheduler::cancel)).
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Detaches the process, and keeps its address.
    pub fn detach(self) -> Address<M> {
        self.address
    }

    /// As [`Handle::join_timeout`].
    ///
    /// # Errors
    /// This itself, if the time is over first.
    pub fn join_timeout(self, patience: Duration) -> Result<Result<T, Exit>, Self> {
        let Self { address, handle } = self;
        handle.join_timeout(patience).map_err(|handle| Self { address, handle })
    }

    /// Waits for the result on a plain thread. See [`Handle::join`].
    ///
    /// # Errors
    /// The [`Exit`] of a process that ended without a result.
    pub fn join(self) -> Result<T, Exit> {
        self.handle.join()
    }
}

impl<M, T> Deref for Child<M, T> {
    type Target = Address<M>;

    fn deref(&self) -> &Address<M> {
        &self.address
    }
}

impl<M: Send + 'static, T: Send + 'static> Future for Child<M, T> {
    type Output = Result<T, Exit>;

    fn poll(self: StdPin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        StdPin::new(&mut self.get_mut().handle).poll(task)
    }
}

impl<M, T> fmt::Debug for Child<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Child").field(&self.address).finish()
    }
}
