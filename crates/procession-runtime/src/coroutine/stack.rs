//! How coroutines get their stacks, and which coroutine gets a stack that becomes free.
//!
//! A stack belongs to the coroutine that runs on it. When the coroutine ends, its stack goes into
//! the cache of the seat on which it ended. A full cache passes stacks on to the slab. From there
//! any worker takes them, and any worker may empty the cache of any seat into the slab.
//!
//! A coroutine takes a stack from the cache of its seat, or else from the slab. If there is none,
//! it waits in the queue of the scheduler (the protocol is in `sync/supply_queue.rs`). The thread
//! that returns a stack looks at this queue, and hands the stack to the first coroutine in it. If
//! the stack has another size, the slab retires it and makes one of the right size. So the first
//! coroutine does not wait while a stack is free, unless that stack cannot give way: the program
//! has as many slabs as it may have, or the system does not remove a guard. All other coroutines
//! wait behind the first one, so that none overtakes it.
//!
//! A coroutine does not wait if no other coroutine has a stack, because nobody would return one.
//! This is the case if all stacks were leaked, or if the stacks of other schedulers have used up
//! the guards of the program. To decide that, each coroutine is *counted* before it takes a stack,
//! or under the lock of the queue if it is handed one, and until it has returned the stack and
//! looked at the queue. If a search finds no stack, then some coroutine with a stack is counted,
//! and it stays counted until the search is over, because it finds the queue awaited and needs its
//! lock. After it is no longer counted, it looks once more, because it may have leaked the stack,
//! and then the first coroutine in the queue fails.

use std::task::Waker;

use procession_coroutine::{Stack, StackError};
use procession_protocols::sync::wait_list::Place;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::fence;

use crate::process::served::WakeServed;
use crate::scheduler::shared::Shared;

/// Returns `true` if a stack that comes back would help.
pub(super) fn is_shortage(error: &StackError) -> bool {
    error.is_limit() || error.is_exhausted()
}

impl Shared {
    /// Waits for a stack. Returns the stack, or the reason why there never will be one, or the
    /// place in the queue.
    #[cold]
    pub(super) fn wait_for_stack(
        &self,
        bytes: usize,
        waker: Waker,
    ) -> Result<Result<Stack, StackError>, Place> {
        let search = |&bytes: &usize| self.search_stack(bytes);
        let (fetched, served) = self.coroutines.waiters.wait(bytes, waker, search);
        served.wake();
        fetched
    }

    /// Takes a coroutine that ends out of the queue.
    #[cold]
    pub(super) fn stop_waiting_for_stack(&self, place: Place) {
        let mut had_stack = false;
        let give = |handed: Result<Stack, StackError>| had_stack = handed.is_ok();
        let search = |&bytes: &usize| self.search_stack(bytes);
        if let Some(served) = self.coroutines.waiters.end(place, give, search) {
            served.wake();
        }
        if had_stack {
            self.coroutines.uncount_migrating();
        }
    }

    /// Calls `give`, which returns stacks or uncounts a coroutine, and then hands stacks to
    /// coroutines that wait.
    #[inline]
    pub(crate) fn return_stacks(&self, give: impl FnOnce()) {
        let search = |&bytes: &usize| self.search_stack(bytes);
        if let Some(served) = self.coroutines.waiters.give_back(give, search) {
            served.wake();
        }
    }

    /// Looks for a stack everywhere. Returns `None` if one may come back.
    fn search_stack(&self, bytes: usize) -> Option<Result<Stack, StackError>> {
        self.workforce.all_seats().for_each(|seat| {
            seat.stacks.empty();
        });
        let taken = self.coroutines.slab().take(bytes);
        match &taken {
            Ok(_) => self.coroutines.count_migrating(),
            Err(error) if is_shortage(error) => {
                // Either this sees that the last coroutine is no longer counted, or that coroutine
                // sees the queue awaited.
                fence(SeqCst);
                if self.coroutines.has_begun_any(&self.workforce) {
                    return None;
                }
            }
            Err(_) => {}
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
