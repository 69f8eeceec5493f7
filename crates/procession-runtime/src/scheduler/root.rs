//! Block-on futures, and the threads that wait for them: they work for a scheduler, or wait for it,
//! without being its own workers.

use std::mem;
use std::sync::{Arc, OnceLock};
use std::task::{Wake as StdWake, Waker};

use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

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
    /// The slot of the process whose step blocks on the future, if it belongs to the same
    /// scheduler.
    pub(crate) process: OnceLock<u32>,
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
            process: OnceLock::new(),
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
        if let Some(&slot) = self.process.get() {
            self.shared.processes.edges.wake_blocked(slot);
        }
        self.parker.unpark();
        if self.shared.callers.drive {
            // The thread that waits may be the thread in the first seat.
            self.shared.workforce.wake_this(SeatId(0));
        }
    }
}

/// The callers of a scheduler.
pub(crate) struct Callers {
    /// `true` if the first seat is the callers' seat.
    pub(crate) drive: bool,
    /// The wakers of callers without a seat, by number. A caller has one entry at most, from its
    /// wait until the seat is left or the caller goes.
    waiting: Mutex<SortedMap<u64, Waker>>,
    last: AtomicU64,
    /// For each seat with a thread that waits in a process, the innermost block-on future that this
    /// thread waits for (`scheduler/wait_cycle.rs`).
    roots: Mutex<Vec<(SeatId, Arc<BlockOnFuture>)>>,
    /// The number of threads that wait until all is idle. The test clock stands still for them.
    pub(crate) idle_waits: AtomicU32,
    /// The parkers of these threads, for the threads that do not drive.
    idle_watchers: Mutex<Vec<Arc<Parker>>>,
}

impl Callers {
    pub(crate) fn new(drive: bool) -> Self {
        Self {
            drive,
            waiting: Mutex::default(),
            last: AtomicU64::new(0),
            roots: Mutex::new(Vec::new()),
            idle_waits: AtomicU32::new(0),
            idle_watchers: Mutex::new(Vec::new()),
        }
    }

    /// Returns a number for a caller.
    pub(crate) fn number(&self) -> u64 {
        // Relaxed: the numbers only have to differ.
        self.last.fetch_add(1, Relaxed)
    }

    /// Registers the waker of a caller without a seat, to be woken when the callers' seat is free.
    pub(crate) fn wait_for_seat(&self, number: u64, caller: &Waker) {
        let mut callers = self.waiting.lock();
        // The waker belongs to a block-on future and is not the user's code.
        callers.get_or_insert_with(number, || caller.clone());
    }

    /// Removes a caller that no longer waits for the seat.
    pub(crate) fn forget(&self, number: u64) {
        let left = self.waiting.lock().remove(&number);
        drop(left);
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Takes the wakers of all callers that wait for the seat.
    pub(crate) fn take_waiting(&self) -> impl Iterator<Item = Waker> + use<> {
        mem::take(&mut *self.waiting.lock()).into_values()
    }

    /// Changes the block-on future that the thread of a seat waits for, and returns the one before.
    pub(crate) fn replace_root(
        &self,
        seat: SeatId,
        root: Option<Arc<BlockOnFuture>>,
    ) -> Option<Arc<BlockOnFuture>> {
        let mut roots = self.roots.lock();
        let place = roots.iter().position(|(other, _)| *other == seat);
        let before = place.map(|place| roots.swap_remove(place).1);
        roots.extend(root.map(|root| (seat, root)));
        before
    }

    /// Returns the block-on future that the thread of a seat waits for.
    pub(crate) fn root_of(&self, seat: SeatId) -> Option<Arc<BlockOnFuture>> {
        let roots = self.roots.lock();
        roots.iter().find(|(other, _)| *other == seat).map(|(_, root)| Arc::clone(root))
    }

    pub(crate) fn add_idle_watcher(&self, watcher: &Arc<Parker>) {
        self.idle_watchers.lock().push(Arc::clone(watcher));
    }

    pub(crate) fn remove_idle_watcher(&self, watcher: &Arc<Parker>) {
        self.idle_watchers.lock().retain(|other| !Arc::ptr_eq(other, watcher));
    }

    pub(crate) fn unpark_idle_watchers(&self) {
        let watchers = self.idle_watchers.lock();
        watchers.iter().for_each(|watcher| watcher.unpark());
    }
}
