//! What a caller asks of a refused spawn, and the text of the error.

use std::error::Error;
use std::fmt;

use crate::relations::names::RegisterError;
use crate::scheduler::spawn_error::{InitError, SpawnCause, SpawnError, SpawnErrorKind};

impl SpawnCause {
    /// Returns `true` if the scheduler has reached its limit of processes.
    pub fn is_limit(&self) -> bool {
        matches!(self.0, SpawnErrorKind::Limit)
    }

    /// Returns `true` if a coroutine was to start, and the scheduler was built without
    /// [`Builder::enable_coroutines`](crate::Builder::enable_coroutines).
    pub fn is_without_coroutines(&self) -> bool {
        matches!(self.0, SpawnErrorKind::NoCoroutines)
    }

    /// Returns `true` if the scheduler is shutting down.
    pub fn is_closing(&self) -> bool {
        matches!(self.0, SpawnErrorKind::Closing)
    }

    /// Returns the error of the registration, if the name or the key of a registry was refused.
    pub fn register_error(&self) -> Option<&RegisterError> {
        match &self.0 {
            SpawnErrorKind::Name(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the error of the state machine's `init`, if that refused.
    pub fn init_error(&self) -> Option<&InitError> {
        match &self.0 {
            SpawnErrorKind::Init(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for SpawnCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot start a process: ")?;
        match &self.0 {
            SpawnErrorKind::Limit => {
                f.write_str("the scheduler has reached its limit of processes")
            }
            SpawnErrorKind::Closing => f.write_str("the scheduler is shutting down"),
            SpawnErrorKind::Init(error) => error.fmt(f),
            SpawnErrorKind::Affinity { worker, width } => {
                write!(f, "it is bound to worker {worker}, but there are only {width}, from 0")
            }
            SpawnErrorKind::Name(error) => error.fmt(f),
            SpawnErrorKind::Mailbox => {
                f.write_str("the capacity of its mailbox is 0, but must be at least 1")
            }
            SpawnErrorKind::NoMailbox => {
                f.write_str("its mailbox is bounded, but it was spawned without a mailbox")
            }
            SpawnErrorKind::NoStack => {
                f.write_str("its stack has a size, but only coroutines have stacks")
            }
            SpawnErrorKind::NoCoroutines => f.write_str(
                "it is a coroutine, and its scheduler was built without Builder::enable_coroutines",
            ),
            SpawnErrorKind::NoProcess => f.write_str(
                "it is to be linked to, monitored by, or in the scope of the running process, but \
                 none runs here",
            ),
        }
    }
}

impl Error for SpawnCause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            SpawnErrorKind::Init(error) => error.source(),
            SpawnErrorKind::Name(error) => Some(error),
            _ => None,
        }
    }
}

impl<T> SpawnError<T> {
    /// Returns `true` if the scheduler has reached its limit of processes.
    pub fn is_limit(&self) -> bool {
        self.cause.is_limit()
    }

    /// See [`SpawnCause::is_without_coroutines`].
    pub fn is_without_coroutines(&self) -> bool {
        self.cause.is_without_coroutines()
    }

    /// Returns `true` if the scheduler is shutting down.
    pub fn is_closing(&self) -> bool {
        self.cause.is_closing()
    }

    /// Returns the error of the registration, if the name or the key of a registry was refused.
    pub fn register_error(&self) -> Option<&RegisterError> {
        self.cause.register_error()
    }

    /// Returns the error of the state machine's `init`, if that refused.
    pub fn init_error(&self) -> Option<&InitError> {
        self.cause.init_error()
    }
}

impl<T> fmt::Display for SpawnError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<T> Error for SpawnError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMethod(method) => write!(f, "it has no method {method:?}"),
            Self::Refused(cause) => write!(f, "it refused its input: {cause}"),
            Self::Panicked(text) => write!(f, "its init panicked: {text}"),
        }
    }
}

impl Error for InitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(error) => Some(&**error),
            _ => None,
        }
    }
}
