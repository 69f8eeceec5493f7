//! The numbers of a pool.

use procession_protocols::pool::state::picture::Picture;

/// The numbers of a pool, all taken at the same moment.
///
/// Two equations always hold:
/// - `live == busy + idle`
/// - `submitted == completed + panicked + cancelled + queued + busy + inline`
// These are more than 15 fields. They are flat, so that a caller reads each number by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The maximum number of workers at the same time, not counting workers in places that jobs
    /// lend.
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
    /// Jobs that panicked, or ended themselves by [`exit`](crate::exit()).
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
    /// The greatest number of workers at the same time so far.
    pub peak: usize,
}

impl PoolStats {
    pub(super) fn plus(self, other: Self) -> Self {
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
            submitted: self.submitted + other.submitted,
            completed: self.completed + other.completed,
            panicked: self.panicked + other.panicked,
            cancelled: self.cancelled + other.cancelled,
            refused: self.refused + other.refused,
            workers_started: self.workers_started + other.workers_started,
            workers_retired: self.workers_retired + other.workers_retired,
            workers_refused: self.workers_refused + other.workers_refused,
            peak: self.peak + other.peak,
        }
    }

    pub(super) fn of(picture: &Picture) -> Self {
        let Picture { capacity, live, idle, inline, queued, reserved, waiting, closed, totals } =
            *picture;
        let busy = live - idle;
        Self {
            capacity,
            live,
            busy,
            idle,
            free: if closed { 0 } else { capacity.saturating_sub(busy + queued + reserved) },
            queued,
            reserved,
            waiting,
            inline,
            closed,
            submitted: totals.submitted,
            completed: totals.completed,
            panicked: totals.panicked,
            cancelled: totals.cancelled,
            refused: totals.refused,
            workers_started: totals.started,
            workers_retired: totals.retired,
            workers_refused: totals.workers_refused,
            peak: totals.peak,
        }
    }
}
