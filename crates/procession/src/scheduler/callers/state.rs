//! The threads that work for a scheduler, or wait for it, and that are no workers of its own.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU32, AtomicU64};

use crate::sys::Parker;

/// The callers of a scheduler.
pub(crate) struct Callers {
    /// Whether the first seat is for threads in `block_on`.
    pub(crate) drive: bool,
    /// Callers without a seat, by number: each is here once, until the seat is left or it goes.
    waiting: Mutex<BTreeMap<u64, Waker>>,
    last: AtomicU64,
    /// How many threads wait until all is idle: the test clock stands still for them.
    pub(crate) idle_waits: AtomicU32,
    /// Those of them that do not drive.
    idle_watchers: Mutex<Vec<Arc<Parker>>>,
}

impl Callers {
    pub(crate) fn new(drive: bool) -> Self {
        Self {
            drive,
            waiting: Mutex::default(),
            last: AtomicU64::new(0),
            idle_waits: AtomicU32::new(0),
            idle_watchers: Mutex::new(Vec::new()),
        }
    }

    /// A number for a caller.
    pub(crate) fn number(&self) -> u64 {
        // Relaxed: only that they differ matters.
        self.last.fetch_add(1, Relaxed)
    }

    /// A caller waits without a seat, and wants to know when it is free.
    pub(crate) fn wait_for_seat(&self, number: u64, caller: &Waker) {
        let mut callers = self.waiting.lock();
        // The waker is that of a root, and no code of the user's.
        callers.entry(number).or_insert_with(|| caller.clone());
    }

    /// A caller does not wait for the seat any more.
    pub(crate) fn forget(&self, number: u64) {
        let left = self.waiting.lock().remove(&number);
        drop(left);
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Takes the wakers of all that wait for the seat.
    pub(crate) fn take_waiting(&self) -> impl Iterator<Item = Waker> + use<> {
        mem::take(&mut *self.waiting.lock()).into_values()
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
