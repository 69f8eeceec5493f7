//! The lanes of the jobs of a pool: a priority, and a key.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::process::priority::Priority;

/// The number of priorities.
pub(super) const LEVELS: usize = 3;

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
