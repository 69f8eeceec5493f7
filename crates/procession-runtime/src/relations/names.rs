//! Names of processes. A name is free again when its process ends.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::relations::on_exit::Left;

use crate::Pid;
use crate::mailbox::address::Address;
use crate::mailbox::call::{CallError, refused};
use crate::mailbox::reply::Reply;
use crate::mailbox::send_error::{SendCause, SendError};
use crate::process::slot::Slot;
use crate::relations::links;
use crate::relations::name_table::Names;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::reach::find;
use crate::scheduler::shared::Shared;
use crate::variance::Typed;

impl Names {
    /// Registers a name. This and `unregister` change both entries under this lock, so that neither
    /// entry exists without the other.
    fn register(&self, name: Arc<str>, slot: &Slot) -> Result<(), RegisterError> {
        let pid = slot.pid();
        self.with(|names| {
            if let Some(&owner) = names.get(&name) {
                return Err(RegisterError::Taken { name, owner });
            }
            names.insert(Arc::clone(&name), pid);
            let refused = match links::name(slot, &name) {
                Some(Left::There) => return Ok(()),
                Some(Left::TooLate) => RegisterError::Ended { name: Arc::clone(&name), pid },
                None => RegisterError::HasName { name: Arc::clone(&name), pid },
            };
            names.remove(&name);
            Err(refused)
        })
    }

    /// Frees a name, if it still belongs to this process. Returns `true` if it did. `slot` is the
    /// slot of the process, unless the process has ended.
    fn unregister(&self, name: &str, pid: Pid, slot: Option<&Slot>) -> bool {
        self.with(|names| {
            if names.get(name) != Some(&pid) {
                return false;
            }
            names.remove(name);
            if let Some(slot) = slot {
                links::forget_name(slot, name);
            }
            true
        })
    }

    /// Frees a name, if it belongs to this process.
    pub(crate) fn release(&self, name: &str, pid: Pid) {
        self.with(|names| {
            if names.get(name) == Some(&pid) {
                names.remove(name);
            }
        });
    }
}

/// The reason why a name, or a key in a [`Registry`](crate::group::Registry), was not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name belongs to another process, or to this one already.
    Taken {
        /// The name or the key.
        name: Arc<str>,
        /// The process that has the name.
        owner: Pid,
    },
    /// The process has a name already. It can only have one.
    HasName {
        /// The name that was refused.
        name: Arc<str>,
        /// The process.
        pid: Pid,
    },
    /// The process has ended or belongs to another scheduler.
    Ended {
        /// The name that was refused.
        name: Arc<str>,
        /// The process.
        pid: Pid,
    },
}

impl RegisterError {
    /// Returns the name that was refused.
    pub fn name(&self) -> &str {
        match self {
            Self::Taken { name, .. } | Self::HasName { name, .. } | Self::Ended { name, .. } => {
                name
            }
        }
    }

    /// Returns the process that has the name, if the name is taken.
    pub fn owner(&self) -> Option<Pid> {
        match *self {
            Self::Taken { owner, .. } => Some(owner),
            Self::HasName { .. } | Self::Ended { .. } => None,
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().escape_debug();
        match self {
            Self::Taken { owner, .. } => write!(f, "`{name}` is taken by {owner}"),
            Self::HasName { pid, .. } => {
                write!(f, "cannot register {pid} as `{name}`: it has a name already")
            }
            Self::Ended { pid, .. } => {
                write!(
                    f,
                    "cannot register {pid} as `{name}`: there is no such process in this scheduler"
                )
            }
        }
    }
}

impl Error for RegisterError {}

impl Scheduler {
    /// Registers a process of this scheduler under a name, until the process ends or the name is
    /// [unregistered](Self::unregister).
    ///
    /// When the process ends, the name is free again before the end is reported to any other
    /// process.
    ///
    /// # Errors
    /// Returns [`RegisterError`] if the name is taken, or the process has a name already or has
    /// ended.
    ///
    /// ```
    /// let scheduler = procession::Scheduler::builder().worker_threads(1).callers_drive().build()?;
    /// let idle = scheduler.spawn(std::future::pending::<()>());
    /// let pid = idle.pid();
    /// scheduler.register("idle", pid)?;
    /// assert_eq!(scheduler.whereis("idle"), Some(pid));
    /// assert!(scheduler.register("idle", pid).is_err());
    /// scheduler.terminate(pid);
    /// assert!(idle.join().unwrap_err().is_killed());
    /// assert_eq!(scheduler.whereis("idle"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register(&self, name: impl Into<Arc<str>>, pid: Pid) -> Result<(), RegisterError> {
        register_in(self.shared(), name.into(), pid)
    }

    /// Frees a name. Returns the process that had it.
    pub fn unregister(&self, name: &str) -> Option<Pid> {
        // Repeats only if the name went to another process meanwhile.
        loop {
            let pid = self.whereis(name)?;
            let slot = find(pid);
            if self.shared().processes.names.unregister(name, pid, slot.as_deref()) {
                return Some(pid);
            }
        }
    }

    /// Returns the process that has a name.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.shared().processes.names.whereis(name)
    }
}

pub(crate) fn register_in(shared: &Shared, name: Arc<str>, pid: Pid) -> Result<(), RegisterError> {
    match find(pid).filter(|slot| std::ptr::eq(slot.shared(), shared)) {
        Some(slot) => shared.processes.names.register(name, &slot),
        None => Err(RegisterError::Ended { name, pid }),
    }
}

/// Registers a process under a name, in the scheduler of the calling process or thread. See
/// [`Scheduler::register`].
///
/// # Errors
/// Returns [`RegisterError`] if the name is taken, or the process has a name already or has ended.
pub fn register(name: impl Into<Arc<str>>, pid: Pid) -> Result<(), RegisterError> {
    crate::scheduler::budget::spend();
    register_in(&crate::scheduler::owner::here(), name.into(), pid)
}

/// Returns the process that has a name, in the scheduler of the calling process or thread.
pub fn whereis(name: &str) -> Option<Pid> {
    crate::scheduler::budget::spend();
    crate::scheduler::owner::here().processes.names.whereis(name)
}

/// Returns the names that processes have, in order, in the scheduler of the calling process or
/// thread.
///
/// ```
/// use procession::relations::{register, registered};
///
/// procession::run(async {
///     let process = procession::spawn(std::future::pending::<()>());
///     register("waits", process.pid())?;
///     assert_eq!(registered(), ["waits".into()]);
///     Ok::<(), procession::relations::RegisterError>(())
/// })?;
/// # Ok::<(), procession::relations::RegisterError>(())
/// ```
pub fn registered() -> Vec<Arc<str>> {
    crate::scheduler::owner::here().processes.names.with(|names| names.keys().cloned().collect())
}

/// Sends messages to the process that has a certain name at that moment. It stays valid when a
/// named process is restarted.
///
/// It looks the name up at each use, in the scheduler that it was made for. It keeps neither a
/// process nor the scheduler alive.
///
/// ```
/// use procession::{Context, start};
/// use procession::relations::{Named, register};
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
        let pid = self.pid().ok_or_else(|| self.unregistered())?;
        Address::of(pid).map_err(|cause| cause.to(Arc::clone(&self.name)))
    }

    #[cold]
    fn unregistered(&self) -> SendCause {
        SendCause::unregistered(Arc::clone(&self.name))
    }

    /// Sends to the process that has the name now. See [`Address::send`].
    ///
    /// # Errors
    /// [`SendError`] returns the message if no process has the name, the process receives another
    /// type, or its mailbox refuses the message. The text of the error has the name, the process
    /// and both types.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        match self.pid() {
            Some(pid) => crate::mailbox::address::send(pid, message)
                .map_err(|refused| refused.to(Arc::clone(&self.name))),
            None => Err(SendError::of(message, self.unregistered())),
        }
    }

    /// Calls the process that has the name now. See [`Address::call`].
    ///
    /// # Errors
    /// Returns [`CallError`], also if no process has the name or the process receives another type.
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
            let called = match self.address() {
                Ok(address) => address.call(message, timeout).await,
                Err(cause) => Err(refused(message, cause)),
            };
            called.map_err(|error| match error {
                CallError::Refused(refused) => {
                    CallError::Refused(refused.to(Arc::clone(&self.name)))
                }
                other => other,
            })
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
