//! The figures of a pool for observers of the program.

use std::sync::{Arc, Weak};

use super::engine::Inner;
use crate::observe::pool_figures::{PoolFigures, PoolRegistry, PoolSource, THREAD_POOLS};

impl<J> Inner<J> {
    /// Returns the registry of pools of this kind.
    fn registry(&self) -> &PoolRegistry {
        match self.engine.scheduler() {
            Some(shared) => PoolRegistry::of(shared),
            None => &THREAD_POOLS,
        }
    }

    fn pool_figures(&self) -> PoolFigures {
        let stats = self.stats();
        PoolFigures {
            capacity: stats.capacity as u64,
            busy: stats.busy as u64,
            idle: stats.idle as u64,
            queued: stats.queued as u64,
            waiting: stats.waiting as u64,
            completed: stats.completed,
            panicked: stats.panicked,
            cancelled: stats.cancelled,
            refused: stats.refused,
            workers_started: stats.workers_started,
        }
    }
}

impl<J: Send + 'static> PoolSource for Inner<J> {
    fn figures(&self) -> PoolFigures {
        self.pool_figures()
    }
}

/// Lets a new pool be observed.
pub(super) fn register<J: Send + 'static>(inner: &Arc<Inner<J>>) {
    let me: Weak<Inner<J>> = Weak::clone(&inner.me);
    inner.registered.get_or_init(|| inner.registry().add(&inner.name, me));
}

impl<J> Drop for Inner<J> {
    fn drop(&mut self) {
        if let Some(&number) = self.registered.get() {
            self.registry().remove(number, self.pool_figures());
        }
    }
}
