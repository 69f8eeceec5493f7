//! The report of a process that failed.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::report::text::{EndedText, Quoted};
use crate::{Exit, Pid};

/// The report of a process that ended by its own failure. See the [module](super) for what that is.
///
/// Its `Display` is the line that is printed by default.
///
/// ```
/// use std::sync::mpsc;
/// use procession::{Exit, Scheduler, SpawnOptions};
///
/// let (sender, reports) = mpsc::channel();
/// let scheduler = Scheduler::builder()
///     .on_exit(move |report| drop(sender.send(report.clone())))
///     .build()?;
/// let audit = SpawnOptions::new().on(&scheduler).label("audit").spawn(async {
///     procession::exit(Exit::failed("no disk"));
/// });
/// let _: Result<(), Exit> = audit.join();
/// // The hook has run before the handle returns.
/// let report = reports.try_recv()?;
/// assert_eq!((report.label.as_deref(), &report.exit), (Some("audit"), &Exit::failed("no disk")));
/// assert!(report.to_string().ends_with(") failed: no disk"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExitReport {
    /// Its PID.
    pub pid: Pid,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// The name under which it was registered, if it was.
    pub name: Option<Arc<str>>,
    /// `async`, `local`, `machine` or `coroutine`.
    pub kind: &'static str,
    /// Where it was spawned.
    pub location: &'static Location<'static>,
    /// The process that spawned it, if it belongs to the same scheduler.
    pub parent: Option<Pid>,
    /// How it ended.
    pub exit: Exit,
    /// The file, line and column of its panic, as `src/main.rs:31:13`. `None` if it did not panic,
    /// or if [`install_panic_hook`](super::install_panic_hook) was not called.
    pub panicked_at: Option<String>,
    /// The name of its scheduler.
    pub scheduler: String,
    /// Number of its dispatches, as [`ProcessSnapshot::steps`](crate::snapshot::ProcessSnapshot).
    pub steps: u32,
    /// Number of messages that it received, modulo 2^32.
    pub received: u32,
}

impl fmt::Display for ExitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)?;
        if let Some(label) = &self.label {
            write!(f, " {}", Quoted(label))?;
        }
        f.write_str(" (")?;
        if let Some(name) = &self.name {
            write!(f, "name {}, ", Quoted(name))?;
        }
        write!(f, "{}, spawned at {}) ", self.kind, self.location)?;
        EndedText(&self.exit, self.panicked_at.as_deref()).fmt(f)
    }
}
