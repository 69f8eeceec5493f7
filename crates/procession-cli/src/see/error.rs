//! The error of a look into another program.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::failure::Failure;

/// The error of a look into another program.
#[derive(Debug)]
pub(crate) enum SeeError {
    /// No program has a door in this directory.
    NoDoor(PathBuf),
    /// No door fits the word.
    Unknown(String, Vec<String>),
    /// Several doors fit.
    Several(Vec<String>),
    Connection(PathBuf, io::Error),
    /// Something else listens at the socket.
    NoAnswer(PathBuf),
    /// The answer is not whole.
    Cut(PathBuf),
    /// The door refused the request. Holds its reason.
    Refused(String),
    File(String, io::Error),
    /// A file that cannot be read.
    Unread(String, io::Error),
    /// A file that is no trace.
    NoTrace(String),
    Terminal(io::Error),
}

impl fmt::Display for SeeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed =
            |doors: &[String]| doors.iter().map(|door| format!("\n  {door}")).collect::<String>();
        match self {
            Self::NoDoor(directory) => write!(
                f,
                "no program has a door in {}: start it with PROCESSION_DOOR=1, or call Builder::door",
                directory.display()
            ),
            Self::Unknown(word, doors) => {
                write!(f, "no door fits '{word}'; these are open:{}", listed(doors))
            }
            Self::Several(doors) => {
                write!(f, "several doors are open; choose one by a word:{}", listed(doors))
            }
            Self::Connection(path, error) => {
                write!(f, "cannot look through {}: {error}", path.display())
            }
            Self::NoAnswer(path) => {
                write!(f, "{} gives no answer that makes sense", path.display())
            }
            Self::Cut(path) => write!(f, "{} cuts its answer short", path.display()),
            Self::Refused(reason) => write!(f, "the program refused: {reason}"),
            Self::File(path, error) => write!(f, "cannot write {path}: {error}"),
            Self::Unread(path, error) => write!(f, "cannot read {path}: {error}"),
            Self::NoTrace(path) => write!(f, "{path} is no trace of Procession"),
            Self::Terminal(error) => write!(f, "the terminal failed: {error}"),
        }
    }
}

impl Error for SeeError {}

impl From<SeeError> for Failure {
    fn from(error: SeeError) -> Self {
        Self::Failed(Box::new(error))
    }
}
