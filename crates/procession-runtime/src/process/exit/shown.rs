//! Exits as errors: their text, and their place among the errors of the system.

use std::error::Error;
use std::fmt;
use std::io;

use crate::process::exit::Exit;

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("the process ended normally"),
            Self::Shutdown => f.write_str("the process was shut down"),
            Self::Panicked(text) => write!(f, "the process panicked: {text}"),
            Self::Killed => f.write_str("the process was terminated"),
            Self::Failed(text) => write!(f, "the process failed: {text}"),
            Self::Disconnected(text) => write!(f, "the process lost its connection: {text}"),
            Self::GaveUp(text) => write!(f, "the supervisor gave up: {text}"),
            Self::NameLost(name) => write!(f, "the process lost its name: {name}"),
            Self::WaitsForNothing => {
                f.write_str("the process waits for completions, but none is outstanding")
            }
            Self::MailboxFull => f.write_str("the process's mailbox was full"),
            Self::NoProcess => f.write_str("there is no such process"),
            Self::NoConnection => f.write_str("there is no connection to the node of the process"),
            Self::Left => f.write_str("the node of the process has left the cluster"),
            Self::ThreadEnded => f.write_str("the thread that the process stays on has ended"),
            Self::Refused => f.write_str("the scheduler takes no more processes"),
        }
    }
}

impl Error for Exit {}

/// The kind of the error is [`Other`](io::ErrorKind::Other).
impl From<Exit> for io::Error {
    fn from(exit: Exit) -> Self {
        Self::other(exit)
    }
}
