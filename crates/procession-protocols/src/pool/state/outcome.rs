//! The results of the steps.

use std::io;

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The job returned.
    Completed,
    /// The job panicked, or ended itself.
    Panicked,
    /// The job never ran, or was terminated.
    Cancelled,
}

/// The next action of a worker after a job.
#[derive(Debug)]
#[must_use]
pub enum Next<J> {
    /// Run the job with this ticket.
    Run(u64, J),
    /// Wait for an order.
    Park,
    /// End its process. The next job launches the worker again. If a time is given, the caller must
    /// arrange a [reap](super::core::PoolCore::reap) at that time.
    Rest(Option<u64>),
    /// Leave the pool.
    Leave,
}

/// The fate of a worker at the end of its keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Expired {
    /// The worker leaves the pool.
    Leave,
    /// It is one of the workers that the pool keeps, and waits for an order without a timeout.
    Kept,
    /// Its order has been written.
    Claimed,
}

/// Why a job was not taken, or no place was reserved.
#[derive(Debug)]
pub enum EnterError {
    /// No place is free, and the queue is full.
    Full,
    /// No place is free, and as many submitters wait as may.
    TooManyWaiting,
    /// The pool is closed.
    Closed,
    /// The submitter has given up after its timeout.
    TimedOut,
    /// All jobs would wait for one another.
    WouldDeadlock,
    /// The system refused to start a worker, and no other worker will take the job from the queue.
    Worker(io::Error),
}

/// The ticket of a job that was taken, or the job with the reason of its refusal.
pub type Entered<B> = Result<u64, (B, EnterError)>;

/// A state of the pool that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiescence {
    /// No job runs, and none is queued.
    Idle,
    /// The pool is closed, and its last worker has left.
    Drained,
}

/// What a waiter for a quiescent pool learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WatchResult {
    /// The pool is in the state.
    Reached,
    /// The waiter waits.
    Waits,
    /// The pool is open, so it does not drain.
    Open,
}
