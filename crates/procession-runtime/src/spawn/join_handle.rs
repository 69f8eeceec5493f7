//! Handles that await the result of a process.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use crate::mailbox::address::Address;
use crate::process::life::HandleShare;
use crate::process::typed::Typed;
use crate::process::wait_edge::WaitProof;
use crate::process::wait_reason::Waiting;
use crate::process::waker;
use crate::relations::signal::MonitorRef;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::{Exit, Pid};

/// Awaits the result of a process. A plain thread can [`join`](Self::join) it.
///
/// Dropping the handle detaches the process: the process continues, and its result is dropped when
/// it ends. To cancel the process instead, use [`cancel_on_drop`](Self::cancel_on_drop). The handle
/// does not keep the process alive.
///
/// ```
/// procession::run(async {
///     let sum = procession::spawn(async { 1 + 2 });
///     assert_eq!(sum.await, Ok(3));
///
///     let fails = procession::spawn(async { panic!("out of order") });
///     assert!(fails.await.is_err_and(|exit: procession::Exit| exit.is_panic()));
/// });
/// ```
pub struct JoinHandle<T> {
    state: Joined,
    result: Typed<T>,
}

enum Joined {
    Process {
        owner: HandleShare,
        monitor: Option<MonitorRef>,
    },
    /// The process was refused.
    Refused,
    /// The result was taken.
    Taken(Pid),
}

impl Joined {
    fn pid(&self) -> Pid {
        match self {
            Self::Process { owner, .. } => owner.slot().pid(),
            Self::Refused => Pid::NOBODY,
            Self::Taken(pid) => *pid,
        }
    }

    /// Returns the PID as `Slot::seen_pid` does.
    fn seen_pid(&self) -> Pid {
        match self {
            Self::Process { owner, .. } => owner.slot().seen_pid(),
            other => other.pid(),
        }
    }
}

impl<T: Send + 'static> JoinHandle<T> {
    /// Creates the only handle of a new process.
    pub(crate) fn new(owner: HandleShare, monitor: Option<MonitorRef>) -> Self {
        Self { state: Joined::Process { owner, monitor }, result: PhantomData }
    }

    /// Creates the handle of a refused process.
    pub(crate) fn refused() -> Self {
        Self { state: Joined::Refused, result: PhantomData }
    }

    /// Returns the PID of the process, or [`Pid::NOBODY`] if the process was refused
    /// ([`Exit::Refused`]).
    pub fn pid(&self) -> Pid {
        self.state.pid()
    }

    /// Returns the monitor that was asked for when the process was started
    /// ([`SpawnOptions::monitor`](crate::SpawnOptions::monitor)). Returns `None` once the result
    /// was taken.
    pub fn monitor_ref(&self) -> Option<MonitorRef> {
        match &self.state {
            Joined::Process { monitor, .. } => *monitor,
            Joined::Refused | Joined::Taken(_) => None,
        }
    }

    /// Returns `true` if the process has ended or was refused.
    pub fn is_finished(&self) -> bool {
        match &self.state {
            Joined::Process { owner, .. } => owner.slot().state.see().is_complete(),
            Joined::Refused | Joined::Taken(_) => true,
        }
    }

    /// Detaches the process, as dropping the handle does.
    pub fn detach(self) {
        drop(self);
    }

    /// Cancels the process (see [`process::cancel`](crate::relations::cancel())).
    pub fn cancel(&self) {
        if let Joined::Process { owner, .. } = &self.state {
            crate::process::wake::cancel(owner.slot());
        }
    }

    /// Ends the process between two of its steps, with [`Exit::Killed`], even if it traps exits.
    /// Returns `true` if it existed. See [`kill`](crate::relations::kill()).
    ///
    /// ```
    /// use procession::Exit;
    ///
    /// procession::run(async {
    ///     let stubborn = procession::start(|mut cx: procession::Context<()>| async move {
    ///         cx.trap_exits(true);
    ///         while cx.recv_event().await.is_some() {}
    ///         std::future::pending::<()>().await
    ///     });
    ///     stubborn.cancel();
    ///     assert!(stubborn.kill());
    ///     assert_eq!(stubborn.await, Err(Exit::Killed));
    /// });
    /// ```
    pub fn kill(&self) -> bool {
        crate::relations::links::kill(self.state.seen_pid())
    }

    /// Makes a handle that cancels the process when it is dropped, like `AbortOnDropHandle` of
    /// tokio-util.
    ///
    /// ```
    /// use std::future::pending;
    ///
    /// procession::run(async {
    ///     let (kept, ends) = procession::sync::oneshot::channel::<()>();
    ///     let works = procession::spawn(async move {
    ///         let _kept = kept;
    ///         pending::<()>().await;
    ///     });
    ///     drop(works.cancel_on_drop());
    ///     assert!(ends.await.is_err(), "the process has dropped what it holds");
    /// });
    /// ```
    pub fn cancel_on_drop(self) -> CancelOnDrop<T> {
        CancelOnDrop(self)
    }

    /// Leaves a waker that is woken once, when the process ends. Returns `true` if it has ended or
    /// was refused. The waker is not woken then.
    ///
    /// # Panics
    /// Panics if the result was taken.
    pub(crate) fn leave_waker(&mut self, waker: &Waker) -> bool {
        match &mut self.state {
            Joined::Process { owner, .. } => owner.leave_waiter(waker),
            Joined::Refused => true,
            Joined::Taken(_) => panic!("{TAKEN}"),
        }
    }

    /// Polls the handle. `proof` is `Sole`, or `Child` if the caller has an address beside it.
    fn poll_as(&mut self, task: &mut TaskContext<'_>, proof: WaitProof) -> Poll<Result<T, Exit>> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let Joined::Process { owner, .. } = &mut self.state else {
            assert!(matches!(self.state, Joined::Refused), "{TAKEN}");
            self.state = Joined::Taken(Pid::NOBODY);
            return Poll::Ready(Err(Exit::Refused));
        };
        if !owner.slot().state.see().is_complete() && !owner.leave_waiter(task.waker()) {
            let slot = owner.slot();
            let target = current::target_of(slot);
            let lender = waker::lender(task.waker());
            current::note_waiting_for(lender, Waiting::PROCESS, target, proof);
            current::note_place(slot.location());
            return Poll::Pending;
        }
        Poll::Ready(self.take_result())
    }

    /// Takes the result of a process that has ended or was refused.
    pub(crate) fn take_result(&mut self) -> Result<T, Exit> {
        let mut result: Option<Result<T, Exit>> = None;
        let pid = self.state.seen_pid();
        if let Joined::Process { owner, .. } = &mut self.state {
            owner.take_result(&mut result as &mut dyn Any);
            if matches!(result, Some(Err(Exit::Panicked(_)))) {
                owner.slot().shared().parts.panic_taken(pid);
            }
        }
        self.state = Joined::Taken(pid);
        result.unwrap_or(Err(Exit::Refused))
    }

    /// Returns the scheduler of the process, or `None` if the process was refused.
    pub(super) fn shared(&self) -> Option<Arc<Shared>> {
        match &self.state {
            Joined::Process { owner, .. } => Some(owner.slot().shared().arc()),
            Joined::Refused => None,
            Joined::Taken(_) => panic!("{TAKEN}"),
        }
    }
}

const TAKEN: &str = "a `JoinHandle` was used after its result was taken";

impl<T: Send + 'static> Future for JoinHandle<T> {
    type Output = Result<T, Exit>;

    /// # Panics
    /// Panics if it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_as(task, WaitProof::Sole)
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinHandle").field(&self.state.seen_pid()).finish()
    }
}

/// A [`JoinHandle`] that cancels its process when it is dropped, made by
/// [`JoinHandle::cancel_on_drop`].
///
/// It dereferences to the handle, and awaiting it awaits the handle. For a [`Child`], make it from
/// the handle that [`Child::into_parts`] returns.
///
/// The effect of a cancel depends on the process ([`OnCancel`](crate::OnCancel)): a process of
/// [`spawn`](crate::spawn()) is dropped where it waits, and a process of [`start`](crate::start())
/// is asked to end. The drop does not wait for the end.
#[derive(Debug)]
#[must_use = "dropping it cancels the process"]
pub struct CancelOnDrop<T: Send + 'static>(JoinHandle<T>);

impl<T: Send + 'static> CancelOnDrop<T> {
    /// Returns a handle that, when it is dropped, lets the process continue.
    pub fn detach(mut self) -> JoinHandle<T> {
        // A refused process, which the drop leaves alone, takes the place of this one.
        std::mem::replace(&mut self.0, JoinHandle::refused())
    }
}

impl<T: Send + 'static> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl<T: Send + 'static> Deref for CancelOnDrop<T> {
    type Target = JoinHandle<T>;

    fn deref(&self) -> &JoinHandle<T> {
        &self.0
    }
}

impl<T: Send + 'static> Future for CancelOnDrop<T> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(task)
    }
}

/// The [`Address`] and the [`JoinHandle`] of a process with a mailbox.
///
/// It dereferences to the address. Awaiting it awaits the handle. Dropping it detaches the process.
///
/// ```
/// use procession::{Child, Context};
///
/// procession::run(async {
///     let child: Child<u32, u32> = procession::start(|mut cx: Context<u32>| async move {
///         let mut sum = 0;
///         while let Some(number) = cx.recv().await {
///             sum += number;
///         }
///         sum
///     });
///     child.send(1)?;
///     child.send(2)?;
///     child.cancel();
///     assert_eq!(child.await, Ok(3));
///     Ok::<(), procession::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::SendError<u32>>(())
/// ```
pub struct Child<M, T> {
    address: Address<M>,
    handle: JoinHandle<T>,
}

impl<M: Send + 'static, T: Send + 'static> Child<M, T> {
    pub(crate) fn new(
        address: Option<Address<M>>,
        owner: HandleShare,
        monitor: Option<MonitorRef>,
    ) -> Self {
        let address = address.expect("it was made before the process was");
        Self { address, handle: JoinHandle::new(owner, monitor) }
    }

    pub(crate) fn refused() -> Self {
        Self { address: Address::nobody(), handle: JoinHandle::refused() }
    }

    /// Returns the address, which can be cloned and kept.
    pub fn address(&self) -> &Address<M> {
        &self.address
    }

    /// See [`JoinHandle::monitor_ref`].
    pub fn monitor_ref(&self) -> Option<MonitorRef> {
        self.handle.monitor_ref()
    }

    /// Returns the address and the handle.
    pub fn into_parts(self) -> (Address<M>, JoinHandle<T>) {
        (self.address, self.handle)
    }

    /// Cancels the process (see [`process::cancel`](crate::relations::cancel())).
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Detaches the process, and returns its address.
    pub fn detach(self) -> Address<M> {
        self.address
    }

    /// Waits for the result on a plain thread, for at most `timeout`. See
    /// [`JoinHandle::join_timeout`].
    ///
    /// # Errors
    /// Returns the child if the timeout is over before the process has ended.
    pub fn join_timeout(self, timeout: Duration) -> Result<Result<T, Exit>, Self> {
        let Self { address, handle } = self;
        handle.join_timeout(timeout).map_err(|handle| Self { address, handle })
    }

    /// Waits for the result on a plain thread. See [`JoinHandle::join`].
    ///
    /// # Errors
    /// Returns the [`Exit`] of a process that ended without a result.
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

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.get_mut().handle.poll_as(task, WaitProof::Child)
    }
}

impl<M, T> fmt::Debug for Child<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Child").field(&self.address).finish()
    }
}
