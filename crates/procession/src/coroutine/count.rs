//! Coroutines that have begun, and those that wait for a stack.

use std::task::Waker;

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::scheduler::seat_id::SeatId;
use crate::scheduler::shared::Shared;

impl Shared {
    /// A coroutine has begun: on this seat, if it stays on one.
    pub(crate) fn count_coroutine(&self, seat: Option<SeatId>) {
        let count = seat.map_or(&self.migrating, |seat| &self.seat(seat).coroutines);
        count.fetch_add(1, Relaxed);
    }

    /// A coroutine has ended.
    pub(crate) fn uncount_coroutine(&self, seat: Option<SeatId>) {
        let count = seat.map_or(&self.migrating, |seat| &self.seat(seat).coroutines);
        count.fetch_sub(1, Relaxed);
    }

    /// Whether any coroutine has begun and not ended.
    pub(crate) fn has_coroutines(&self) -> bool {
        self.migrating.load(Relaxed) > 0
            || self.all_seats().any(|seat| seat.coroutines.load(Relaxed) > 0)
    }

    /// A coroutine found no stack left: it is woken when there may be one. The caller tries once
    /// more.
    pub(crate) fn wait_for_stack(&self, waker: Waker) {
        self.stack_waiters.lock().push(waker);
        self.has_stack_waiters.store(true, SeqCst);
    }

    /// After a stack came back. Stacks come and go under a lock. Either the second try of a
    /// coroutine that waits takes that lock later, and finds the stack; or it took the lock before,
    /// and is seen here.
    pub(crate) fn note_stack_room(&self) {
        // Relaxed: that lock orders it.
        if self.has_stack_waiters.load(Relaxed) {
            self.wake_stack_waiters();
        }
    }

    /// A stack came back, or is about to.
    #[cold]
    pub(crate) fn wake_stack_waiters(&self) {
        self.has_stack_waiters.store(false, SeqCst);
        let waiters = std::mem::take(&mut *self.stack_waiters.lock());
        for waiter in waiters {
            drop(crate::process::unwind::guarded(|| waiter.wake()));
        }
    }
}
