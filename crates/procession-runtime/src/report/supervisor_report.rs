//! The report of what a supervisor does about a child.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::process::reporting::{ReportLevel, Reporting};
use crate::report::text::{EndedText, Escaped, Quoted, REASON_MAX};
use crate::{Exit, Pid};

/// The label of a supervisor that is started without options.
pub(crate) const DEFAULT_LABEL: &str = "supervisor";

/// The report of what a supervisor does about a child. [`Reporting`](super::Reporting) has the
/// rules.
///
/// Its `Display` is the line that is printed by default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SupervisorReport {
    /// The PID of the supervisor.
    pub supervisor: Pid,
    /// The label of the supervisor, if it has one.
    pub label: Option<String>,
    /// The name under which the supervisor is registered, if it is.
    pub name: Option<Arc<str>>,
    /// The id of the child, if it has one.
    pub child: Option<Arc<str>>,
    /// The label of the child, if it has one: the label of the process which has failed, or the
    /// label that the description of the child sets.
    pub child_label: Option<String>,
    /// The process of the child, if it has or had one.
    pub process: Option<Pid>,
    /// The file, line and column of the panic of that process, as for
    /// [`ExitReport::panicked_at`](super::ExitReport::panicked_at).
    pub panicked_at: Option<String>,
    /// The level of the report. [`Reporting`](super::Reporting) has the rules.
    pub level: ReportLevel,
    /// What happened.
    pub event: SupervisorEvent,
}

/// What happened to a child of a supervisor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SupervisorEvent {
    /// The supervisor restarts the child.
    #[non_exhaustive]
    Restarts {
        /// The failure that the restart follows.
        failure: ChildFailure,
        /// Number of restarts within the last `period`, including this restart.
        restart: u32,
        /// The restarts that are tolerated within any `period`.
        intensity: u32,
        /// See [`Supervisor::intensity`](crate::supervisor::Supervisor::intensity).
        period: Duration,
        /// The time for which the supervisor waits before the restart.
        wait: Duration,
    },
    /// The child did not start, and the start is not tried again: it was the start of the whole
    /// tree, or was asked for, or was the restart of a transient child, and another process has
    /// taken the name or key of the child.
    #[non_exhaustive]
    NotStarted {
        /// The reason.
        reason: Arc<str>,
    },
    /// With this failure there were more restarts within a `period` than the supervisor tolerates.
    /// It stops its children and ends.
    #[non_exhaustive]
    GaveUp {
        /// The failure that exceeded the limit.
        failure: ChildFailure,
        /// The restarts that are tolerated within any `period`.
        intensity: u32,
        /// See [`Supervisor::intensity`](crate::supervisor::Supervisor::intensity).
        period: Duration,
    },
    /// The child did not stop in time, and is terminated.
    #[non_exhaustive]
    StoppedLate {
        /// The time that it had.
        timeout: Duration,
    },
}

/// The reason for a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildFailure {
    /// The child ended with this exit.
    Ended(Exit),
    /// The child did not start, for this reason.
    NotStarted(Arc<str>),
}

impl ChildFailure {
    /// Returns the level at which the restart of a child is reported: the level of the failure,
    /// because nothing else reports it. There are two exceptions, which are `WARN`: a child that
    /// lost its connection, because it was meant to keep the connection, and a child that ended in
    /// order, because it has not failed.
    pub(crate) fn level_of_restart(&self, reporting: Reporting) -> Option<ReportLevel> {
        let failures = reporting.level_of_failures();
        match self {
            Self::Ended(exit @ Exit::Disconnected(_)) => {
                reporting.level_of(exit).map(|_| ReportLevel::Warn)
            }
            Self::Ended(Exit::Normal | Exit::Shutdown | Exit::Killed) => {
                failures.map(|level| level.min(ReportLevel::Warn))
            }
            Self::Ended(exit) => reporting.level_of(exit),
            Self::NotStarted(_) => failures,
        }
    }
}

impl SupervisorReport {
    /// Writes what happened, as the predicate of a sentence about the supervisor.
    fn predicate(
        &self,
        f: &mut fmt::Formatter<'_>,
        child: &dyn fmt::Display,
        place: Option<&str>,
    ) -> fmt::Result {
        let cause = |failure: &ChildFailure| match failure {
            ChildFailure::Ended(exit) => EndedText(exit, place).to_string(),
            ChildFailure::NotStarted(reason) => {
                format!("did not start: {}", Escaped(reason, REASON_MAX))
            }
        };
        match &self.event {
            SupervisorEvent::Restarts { failure, restart, intensity, period, wait } => {
                let (cause, period) = (cause(failure), Time(*period));
                write!(f, "restarts {child}, which {cause} ")?;
                write!(f, "(restart {restart} of {intensity} in {period}")?;
                if !wait.is_zero() {
                    write!(f, ", in {}", Time(*wait))?;
                }
                f.write_str(")")
            }
            SupervisorEvent::NotStarted { reason } => {
                write!(f, "cannot start {child}: {}", Escaped(reason, REASON_MAX))
            }
            SupervisorEvent::GaveUp { failure, intensity, period } => {
                let limit = RestartLimit(*intensity, *period);
                write!(f, "gives up on {child}, which {} ({limit})", cause(failure))
            }
            SupervisorEvent::StoppedLate { timeout } => {
                write!(f, "terminates {child}, which did not stop within {}", Time(*timeout))
            }
        }
    }

    /// Returns the predicate without the names, places and PIDs, which an event has as fields.
    #[cfg(feature = "tracing")]
    pub(crate) fn brief(&self) -> impl fmt::Display {
        struct Brief<'a>(&'a SupervisorReport);

        impl fmt::Display for Brief<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.predicate(f, &"a child", None)
            }
        }

        Brief(self)
    }
}

impl fmt::Display for SupervisorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.supervisor)?;
        match (&self.label, &self.name) {
            (Some(label), _) => write!(f, " {}", Quoted(label))?,
            (None, Some(name)) => write!(f, " (name {})", Quoted(name))?,
            (None, None) => {}
        }
        f.write_str(" ")?;
        let label = self.child_label.as_deref().or(self.child.as_deref()).map(Quoted);
        let place = self.panicked_at.as_deref();
        match (label, self.process) {
            (Some(label), Some(process)) => {
                self.predicate(f, &format_args!("{process} {label}"), place)
            }
            (Some(label), None) => self.predicate(f, &label, place),
            (None, Some(process)) => self.predicate(f, &process, place),
            (None, None) => self.predicate(f, &"a child", place),
        }
    }
}

/// The restarts that a supervisor tolerates, as the reason of [`Exit::GaveUp`](crate::Exit::GaveUp)
/// states them.
pub(crate) struct RestartLimit(pub(crate) u32, pub(crate) Duration);

impl fmt::Display for RestartLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.0 == 1 { "restart" } else { "restarts" };
        write!(f, "more than {} {noun} in {}", self.0, Time(self.1))
    }
}

/// A time with its unit, apart from the number.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_nanos() == 0 {
            return write!(f, "{} s", self.0.as_secs());
        }
        let milliseconds = self.0.as_nanos().div_ceil(1_000_000);
        write!(f, "{milliseconds} ms")
    }
}
