//! The references to a running supervisor.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin as StdPin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use super::description::{ChildSpec, Request};
use super::error::{ChildError, SupervisorGone};
use super::status::{ChildInfo, ChildKey, ChildStatus, Counts};
use crate::scheduler::reach::find;
use crate::{Address, Exit, JoinHandle, Pid, Reply};
/// A reference to a running supervisor. Clones refer to the same supervisor, and do not keep it
/// alive.
///
/// Requests are handled in order, and each is answered as soon as it is fulfilled. A call ends at
/// the latest when the supervisor does. It has no timeout of its own, because the description of a
/// child determines how long it may take to start or stop. A [`timeout`](crate::timeout()) around
/// the call ends the wait, and the request is still fulfilled.
#[derive(Clone)]
pub struct SupervisorRef(Address<Request>);

impl SupervisorRef {
    pub(super) fn new(address: Address<Request>) -> Self {
        Self(address)
    }

    /// Returns the supervisor that is this process, or `None` if the process has ended or is no
    /// supervisor. Together with [`which`](Self::which), it finds nested supervisors.
    pub fn of(pid: Pid) -> Option<Self> {
        Address::of(pid).ok().map(Self)
    }

    /// Returns the PID of the supervisor.
    pub fn pid(&self) -> Pid {
        self.0.pid()
    }

    /// Returns `true` if the supervisor has not ended, as far as this thread can see.
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Asks the supervisor to stop its children and end.
    pub fn cancel(&self) {
        if let Some(slot) = find(self.0.pid()) {
            crate::process::wake::cancel(&slot);
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, SupervisorGone> {
        self.0.call(request, Duration::MAX).await.map_err(|_| SupervisorGone)
    }

    /// Returns all children, in the order of their starts. Answered at once, whatever the
    /// supervisor waits for.
    ///
    /// # Errors
    /// [`SupervisorGone`]: the supervisor has ended.
    pub async fn which(&self) -> Result<Vec<ChildInfo>, SupervisorGone> {
        self.ask(Request::Which).await
    }

    /// Returns the numbers of children. Answered at once.
    ///
    /// # Errors
    /// [`SupervisorGone`]: the supervisor has ended.
    pub async fn count(&self) -> Result<Counts, SupervisorGone> {
        self.ask(Request::Count).await
    }

    /// Returns the status of a child. Answered at once.
    ///
    /// # Errors
    /// [`ChildError`]: there is no such child, or the supervisor has ended.
    pub async fn status(&self, child: impl Into<ChildKey>) -> Result<ChildStatus, ChildError> {
        let child = child.into();
        self.ask(|reply| Request::Status(child, reply)).await?
    }

    /// Adds a child behind all others, and starts it.
    ///
    /// # Errors
    /// [`ChildError`]: the id is taken, there is a mistake in the description, or the child did not
    /// start. The child is not added then.
    pub async fn start_child(&self, child: ChildSpec) -> Result<Pid, ChildError> {
        self.ask(|reply| Request::Start(Box::new(child), reply)).await?
    }

    /// Adds a child made from the [template](super::Supervisor::template), and starts it.
    ///
    /// # Errors
    /// [`ChildError`]: there is no template, or the child did not start.
    pub async fn start_another(&self) -> Result<Pid, ChildError> {
        self.ask(Request::StartAnother).await?
    }

    /// Stops a child by its stop policy, and returns when it has ended.
    ///
    /// The child stays known, as a stopped one. If it is temporary or the supervisor is dynamic, it
    /// is forgotten. Nothing happens to a child that is stopped already.
    ///
    /// # Errors
    /// [`ChildError`]: there is no such child.
    pub async fn terminate_child(&self, child: impl Into<ChildKey>) -> Result<(), ChildError> {
        let child = child.into();
        self.ask(|reply| Request::Terminate(child, reply)).await?
    }

    /// Starts a stopped child. If the start fails, the child stays stopped.
    ///
    /// # Errors
    /// [`ChildError`]: there is no such child, it is not stopped, or it did not start.
    pub async fn restart_child(&self, id: &str) -> Result<Pid, ChildError> {
        let id = id.into();
        self.ask(|reply| Request::Restart(id, reply)).await?
    }

    /// Forgets a stopped child.
    ///
    /// # Errors
    /// [`ChildError`]: there is no such child, or it is not stopped.
    pub async fn delete_child(&self, id: &str) -> Result<(), ChildError> {
        let id = id.into();
        self.ask(|reply| Request::Delete(id, reply)).await?
    }
}

impl fmt::Debug for SupervisorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SupervisorRef").field(&self.0.pid()).finish()
    }
}

/// A running supervisor, as [`Supervisor::start`](super::Supervisor::start) returns it.
///
/// It dereferences to a [`SupervisorRef`], and is a future of the exit of the supervisor. Dropping
/// it leaves the supervisor running.
#[derive(Debug)]
#[must_use = "dropping it detaches the supervisor; write `drop(running)` to say so"]
pub struct Running {
    supervisor: SupervisorRef,
    handle: JoinHandle<Infallible>,
}

impl Running {
    pub(super) fn new(supervisor: SupervisorRef, handle: JoinHandle<Infallible>) -> Self {
        Self { supervisor, handle }
    }

    /// Returns the reference, which can be cloned and kept.
    pub fn reference(&self) -> &SupervisorRef {
        &self.supervisor
    }

    /// Waits for the end of the supervisor on a plain thread. See [`JoinHandle::join`].
    ///
    /// # Blocking
    /// Blocks the thread. In a process, await this instead.
    pub fn join(self) -> Exit {
        match self.handle.join() {
            Ok(never) => match never {},
            Err(exit) => exit,
        }
    }
}

impl Deref for Running {
    type Target = SupervisorRef;

    fn deref(&self) -> &SupervisorRef {
        &self.supervisor
    }
}

impl Future for Running {
    type Output = Exit;

    fn poll(self: StdPin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Exit> {
        StdPin::new(&mut self.get_mut().handle).poll(task).map(|ended| match ended {
            Ok(never) => match never {},
            Err(exit) => exit,
        })
    }
}
