//! The bounds of a mailbox, as a program sets them and sees them.

use procession_protocols::mailbox::bounded::{BoundedFigures, FullPolicy};

/// The policy of a bounded mailbox that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// Refuses the message, and returns it to the sender.
    Reject,
    /// Lets [`Address::send_wait`](crate::Address::send_wait) wait for room, first come, first
    /// served. Refuses the message of any other send.
    Wait,
    /// Drops the new message.
    DropNewest,
    /// Drops the oldest message, and accepts the new message.
    DropOldest,
    /// Ends the process with [`Exit::MailboxFull`](crate::Exit::MailboxFull), and returns the
    /// message to the sender.
    Kill,
}

impl From<WhenFull> for FullPolicy {
    fn from(policy: WhenFull) -> Self {
        match policy {
            WhenFull::Reject => Self::Reject,
            WhenFull::Wait => Self::Wait,
            WhenFull::DropNewest => Self::DropNewest,
            WhenFull::DropOldest => Self::DropOldest,
            WhenFull::Kill => Self::Kill,
        }
    }
}

impl From<FullPolicy> for WhenFull {
    fn from(policy: FullPolicy) -> Self {
        match policy {
            FullPolicy::Reject => Self::Reject,
            FullPolicy::Wait => Self::Wait,
            FullPolicy::DropNewest => Self::DropNewest,
            FullPolicy::DropOldest => Self::DropOldest,
            FullPolicy::Kill => Self::Kill,
        }
    }
}

/// The counters of a bounded mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MailboxSnapshot {
    /// The maximum number of messages.
    pub capacity: u32,
    /// The policy of the full mailbox.
    pub when_full: WhenFull,
    /// The number of senders that wait for room.
    pub waiting: usize,
    /// The number of messages that were refused.
    pub refused: u64,
    /// The number of messages that were dropped, new or old.
    pub dropped: u64,
}

impl From<BoundedFigures> for MailboxSnapshot {
    fn from(figures: BoundedFigures) -> Self {
        let BoundedFigures { capacity, when_full, waiting, refused, dropped } = figures;
        Self { capacity, when_full: when_full.into(), waiting, refused, dropped }
    }
}
