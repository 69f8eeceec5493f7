//! The errors of blocking on a future, and of misplaced calls.

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

/// A function was called where it cannot do what it is for. This is a mistake of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MisplacedCall {
    /// A function for coroutines was called outside of a coroutine.
    OutsideCoroutine,
    /// A [`ProcessLocal`](crate::local::ProcessLocal) was used outside of its scopes.
    OutsideScope,
    /// A process of a scheduler, or a thread that works for one, would wait for itself
    /// ([`Scheduler::wait_until_empty`](crate::Scheduler::wait_until_empty)).
    InsideScheduler,
}

impl fmt::Display for MisplacedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutsideCoroutine => "no coroutine runs here",
            Self::OutsideScope => "no scope of this local runs here",
            Self::InsideScheduler => {
                "cannot wait until the scheduler has no process: the caller is one of its processes"
            }
        })
    }
}

impl Error for MisplacedCall {}
