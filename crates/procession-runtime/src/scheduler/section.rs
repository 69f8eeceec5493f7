//! Blocking sections: a thread waits in the system, or for a future.

use std::rc::Rc;
use std::sync::Arc;

use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::scheduler::wait_cycle;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::thread;

use crate::scheduler::current;
use crate::scheduler::frame::Quiet;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::registered_root::{RegisteredRoot, ask_in_program};
use crate::scheduler::root::BlockOnFuture;

/// A blocking section of this thread. While it lasts, the thread's worker, if it is one, has no
/// permit.
///
/// A coroutine is not suspended in a section. Otherwise the worker would run other processes
/// without a permit, and the section would end while they run.
#[must_use]
pub(crate) struct Section(
    Option<Rc<LocalWorker>>,
    #[expect(dead_code, reason = "held for its drop")] Quiet,
);

impl Section {
    pub(crate) fn enter() -> Self {
        let local = current::worker();
        if let Some(local) = &local {
            local.enter_section();
        }
        Self(local, Quiet::begin())
    }

    /// Registers that this thread waits for a block-on future. Returns `None` if the thread is in a
    /// process and no thread would be left to run what the future waits for. While the thread
    /// panics, it is never refused.
    pub(crate) fn wait_for(&self, root: &Arc<BlockOnFuture>) -> Option<WaitNote<'_>> {
        let Some(local) = &self.0 else { return Some(WaitNote(None)) };
        let registered = RegisteredRoot::new(&local.shared.callers, local.seat, root);
        let is_free = !local.step.is_any() || thread::panicking();
        let shared = &local.shared;
        let rest = shared.workforce.rest();
        if is_free || rest.has_thread {
            return Some(WaitNote(Some(registered)));
        }
        if Arc::ptr_eq(shared, root.shared()) {
            // Relaxed: the lock of the seats, under which `rest` looks, shows the flag of each
            // thread that has looked before (`scheduler/wait_cycle.rs`).
            let is_in_section = |seat: SeatId| shared.workforce.seat(seat).in_section.load(Relaxed);
            let waits = wait_cycle::one_returns(rest.out, is_in_section);
            return waits.then(|| WaitNote(Some(registered)));
        }
        ask_in_program(registered, root).map(|registered| WaitNote(Some(registered)))
    }
}

/// The note of what this thread waits for. Its drop removes the note.
#[must_use]
pub(crate) struct WaitNote<'a>(
    #[expect(dead_code, reason = "its drop tells that the wait is over")]
    Option<RegisteredRoot<'a>>,
);

impl Drop for Section {
    fn drop(&mut self) {
        if let Some(local) = &self.0 {
            local.leave_section();
        }
    }
}
