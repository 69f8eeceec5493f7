//! The waker of a block-on future.

use std::sync::Arc;
use std::task::Wake as StdWake;

use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicU8};

use crate::scheduler::shared::Shared;
use crate::sys::Parker;

/// The waker of a block-on future (*root*): a future that a thread waits for, and which is no
/// process.
///
/// The scheduler counts a root as ready from its wake-up until it has been polled. During that time
/// the test clock does not advance, even if the root's thread has not woken up yet.
pub(crate) struct BlockOnFuture {
    shared: Arc<Shared>,
    state: AtomicU8,
    /// Set while its thread asks whether it may wait (`scheduler/wait_cycle.rs`).
    asks: AtomicBool,
    /// Set while the future is being polled, and after the poll that completed it.
    polls: AtomicBool,
    /// The parker of the thread while it has no seat.
    pub(crate) parker: Parker,
}

mod phase {
    pub(super) const WAITS: u8 = 0;
    /// Woken, to be polled, and counted.
    pub(super) const READY: u8 = 1;
    /// Complete. It is not polled any more.
    pub(super) const GONE: u8 = 2;
}

impl BlockOnFuture {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.begin_outstanding();
        Self {
            shared: Arc::clone(shared),
            state: AtomicU8::new(phase::READY),
            asks: AtomicBool::new(false),
            polls: AtomicBool::new(false),
            parker: Parker::default(),
        }
    }

    /// Returns the scheduler that runs what the root waits for.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns `true` if its thread waits for it, or is about to, and nothing has woken it.
    pub(crate) fn stands_still(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `poll_if_ready`, twice: a thread that finds
        // the wake-up taken finds the root being polled, and a thread that finds the poll over
        // finds a wake-up that happened during the poll. The Acquire of `asks` pairs with the
        // Release of `set_asking`.
        self.asks.load(Acquire)
            || !self.polls.load(Acquire)
                && self.state.load(Acquire) == phase::WAITS
                && !self.polls.load(Acquire)
    }

    /// Notes that its thread asks whether it may wait, or has stopped asking.
    pub(crate) fn set_asking(&self, asks: bool) {
        // Ordering: Release pairs with the Acquire of `stands_still`.
        self.asks.store(asks, Release);
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `wake`.
        self.state.load(Acquire) == phase::READY
    }

    /// Polls the future if it was woken. Returns `true` if it is complete.
    #[inline]
    pub(crate) fn poll_if_ready(&self, poll: &mut dyn FnMut() -> bool) -> bool {
        // Ordering: Acquire pairs with the Release of `wake`. A load first, because this runs
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
        let _counted = RootPolled(&self.shared);
        let is_complete = poll();
        // Ordering: Release pairs with the Acquire of `stands_still`.
        self.polls.store(is_complete, Release);
        is_complete
    }
}

/// Counts a root as ready while it is polled, even if the poll panics.
struct RootPolled<'a>(&'a Shared);

impl Drop for RootPolled<'_> {
    fn drop(&mut self) {
        self.0.end_outstanding();
    }
}

/// The thread's own reference to its root. Dropping it makes the root `GONE`.
pub(crate) struct BlockOnHold(pub(crate) Arc<BlockOnFuture>);

impl Drop for BlockOnHold {
    fn drop(&mut self) {
        if self.0.state.swap(phase::GONE, AcqRel) == phase::READY {
            self.0.shared.end_outstanding();
        }
    }
}

impl StdWake for BlockOnFuture {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.shared.note_foreign_wake();
        // Counted before the root can be seen as ready, so that the count is never smaller than the
        // true number.
        self.shared.begin_outstanding();
        // Ordering: Release pairs with the Acquire of `poll_if_ready`.
        if self.state.compare_exchange(phase::WAITS, phase::READY, AcqRel, Acquire).is_err() {
            return self.shared.end_outstanding();
        }
        self.parker.unpark();
        if self.shared.callers.drive {
            // The thread that waits may be the thread in the first seat.
            self.shared.workforce.wake_this(SeatId(0));
        }
    }
}
