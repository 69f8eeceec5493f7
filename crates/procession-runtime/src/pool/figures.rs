//! The figures of a pool for observers of the program.

use std::sync::{Arc, Weak};

use procession_protocols::pool::state::outcome::PoolStats;

use super::engine::Inner;
use crate::observe::pool_figures::{PoolRegistry, PoolSource, THREAD_POOLS};

impl<J: Send + 'static> Inner<J> {
    /// Returns the registry of pools of this kind.
    fn registry(&self) -> &PoolRegistry {
        match &self.scheduler {
            Some(shared) => PoolRegistry::of(shared),
            None => &THREAD_POOLS,
        }
    }
}

impl<J: Send + 'static> PoolSource for Inner<J> {
    fn figures(&self) -> PoolStats {
        self.stats()
    }
}

/// Lets a new pool be observed.
pub(super) fn register<J: Send + 'static>(inner: &Arc<Inner<J>>) {
    let me: Weak<Inner<J>> = Weak::clone(&inner.me);
    inner.registered.get_or_init(|| inner.registry().add(&inner.name, me));
}

impl<J: Send + 'static> Drop for Inner<J> {
    fn drop(&mut self) {
        if let Some(&number) = self.registered.get() {
            self.registry().remove(number, self.stats());
        }
    }
}
