//! Numbers that workers count.

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A number that one thread counts and all may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Only the count's owner may call this: it is no read-modify-write.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Ordering: Release pairs with the Acquire of `get`: what was counted before is seen by who
        // sees this.
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Release);
    }

    /// Anybody may call this, if nobody calls `add`.
    pub(crate) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
}

/// What a worker counts. Each number has one writer, but for `stolen`.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) parks: Count,
    pub(crate) searches: Count,
    pub(crate) steals: Count,
    pub(crate) stolen: Count,
    pub(crate) spawned: Count,
    pub(crate) ended: Count,
    /// Of both: spawns that came to nothing.
    pub(crate) refused: Count,
    pub(crate) panics: Count,
    pub(crate) sent: Count,
    pub(crate) received: Count,
    pub(crate) discarded: Count,
}

/// The odd step numbers in which snapshots found the workers, and when they first did.
pub(crate) type Ages = Vec<(u64, u64)>;

/// What a scheduler counts besides its workers.
#[derive(Debug, Default)]
pub(crate) struct SharedStats {
    /// What threads that are no workers count.
    pub(crate) outside: Stats,
    /// Blocking sections that were entered.
    pub(crate) blocking_sections: AtomicU64,
    pub(crate) ages: Mutex<Ages>,
}
