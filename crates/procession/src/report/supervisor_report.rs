//! The report of what a supervisor does about a child.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::report::text::{EndedText, Escaped, Quoted, REASON_MAX};
use crate::{Exit, Pid};

/// The report of what a supervisor does about a child. See the [module](super).
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
    /// The process of the child, if it has or had one.
    pub process: Option<Pid>,
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
        /// Number of restarts within the last `period`, with this one.
        restart: u32,
        /// The restarts that are tolerated within any `period`.
        intensity: u32,
        /// See [`Supervisor::intensity`](crate::supervisor::Supervisor::intensity).
        period: Duration,
        /// The time for which the supervisor waits before the restart.
        wait: Duration,
    },
    /// The child did not start, and the start is not tried again: it was the start of the whole
    /// tree, or was asked for.
    #[non_exhaustive]
    NotStarted {
        /// The reason.
        reason: Arc<str>,
    },
    /// The supervisor gives up: with this failure there were more restarts within a `period` than
    /// it tolerates. It stops its children and ends.
    #[non_exhaustive]
    GaveUp {
        /// The failure that was one too many.
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

impl SupervisorReport {
    /// Returns `true` for a give-up and a failed start, whose events have the level `ERROR`. The
    /// others have the level `WARN`.
    pub fn is_error(&self) -> bool {
        match self.event {
            SupervisorEvent::NotStarted { .. } | SupervisorEvent::GaveUp { .. } => true,
            SupervisorEvent::Restarts { .. } | SupervisorEvent::StoppedLate { .. } => false,
        }
    }
}

/// The failure of a child, as part of a sentence about its process.
struct FailureCause<'a>(&'a ChildFailure, Option<Pid>);

impl fmt::Display for FailureCause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(ChildFailure::Ended(exit), Some(pid)) => {
                write!(f, "{pid} {}", EndedText(exit, None))
            }
            Self(ChildFailure::Ended(exit), None) => write!(f, "it {}", EndedText(exit, None)),
            Self(ChildFailure::NotStarted(reason), _) => {
                write!(f, "it did not start: {}", Escaped(reason, REASON_MAX))
            }
        }
    }
}

impl fmt::Display for SupervisorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.supervisor)?;
        if let Some(label) = &self.label {
            write!(f, " {}", Quoted(label))?;
        }
        if let Some(name) = &self.name {
            write!(f, " (name {})", Quoted(name))?;
        }
        let child = fmt::from_fn(|f| match &self.child {
            Some(id) => Quoted(id).fmt(f),
            None => f.write_str("a child"),
        });
        match &self.event {
            SupervisorEvent::Restarts { failure, restart, intensity, period, wait } => {
                let cause = FailureCause(failure, self.process);
                write!(f, " restarts {child} after {cause} (restart {restart} of {intensity} ")?;
                write!(f, "in {}", Time(*period))?;
                if !wait.is_zero() {
                    write!(f, ", in {}", Time(*wait))?;
                }
                f.write_str(")")
            }
            SupervisorEvent::NotStarted { reason } => {
                write!(f, " cannot start {child}: {}", Escaped(reason, REASON_MAX))
            }
            SupervisorEvent::GaveUp { failure, intensity, period } => {
                let cause = FailureCause(failure, self.process);
                write!(f, " gives up on {child} after {cause} (more than {intensity} ")?;
                let noun = if *intensity == 1 { "restart" } else { "restarts" };
                write!(f, "{noun} in {})", Time(*period))
            }
            SupervisorEvent::StoppedLate { timeout } => {
                write!(f, " terminates {child}")?;
                if let Some(pid) = self.process {
                    write!(f, " ({pid})")?;
                }
                write!(f, ", which did not stop within {}", Time(*timeout))
            }
        }
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
