//! The errors of refused spawns, and of machines that did not start.

mod shown;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Exit;
use crate::process::unwind::guarded;
use crate::relations::names::RegisterError;
use crate::util::exclusive::Exclusive;

/// The error of a refused spawn. It holds what was to run, and the [`SpawnCause`].
pub struct SpawnError<T> {
    refused: Exclusive<T>,
    cause: SpawnCause,
}

/// The reason why a process could not be started, without what was to run.
#[derive(Debug)]
pub struct SpawnCause(SpawnErrorKind);

#[derive(Debug)]
pub(crate) enum SpawnErrorKind {
    Limit,
    Closing,
    Init(InitError),
    Affinity { worker: u32, width: u32 },
    Mailbox,
    NoMailbox,
    NoStack,
    NoProcess,
    NoCoroutines,
    Name(RegisterError),
}

impl SpawnCause {
    /// The cause of a refusal by a scheduler that has reached its limit of processes.
    pub(crate) fn limit() -> Self {
        Self(SpawnErrorKind::Limit)
    }
}

impl<T> From<SpawnError<T>> for SpawnCause {
    fn from(error: SpawnError<T>) -> Self {
        error.cause
    }
}

impl<T> SpawnError<T> {
    pub(crate) fn new(refused: T, kind: SpawnErrorKind) -> Self {
        Self { refused: Exclusive::new(refused), cause: SpawnCause(kind) }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> SpawnError<U> {
        SpawnError { refused: Exclusive::new(change(self.refused.into_inner())), cause: self.cause }
    }

    /// Returns what was to run: the future, the function or the state machine.
    pub fn into_inner(self) -> T {
        self.refused.into_inner()
    }

    /// Returns what was to run, and the cause.
    pub fn into_parts(self) -> (T, SpawnCause) {
        (self.refused.into_inner(), self.cause)
    }

    /// Returns the cause, which is `Send`, `Sync` and `'static` whatever was to run.
    pub fn cause(&self) -> &SpawnCause {
        &self.cause
    }
}

impl<T> fmt::Debug for SpawnError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnError").field("cause", &self.cause).finish_non_exhaustive()
    }
}

/// The reason why a state machine refused to start.
#[derive(Debug)]
#[non_exhaustive]
pub enum InitError {
    /// There is no such method. The text is its name.
    UnknownMethod(Box<str>),
    /// The input was refused. If `init` ended the process ([`exit`](crate::exit())), the [`Exit`]
    /// is the source.
    Refused(Box<dyn Error + Send + Sync>),
    /// `init` panicked. The text is the panic message.
    Panicked(Arc<str>),
}

impl InitError {
    /// Returns the error of an unknown method.
    pub fn unknown_method(method: &str) -> Self {
        Self::UnknownMethod(method.into())
    }

    /// Returns the exit of a process that failed with this error. Processes that found it by its
    /// name see this exit.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::UnknownMethod(_) => Exit::Failed(self.to_string().into()),
            Self::Panicked(text) => Exit::Panicked(Arc::clone(text)),
            // Converting the error to text is user code.
            Self::Refused(error) => {
                guarded(|| Exit::from_error(&**error)).unwrap_or_else(|panicked| panicked)
            }
        }
    }
}
