//! What can go wrong with jobs and pools.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a job was not taken; it holds what was to be run: the closure, the future, or the argument of a function pool.
pub struct SubmitError<F> {
    pub(super) content: F,
    pub(super) kind: SubmitErrorKind,
}

#[derive(Debug)]
pub(super) enum SubmitErrorKind {
    Full,
    TooManyWaiting,
    Closed,
    TimedOut,
    WouldDeadlock,
    Worker(io::Error),
}

impl<F> SubmitError<F> {
    /// Of what was made into a job in vain.
    pub(super) fn of<C>(refused: SubmitError<C>, take_apart: impl FnOnce(C) -> F) -> Self {
        Self { content: take_apart(refused.content), kind: refused.kind }
    }

    /// What was refused.
    pub fn into_inner(self) -> F {
        self.content
    }

    /// The pool was full, and the call was not to wait, or as many waited as may.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, SubmitErrorKind::Full | SubmitErrorKind::TooManyWaiting)
    }

    /// The pool is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.kind, SubmitErrorKind::Closed)
    }

    /// The pool was full for as long as the call was to wait.
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, SubmitErrorKind::TimedOut)
    }

    /// A job of the pool submitted to its own full pool, and all others wait for the same already: none could ever end.
    pub fn is_deadlock(&self) -> bool {
        matches!(self.kind, SubmitErrorKind::WouldDeadlock)
    }

    /// No worker could be started for the job, and none was busy that would have come to it: the system refused a thread, or the scheduler a
    /// process, since it has reached its limit or has ended.
    pub fn is_no_worker(&self) -> bool {
        matches!(self.kind, SubmitErrorKind::Worker(_))
    }
}

impl<F> fmt::Debug for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<F> fmt::Display for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot submit to the pool: ")?;
        f.write_str(match &self.kind {
            SubmitErrorKind::Full => "it is full",
            SubmitErrorKind::TooManyWaiting => "it is full, and as many submitters wait as may",
            SubmitErrorKind::Closed => "it is closed",
            SubmitErrorKind::TimedOut => "it was full for too long",
            SubmitErrorKind::WouldDeadlock => "it is full of jobs that wait for it",
            SubmitErrorKind::Worker(_) => "it has no worker, and none could be started",
        })
    }
}

impl<F> Error for SubmitError<F> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            SubmitErrorKind::Worker(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a job has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// It panicked; the text is that of the panic.
    Panicked(Arc<str>),
    /// It did not run, or not to its end: it was cancelled, or its pool or the scheduler of its pool was shut down.
    Cancelled,
    /// It was never taken: the pool that runs it could start no worker.
    Refused,
    /// The caller is a job of the same pool, and all others wait for jobs of it already: none could ever end.
    WouldDeadlock,
    /// The result was taken before.
    Taken,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(text) => write!(f, "the job panicked: {text}"),
            Self::Cancelled => f.write_str("the job was cancelled"),
            Self::Refused => f.write_str("the job was refused: no worker could be started for it"),
            Self::WouldDeadlock => f.write_str("cannot wait for the job: all jobs of its pool wait for each other"),
            Self::Taken => f.write_str("the result of the job was taken before"),
        }
    }
}

impl Error for JobError {}

/// Why a pool could not be built, or not be changed as wanted.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// A value is out of its range; the text names both.
    Invalid(String),
    /// The system refused one of the workers that were to be there from the start.
    Worker(io::Error),
    /// Only a pool that is closed and has no worker left can be opened again.
    NotDrained,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(f, "cannot make such a pool: {text}"),
            Self::Worker(_) => f.write_str("cannot build a pool: one of its first workers was refused"),
            Self::NotDrained => f.write_str("cannot reopen the pool: it is open, or has not ended yet"),
        }
    }
}

impl Error for PoolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Worker(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a wait for the end of a pool ended without it. It can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The time was over first.
    TimedOut,
    /// The pool is open: it does not end.
    Open,
    /// The caller is a job of the pool, which cannot end before it.
    Inside,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the pool has not come to rest in time",
            Self::Open => "cannot wait for the end of a pool that is open",
            Self::Inside => "cannot wait for a pool in one of its own jobs",
        })
    }
}

impl Error for WaitError {}
