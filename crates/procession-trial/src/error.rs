//! The error of a trial.

use std::error::Error;
use std::fmt;
use std::io;

/// The error of a trial that was not held, or was lost.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrialError {
    /// The system refuses what a trial needs.
    #[non_exhaustive]
    System {
        /// What the trial could not do.
        act: String,
        /// The answer of the system.
        cause: io::Error,
    },
    /// The runtime refuses what a trial needs.
    #[non_exhaustive]
    Runtime {
        /// What the trial could not do.
        act: &'static str,
        /// The answer of the runtime.
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The output was not written.
    Output(io::Error),
    /// Some clients neither ended nor timed out.
    Stuck(&'static str),
    /// Holds the number of broken promises.
    Broken(usize),
}

impl TrialError {
    pub(crate) fn runtime(act: &'static str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Runtime { act, cause: Box::new(cause) }
    }
}

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { act, cause } => write!(f, "cannot {act}: {cause}"),
            Self::Runtime { act, cause } => write!(f, "cannot {act}: {cause}"),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
            Self::Stuck(stage) => {
                write!(f, "cannot end the stage '{stage}': its clients neither end nor give up")
            }
            Self::Broken(count) => {
                write!(f, "the trial was lost: {count} of the promises above were broken")
            }
        }
    }
}

impl Error for TrialError {}

impl From<io::Error> for TrialError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
