//! The counts of begun coroutines, and the coroutines that wait for a stack.

use std::task::Waker;

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::scheduler::seat_id::SeatId;
use crate::scheduler::shared::Shared;

impl Shared {
    /// Counts a coroutine that has begun: on its seat, if it stays on one.
    pub(crate) fn count_coroutine(&self, seat: Option<SeatId>) {
        let count = seat.map_or(&self.migrating, |seat| &self.seat(seat).coroutines);
        count.fetch_add(1, Relaxed);
    }

    /// Uncounts a coroutine that has ended.
    pub(crate) fn uncount_coroutine(&self, seat: Option<SeatId>) {
        let count = seat.map_or(&self.migrating, |seat| &self.seat(seat).coroutines);
        count.fetch_sub(1, Relaxed);
    }

    /// Returns `true` if any coroutine has begun and not ended.
    pub(crate) fn has_coroutines(&self) -> bool {
        self.migrating.load(Relaxed) > 0
            || self.all_seats().any(|seat| seat.coroutines.load(Relaxed) > 0)
    }

    /// Registers a coroutine that found no stack, to be woken when there may be one. The caller
    /// then tries once more.
    pub(crate) fn wait_for_stack(&self, waker: Waker) {
        self.stack_waiters.lock().push(waker);
        self.has_stack_waiters.store(true, SeqCst);
    }

    /// Wakes the waiting coroutines after a stack came back.
    ///
    /// Stacks come and go under a lock. If the second try of a waiting coroutine takes that lock
    /// later, it finds the stack. If it took the lock before, the coroutine is seen here.
    pub(crate) fn note_stack_room(&self) {
        // Relaxed: the lock of the stacks orders it.
        if self.has_stack_waiters.load(Relaxed) {
            self.wake_stack_waiters();
        }
    }

    /// Wakes all coroutines that wait for a stack, because one came back or is about to.
    #[cold]
    pub(crate) fn wake_stack_waiters(&self) {
        self.has_stack_waiters.store(false, SeqCst);
        let waiters = std::mem::take(&mut *self.stack_waiters.lock());
        for waiter in waiters {
            drop(crate::process::unwind::guarded(|| waiter.wake()));
        }
    }
}
