//! The error of a trial.

use std::error::Error;
use std::fmt;
use std::io;

use crate::failure::Failure;

/// The error of a trial that was not held, or was lost.
#[derive(Debug)]
pub(crate) enum TrialError {
    System {
        act: String,
        cause: io::Error,
    },
    Runtime {
        act: &'static str,
        cause: Box<dyn Error + Send + Sync>,
    },
    /// Some clients neither ended nor gave up.
    Stuck(&'static str),
    /// Holds the number of broken promises.
    Broken(usize),
}

impl TrialError {
    pub(super) fn runtime(act: &'static str, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Runtime { act, cause: Box::new(cause) }
    }
}

impl fmt::Display for TrialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { act, cause } => write!(f, "cannot {act}: {cause}"),
            Self::Runtime { act, cause } => write!(f, "cannot {act}: {cause}"),
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

impl From<TrialError> for Failure {
    fn from(error: TrialError) -> Self {
        Self::Failed(Box::new(error))
    }
}
