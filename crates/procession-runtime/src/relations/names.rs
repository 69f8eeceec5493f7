//! Names of processes, and the entries of a new process in other tables. A name is free again when
//! its process ends.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use procession_protocols::relations::on_exit::Left;

use crate::Pid;
use crate::process::slot::Slot;
use crate::process::unwind::DropGuarded;
use crate::relations::links;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::reach::find;
use crate::scheduler::shared::{Names, Shared};

impl Names {
    /// Registers a name. Both this and `unregister` change the two entries under this lock, so that
    /// neither entry exists without the other.
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

/// The reason why a process did not get a name or a key in a [`Registry`](crate::group::Registry),
/// or did not join a [group](crate::group::Groups).
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
    /// The process has ended, or belongs to another scheduler.
    Ended {
        /// The name that was refused.
        name: Arc<str>,
        /// The process.
        pid: Pid,
    },
    /// The process was to join a group, and has ended or belongs to another node.
    NoMember {
        /// The name of the group.
        group: Arc<str>,
        /// The process.
        pid: Pid,
    },
}

impl RegisterError {
    /// Returns the name that was refused, or the name of the group.
    pub fn name(&self) -> &str {
        match self {
            Self::Taken { name, .. }
            | Self::HasName { name, .. }
            | Self::Ended { name, .. }
            | Self::NoMember { group: name, .. } => name,
        }
    }

    /// Returns the process that has the name, if the name is taken.
    pub fn owner(&self) -> Option<Pid> {
        match *self {
            Self::Taken { owner, .. } => Some(owner),
            Self::HasName { .. } | Self::Ended { .. } | Self::NoMember { .. } => None,
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
            Self::NoMember { pid, .. } => {
                write!(f, "cannot add {pid} to the group `{name}`: there is no such process")
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
    /// When the process ends, the name is free before any other process can learn of the end. So
    /// the name can be reused as soon as a [`Down`](crate::Event::Down) has arrived.
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
    /// procession::process::kill(pid);
    /// assert!(idle.join().unwrap_err().is_killed());
    /// assert_eq!(scheduler.whereis("idle"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register(&self, name: impl Into<Arc<str>>, pid: Pid) -> Result<(), RegisterError> {
        register_in(self.shared(), name.into(), pid)
    }

    /// Frees a name. Returns the process that had it.
    pub fn unregister(&self, name: &str) -> Option<Pid> {
        // Repeats only if the name went to another process in between.
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
///
/// ```
/// use procession::process::{Named, register, whereis};
/// use procession::{Context, start};
///
/// procession::run(async {
///     let printer = start(|mut cx: Context<&str>| async move { cx.recv().await });
///     register("printer", printer.pid())?;
///     assert_eq!(whereis("printer"), Some(printer.pid()));
///     Named::new("printer").send("a page")?;
///     assert_eq!(printer.await?, Some("a page"));
///     assert_eq!(whereis("printer"), None, "the name is free again");
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
/// use procession::process::{register, registered};
///
/// procession::run(async {
///     let process = procession::spawn(std::future::pending::<()>());
///     register("waits", process.pid())?;
///     assert_eq!(registered(), ["waits".into()]);
///     Ok::<(), procession::process::RegisterError>(())
/// })?;
/// # Ok::<(), procession::process::RegisterError>(())
/// ```
pub fn registered() -> Vec<Arc<str>> {
    crate::scheduler::owner::here().processes.names.with(|names| names.keys().cloned().collect())
}

/// An entry in a table of keys that a new process gets before it runs: in a registry
/// ([`Registry::entry`](crate::group::Registry::entry)) or in a group
/// ([`Groups::entry`](crate::group::Groups::entry)).
///
/// [`SpawnOptions::enter`](crate::SpawnOptions::enter) and the `enter` of supervised children take
/// it. A clone makes the same entry for another process.
#[derive(Clone)]
#[must_use = "an entry is made for the process whose description it is given to"]
pub struct TableEntry {
    key: Arc<str>,
    /// Has a value of the user.
    make: DropGuarded<Arc<MakeEntry>>,
}

type MakeEntry = dyn Fn(Pid) -> Result<(), RegisterError> + Send + Sync;

impl TableEntry {
    pub(crate) fn new(
        key: Arc<str>,
        make: impl Fn(Pid) -> Result<(), RegisterError> + Send + Sync + 'static,
    ) -> Self {
        Self { key, make: DropGuarded::new(Arc::new(make)) }
    }

    /// Returns the key, which is the name of a group.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Makes the entry for a process. Called without locks.
    pub(crate) fn make(&self, pid: Pid) -> Result<(), RegisterError> {
        (self.make)(pid)
    }
}

impl fmt::Debug for TableEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableEntry").field(&self.key).finish()
    }
}
