//! The errors of channels.

use std::error::Error;
use std::fmt;

/// The error of [`Sender::send`](super::Sender::send): the channel is closed. It contains the
/// message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub(crate) T);

/// The error of [`Sender::try_send`](super::Sender::try_send). It contains the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full, or no receiver waits in a rendezvous.
    Full(T),
    /// The channel is closed.
    Closed(T),
}

/// The error of [`Sender::send_timeout`](super::Sender::send_timeout). It contains the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// The timeout elapsed first.
    Elapsed(T),
    /// The channel is closed.
    Closed(T),
}

/// The error of [`Receiver::try_recv`](super::Receiver::try_recv).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// The channel is empty.
    Empty,
    /// The channel is empty and closed, so no more messages will arrive.
    Closed,
}

impl<T> SendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(message) | Self::Closed(message) => message,
        }
    }
}

impl<T> SendTimeoutError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        match self {
            Self::Elapsed(message) | Self::Closed(message) => message,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elapsed(_) => "Elapsed(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot send: the channel is closed")
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "cannot send: the channel is full",
            Self::Closed(_) => "cannot send: the channel is closed",
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elapsed(_) => "cannot send: the channel was full until the timeout elapsed",
            Self::Closed(_) => "cannot send: the channel is closed",
        })
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "cannot receive: the channel is empty",
            Self::Closed => "cannot receive: the channel is empty and closed",
        })
    }
}

impl<T> Error for SendError<T> {}
impl<T> Error for TrySendError<T> {}
impl<T> Error for SendTimeoutError<T> {}
impl Error for TryRecvError {}
