//! Why processes end.

use std::error::Error;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

/// How a process ended: what those who are linked to it or monitor it are told, and, if it ended
/// without a result, what its handle answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// With a result; or it was to end so without one ([`exit`]).
    Normal,
    /// Because it was no longer wanted, most often by its supervisor.
    Shutdown,
    /// Its code panicked; the text is that of the panic.
    Panicked(Arc<str>),
    /// It was terminated: between two steps, by
    /// [`Scheduler::terminate`](crate::Scheduler::terminate), by a shutdown, or because its
    /// scheduler was dropped.
    Killed,
    /// It failed: its `step` returned an error, whose text this is, or it said so.
    Failed(Arc<str>),
    /// Its `step` waits for completions, and none is outstanding.
    WaitsForNothing,
    /// Its mailbox was full, and its policy was to end then.
    MailboxFull,
    /// There was no such process when it was linked or monitored.
    NoProcess,
    /// It was a coroutine, and the thread ended on which it had begun: that of a caller that drove
    /// the scheduler ([`Builder::callers_drive`](crate::Builder::callers_drive)).
    ThreadEnded,
    /// It never ran: its scheduler has reached its limit of processes, or is shutting down.
    Refused,
}

impl Exit {
    /// A failure, with its reason.
    pub fn failed(reason: impl Into<Arc<str>>) -> Self {
        Self::Failed(reason.into())
    }

    /// Whether nothing was wrong: [`Normal`](Self::Normal).
    pub fn is_normal(&self) -> bool {
        matches!(self, Self::Normal)
    }

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
            Self::Normal => f.write_str("the process ended normally"),
            Self::Shutdown => f.write_str("the process was shut down"),
            Self::Panicked(text) => write!(f, "the process panicked: {text}"),
            Self::Killed => f.write_str("the process was terminated"),
            Self::Failed(text) => write!(f, "the process failed: {text}"),
            Self::WaitsForNothing => {
                f.write_str("the process waits for completions, but none is outstanding")
            }
            Self::MailboxFull => f.write_str("the process's mailbox was full"),
            Self::NoProcess => f.write_str("there is no such process"),
            Self::ThreadEnded => {
                f.write_str("the process was a coroutine, and the thread that it began on ended")
            }
            Self::Refused => f.write_str("the scheduler takes no more processes"),
        }
    }
}

impl Error for Exit {}

/// The payload with which a process unwinds that ends itself.
pub(crate) struct Exiting(pub(crate) Exit);

/// Ends the running process at once, with `exit`, by unwinding its stack: what it holds is dropped.
/// Its handle answers `Err(exit)`.
///
/// A state machine may return an [`Exit`] as the error of its step instead.
///
/// # Panics
/// Always, in a way: in a thread that runs no process it unwinds the thread. With `panic = "abort"`
/// it aborts the program.
///
/// ```
/// use procession::{Exit, exit, spawn};
///
/// procession::run(async {
///     let child = spawn(async {
///         if true {
///             exit(Exit::failed("no disk"));
///         }
///     });
///     assert_eq!(child.await, Err(Exit::failed("no disk")));
/// });
/// ```
pub fn exit(exit: Exit) -> ! {
    resume_unwind(Box::new(Exiting(exit)))
}
