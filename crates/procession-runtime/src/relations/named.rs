//! Processes that are found by their name at each use.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::Pid;
use crate::mailbox::address::Address;
use crate::mailbox::call::{CallError, call_by_name, send_by_name};
use crate::mailbox::reply::Reply;
use crate::mailbox::send_error::{SendCause, SendError};
use crate::process::typed::Typed;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::shared::Shared;

/// Sends messages to the process that has a certain name at that moment. It stays valid when the
/// process is restarted, because the new process has the same name.
///
/// It looks the name up at each use, in the scheduler that it was made for. It keeps neither a
/// process nor the scheduler alive.
///
/// ```
/// use procession::process::{Named, register};
/// use procession::{Context, start};
///
/// procession::run(async {
///     let echo: Named<u32> = Named::new("echo");
///     let error = echo.send(1).unwrap_err();
///     assert_eq!(error.to_string(), "cannot send: no process is registered as `echo`");
///     for n in [2, 3] {
///         let mut child = start(|mut cx: Context<u32>| async move { cx.recv().await });
///         register("echo", child.pid())?;
///         echo.send(n)?;
///         assert_eq!((&mut child).await, Ok(Some(n)));
///     }
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Named<M> {
    name: Arc<str>,
    shared: std::sync::Weak<Shared>,
    message: Typed<M>,
}

impl<M: Send + 'static> Named<M> {
    /// Names a process of the scheduler of the calling process or thread.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            shared: Arc::downgrade(&crate::scheduler::owner::here()),
            message: PhantomData,
        }
    }

    /// Names a process of a certain scheduler.
    pub fn on(scheduler: &Scheduler, name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), shared: Arc::downgrade(scheduler.shared()), message: PhantomData }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process that has the name now.
    pub fn pid(&self) -> Option<Pid> {
        self.shared.upgrade()?.processes.names.whereis(&self.name)
    }

    /// Returns the address of the process that has the name now.
    ///
    /// # Errors
    /// [`SendCause`]: no process has the name, or the process receives messages of another type.
    pub fn address(&self) -> Result<Address<M>, SendCause> {
        let pid = self.pid().ok_or_else(|| SendCause::unregistered(Arc::clone(&self.name)))?;
        Address::of(pid).map_err(|cause| cause.to(Arc::clone(&self.name)))
    }

    /// Sends to the process that has the name now. See [`Address::send`].
    ///
    /// # Errors
    /// [`SendError`] returns the message if no process has the name, the process receives messages
    /// of another type, or its mailbox refuses the message. The text of the error has the name, the
    /// process and both types.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        send_by_name(&self.name, self.pid(), message)
    }

    /// Sends an urgent message to the process that has the name now. See
    /// [`Address::send_urgent`].
    ///
    /// # Errors
    /// As [`send`](Self::send), and if the process takes no urgent messages.
    pub fn send_urgent(&self, message: M) -> Result<(), SendError<M>> {
        match self.address() {
            Ok(address) => address.send_urgent(message),
            Err(cause) => Err(SendError::of(message, cause)),
        }
    }

    /// Calls the process that has the name now. See [`Address::call`].
    ///
    /// # Errors
    /// Returns [`CallError`], for example if no process has the name, or the process receives
    /// messages of another type.
    ///
    /// # Cancellation
    /// See [`Address::call`].
    #[track_caller]
    pub fn call<T: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<T>) -> M,
        timeout: Duration,
    ) -> impl Future<Output = Result<T, CallError<M>>> {
        crate::scheduler::placed::placed(async move {
            call_by_name(&self.name, self.pid(), message, timeout).await
        })
    }
}

impl<M> Clone for Named<M> {
    fn clone(&self) -> Self {
        Self { name: Arc::clone(&self.name), shared: self.shared.clone(), message: PhantomData }
    }
}

impl<M> fmt::Debug for Named<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Named").field(&self.name).finish()
    }
}
