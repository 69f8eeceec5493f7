//! The worker of a pool that runs a job on this thread.

use std::cell::Cell;

use super::state::busy::Busy;

/// The worker that runs a job on this thread, and the id of its pool.
#[derive(Clone, Copy)]
struct CurrentWorker {
    pool: u64,
    worker: Busy,
}

thread_local! {
    static CURRENT: Cell<Option<CurrentWorker>> = const { Cell::new(None) };
}

/// Marks a thread as a worker of a pool. Restores the previous mark when it is dropped.
#[must_use = "dropping it removes the mark"]
pub(super) struct Marked(Option<CurrentWorker>);

impl Drop for Marked {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Marks this thread as a worker of the pool.
pub(super) fn mark(pool: u64, worker: Busy) -> Marked {
    Marked(CURRENT.replace(Some(CurrentWorker { pool, worker })))
}

/// Returns the worker of this pool that runs a job on this thread.
pub(super) fn worker_of(pool: u64) -> Option<Busy> {
    CURRENT.get().filter(|current| current.pool == pool).map(|current| current.worker)
}
