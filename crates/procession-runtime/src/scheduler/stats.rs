//! The counters of workers.

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::Exit;

/// A counter with one writer, which all threads may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds to the count. Only the count's owner may call this: it is no read-modify-write.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Ordering: Release pairs with the Acquire of `get`: a thread that sees this count sees
        // what was counted before.
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Release);
    }

    /// Adds to the count. Any thread may call this if none calls `add`.
    pub(crate) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
}

/// The counters of a worker. Each has one writer, except `stolen`.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) parks: Count,
    pub(crate) searches: Count,
    pub(crate) steals: Count,
    pub(crate) stolen: Count,
    pub(crate) spawned: Count,
    pub(crate) ended: Count,
    /// Counted among both `spawned` and `ended`: spawns that were refused.
    pub(crate) refused: Count,
    pub(crate) panics: Count,
    /// Processes that ended by a kill.
    pub(crate) killed: Count,
    /// Processes that were shut down.
    pub(crate) stopped: Count,
    /// Processes that lost their connections.
    pub(crate) disconnected: Count,
    /// Processes that ended with any other exit that is not normal.
    pub(crate) failed: Count,
    pub(crate) sent: Count,
    pub(crate) received: Count,
    pub(crate) discarded: Count,
    /// Messages that a mailbox did not take, and that went back to their senders.
    pub(crate) returned: Count,
    /// Nanoseconds in steps, by samples. Written by the watchdog.
    pub(crate) busy: Count,
    /// Since when nothing was taken from a queue that holds something, or 0. Written by the
    /// watchdog.
    pub(crate) queued_since: AtomicU64,
}

impl Stats {
    /// Counts an exit that is not normal, before the process counts as ended. Only the owner of the
    /// counters may call this.
    pub(crate) fn count_exit(&self, exit: &Exit) {
        match exit {
            Exit::Normal => {}
            Exit::Shutdown | Exit::NameLost(_) => self.stopped.add(1),
            Exit::Panicked(_) => self.panics.add(1),
            Exit::Killed => self.killed.add(1),
            Exit::Disconnected(_) => self.disconnected.add(1),
            _ => self.failed.add(1),
        }
    }
}

/// The odd step numbers in which snapshots found the workers, and the times of the first such
/// snapshot.
pub(crate) type Ages = Vec<(u64, u64)>;

/// The counters of a scheduler outside its workers.
#[derive(Debug, Default)]
pub(crate) struct SharedStats {
    /// The counters of threads that are no workers.
    pub(crate) outside: Stats,
    /// The number of blocking sections that were entered.
    pub(crate) blocking_sections: AtomicU64,
    pub(crate) ages: Mutex<Ages>,
}
