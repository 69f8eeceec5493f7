//! The threads that work for a scheduler, or wait for it, without being its own workers.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU32, AtomicU64};

use crate::scheduler::root::BlockOnFuture;
use crate::sys::Parker;

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
