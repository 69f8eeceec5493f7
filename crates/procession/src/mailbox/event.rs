//! What a process is told.

use crate::machine::value::CommandResult;
use crate::relations::signal::{Down, ExitSignal, Signal};

/// What happened to a state machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<M> {
    /// A message.
    Message(M),
    /// A command that it yielded is done.
    Completion {
        /// The tag of that yield.
        tag: u64,
        /// What came of it.
        result: CommandResult,
    },
    /// It was asked to end.
    Cancel,
    /// A process that it monitors has ended.
    Down(Down),
    /// An exit signal that it traps.
    Exit(ExitSignal),
}

impl<M> From<Signal> for Event<M> {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Down(down) => Self::Down(down),
            Signal::Exit(exit) => Self::Exit(exit),
        }
    }
}
