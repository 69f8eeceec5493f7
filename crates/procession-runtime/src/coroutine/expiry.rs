//! How the memory of stacks that nobody needs goes back to the system.
//!
//! After a burst of coroutines, their stacks are free and still have memory. When a worker passes
//! stacks on to the slab, it sets a timer, unless there is one (`sync/upkeep.rs`). The time for
//! which the scheduler keeps idle threads is also the period of the slab (`Stacks::end_period`). So
//! a stack expires after one to two of these times without use. When no free stack of the slab has
//! memory, there is no timer, so a program that does nothing does not wake for this.
//!
//! The stacks in the caches of seats keep their memory: 64 for each worker at most.

use std::sync::Arc;

use procession_coroutine::Expiry;
use procession_protocols::scheduler::seat_id::NEVER;

use crate::scheduler::shared::Shared;
use crate::sys::nanoseconds;
use crate::time::action::Action;
use crate::time::arm::arm_function;

/// The number of stacks of each size that the function of the timer takes at once, because the
/// worker that fires it runs nothing else meanwhile: some 0.2 ms.
const BATCH: usize = 100;

/// The nanoseconds between two batches, so that giving much memory back takes a small part of a
/// processor.
const PAUSE: u64 = 10_000_000;

/// The shortest period in nanoseconds. Otherwise stacks would lose and get memory all the time.
const PERIOD_MIN: u64 = 1_000_000_000;

impl Shared {
    /// Sees to it that free stacks expire. Called after stacks went to the slab.
    pub(crate) fn let_stacks_expire(&self) {
        if self.coroutines.expiry.arrange() {
            self.end_period_later();
        }
    }

    #[cold]
    fn end_period_later(&self) {
        let period = nanoseconds(self.workforce.threads.options.keep_alive).max(PERIOD_MIN);
        self.expire_stacks_in(period, true);
    }

    /// Sets the timer, which is arranged.
    fn expire_stacks_in(&self, time: u64, ends_period: bool) {
        let when = self.world.now().saturating_add(time);
        if when == NEVER {
            // It stays arranged, so no stack expires.
            return;
        }
        let scheduler = self.identity.me.clone();
        let expire = move || {
            if let Some(shared) = scheduler.upgrade() {
                shared.expire_stacks(ends_period);
            }
        };
        if arm_function(self, when, None, Action::Call(Arc::new(expire))).is_err() {
            // No timer is left. The next stacks that go to the slab are another occasion.
            self.coroutines.expiry.give_up();
        }
    }

    fn expire_stacks(&self, ends_period: bool) {
        let supply = &self.coroutines;
        if ends_period {
            supply.slab().end_period();
        }
        // This call holds stacks for a moment. Like a coroutine that ends, it is counted until it
        // has returned them and looked at the queue (`coroutine/stack.rs`).
        supply.count_migrating();
        let mut expiry = Expiry::Done;
        self.return_stacks(|| expiry = supply.slab().release_expired(BATCH));
        self.return_stacks(|| supply.uncount_migrating());
        match expiry {
            Expiry::More => self.expire_stacks_in(PAUSE, false),
            Expiry::Later => self.end_period_later(),
            Expiry::Done => {
                if supply.expiry.rest(|| supply.slab().release_expired(0) != Expiry::Done) {
                    self.end_period_later();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
