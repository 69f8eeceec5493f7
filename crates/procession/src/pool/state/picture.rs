//! What a pool is like, and how it does.

/// What a pool is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) capacity: usize,
    /// Jobs that may be queued.
    pub(crate) queue: usize,
    /// Submitters that may wait.
    pub(crate) waiting: usize,
    /// Workers that do not expire.
    pub(crate) kept: usize,
    /// Idle workers rest, instead of parking.
    pub(crate) rests: bool,
    /// Workers are threads.
    pub(crate) threads: bool,
}

/// What a pool has counted since it was made.
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

/// What a pool looks like at one moment.
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
