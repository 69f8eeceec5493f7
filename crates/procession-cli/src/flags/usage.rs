//! The error of a command line.

use std::error::Error;
use std::fmt;

use crate::failure::Failure;
use crate::flags::commands::COMMANDS;
use crate::see::args::Verb;

pub(super) const SECONDS_MAX: u64 = 3600;

/// The error of an invalid command line.
#[derive(Debug)]
pub(crate) enum UsageError {
    NoCommand,
    NoProgram,
    /// A node has no name.
    NoName,
    /// No node to ask.
    NoNode,
    NoFiles,
    /// Seeds are given for tests that have one.
    NoSimulation,
    UnknownCommand(String),
    UnknownFlag(String),
    /// Holds the option and its value.
    Seconds(&'static str, String),
    Listen(String),
    /// Holds the option and its value.
    Key(&'static str, String),
    /// A word is missing.
    Missing(Verb),
    /// An option of another command.
    OtherCommand(&'static str),
    /// A word where none is expected.
    Word(String),
    /// A value is missing, or is given where none is expected.
    Value(lexopt::Error),
}

impl From<lexopt::Error> for UsageError {
    fn from(error: lexopt::Error) -> Self {
        Self::Value(error)
    }
}

impl Error for UsageError {}

impl From<UsageError> for Failure {
    fn from(error: UsageError) -> Self {
        Self::Usage(Box::new(error))
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = COMMANDS.map(|(name, ..)| name).join(", ");
        match self {
            Self::NoCommand => {
                write!(f, "no command given: the commands are {commands}; see --help")
            }
            Self::NoProgram => f.write_str("no program given: see run --help"),
            Self::NoName => f.write_str("no name given: set --name WORD@HOST; see node --help"),
            Self::NoNode => f.write_str("it is cluster status NODE: see cluster --help"),
            Self::NoSimulation => f.write_str("--seeds needs --sim: see test --help"),
            Self::NoFiles => f.write_str("no file given: see --help"),
            Self::UnknownCommand(name) => {
                write!(f, "unknown command '{name}': the commands are {commands}")
            }
            Self::UnknownFlag(name) => write!(f, "unknown option '{name}': see --help"),
            Self::Seconds(flag, value) => {
                write!(
                    f,
                    "invalid value '{value}' of option '{flag}': it must be a whole number of seconds from 1 to {SECONDS_MAX}"
                )
            }
            Self::Listen(value) => {
                write!(f, "invalid address '{value}': it must be a host and a port")
            }
            Self::Key(flag, value) => {
                write!(f, "invalid value '{value}' of option '{flag}': see --help")
            }
            Self::Missing(verb) => {
                write!(f, "too few words: it is {}{}; see --help", verb.name(), verb.words())
            }
            Self::OtherCommand(flag) => {
                write!(f, "the option '--{flag}' belongs to another command: see --help")
            }
            Self::Word(word) => write!(f, "unexpected word '{word}': see --help"),
            Self::Value(error) => error.fmt(f),
        }
    }
}
