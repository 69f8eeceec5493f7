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

/// The numbers that a pool has counted since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Jobs taken.
    pub submitted: u64,
    /// Jobs that returned.
    pub completed: u64,
    /// Jobs that panicked, or ended themselves.
    pub panicked: u64,
    /// Jobs that never ran, or were terminated.
    pub cancelled: u64,
    /// Calls that got their job back.
    pub refused: u64,
    /// Workers started.
    pub started: u64,
    /// Workers that have left.
    pub retired: u64,
    /// Workers that the system refused.
    pub workers_refused: u64,
    /// The largest number of workers that have been live at the same time.
    pub peak: usize,
}

/// The state of a pool at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Picture {
    /// The maximum number of workers, not counting workers in places that jobs lend.
    pub capacity: usize,
    /// Workers that there are.
    pub live: usize,
    /// Live workers that have no job.
    pub idle: usize,
    /// Jobs that no worker runs: they run in their submitter, or in a job that waits for them.
    pub inline: usize,
    /// Jobs that wait for a worker.
    pub queued: usize,
    /// Places that are reserved.
    pub reserved: usize,
    /// Submitters that wait for a place.
    pub waiting: usize,
    /// `true` if the pool is closed.
    pub closed: bool,
    /// What the pool has counted since it was built.
    pub totals: Totals,
}
