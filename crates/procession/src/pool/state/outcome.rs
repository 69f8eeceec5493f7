//! What comes of the steps.

use std::io;

use crate::sync::wait_list::Place;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Panicked,
    Cancelled,
}

/// What a worker does after a job.
#[derive(Debug)]
#[must_use]
pub(crate) enum Next<J> {
    Run(u64, J),
    /// Wait for an order.
    Park,
    /// End; the next job starts the worker again. Somebody is to [reap](Core::reap) at that time, if it says one.
    Rest(Option<u64>),
    Leave,
}

/// What becomes of a worker whose keep-alive is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Expired {
    Leave,
    /// One of those that are kept: it waits for an order, however long.
    Kept,
    /// Its order has been written.
    Claimed,
}

/// Why a job was not taken.
#[derive(Debug)]
pub(crate) enum EnterError {
    Full,
    Closed,
    /// The system refused to start a worker, and there is none.
    Worker(io::Error),
}

/// What somebody may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quiescence {
    /// Nothing runs, and nothing is queued.
    Idle,
    /// The pool is closed, and its last worker has left.
    Drained,
}

/// How a wait for a place began.
#[derive(Debug)]
pub(crate) enum Admission {
    /// There was one, which is reserved now.
    Granted(u64),
    /// There was one, and the job of this ticket is in it.
    Taken(u64),
    Waits(Place),
    Closed,
    TooManyWaiting,
    WouldDeadlock,
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A place is reserved, in this generation.
    Granted(u64),
    Closed,
}
