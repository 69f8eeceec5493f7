//! The errors of locks, and of all kinds of channels.

use std::error::Error;
use std::fmt;

use crate::time::Elapsed;

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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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

/// A lock or permits cannot be acquired.
///
/// ```
/// use procession::sync::{AcquireError, Mutex, Semaphore};
///
/// let mutex = Mutex::new(1);
/// let guard = mutex.try_lock()?;
/// assert_eq!(mutex.try_lock().err(), Some(AcquireError::WouldBlock));
/// drop(guard);
///
/// let semaphore = Semaphore::new(1);
/// semaphore.close();
/// assert_eq!(semaphore.try_acquire(1).err(), Some(AcquireError::Closed));
/// # Ok::<(), AcquireError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireError {
    /// The caller would have to wait: the lock is held, fewer permits are free, or others wait
    /// already.
    WouldBlock,
    /// The semaphore is closed. A lock is never closed.
    Closed,
    /// The timeout elapsed first.
    Elapsed,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WouldBlock => "cannot acquire: others hold the lock or the permits, or wait",
            Self::Closed => "cannot acquire: the semaphore is closed",
            Self::Elapsed => "cannot acquire: the timeout elapsed first",
        })
    }
}

impl Error for AcquireError {}

impl From<Elapsed> for AcquireError {
    fn from(_: Elapsed) -> Self {
        Self::Elapsed
    }
}
