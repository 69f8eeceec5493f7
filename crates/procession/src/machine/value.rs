//! What goes into a command, and what comes out of it.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// What goes into and comes out of a command, and into a state machine's start: any value, to be
/// downcast.
pub type Value = Box<dyn Any + Send>;

/// What came of a command.
pub type CommandResult = Result<Value, CommandError>;

/// Why a command gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// No handler is registered for it.
    Unknown(CommandId),
    /// Its handler dropped the completion, or panicked before it gave one.
    Dropped,
    /// Its input is not of the type that its handler wants; the text names that type.
    WrongInput(&'static str),
    /// It completed with something that is not of the type that was wanted; the text names that
    /// type.
    WrongOutput(&'static str),
    /// The scheduler has no timer left for it.
    TimerLimit,
    /// Its handler failed.
    Failed(Arc<str>),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(id) => write!(f, "no handler is registered for {id}"),
            Self::Dropped => f.write_str("the handler dropped the completion"),
            Self::WrongOutput(wanted) => {
                write!(f, "what the command completed with is not of type {wanted}")
            }
            Self::WrongInput(wanted) => write!(f, "the command's input is not of type {wanted}"),
            Self::TimerLimit => f.write_str("the scheduler has reached its limit of timers"),
            Self::Failed(text) => write!(f, "the command failed: {text}"),
        }
    }
}

impl Error for CommandError {}

/// The number of a kind of command.
///
/// The numbers below 256 belong to the runtime; a program numbers its own commands from
/// [`FIRST_FREE`](Self::FIRST_FREE).
///
/// ```
/// use procession::command::CommandId;
///
/// const SQUARE: CommandId = CommandId::new(256);
/// assert_eq!(SQUARE, CommandId::FIRST_FREE);
/// assert!(CommandId::try_from(255).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(u16);

/// The error of a [`CommandId`] from a number that belongs to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedCommandId(u16);

impl fmt::Display for ReservedCommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {} belongs to the runtime: the first free number is 256", self.0)
    }
}

impl Error for ReservedCommandId {}

impl TryFrom<u16> for CommandId {
    type Error = ReservedCommandId;

    fn try_from(number: u16) -> Result<Self, ReservedCommandId> {
        if number < Self::FIRST_FREE.0 { Err(ReservedCommandId(number)) } else { Ok(Self(number)) }
    }
}

impl CommandId {
    /// Returns the command of a number from 256 on.
    ///
    /// # Panics
    /// Panics if the number is below 256: in a constant, this is an error of the compiler. Use
    /// `CommandId::try_from` for a number that is not known when the program is compiled.
    pub const fn new(number: u16) -> Self {
        assert!(number >= Self::FIRST_FREE.0, "the commands below 256 belong to the runtime");
        Self(number)
    }

    /// Completes after a [`Duration`](std::time::Duration), with `()`.
    pub const SLEEP: Self = Self(1);

    /// Sends a [`Parcel`](crate::mailbox::parcel::Parcel) to a process of this scheduler or any
    /// that it reaches; see [`SendParcel`](crate::machine::command::SendParcel).
    pub const SEND: Self = Self(2);

    /// Starts a process; see [`SpawnProcess`](crate::machine::command::SpawnProcess).
    pub const SPAWN: Self = Self(3);

    /// Runs a closure that blocks; see [`BlockingWork`](crate::machine::command::BlockingWork).
    pub const BLOCKING: Self = Self(4);

    /// The first number that users may give to commands of their own.
    pub const FIRST_FREE: Self = Self(256);
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {}", self.0)
    }
}
