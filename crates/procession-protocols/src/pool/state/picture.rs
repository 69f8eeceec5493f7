//! The limits of a pool, and its numbers.

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
    /// The most workers that there may be at once, besides those in places that jobs lend.
    pub capacity: usize,
    /// Workers that there are.
    pub live: usize,
    /// Live workers that have a job.
    pub busy: usize,
    /// Live workers that have no job.
    pub idle: usize,
    /// Jobs that would be taken now and get a worker at once.
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
    /// The most workers that there were at once.
    pub peak: usize,
}

impl PoolStats {
    /// Returns the sums of the numbers of two pools.
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
