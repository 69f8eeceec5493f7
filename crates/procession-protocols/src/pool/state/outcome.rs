//! The limits of a pool, its numbers, and the results of its steps.

use std::io;
use std::task::Waker;

use crate::util::small_vec::SmallVec;

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
    /// The job has a priority, and no job of this pool waits in a queue.
    NoQueue,
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

/// The limits and the kind of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of workers, not counting workers in places that jobs lend.
    pub capacity: usize,
    /// The most jobs that may be queued.
    pub queue: usize,
    /// The most submitters that may wait.
    pub waiting: usize,
    /// The number of workers that do not expire.
    pub kept: usize,
    /// `true` if idle workers rest, and `false` if they park.
    pub rests: bool,
    /// `true` if the workers are threads.
    pub threads: bool,
}

/// The numbers of a pool, all taken at the same moment.
///
/// Two equations always hold:
/// - `live == busy + idle`
/// - `submitted == completed + panicked + cancelled + queued + busy + inline`
// These are more than 15 fields. They are flat, so that a caller reads each number by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The maximum number of workers, not counting workers in places that jobs lend.
    pub capacity: usize,
    /// Workers that there are.
    pub live: usize,
    /// Live workers that have a job.
    pub busy: usize,
    /// Live workers that have no job.
    pub idle: usize,
    /// Jobs that would be taken now and immediately get a worker.
    pub free: usize,
    /// Jobs that wait for a worker.
    pub queued: usize,
    /// Places that are reserved.
    pub reserved: usize,
    /// Submitters that wait for a place.
    pub waiting: usize,
    /// Jobs that no worker runs: they run in their submitter, or in a job that waits for them.
    pub inline: usize,
    /// `true` if the pool is closed.
    pub closed: bool,
    /// Jobs taken so far.
    pub submitted: u64,
    /// Jobs that returned.
    pub completed: u64,
    /// Jobs that panicked, or ended themselves by `exit`.
    pub panicked: u64,
    /// Jobs that never ran, or were terminated.
    pub cancelled: u64,
    /// Calls that got their job back.
    pub refused: u64,
    /// Workers started so far.
    pub workers_started: u64,
    /// Workers that have left.
    pub workers_retired: u64,
    /// Workers that the system refused.
    pub workers_refused: u64,
    /// The largest number of workers that have been live at the same time.
    pub peak: usize,
}

impl PoolStats {
    /// Returns the sums of the numbers of two pools.
    #[doc(hidden)]
    pub fn plus(self, other: Self) -> Self {
        Self {
            capacity: self.capacity.saturating_add(other.capacity),
            live: self.live + other.live,
            busy: self.busy + other.busy,
            idle: self.idle + other.idle,
            free: self.free.saturating_add(other.free),
            queued: self.queued + other.queued,
            reserved: self.reserved + other.reserved,
            waiting: self.waiting + other.waiting,
            inline: self.inline + other.inline,
            closed: self.closed && other.closed,
            ..self.plus_totals(other)
        }
    }

    /// Adds the numbers that never fall.
    #[doc(hidden)]
    pub fn plus_totals(self, other: Self) -> Self {
        Self {
            submitted: self.submitted + other.submitted,
            completed: self.completed + other.completed,
            panicked: self.panicked + other.panicked,
            cancelled: self.cancelled + other.cancelled,
            refused: self.refused + other.refused,
            workers_started: self.workers_started + other.workers_started,
            workers_retired: self.workers_retired + other.workers_retired,
            workers_refused: self.workers_refused + other.workers_refused,
            peak: self.peak + other.peak,
            ..self
        }
    }
}

/// A resting or new worker, to be started with a job.
#[derive(Debug)]
pub struct Launch<J> {
    /// The number of the job.
    pub ticket: u64,
    /// The job.
    pub job: J,
    /// `true` if its start hook was called before.
    pub has_begun: bool,
}

/// The waiters to wake and the workers to start, outside the lock. Most often this is one.
#[derive(Debug)]
#[must_use]
pub struct Wakes<J> {
    pub(super) wakers: SmallVec<Waker>,
    /// In the order in which the starts were permitted.
    pub launches: SmallVec<Launch<J>>,
    /// The number of resting workers that leave and have a hook to run.
    pub leavers: usize,
    /// Set if jobs are queued because no worker could be started. The caller must arrange a
    /// [retry](super::core::PoolCore::retry).
    pub starved: bool,
    /// Set if workers may be started for queued jobs, after a step that could start none. The
    /// caller must [do so](super::core::PoolCore::employ).
    pub understaffed: bool,
}

impl<J> Default for Wakes<J> {
    fn default() -> Self {
        Self {
            wakers: SmallVec::default(),
            launches: SmallVec::default(),
            leavers: 0,
            starved: false,
            understaffed: false,
        }
    }
}

impl<J> Wakes<J> {
    /// Takes the wakers of the waiters out. The caller wakes them outside of all locks, and catches
    /// their panics, because wakers are code of the user.
    #[inline]
    pub fn wakers(&mut self) -> impl Iterator<Item = Waker> {
        debug_assert!(self.launches.is_empty(), "launches come before wake-ups");
        self.wakers.drain()
    }

    /// Wakes the waiters.
    #[cfg(test)]
    pub(super) fn wake(mut self) {
        self.wakers().for_each(Waker::wake);
    }
}
