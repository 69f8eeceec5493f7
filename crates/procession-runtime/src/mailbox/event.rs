//! Events of state machines.

use crate::machine::value::CommandResult;
use crate::relations::signal::{Down, ExitSignal, Signal};

/// An event that a state machine receives in a step.
///
/// ```
/// use procession::mailbox::Event;
///
/// /// Adds a message to the sum. Returns `false` if the process is to end.
/// fn handle(event: Event<u32>, sum: &mut u32) -> bool {
///     match event {
///         Event::Message(number) => *sum += number,
///         Event::Cancel => return false,
///         // This process yields no commands, and monitors no other process.
///         _ => {}
///     }
///     true
/// }
///
/// let mut sum = 0;
/// assert!(handle(Event::Message(2), &mut sum));
/// assert!(!handle(Event::Cancel, &mut sum));
/// assert_eq!(sum, 2);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<M> {
    /// A message.
    Message(M),
    /// A yielded command is complete.
    Completion {
        /// The tag of the command.
        tag: u64,
        /// The result of the command.
        result: CommandResult,
    },
    /// The process is asked to end.
    Cancel,
    /// A monitored process has ended.
    Down(Down),
    /// A trapped exit signal.
    Exit(ExitSignal),
    /// The mailbox of this process is full, if it has
    /// [asked to be told](crate::mailbox::Urgent::with_full_mailbox).
    MailboxFull,
}

impl<M> From<Signal> for Event<M> {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Down(down) => Self::Down(down),
            Signal::Exit(exit) => Self::Exit(exit),
            Signal::MailboxFull => Self::MailboxFull,
        }
    }
}
