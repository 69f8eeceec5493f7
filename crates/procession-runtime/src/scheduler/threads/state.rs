//! The threads of a scheduler: their options and their counters.

use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU32, AtomicU64};

use crate::sys::{Cpus, World};

/// The time for which no thread is started after the system has refused one. It will hardly have
/// changed its state by then, and each attempt costs a system call.
const REFUSAL_REST: u64 = 10_000_000;

/// A function that is called on threads of the scheduler.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The options that the builder sets for threads.
pub(crate) struct ThreadOptions {
    pub(crate) keep_alive: Duration,
    pub(crate) on_start: Option<Hook>,
    pub(crate) on_stop: Option<Hook>,
    /// The processors on which the threads run, unless these are all that the program may use.
    pub(crate) cpus: Option<Cpus>,
}

/// The threads of a scheduler: their options, and the outcome of their starts.
pub(crate) struct ThreadSupply {
    pub(crate) options: ThreadOptions,
    started: AtomicU32,
    refused: AtomicU32,
    /// The time until which no thread is started, because the system has just refused one.
    rest_until: AtomicU64,
    /// In a simulated system, the number of looks of the watchdog until which vacant seats may be
    /// left alone after that; `u64::MAX` if the number is not known yet.
    #[cfg(feature = "sim")]
    pub(crate) looks_in_rest: AtomicU64,
}

impl ThreadSupply {
    pub(crate) fn new(options: ThreadOptions) -> Self {
        Self {
            options,
            started: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            rest_until: AtomicU64::new(0),
            #[cfg(feature = "sim")]
            looks_in_rest: AtomicU64::new(0),
        }
    }

    /// Returns the number of threads that were started.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Relaxed)
    }

    /// Returns the number of threads that the system has refused.
    pub(crate) fn refused(&self) -> u32 {
        self.refused.load(Relaxed)
    }

    pub(crate) fn count_started(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Returns `true` if the system has refused a thread a moment ago.
    pub(crate) fn is_resting(&self, world: &World) -> bool {
        // Relaxed: a thread that reads an old value tries once more than necessary.
        !world.is_test() && world.now() < self.rest_until.load(Relaxed)
    }

    /// Notes that the system has refused a thread.
    pub(crate) fn rest(&self, world: &World) {
        self.count_refused();
        #[cfg(feature = "sim")]
        self.looks_in_rest.store(u64::MAX, Relaxed);
        self.rest_until.store(world.now().saturating_add(REFUSAL_REST), Relaxed);
    }
}
