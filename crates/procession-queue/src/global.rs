//! # Global queue protocol
//!
//! ## Problem
//! Work that was submitted from outside the workers, or that overflows their deques, must be
//! available to any worker, oldest first. Workers look here often, so finding nothing must cost
//! next to nothing.
//!
//! ## States
//! `items` is protected by the lock. `length` is the number of items; it is written only under the
//! lock and read without it.
//!
//! ## Steps
//! Push: lock · append · store `length`. Pop: load `length`, and return if it is 0 · lock · take ·
//! store `length`.
//!
//! ## Why it works
//! Everything except the early return happens under the lock. The early return can miss only a push
//! that is not visible to this thread yet. A worker that is about to park excludes that case with a
//! fence (crate documentation, *Parking*).
//!
//! ## Rejected
//! A lock-free queue, and a queue in shards. Workers look here once in 61 dispatches and take
//! batches of up to 17 items; an overflowing deque pushes up to 129 items in one call. The lock is
//! therefore rarely contended, see the benchmark `push/contended`. This needs to be measured again
//! on more than two cores.
//!
//! Handing a share to a closure, or directly to the caller's deque, under the lock. A closure that
//! used the deque overwrote the slots that had been counted as free, and a closure that panicked
//! poisoned the lock.
//!
//! ## Checked by
//! `models::overflow_while_stolen`.

use std::collections::VecDeque;
use std::{array, fmt, iter};

use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU64, AtomicUsize};
use procession_sync::{Mutex, lock_with_backoff};

/// The number of items that a worker takes at most, in addition to the item that it runs. It is
/// large enough that workers look here rarely, and small enough to leave something to other
/// workers.
const BATCH_MAX: usize = 16;

/// A buffer with a larger capacity than this is halved when less than a quarter is in use. Smaller
/// buffers are kept.
const SHRINK_MIN: usize = 1024;

/// A FIFO queue for work that no worker owns.
///
/// The queue is unbounded. A scheduler queues each process at most once, so its limit on processes
/// is the bound.
///
/// # Blocking
/// Each operation that moves items holds a lock while it does. No code of the caller runs under the
/// lock.
pub struct Global<T> {
    /// The number of items. A worker reads it first, and takes the lock only if there is something
    /// to find.
    length: AtomicUsize,
    /// The number of times that something was taken. Written under the lock.
    taken: AtomicU64,
    items: Mutex<VecDeque<T>>,
}

impl<T> Global<T> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self {
            length: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            items: Mutex::new(VecDeque::new()),
        }
    }

    /// Pushes an item behind everything that is queued.
    pub fn push(&self, item: T) {
        self.append(|items| items.push_back(item));
    }

    /// Pushes all items, in their order, behind everything that is queued. Takes the lock once, and
    /// leaves `items` empty.
    pub fn push_all(&self, items: &mut Vec<T>) {
        self.append(|queued| queued.extend(items.drain(..)));
    }

    /// Calls `change` on the items, under the lock. `change` must not call user code.
    pub(crate) fn append<R>(&self, change: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let mut items = lock_with_backoff(&self.items);
        let result = change(&mut items);
        // Relaxed: the lock publishes the items, and the number is only a hint.
        self.length.store(items.len(), Relaxed);
        result
    }

    /// Pops the oldest item.
    pub fn pop(&self) -> Option<T> {
        self.take(|items| items.pop_front())
    }

    /// Pops a worker's fair share, oldest first: one item to run immediately, and at most `min(16,
    /// len / workers + 1)` more, but never more than `most` items in all.
    ///
    /// The lock is released before this returns, so the caller may do anything with the items.
    ///
    /// # Panics
    /// Panics if `workers` is 0.
    pub fn pop_share(&self, workers: usize, most: usize) -> Share<T> {
        assert!(workers > 0, "the caller is a worker");
        let mut share = [const { None }; 1 + BATCH_MAX];
        self.take(|items| {
            let count = 1 + (items.len() / workers + 1).min(BATCH_MAX);
            let count = count.min(items.len()).min(most);
            share
                .iter_mut()
                .zip(items.drain(..count))
                .for_each(|(place, item)| *place = Some(item));
            None
        });
        Share(share.into_iter().flatten())
    }

    fn take(&self, take: impl FnOnce(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.append(|items| {
            let item = take(items);
            // Relaxed: statistics, and the lock orders the writers.
            self.taken.store(self.taken.load(Relaxed).wrapping_add(1), Relaxed);
            if items.capacity() > SHRINK_MIN && items.len() < items.capacity() / 4 {
                // At least as many items were taken since the last time as are copied now, so the
                // amortized cost of an item is constant.
                items.shrink_to(items.capacity() / 2);
            }
            item
        })
    }

    /// Returns a number that changes whenever items are taken. If it is the same at two looks at a
    /// queue that is not empty, its items have waited since the first.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Returns the number of queued items that is visible to this thread.
    pub fn len(&self) -> usize {
        self.length.load(Relaxed)
    }

    /// Returns `true` if no queued item is visible to this thread. See *Parking* in the [crate
    /// documentation](crate).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The iterator that [`Global::pop_share`] returns. It yields the items oldest first.
///
/// If the iterator is dropped early, the remaining items are dropped with it.
pub struct Share<T>(iter::Flatten<array::IntoIter<Option<T>, { 1 + BATCH_MAX }>>);

impl<T> Iterator for Share<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.next()
    }
}

impl<T> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").finish_non_exhaustive()
    }
}

impl<T> Default for Global<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Global<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Global").field("len", &self.len()).finish()
    }
}
