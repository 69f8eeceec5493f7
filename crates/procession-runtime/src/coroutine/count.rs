//! The counts of begun coroutines, and of other processes that stay on a thread.

use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use crate::process::residence::ResidentKind;
use crate::scheduler::seat::Seat;
use crate::scheduler::supply::Supply;
use crate::scheduler::workforce::Workforce;

impl Supply {
    /// Returns `true` if any coroutine of the scheduler may have a stack. A coroutine is counted
    /// before it takes a stack, or under the lock of the queue if it is handed one, and until after
    /// it has returned the stack.
    pub(crate) fn has_begun_any(&self, workforce: &Workforce) -> bool {
        // Ordering: Acquire pairs with the decrement in `uncount_migrating`, before which a
        // coroutine that was handed a stack is counted for its seat.
        self.migrating.load(Acquire) > 0
            || workforce.all_seats().any(|seat| seat.coroutines.load(Relaxed) > 0)
    }

    /// Counts a coroutine that has a stack and no seat.
    pub(crate) fn count_migrating(&self) {
        self.migrating.fetch_add(1, Relaxed);
    }

    /// Uncounts a coroutine that had a stack and no seat.
    pub(crate) fn uncount_migrating(&self) {
        // Ordering: SeqCst, as in `uncount_resident`.
        self.migrating.fetch_sub(1, SeqCst);
    }
}

impl Seat {
    /// Returns the number of processes that stay here.
    pub(crate) fn residents(&self) -> u32 {
        // Relaxed: the thread that sits here has itself counted the processes that have begun here.
        // For other threads this is a hint.
        self.coroutines.load(Relaxed).saturating_add(self.locals.load(Relaxed))
    }

    /// Counts a process that stays here, or will.
    pub(crate) fn count_resident(&self, kind: ResidentKind) {
        self.residents_of(kind).fetch_add(1, Relaxed);
    }

    /// Uncounts a process that has ended, or will not begin here now.
    pub(crate) fn uncount_resident(&self, kind: ResidentKind) {
        // Ordering: SeqCst, because a SeqCst look at the queue for stacks follows, and pairs with
        // the fence of a search (`coroutine/stack.rs`).
        self.residents_of(kind).fetch_sub(1, SeqCst);
    }

    fn residents_of(&self, kind: ResidentKind) -> &AtomicU32 {
        match kind {
            ResidentKind::Coroutine => &self.coroutines,
            ResidentKind::Local => &self.locals,
        }
    }
}

#[cfg(test)]
mod tests;
