//! The errors of jobs and pools.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use procession_protocols::pool::state::outcome::EnterError;

use crate::Exit;
use crate::util::exclusive::Exclusive;
use crate::util::out_of_range::OutOfRange;

/// A job that was not taken, and why.
///
/// It holds what was to be run: the closure, the future, or the argument of a function pool.
/// [`into_inner`](Self::into_inner) returns it.
pub struct SubmitError<F> {
    content: Exclusive<F>,
    kind: EnterError,
}

impl<F> SubmitError<F> {
    pub(super) fn new(content: F, kind: EnterError) -> Self {
        Self { content: Exclusive::new(content), kind }
    }

    /// Returns what was refused.
    pub fn into_inner(self) -> F {
        self.content.into_inner()
    }

    /// Returns `true` if the pool was full and the call did not wait: by its own choice, or because
    /// the limit of waiting submitters was reached.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, EnterError::Full | EnterError::TooManyWaiting)
    }

    /// Returns `true` if the pool is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.kind, EnterError::Closed)
    }

    /// Returns `true` if the pool was full until the timeout of the call.
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, EnterError::TimedOut)
    }

    /// Returns `true` if a job waited for a place in its own full pool, and all its other jobs
    /// waited for a place in it or for one another, so that no job could ever end.
    pub fn is_deadlock(&self) -> bool {
        matches!(self.kind, EnterError::WouldDeadlock)
    }

    /// Returns `true` if the job has a [priority](super::JobBuilder::priority), and the pool has no
    /// [queue](super::Builder::queue) that the priority could order.
    pub fn is_no_queue(&self) -> bool {
        matches!(self.kind, EnterError::NoQueue)
    }

    /// Returns `true` if no worker could be started for the job, and no busy one would have come to
    /// it. The system refused a thread, or the scheduler refused a process, because it had reached
    /// its limit or had ended.
    pub fn is_no_worker(&self) -> bool {
        matches!(self.kind, EnterError::Worker(_))
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
            EnterError::Full => "it is full",
            EnterError::TooManyWaiting => {
                "it is full, and the limit of waiting submitters is reached"
            }
            EnterError::Closed => "it is closed",
            EnterError::TimedOut => "it was full until the timeout",
            EnterError::NoQueue => "the job has a priority, but the pool was built without a queue",
            EnterError::WouldDeadlock => "all its jobs wait for a place in it, or for one another",
            EnterError::Worker(cause) => {
                return write!(f, "it has no worker, and none could be started: {cause}");
            }
        })
    }
}

impl<F> Error for SubmitError<F> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            EnterError::Worker(error) => Some(error),
            _ => None,
        }
    }
}

/// Why a job has no result.
///
/// In a function that returns an [`io::Error`] or an [`Exit`], `?` converts it:
///
/// ```
/// use procession::Exit;
///
/// async fn name() -> std::io::Result<String> {
///     procession::spawn_blocking(|| std::fs::read_to_string("/proc/self/comm")).await?
/// }
///
/// async fn panics() -> Result<(), Exit> {
///     let job = procession::spawn_blocking(|| std::panic::resume_unwind(Box::new("no luck")));
///     Ok(job.await?)
/// }
///
/// procession::run(async {
///     assert!(name().await.is_ok());
///     assert_eq!(panics().await, Err(Exit::Panicked("no luck".into())));
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// The job panicked, with this message.
    Panicked(Arc<str>),
    /// The job ended itself by [`exit`](crate::exit()), with this reason.
    Exited(Exit),
    /// The job did not run, or not to its end. It was cancelled, or its pool or the scheduler of
    /// its pool was shut down.
    Cancelled,
    /// The job was never taken, because its pool could start no worker.
    Refused,
    /// The caller is a job of the same pool, and all other jobs wait for jobs of the pool already,
    /// so that no job could ever end.
    WouldDeadlock,
    /// The result was taken already.
    Taken,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(text) => write!(f, "the job panicked: {text}"),
            Self::Exited(exit) => write!(f, "the job ended itself: {exit}"),
            Self::Cancelled => f.write_str("the job was cancelled"),
            Self::Refused => f.write_str("the job was refused: no worker could be started for it"),
            Self::WouldDeadlock => {
                f.write_str("cannot wait for the job: all jobs of its pool wait for one another")
            }
            Self::Taken => f.write_str("the result of the job was taken already"),
        }
    }
}

impl Error for JobError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if let Self::Exited(exit) = self { Some(exit) } else { None }
    }
}

/// A panic and an exit stay what they are. Any other error is a failure.
impl From<JobError> for Exit {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Panicked(text) => Self::Panicked(text),
            JobError::Exited(exit) => exit,
            other => Self::failed(other.to_string()),
        }
    }
}

/// The kind of the error is [`Other`](io::ErrorKind::Other).
impl From<JobError> for io::Error {
    fn from(error: JobError) -> Self {
        Self::other(error)
    }
}

/// The error of building or changing a pool.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// A setting is below its minimum or above its maximum.
    OutOfRange(OutOfRange),
    /// The name contains a NUL.
    Name(String),
    /// The pool runs its jobs on coroutines, and its scheduler was built without
    /// [`Builder::enable_coroutines`](crate::Builder::enable_coroutines).
    NoCoroutines {
        /// The name of the scheduler.
        scheduler: String,
    },
    /// A setting has no effect on a pool of this kind.
    Unused {
        /// The method of the builder.
        setting: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// The system refused one of the workers that start with the pool.
    Worker(io::Error),
    /// The pool is open, or not all of its jobs and workers have ended.
    NotDrained,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange(error) => write!(f, "cannot build or resize the pool: {error}"),
            Self::Name(name) => {
                write!(f, "cannot build the pool: name is {name:?}, but must not contain a NUL")
            }
            Self::NoCoroutines { scheduler } => write!(
                f,
                "cannot build the pool: scheduler {scheduler:?} was built without \
                 Builder::enable_coroutines"
            ),
            Self::Unused { setting, reason } => {
                write!(f, "cannot build the pool: {setting} has no effect, because {reason}")
            }
            Self::Worker(cause) => write!(
                f,
                "cannot build the pool: one of its first workers could not be started: {cause}"
            ),
            Self::NotDrained => {
                f.write_str("cannot reopen the pool: it is open, or still has jobs or workers")
            }
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

impl From<OutOfRange> for PoolError {
    fn from(error: OutOfRange) -> Self {
        Self::OutOfRange(error)
    }
}

/// Why a wait for a pool ended early. It can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitError {
    /// The timeout was reached.
    TimedOut,
    /// The pool is open, so it does not end.
    Open,
    /// The caller is a job of the pool, which cannot end before the job does.
    Inside,
    /// The caller of a scope of processes is a process itself, or runs on a worker of a scheduler.
    /// The jobs might need the worker, and might borrow from a process that is ended before they
    /// are done.
    OnWorker,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the pool did not finish before the timeout",
            Self::Open => "cannot wait for the end of the pool: it is open",
            Self::Inside => "cannot wait for the pool: the caller is one of its jobs",
            Self::OnWorker => {
                "cannot wait for a scope of processes: the caller is a process or runs on a worker"
            }
        })
    }
}

impl Error for WaitError {}
