//! Notices about other processes.

use crate::mailbox::context::Event;
use crate::relations::signal::{Down, ExitSignal};

/// A notice about another process, or about the mailbox, in a behaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Info {
    /// A [monitored](crate::Context::monitor) process has ended.
    Down(Down),
    /// A [trapped](crate::Context::trap_exits) exit signal.
    Exit(ExitSignal),
    /// The mailbox of this process is full, if it has
    /// [asked to be told](crate::mailbox::Urgent::with_full_mailbox).
    MailboxFull,
}

impl Info {
    /// Returns a notice, unless the event is something else.
    pub(crate) fn of<M>(event: Event<M>) -> Option<Self> {
        match event {
            Event::Down(down) => Some(Self::Down(down)),
            Event::Exit(exit) => Some(Self::Exit(exit)),
            Event::MailboxFull => Some(Self::MailboxFull),
            Event::Message(_) | Event::Completion { .. } | Event::Cancel => None,
        }
    }
}
