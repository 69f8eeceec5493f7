//! How the memory of stacks that nobody needs goes back to the system.
//!
//! After a burst of coroutines, their stacks are free and still have memory. While there are such
//! stacks in the slab, the scheduler has a timer, and the time for which it keeps idle threads is
//! also the period of the slab (`Stacks::expire`). So a stack gives its memory back after one to
//! two of these times without use. When no free stack has memory, there is no timer, so a program
//! that does nothing does not wake for this.
//!
//! The stacks in the caches of seats keep their memory: 64 for each worker at most.

use std::sync::Arc;

use procession_coroutine::Expiry;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::shared::Shared;
use crate::sys::nanoseconds;
use crate::time::action::Action;
use crate::time::arm::arm;

/// The number of stacks of each size that the function of the timer takes at once, because the
/// worker that fires it runs nothing else meanwhile: some 0.2 ms.
const BATCH: usize = 100;

/// The nanoseconds between two batches, so that giving much memory back takes a small part of a
/// processor.
const PAUSE: u64 = 10_000_000;

impl Shared {
    /// Sees to it that free stacks expire. Called after stacks went to the slab.
    pub(crate) fn let_stacks_expire(&self) {
        // Relaxed: either `expire_stacks` finds the stacks in the slab, or the lock of the slab
        // makes its store visible here.
        if !self.coroutines.expires.load(Relaxed) {
            self.expire_stacks_in(nanoseconds(self.workforce.threads.options.keep_alive));
        }
    }

    #[cold]
    fn expire_stacks_in(&self, time: u64) {
        // Relaxed: as above.
        if self.coroutines.expires.swap(true, Relaxed) {
            return;
        }
        let scheduler = self.identity.me.clone();
        let expire = move || {
            if let Some(shared) = scheduler.upgrade() {
                shared.expire_stacks();
            }
        };
        let when = self.world.now().saturating_add(time);
        if arm(self, when, None, Action::Call(Arc::new(expire))).is_err() {
            // No timer is left. The next stacks that go to the slab are another occasion.
            self.coroutines.expires.store(false, Relaxed);
        }
    }

    fn expire_stacks(&self) {
        // Before the stacks are looked at, so that stacks which come later set another timer.
        self.coroutines.expires.store(false, Relaxed);
        // This call holds stacks for a moment, like a coroutine (`coroutine/stack.rs`).
        self.coroutines.count_migrating();
        let expiry = self.coroutines.slab().expire(BATCH);
        self.return_stacks(|| self.coroutines.uncount_migrating());
        match expiry {
            Expiry::More => self.expire_stacks_in(PAUSE),
            Expiry::Later => self.let_stacks_expire(),
            Expiry::Done => {}
        }
    }
}

#[cfg(test)]
mod tests;
