//! The error of everything that is received from.

use std::error::Error;
use std::fmt;

/// Nothing can be received from a channel, a mailbox or a monitor.
///
/// A receive that waits does not return [`Empty`](Self::Empty), and only a broadcast channel
/// returns [`Lagged`](Self::Lagged).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecvError {
    /// The channel is closed, or the process of the mailbox was cancelled, so no message will come.
    /// All messages were received before, except that
    /// [`has_changed`](crate::sync::watch::Receiver::has_changed) does not look at the last value.
    Closed,
    /// There is no message now.
    Empty,
    /// The receiver has missed this number of messages, because it was slower than the senders.
    Lagged(u64),
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("cannot receive: the channel is closed"),
            Self::Empty => f.write_str("cannot receive: the channel is empty"),
            Self::Lagged(missed) => write!(
                f,
                "cannot receive: the receiver was too slow and has missed {missed} messages"
            ),
        }
    }
}

impl Error for RecvError {}
