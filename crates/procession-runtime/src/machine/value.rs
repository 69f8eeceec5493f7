//! The inputs and results of commands.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The input or output of a command, of any type, to be downcast.
pub type Value = Box<dyn Any + Send>;

/// The result of a command.
pub type CommandResult = Result<Value, CommandError>;

/// The reason why a command has no output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// No handler is registered for the command.
    Unknown(CommandId),
    /// The handler dropped the completion, or panicked before it used it.
    Dropped,
    /// The input has not the type that the handler expects. The text names the expected type.
    WrongInput(&'static str),
    /// The output has not the type that was expected. The text names the expected type.
    WrongOutput(&'static str),
    /// The scheduler has reached its limit of timers.
    TimerLimit,
    /// The handler failed.
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
/// The numbers below 256 belong to the runtime. A program numbers its own commands from
/// [`FIRST_FREE`](Self::FIRST_FREE).
///
/// ```
/// use procession::machine::CommandId;
///
/// const SQUARE: CommandId = CommandId::new(256);
/// assert_eq!(SQUARE, CommandId::FIRST_FREE);
/// assert!(CommandId::try_from(255).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub(super) u16);

impl CommandId {
    /// Creates the command with a number from 256 on. For a number that is not a constant, use
    /// `CommandId::try_from`.
    ///
    /// # Panics
    /// Panics if the number is below 256. In a constant, that is a compile error.
    pub const fn new(number: u16) -> Self {
        assert!(number >= Self::FIRST_FREE.0, "the commands below 256 belong to the runtime");
        Self(number)
    }

    /// Completes with `()` after a [`Duration`](std::time::Duration).
    pub const SLEEP: Self = Self(1);

    /// Sends a [`Parcel`](crate::mailbox::parcel::Parcel) to a process of this scheduler, or of a
    /// scheduler that it reaches. See [`SendParcel`](crate::machine::command::SendParcel).
    pub const SEND: Self = Self(2);

    /// Starts a process. See [`SpawnProcess`](crate::machine::command::SpawnProcess).
    pub const SPAWN: Self = Self(3);

    /// Runs a closure that blocks. See [`BlockingWork`](crate::machine::command::BlockingWork).
    pub const BLOCKING: Self = Self(4);

    /// Awaits a future. See [`AsyncWork`](crate::machine::command::AsyncWork).
    pub const ASYNC: Self = Self(5);

    /// The first number that a program may use for its own commands.
    pub const FIRST_FREE: Self = Self(256);
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command {}", self.0)
    }
}
