//! The limits of a pool, and its numbers.

/// The limits and the kind of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) capacity: usize,
    /// The most jobs that may be queued.
    pub(crate) queue: usize,
    /// The most submitters that may wait.
    pub(crate) waiting: usize,
    /// The number of workers that do not expire.
    pub(crate) kept: usize,
    /// `true` if idle workers rest, and `false` if they park.
    pub(crate) rests: bool,
    /// `true` if the workers are threads.
    pub(crate) threads: bool,
}

/// The numbers that a pool has counted since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    pub(crate) panicked: u64,
    pub(crate) cancelled: u64,
    pub(crate) refused: u64,
    pub(crate) started: u64,
    pub(crate) retired: u64,
    pub(crate) workers_refused: u64,
    pub(crate) peak: usize,
}

/// The state of a pool at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picture {
    pub(crate) capacity: usize,
    pub(crate) live: usize,
    pub(crate) idle: usize,
    pub(crate) inline: usize,
    pub(crate) queued: usize,
    pub(crate) reserved: usize,
    pub(crate) waiting: usize,
    pub(crate) closed: bool,
    pub(crate) totals: Totals,
}
