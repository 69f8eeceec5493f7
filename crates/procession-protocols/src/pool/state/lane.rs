//! The lanes of the jobs of a pool: a priority, and a key.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The number of priorities.
pub(super) const LEVELS: usize = 3;

/// The priority of a queued job, among the jobs that wait for a worker.
///
/// A worker takes the job of the highest priority that is queued, and of these the first. No
/// priority starves: once 8 jobs of higher priorities have been taken while a priority had jobs in
/// the queue, one of that priority is taken before any further job of a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Behind jobs of any other priority.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Before jobs of any other priority.
    High,
}

/// The priority of a job, and its key, if the jobs of that key run one after another.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobLane {
    /// The priority of the job.
    pub priority: Priority,
    /// The hash of the key. Two keys of one hash share an order, which costs only concurrency.
    pub key: Option<u64>,
}

impl JobLane {
    /// Returns this lane with a key. The hash is the same in every run of the program.
    pub fn with_key(self, key: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self { key: Some(hasher.finish()), ..self }
    }
}
