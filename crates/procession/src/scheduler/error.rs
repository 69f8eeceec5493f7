//! Why a scheduler refuses to be built or to wait.

use std::error::Error;
use std::{fmt, io};

use crate::machine::value::CommandId;

/// Why a scheduler could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A value is out of its range; the text names both.
    Invalid(String),
    /// Two handlers were given for one command.
    DuplicateCommand(CommandId),
    /// The system refused the first thread.
    Thread(io::Error),
    /// 2^32 schedulers have been made.
    Exhausted,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => write!(f, "cannot build a scheduler: {text}"),
            Self::DuplicateCommand(id) => {
                write!(f, "cannot build a scheduler: two handlers for {id}")
            }
            Self::Thread(_) => {
                f.write_str("cannot build a scheduler: the system refused its first thread")
            }
            Self::Exhausted => {
                f.write_str("cannot build a scheduler: all 2^32 numbers are used up")
            }
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

/// A width that a scheduler cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WidthError {
    pub(crate) width: usize,
    pub(crate) max: usize,
}

impl fmt::Display for WidthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot change the width of a scheduler: it is {}, but must be from 1 to {}",
            self.width, self.max
        )
    }
}

impl Error for WidthError {}

/// A process cannot wait by blocking: every thread that its scheduler may have is blocked already.
/// The future comes back.
pub struct BlockOnError<F>(pub F);

impl<F> fmt::Display for BlockOnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot block on a future: all threads that the scheduler may have are blocked, and none is left to run others")
    }
}

impl<F> fmt::Debug for BlockOnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockOnError(..)")
    }
}

impl<F> Error for BlockOnError<F> {}
