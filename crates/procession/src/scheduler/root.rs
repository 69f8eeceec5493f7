//! What wakes a future that a thread waits for.

use std::sync::Arc;
use std::task::Wake as StdWake;

use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicU8};

use crate::scheduler::shared::Shared;
use crate::sys::Parker;

/// What wakes a root future: a future that a thread waits for, and which is no process.
///
/// A root that is `READY` is counted by its scheduler from its wake-up until it has been polled:
/// the test clock stands still for it, also while its thread has not woken up yet.
pub(crate) struct Root {
    shared: Arc<Shared>,
    state: AtomicU8,
    /// Whether its thread asks whether it may wait (`scheduler/wait_cycle.rs`).
    asks: AtomicBool,
    /// Whether it is being polled, or was complete then.
    polls: AtomicBool,
    /// Where the thread parks while it has no seat.
    pub(crate) parker: Parker,
}

mod phase {
    pub(super) const WAITS: u8 = 0;
    /// Woken, and to be polled; counted.
    pub(super) const READY: u8 = 1;
    /// Complete: nobody polls it any more.
    pub(super) const GONE: u8 = 2;
}

impl Root {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.count_ready_root();
        Self {
            shared: Arc::clone(shared),
            state: AtomicU8::new(phase::READY),
            asks: AtomicBool::new(false),
            polls: AtomicBool::new(false),
            parker: Parker::default(),
        }
    }

    /// The scheduler that runs what it waits for.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether its thread waits for it, or is about to, and nothing has woken it.
    pub(crate) fn stands_still(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `poll_if_ready`, twice: whoever finds it
        // taken finds it being polled, and whoever finds that over finds the wake-up that came
        // meanwhile. That of `asks` pairs with `set_asking`.
        self.asks.load(Acquire)
            || !self.polls.load(Acquire)
                && self.state.load(Acquire) == phase::WAITS
                && !self.polls.load(Acquire)
    }

    /// Its thread asks whether it may wait, or does so no more.
    pub(crate) fn set_asking(&self, asks: bool) {
        // Ordering: Release pairs with the Acquire of `stands_still`.
        self.asks.store(asks, Release);
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `wake`.
        self.state.load(Acquire) == phase::READY
    }

    /// Polls the future if it was woken; says whether it is complete.
    #[inline]
    pub(crate) fn poll_if_ready(&self, poll: &mut dyn FnMut() -> bool) -> bool {
        // Ordering: Acquire pairs with the Release of `wake`. A load first: this is looked at
        // before every dispatch.
        if !self.is_ready() {
            return false;
        }
        // Relaxed: published by the Release of the exchange, which pairs with the Acquire of
        // `stands_still`.
        self.polls.store(true, Relaxed);
        if self.state.compare_exchange(phase::READY, phase::WAITS, AcqRel, Relaxed).is_err() {
            self.polls.store(false, Relaxed);
            return false;
        }
        let _counted = Counted(&self.shared);
        let is_complete = poll();
        // Ordering: Release pairs with the Acquire of `stands_still`.
        self.polls.store(is_complete, Release);
        is_complete
    }
}

/// A root that is counted as ready while it is polled, also if the poll panics.
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.uncount_ready_root();
    }
}

/// The thread's own hold of the root: when it goes, the root is `GONE`.
pub(crate) struct RootHold(pub(crate) Arc<Root>);

impl Drop for RootHold {
    fn drop(&mut self) {
        if self.0.state.swap(phase::GONE, AcqRel) == phase::READY {
            self.0.shared.uncount_ready_root();
        }
    }
}

impl StdWake for Root {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Before it is seen to be ready, so that the count is never too small.
        self.shared.count_ready_root();
        // Ordering: Release pairs with the Acquire of `poll_if_ready`.
        if self.state.compare_exchange(phase::WAITS, phase::READY, AcqRel, Acquire).is_err() {
            return self.shared.uncount_ready_root();
        }
        self.parker.unpark();
        if self.shared.callers.drive {
            // It may be this thread that sits there.
            self.shared.wake_caller();
        }
    }
}
