//! The report of a process that failed.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::process::reporting::ReportLevel;
use crate::report::text::{EndedText, Quoted};
use crate::{Exit, Pid};

/// The report of a process that ended by its own failure. [`Reporting`](super::Reporting) explains
/// which ends are failures.
///
/// Its `Display` is the line that is printed by default. It names the process by its label, or else
/// by its name, or else by the place where it was spawned. The alternate form `{:#}` has all three.
///
/// ```
/// use std::sync::mpsc;
/// use procession::{Exit, Scheduler, SpawnOptions};
///
/// let (sender, reports) = mpsc::channel();
/// let scheduler = Scheduler::builder()
///     .on_exit(move |report| drop(sender.send(report.clone())))
///     .build()?;
/// let audit = || SpawnOptions::new().on(&scheduler).label("audit").spawn_fallible(async {
///     Err::<(), _>("no disk")
/// });
/// // Nobody learns of this failure, so it is reported.
/// audit().detach();
/// let report = reports.recv()?;
/// assert_eq!((report.label.as_deref(), &report.exit), (Some("audit"), &Exit::failed("no disk")));
/// assert_eq!(report.to_string(), format!("{} \"audit\" failed: no disk", report.pid));
/// // This failure reaches the caller, which decides what to do about it.
/// assert_eq!(audit().join()?, Err("no disk"));
/// assert!(reports.try_recv().is_err());
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
    /// The level of the report. See [`Reporting`](super::Reporting).
    pub level: ReportLevel,
    /// The file, line and column of its panic, as `src/main.rs:31:13`. `None` if it did not panic,
    /// or if [`install_panic_hook`](super::install_panic_hook) was not called.
    pub panicked_at: Option<String>,
    /// The name of its scheduler.
    pub scheduler: String,
    /// Number of its dispatches, as [`ProcessInfo::steps`](crate::snapshot::ProcessInfo).
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
        match &self.name {
            Some(name) if f.alternate() => {
                write!(f, " (name {}, {}, spawned at {})", Quoted(name), self.kind, self.location)?
            }
            None if f.alternate() => write!(f, " ({}, spawned at {})", self.kind, self.location)?,
            Some(name) if self.label.is_none() => write!(f, " (name {})", Quoted(name))?,
            None if self.label.is_none() => write!(f, " (spawned at {})", self.location)?,
            _ => {}
        }
        f.write_str(" ")?;
        EndedText(&self.exit, self.panicked_at.as_deref()).fmt(f)
    }
}
