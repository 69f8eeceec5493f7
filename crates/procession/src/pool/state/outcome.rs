//! The results of the steps.

use std::io;

use procession_protocols::sync::wait_list::Place;

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Panicked,
    Cancelled,
}

/// The next action of a worker after a job.
#[derive(Debug)]
#[must_use]
pub(crate) enum Next<J> {
    Run(u64, J),
    /// Wait for an order.
    Park,
    /// End its process. The next job launches the worker again. If a time is given, the caller must
    /// arrange a [reap](super::core::PoolCore::reap) at that time.
    Rest(Option<u64>),
    Leave,
}

/// The fate of a worker at the end of its keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Expired {
    Leave,
    /// It is one of the workers that the pool keeps, and waits for an order without a timeout.
    Kept,
    /// Its order has been written.
    Claimed,
}

/// Why a job was not taken.
#[derive(Debug)]
pub(crate) enum EnterError {
    Full,
    Closed,
    WouldDeadlock,
    /// The system refused to start a worker, and no other will come to the queue.
    Worker(io::Error),
}

/// A state of the pool that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quiescence {
    /// No job runs, and none is queued.
    Idle,
    /// The pool is closed, and its last worker has left.
    Drained,
}

/// What a waiter for a quiescent pool learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum WatchResult {
    Reached,
    Waits,
    /// The pool is open, so it does not drain.
    Open,
}

/// How an attempt to get a place began.
#[derive(Debug)]
pub(crate) enum Admission {
    /// A place was free. It is reserved now, in this generation.
    Granted(u64),
    /// A place was free. The job was taken, with this ticket.
    Taken(u64),
    Waits(Place),
    Closed,
    TooManyWaiting,
    WouldDeadlock,
}

/// The result of a wait for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A place is reserved, in this generation.
    Granted(u64),
    Closed,
    /// All jobs wait for one another, and the waiter is one of them.
    WouldDeadlock,
}
