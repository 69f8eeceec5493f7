//! The errors of building a scheduler.

use std::error::Error;
#[cfg(feature = "door")]
use std::net::SocketAddr;
#[cfg(feature = "door")]
use std::path::PathBuf;
use std::{fmt, io};

use crate::machine::value::CommandId;
use crate::scheduler::part::PartError;
use crate::util::out_of_range::OutOfRange;

/// The error of [`Builder::build`](crate::Builder::build).
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting is below its minimum or above its maximum.
    OutOfRange(OutOfRange),
    /// The name contains a NUL.
    Name(String),
    /// The program may use none of these processors.
    NoCpu(Vec<usize>),
    /// The system does not report which processors the program may use.
    Cpus(io::Error),
    /// The system refused the memory for stacks of coroutines.
    Stacks(Box<dyn Error + Send + Sync>),
    /// A handler was given for a command of the runtime: its id is below 256.
    ReservedCommand(CommandId),
    /// Two handlers were given for one command.
    DuplicateCommand(CommandId),
    /// The builder has both a test clock and an existing tokio runtime, which uses the real clock.
    TokioWithTestClock,
    /// The builder has a test clock, a tokio runtime, and this many threads, of which it may have
    /// one.
    PausedTokioThreads(usize),
    /// The system refused the first thread, or a thread of the tokio runtime.
    Thread(io::Error),
    /// The door that the builder asks for cannot be opened.
    #[cfg(feature = "door")]
    Door(DoorError),
    /// All 2^32 scheduler ids are used up.
    Exhausted,
}

impl BuildError {
    /// Takes the error of a part.
    pub(crate) fn of_part(error: PartError) -> Self {
        *error.downcast().expect("a part that cannot work returns an error of the builder")
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot build a scheduler: ")?;
        match self {
            Self::OutOfRange(error) => error.fmt(f),
            Self::Name(name) => write!(f, "name is {name:?}, but must not contain a NUL"),
            Self::NoCpu(cpus) => {
                write!(f, "cpus is {cpus:?}, and this program may use none of them")
            }
            Self::Cpus(cause) => {
                write!(f, "the system does not say which processors may be used: {cause}")
            }
            Self::Stacks(cause) => {
                write!(f, "the system refused the stacks of its coroutines: {cause}")
            }
            Self::ReservedCommand(id) => {
                write!(f, "{id} has a handler, but those below 256 are the runtime's")
            }
            Self::DuplicateCommand(id) => write!(f, "two handlers for {id}"),
            Self::TokioWithTestClock => f.write_str(
                "tokio goes by the real clock, and the test clock would jump over all that waits \
                 for it",
            ),
            Self::PausedTokioThreads(threads) => write!(
                f,
                "a tokio runtime on the test clock needs worker_threads and max_threads of 1, but \
                 they allow {threads} threads"
            ),
            Self::Thread(cause) => write!(f, "the system refused its first thread: {cause}"),
            #[cfg(feature = "door")]
            Self::Door(error) => error.fmt(f),
            Self::Exhausted => f.write_str("all 2^32 numbers are used up"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Thread(error) | Self::Cpus(error) => Some(error),
            Self::Stacks(error) => Some(&**error),
            #[cfg(feature = "door")]
            Self::Door(error) => error.source(),
            _ => None,
        }
    }
}

impl From<OutOfRange> for BuildError {
    fn from(error: OutOfRange) -> Self {
        Self::OutOfRange(error)
    }
}

/// The error of opening a door.
#[cfg(feature = "door")]
#[derive(Debug)]
#[non_exhaustive]
pub enum DoorError {
    /// The directory of the socket cannot be created or read.
    Directory(PathBuf, io::Error),
    /// The path is no directory. A symbolic link is none.
    NoDirectory(PathBuf),
    /// The directory belongs to another user, with this number.
    OtherOwner(PathBuf, u32),
    /// Other users can get into the directory. Holds its mode.
    OpenToOthers(PathBuf, u32),
    /// The system refused the socket.
    Socket(PathBuf, io::Error),
    /// The address is no loopback address.
    NotLoopback(SocketAddr),
    /// The system refused the TCP socket.
    Tcp(SocketAddr, io::Error),
    /// The system refused the random bytes of a token.
    Random(io::Error),
    /// The scheduler of the door could not be built.
    Scheduler(Box<dyn Error + Send + Sync>),
}

#[cfg(feature = "door")]
impl fmt::Display for DoorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot open a door: ")?;
        match self {
            Self::Directory(path, cause) => {
                write!(f, "the directory {} cannot be used: {cause}", path.display())
            }
            Self::NoDirectory(path) => write!(f, "{} is no directory", path.display()),
            Self::OtherOwner(path, user) => {
                write!(f, "the directory {} belongs to the user {user}", path.display())
            }
            Self::OpenToOthers(path, mode) => write!(
                f,
                "the directory {} has the mode {:04o}, and must have 0700",
                path.display(),
                mode & 0o7777
            ),
            Self::Socket(path, cause) => {
                write!(f, "the system refused the socket {}: {cause}", path.display())
            }
            Self::NotLoopback(address) => {
                write!(f, "{address} is no loopback address, and there is no encryption")
            }
            Self::Tcp(address, cause) => {
                write!(f, "the system refused to listen at {address}: {cause}")
            }
            Self::Random(cause) => {
                write!(f, "the system refused random bytes for a token: {cause}")
            }
            Self::Scheduler(cause) => write!(f, "its scheduler could not be built: {cause}"),
        }
    }
}

#[cfg(feature = "door")]
impl Error for DoorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Directory(_, cause)
            | Self::Socket(_, cause)
            | Self::Tcp(_, cause)
            | Self::Random(cause) => Some(cause),
            Self::Scheduler(cause) => Some(&**cause),
            _ => None,
        }
    }
}
