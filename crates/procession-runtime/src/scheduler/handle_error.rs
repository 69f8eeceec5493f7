//! The errors of blocking on a future, and of waiting until a scheduler is empty.

use std::error::Error;
use std::fmt;

use crate::util::exclusive::Exclusive;

/// The error of [`Scheduler::try_block_on`](crate::Scheduler::try_block_on): no thread would be
/// left to run what the future waits for. It holds the future.
pub struct BlockOnError<F>(pub(crate) Exclusive<F>);

impl<F> BlockOnError<F> {
    /// Returns the future.
    pub fn into_inner(self) -> F {
        self.0.into_inner()
    }
}

impl<F> fmt::Display for BlockOnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot block on a future: all threads that the scheduler may have are blocked, and none is left to run others")
    }
}

impl<F> fmt::Debug for BlockOnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockOnError(..)")
    }
}

impl<F> Error for BlockOnError<F> {}

/// The error of [`Scheduler::wait_until_empty`](crate::Scheduler::wait_until_empty): the caller is
/// a process of the scheduler, or works for one, and would wait for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InsideError;

impl fmt::Display for InsideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "cannot wait until the scheduler has no process: the caller is one of its processes",
        )
    }
}

impl Error for InsideError {}
