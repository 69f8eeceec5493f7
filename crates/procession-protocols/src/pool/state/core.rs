//! The lock of a pool, and the way into it.

use procession_sync::{Mutex, MutexGuard, lock_with_backoff};

use super::mutation;
use super::outcome::{Limits, Wakes};
use super::synced::Synced;

/// The state of a pool. It has its own cache lines, because its neighbours in memory are the
/// reference counts of the pool, which every starting worker changes.
#[derive(Debug)]
#[repr(align(64))]
pub struct PoolCore<J, const MUTATION: u8 = { mutation::BUILT }> {
    state: Mutex<Synced<J>>,
    /// `true` if a thread that finds the lock held backs off.
    backs_off: bool,
}

impl<J, const MUTATION: u8> PoolCore<J, MUTATION> {
    /// Creates an open pool without workers.
    pub fn new(limits: Limits) -> Self {
        Self { state: Mutex::new(Synced::new(limits)), backs_off: limits.threads }
    }

    pub(super) fn look<R>(&self, look: impl FnOnce(&mut Synced<J>) -> R) -> R {
        look(&mut self.lock())
    }

    // Apart from `look`, which is compiled once for each closure.
    fn lock(&self) -> MutexGuard<'_, Synced<J>> {
        if self.backs_off { lock_with_backoff(&self.state) } else { self.state.lock() }
    }

    pub(super) fn change<R>(
        &self,
        change: impl FnOnce(&mut Synced<J>, &mut Wakes<J>) -> R,
    ) -> (R, Wakes<J>) {
        let mut wakes = Wakes::default();
        let result = self.look(|state| change(state, &mut wakes));
        (result, wakes)
    }
}
