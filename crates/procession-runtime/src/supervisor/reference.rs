//! The references to a running supervisor.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use super::description::{ChildSpec, Request};
use super::error::{ChildError, RefusedChild};
use super::moved::{Moved, OnceSpec, Template};
use super::status::{ChildInfo, ChildKey, ChildStatus, Counts};
use crate::mailbox::send_error::SendCause;
use crate::relations::named::Named;
use crate::scheduler::reach::find;
use crate::{Address, Exit, JoinHandle, Pid, Reply};
/// A reference to a running supervisor. Clones refer to the same supervisor, and do not keep it
/// alive.
///
/// Requests are handled in order, and each is answered as soon as it is fulfilled. A call ends at
/// the latest when the supervisor does. It takes no timeout, because the description of a child
/// determines how long it may take to start or stop. A [`timeout`](crate::timeout()) around the
/// call ends the wait, and the request is still fulfilled.
///
/// ```
/// use procession::supervisor::{ChildSpec, Supervisor, SupervisorRef};
/// use procession::Context;
///
/// procession::run(async {
///     let tree = Supervisor::one_for_one().try_start().await?;
///     // Any process may have a copy, and add, stop and count children.
///     let sessions: SupervisorRef = tree.reference().clone();
///     let session = |mut cx: Context<()>| async move { while cx.recv().await.is_some() {} };
///     sessions.add_child(ChildSpec::new("ada", session)).await?;
///     sessions.add_child(ChildSpec::new("bob", session)).await?;
///     sessions.terminate_child("ada").await?;
///     assert_eq!(sessions.count().await?.running, 1);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SupervisorRef(Address<Request>);

impl SupervisorRef {
    pub(super) fn new(address: Address<Request>) -> Self {
        Self(address)
    }

    /// Returns the supervisor with this PID, or `None` if the process has ended or is no
    /// supervisor. Together with [`which`](Self::which), it finds nested supervisors.
    pub fn of(pid: Pid) -> Option<Self> {
        Address::of(pid).ok().map(Self)
    }

    /// Returns the supervisor that has a [name](ChildSpec::name) now, in the scheduler of the
    /// calling process or thread. If that supervisor is restarted, the new supervisor has the name,
    /// so look it up again.
    ///
    /// ```
    /// use procession::supervisor::{ChildSpec, Supervisor, SupervisorRef};
    ///
    /// procession::run(async {
    ///     let rooms = ChildSpec::supervisor("rooms", Supervisor::dynamic()).name("rooms");
    ///     let tree = Supervisor::one_for_one().child(rooms).try_start().await?;
    ///     assert_eq!(SupervisorRef::named("rooms")?.count().await?.running, 0);
    ///     let unknown = SupervisorRef::named("halls").unwrap_err();
    ///     assert_eq!(unknown.name(), Some("halls"));
    ///     tree.cancel();
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendCause`]: no process has the name, or the process is no supervisor.
    pub fn named(name: &str) -> Result<Self, SendCause> {
        Named::new(name).address().map(Self)
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
    ) -> Result<T, ChildError> {
        self.0.call(request, Duration::MAX).await.map_err(|_| ChildError::Ended)
    }

    /// Returns all children, in the order of their starts. Answered immediately, whatever the
    /// supervisor waits for.
    ///
    /// # Errors
    /// [`ChildError::Ended`]: the supervisor has ended.
    #[track_caller]
    pub fn which(&self) -> impl Future<Output = Result<Vec<ChildInfo>, ChildError>> {
        crate::scheduler::placed::placed(async move { self.ask(Request::Which).await })
    }

    /// Returns the numbers of children. Answered immediately.
    ///
    /// # Errors
    /// [`ChildError::Ended`]: the supervisor has ended.
    #[track_caller]
    pub fn count(&self) -> impl Future<Output = Result<Counts, ChildError>> {
        crate::scheduler::placed::placed(async move { self.ask(Request::Count).await })
    }

    /// Returns the status of a child. Answered immediately.
    ///
    /// # Errors
    /// [`ChildError`]: there is no such child, or the supervisor has ended.
    #[track_caller]
    pub fn status(
        &self,
        child: impl Into<ChildKey>,
    ) -> impl Future<Output = Result<ChildStatus, ChildError>> {
        crate::scheduler::placed::placed(async move {
            let child = child.into();
            self.ask(|reply| Request::Status(child, reply)).await?
        })
    }

    /// Adds a child behind all others, and starts it. Returns its [`Address`], the `SupervisorRef`
    /// of a supervisor, or the [`Pid`] of an [untyped](ChildSpec::untyped) child.
    ///
    /// An address stands for one process. A restart of the child starts a new process, which has
    /// another address. A [name](ChildSpec::name) finds the new process.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::{Context, Reply};
    /// use procession::supervisor::{ChildSpec, Supervisor};
    ///
    /// procession::run(async {
    ///     let rooms = Supervisor::dynamic().try_start().await?;
    ///     let room = |mut cx: Context<Reply<u32>>| async move {
    ///         while let Some(reply) = cx.recv().await {
    ///             reply.send(7);
    ///         }
    ///     };
    ///     let lobby = rooms.add_child(ChildSpec::new("lobby", room)).await?;
    ///     assert_eq!(lobby.call(|reply| reply, Duration::from_secs(1)).await?, 7);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ChildError`]: the id is taken, there is a mistake in the description, or the child did not
    /// start. The child is not added then.
    #[track_caller]
    pub fn add_child<T>(&self, child: ChildSpec<T>) -> impl Future<Output = Result<T, ChildError>> {
        crate::scheduler::placed::placed(async move {
            let gives = child.gives;
            let child = Box::new(child.untyped());
            self.ask(|reply| Request::Start(child, reply)).await?.map(gives)
        })
    }

    /// Adds a child that is made from a value which moves into the child, and starts the child. See
    /// [`OnceSpec`].
    ///
    /// # Errors
    /// [`RefusedChild`] returns the closure or the function. The causes are as for
    /// [`add_child`](Self::add_child).
    ///
    /// # Cancellation
    /// If the future is dropped after the supervisor was asked, the child still starts.
    #[track_caller]
    pub fn add_once<M: Send + 'static, F: Send + 'static>(
        &self,
        child: OnceSpec<M, F>,
    ) -> impl Future<Output = Result<Address<M>, RefusedChild<F>>> {
        crate::scheduler::placed::placed(async move {
            let (child, process) = child.into_parts();
            self.start_moved(child, process).await
        })
    }

    /// Adds a child that the template makes from `argument`, and starts it. See [`Template`].
    ///
    /// # Errors
    /// [`RefusedChild`] returns the argument. The causes are as for
    /// [`add_child`](Self::add_child).
    ///
    /// # Cancellation
    /// If the future is dropped after the supervisor was asked, the child still starts.
    ///
    /// # Panics
    /// Panics if a function of the template that makes the name or an entry panics.
    #[track_caller]
    pub fn add_another<A: Send + 'static, M: Send + 'static>(
        &self,
        template: &Template<A, M>,
        argument: A,
    ) -> impl Future<Output = Result<Address<M>, RefusedChild<A>>> {
        crate::scheduler::placed::placed(async move {
            let (child, argument) = template.child(argument);
            self.start_moved(child, argument).await
        })
    }

    async fn start_moved<T, V>(
        &self,
        child: ChildSpec<T>,
        value: Arc<Moved<V>>,
    ) -> Result<T, RefusedChild<V>> {
        self.add_child(child).await.map_err(|cause| RefusedChild::new(value.take(), cause))
    }

    /// Stops a child by its stop policy, and returns when it has ended.
    ///
    /// The child stays known, as a stopped one. If it is temporary or the supervisor is dynamic, it
    /// is forgotten. Nothing happens to a child that is stopped already.
    ///
    /// # Errors
    /// [`ChildError`]: there is no such child.
    #[track_caller]
    pub fn terminate_child(
        &self,
        child: impl Into<ChildKey>,
    ) -> impl Future<Output = Result<(), ChildError>> {
        crate::scheduler::placed::placed(async move {
            let child = child.into();
            self.ask(|reply| Request::Terminate(child, reply)).await?
        })
    }

    /// Starts a stopped child. If the start fails, the child stays stopped.
    ///
    /// # Errors
    /// [`ChildError`]: there is no such child, it is not stopped, or it did not start.
    #[track_caller]
    pub fn restart_child(&self, id: &str) -> impl Future<Output = Result<Pid, ChildError>> {
        crate::scheduler::placed::placed(async move {
            let id = id.into();
            self.ask(|reply| Request::Restart(id, reply)).await?.map(|process| process.pid())
        })
    }

    /// Forgets a stopped child.
    ///
    /// # Errors
    /// [`ChildError`]: there is no such child, or it is not stopped.
    #[track_caller]
    pub fn delete_child(&self, id: &str) -> impl Future<Output = Result<(), ChildError>> {
        crate::scheduler::placed::placed(async move {
            let id = id.into();
            self.ask(|reply| Request::Delete(id, reply)).await?
        })
    }
}

impl fmt::Debug for SupervisorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SupervisorRef").field(&self.0.pid()).finish()
    }
}

/// A running supervisor, as [`Supervisor::try_start`](super::Supervisor::try_start) returns it.
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

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Exit> {
        Pin::new(&mut self.get_mut().handle).poll(task).map(|ended| match ended {
            Ok(never) => match never {},
            Err(exit) => exit,
        })
    }
}
