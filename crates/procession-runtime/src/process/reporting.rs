//! What of the failures of a process is worth a report.

use std::fmt;

use crate::Exit;

/// The level of a report. The names and their order are taken from the crate `tracing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportLevel {
    /// Goes to hooks and to subscribers of `tracing`, and is not printed.
    Debug,
    /// Is printed, like the two higher levels.
    Info,
    /// Something to look at soon.
    Warn,
    /// Something to look at now.
    Error,
}

impl fmt::Display for ReportLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        })
    }
}

/// Decides which failures of a process are worth a report, and at which level.
///
/// [`SpawnOptions::reporting`] sets it for one process, [`ChildSpec::reporting`] and
/// [`Template::reporting`] for the processes of a child, and [`Builder::reporting`] for all other
/// processes of a scheduler. A process does not inherit it from the process that spawns it. See
/// [`report`](crate::report) for the rules.
///
/// [`SpawnOptions::reporting`]: crate::SpawnOptions::reporting
/// [`ChildSpec::reporting`]: crate::supervisor::ChildSpec::reporting
/// [`Template::reporting`]: crate::supervisor::Template::reporting
/// [`Builder::reporting`]: crate::Builder::reporting
///
/// ```
/// use procession::report::{ReportLevel, Reporting};
/// use procession::supervisor::Template;
/// use procession::{Context, Exit};
///
/// // A connection may fail, but a panic is a defect.
/// let connections = Reporting::new().failures(ReportLevel::Info);
/// let template = Template::new(|_: Context<()>, number: u32| async move {
///     if number == 13 { Err(Exit::failed("unlucky")) } else { Ok(()) }
/// });
/// drop(template.reporting(connections));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reporting {
    panics: Option<ReportLevel>,
    failures: Option<ReportLevel>,
    disconnects: Option<ReportLevel>,
    always: bool,
}

impl Reporting {
    /// Reports panics and failures as errors, and connections that the other side has ended at the
    /// level `DEBUG`. This is the default.
    pub const fn new() -> Self {
        Self {
            panics: Some(ReportLevel::Error),
            failures: Some(ReportLevel::Error),
            disconnects: Some(ReportLevel::Debug),
            always: false,
        }
    }

    /// Reports nothing. The last failures are still kept
    /// ([`Scheduler::crashes`](crate::Scheduler::crashes)).
    pub const fn nothing() -> Self {
        Self { panics: None, failures: None, disconnects: None, always: false }
    }

    /// Sets the level of panics. With `None`, they are not reported.
    pub fn panics(mut self, level: impl Into<Option<ReportLevel>>) -> Self {
        self.panics = level.into();
        self
    }

    /// Sets the level of all failures except panics and disconnects. With `None`, they are not
    /// reported.
    pub fn failures(mut self, level: impl Into<Option<ReportLevel>>) -> Self {
        self.failures = level.into();
        self
    }

    /// Sets the level of [`Exit::Disconnected`]. With `None`, it is not reported.
    pub fn disconnects(mut self, level: impl Into<Option<ReportLevel>>) -> Self {
        self.disconnects = level.into();
        self
    }

    /// Also reports a failure that has reached a handle, a monitor, a link or a supervisor.
    pub const fn always(mut self) -> Self {
        self.always = true;
        self
    }

    /// Returns the level of failures that are neither panics nor disconnects.
    pub(crate) fn level_of_failures(self) -> Option<ReportLevel> {
        self.failures
    }

    /// Returns the level at which this exit is reported, or `None` if it is not worth a report.
    pub(crate) fn level_of(self, exit: &Exit) -> Option<ReportLevel> {
        match exit {
            Exit::Normal | Exit::Shutdown | Exit::Killed => None,
            Exit::Panicked(_) => self.panics,
            Exit::Disconnected(_) => self.disconnects,
            _ => self.failures,
        }
    }

    pub(crate) fn is_always(self) -> bool {
        self.always
    }
}

impl Default for Reporting {
    fn default() -> Self {
        Self::new()
    }
}
