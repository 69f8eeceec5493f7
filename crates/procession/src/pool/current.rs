//! The worker whose job runs on this thread.

use std::cell::Cell;

use super::state::busy::Busy;

/// The worker whose job runs on this thread.
#[derive(Clone, Copy)]
struct Current {
    pool: u64,
    worker: Busy,
}

thread_local! {
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// The thread works for a pool until this goes.
#[must_use = "dropped, it ends"]
pub(super) struct Marked(Option<Current>);

impl Drop for Marked {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Marks the thread as that of a worker of the pool.
pub(super) fn mark(pool: u64, worker: Busy) -> Marked {
    Marked(CURRENT.replace(Some(Current { pool, worker })))
}

/// The worker of the pool whose job runs on this thread.
pub(super) fn worker_of(pool: u64) -> Option<Busy> {
    CURRENT.get().filter(|current| current.pool == pool).map(|current| current.worker)
}
