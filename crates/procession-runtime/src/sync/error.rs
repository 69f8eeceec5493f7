//! The errors of all kinds of channels.

use std::error::Error;
use std::fmt;

/// A message cannot be sent by a channel of any kind. It contains the message.
///
/// A `send` that waits for room returns [`Closed`](Self::Closed) only. `try_send` can also return
/// [`Full`](Self::Full), and `send_timeout` [`Elapsed`](Self::Elapsed).
///
/// ```
/// use procession::sync::{SendError, channel};
///
/// let (sender, receiver) = channel::bounded(1);
/// sender.try_send("first")?;
/// assert_eq!(sender.try_send("second"), Err(SendError::Full("second")));
/// drop(receiver);
/// assert_eq!(sender.try_send("third").map_err(SendError::into_inner), Err("third"));
/// # Ok::<(), SendError<&str>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError<T> {
    /// The channel is closed, or it is a broadcast channel or a watch without a receiver, which can
    /// get one later.
    Closed(T),
    /// The channel is full, or no receiver waits in a rendezvous.
    Full(T),
    /// The timeout elapsed first.
    Elapsed(T),
}

impl<T> SendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        match self {
            Self::Closed(message) | Self::Full(message) | Self::Elapsed(message) => message,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "Closed(..)",
            Self::Full(_) => "Full(..)",
            Self::Elapsed(_) => "Elapsed(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "cannot send: the channel is closed or has no receiver",
            Self::Full(_) => "cannot send: the channel is full",
            Self::Elapsed(_) => "cannot send: the channel was full until the timeout elapsed",
        })
    }
}

impl<T> Error for SendError<T> {}

/// Nothing can be received from a channel of any kind.
///
/// A receive that waits does not return [`Empty`](Self::Empty), and only a broadcast channel
/// returns [`Lagged`](Self::Lagged).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// The channel is closed, so no message will come. All messages were received before, except
    /// that [`has_changed`](super::watch::Receiver::has_changed) does not look at the last value.
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
