//! The worker of a pool that runs a job on this thread.

use std::cell::Cell;
use std::rc::Rc;

use procession_protocols::pool::state::busy::Busy;

use crate::coroutine::local::Local;
use crate::scheduler::current::drive_depth;
use crate::scheduler::frame::frame;

/// The id of a pool, and that of the first member of its family.
#[derive(Clone, Copy)]
pub(super) struct PoolId {
    pub(super) family: u64,
    pub(super) pool: u64,
}

/// The worker that runs a job on this thread or in this coroutine, and the id of its pool.
#[derive(Clone, Copy)]
struct CurrentWorker {
    pool: PoolId,
    worker: Busy,
    /// The number of schedulers that the thread was driving, one inside the other. A process of a
    /// scheduler that the job drives is no part of the job.
    depth: u32,
}

type WorkerMark = Cell<Option<CurrentWorker>>;

thread_local! {
    static CURRENT: WorkerMark = const { Cell::new(None) };
}

/// The mark of each coroutine, which may go on on another thread.
static IN_COROUTINE: Local<WorkerMark> = Local::new(|| Cell::new(None));

/// Marks a thread as a worker of a pool. Restores the previous mark when it is dropped.
#[must_use = "dropping it removes the mark"]
pub(super) struct Marked(Option<CurrentWorker>);

impl Drop for Marked {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Marks this thread as a worker of the pool.
pub(super) fn mark(pool: PoolId, worker: Busy) -> Marked {
    let depth = drive_depth();
    Marked(CURRENT.replace(Some(CurrentWorker { pool, worker, depth })))
}

/// The mark of a coroutine that is a worker of a pool.
pub(super) struct CoroutineMark {
    pool: PoolId,
    mark: Rc<WorkerMark>,
}

impl CoroutineMark {
    /// Returns the mark of the calling coroutine.
    pub(super) fn of(pool: PoolId) -> Self {
        Self { pool, mark: IN_COROUTINE.here().expect("a coroutine has its locals") }
    }

    /// Notes which worker of the pool the coroutine is: the worker that runs this job.
    pub(super) fn set(&self, worker: Busy) {
        self.mark.set(Some(CurrentWorker { pool: self.pool, worker, depth: 0 }));
    }
}

/// Returns the worker of this family of pools that runs a job on this thread, and its pool.
///
/// Not inlined: a coroutine may go on on another thread, and must not keep the address of the mark.
#[inline(never)]
pub(super) fn worker_of(family: u64) -> Option<(u64, Busy)> {
    let current = if frame().is_some() {
        IN_COROUTINE.here()?.get()?
    } else {
        CURRENT.get().filter(|current| current.depth == drive_depth())?
    };
    (current.pool.family == family).then_some((current.pool.pool, current.worker))
}
