//! What a push to an event queue returns.

use std::error::Error;
use std::fmt;

/// The answer to a push that succeeded. It shows if the pusher must wake the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// There is nothing to do. The consumer is not waiting, or another pusher wakes it.
    Queued,
    /// The consumer had armed the queue. The pusher must wake it.
    Wake,
}

/// The error of a push to a closed queue. It contains the refused item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Closed<T>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<T> fmt::Display for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is closed")
    }
}

impl<T> Error for Closed<T> {}
