//! What a scheduler knows of its threads.

use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU32, AtomicU64};

use crate::sys::{Cpus, World};

/// How long no thread is started after the system has refused one: it will hardly have changed its
/// mind, and to ask costs a system call.
const REFUSAL_REST: u64 = 10_000_000;

/// A function that is called on threads of the scheduler.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// What the builder says about threads.
pub(crate) struct ThreadOptions {
    pub(crate) keep_alive: Duration,
    pub(crate) on_start: Option<Hook>,
    pub(crate) on_stop: Option<Hook>,
    /// On which processors they run, if not on all that the program may use.
    pub(crate) cpus: Option<Cpus>,
}

/// The threads of a scheduler: their options, and how the system has answered.
pub(crate) struct ThreadSupply {
    pub(crate) options: ThreadOptions,
    started: AtomicU32,
    refused: AtomicU32,
    /// Until when no thread is started, since the system has just refused one.
    rest_until: AtomicU64,
}

impl ThreadSupply {
    pub(crate) fn new(options: ThreadOptions) -> Self {
        Self {
            options,
            started: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            rest_until: AtomicU64::new(0),
        }
    }

    /// How many threads were started.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Relaxed)
    }

    /// How many the system has refused.
    pub(crate) fn refused(&self) -> u32 {
        self.refused.load(Relaxed)
    }

    pub(crate) fn count_started(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Whether the system has refused a thread a moment ago.
    pub(crate) fn is_resting(&self, world: &World) -> bool {
        // Relaxed: whoever reads an old value tries once more than need be.
        !world.is_test() && world.now() < self.rest_until.load(Relaxed)
    }

    /// The system has refused a thread.
    pub(crate) fn rest(&self, world: &World) {
        self.count_refused();
        self.rest_until.store(world.now().saturating_add(REFUSAL_REST), Relaxed);
    }
}
