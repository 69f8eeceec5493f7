//! Why processes end.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a process ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// Its code panicked; the text is that of the panic.
    Panicked(Arc<str>),
    /// It was terminated: between two steps, by [`Scheduler::terminate`](crate::Scheduler::terminate), by a shutdown, or because its
    /// scheduler was dropped.
    Killed,
    /// Its `step` returned an error; the text is that of the error.
    Failed(Arc<str>),
    /// Its `step` waits for completions, and none is outstanding.
    WaitsForNothing,
    /// It never ran: its scheduler has reached its limit of processes, or is shutting down.
    Refused,
}

impl Exit {
    /// Whether the process panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self, Self::Panicked(_))
    }

    /// Whether the process was terminated.
    pub fn is_killed(&self) -> bool {
        matches!(self, Self::Killed)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(text) => write!(f, "the process panicked: {text}"),
            Self::Killed => f.write_str("the process was terminated"),
            Self::Failed(text) => write!(f, "the process failed: {text}"),
            Self::WaitsForNothing => f.write_str("the process waits for completions, but none is outstanding"),
            Self::Refused => f.write_str("the scheduler takes no more processes"),
        }
    }
}

impl Error for Exit {}
