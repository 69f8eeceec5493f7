//! The failure of the command.

use std::error::Error;
use std::fmt;
use std::io;

use procession_trial::TrialError;

/// The failure of the command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is invalid.
    Usage(Box<dyn Error>),
    Failed(Box<dyn Error>),
    Output(io::Error),
    /// The failure was reported already.
    Told,
}

impl Failure {
    /// Returns `true` if the reader of the output went away, which is not an error.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) | Self::Output(_) | Self::Told => 1,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<TrialError> for Failure {
    fn from(error: TrialError) -> Self {
        match error {
            TrialError::Output(error) => Self::Output(error),
            error => Self::Failed(Box::new(error)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) | Self::Failed(error) => error.fmt(f),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
            Self::Told => Ok(()),
        }
    }
}
