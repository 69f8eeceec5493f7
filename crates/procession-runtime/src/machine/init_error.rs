//! The error of a machine that did not start.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Exit;
use crate::process::unwind::guarded;

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
