//! Exits of processes.

use std::error::Error;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

/// The way in which a process ended.
///
/// Linked processes receive it in an exit signal, and monitoring processes in a down. If the
/// process ended without a result, its handle returns it as the error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// It returned a result, or ended normally without one ([`exit`]).
    Normal,
    /// It was shut down because it was no longer needed: by its supervisor, or by a cancel that
    /// [drops](crate::OnCancel::Drop) it.
    Shutdown,
    /// It panicked. The text is the panic message.
    Panicked(Arc<str>),
    /// It was terminated between two steps, by [`kill`](crate::relations::kill()), by a shutdown,
    /// or because its scheduler was dropped.
    Killed,
    /// It failed. The text is the error of its `step`, or the reason that it gave.
    Failed(Arc<str>),
    /// Its `step` waits for completions, but none is outstanding.
    WaitsForNothing,
    /// Its mailbox was full, and the policy of the mailbox is to end the process.
    MailboxFull,
    /// The process did not exist when it was linked or monitored.
    NoProcess,
    /// It was a coroutine, and the thread on which it had begun has ended: that of a caller that
    /// drove the scheduler ([`Builder::callers_drive`](crate::Builder::callers_drive)).
    ThreadEnded,
    /// It never ran, because its scheduler has reached its limit of processes or is shutting down.
    Refused,
}

impl Exit {
    /// Creates a failure with a reason.
    pub fn failed(reason: impl Into<Arc<str>>) -> Self {
        Self::Failed(reason.into())
    }

    /// Returns `true` for [`Normal`](Self::Normal).
    pub fn is_normal(&self) -> bool {
        matches!(self, Self::Normal)
    }

    /// Returns `true` if the process panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self, Self::Panicked(_))
    }

    /// Returns `true` if the process was terminated.
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

/// The panic payload of a process that ends itself.
pub(crate) struct Exiting(pub(crate) Exit);

/// Ends the running process at once, with `exit`, by unwinding its stack, which drops what it
/// holds. Its handle returns `Err(exit)`.
///
/// A state machine can return an [`Exit`] as the error of its step instead.
///
/// # Panics
/// Always unwinds. On a thread that runs no process, it unwinds the thread. With `panic = "abort"`,
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
