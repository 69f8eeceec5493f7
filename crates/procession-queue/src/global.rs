//! # Global queue protocol
//!
//! ## Problem
//! Work from outside the workers, and what overflows their deques, must be found by any of them, oldest first; and
//! workers look here often, so finding nothing must cost next to nothing.
//!
//! ## States
//! `items`, under the lock; `length`, their number, written only under the lock.
//!
//! ## Steps
//! Push: lock · append · store `length`. Pop: load `length`, and return if it is 0 · lock · take · store `length`.
//!
//! ## Why it works
//! Everything but the early return is under the lock. The early return misses at most a push that is not visible to
//! this thread yet, which whoever parks excludes with a fence (crate documentation, *Parking*).
//!
//! ## Rejected
//! A lock-free queue, and shards: workers come here once in 61 dispatches, with batches of up to 17 and of 129, so the lock
//! is rarely contended; see `docs/BENCHMARKS.md`, `push/contended`. To be measured again with more than two cores.
//!
//! Handing a share to a closure, or straight into the caller's deque, under the lock: a closure that
//! used the deque overwrote the room that had been counted, and one that panicked poisoned the lock.
//!
//! ## Checked by
//! `models::overflow_while_stolen`.

use std::collections::VecDeque;
use std::{array, fmt, iter};

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Mutex, lock_with_backoff};

/// What a worker takes beside the item that it runs: enough to come here rarely, few enough to leave the others some.
const BATCH_MAX: usize = 16;

/// A buffer that was once this large is halved when three quarters of it are empty; smaller ones are kept.
const SHRINK_MIN: usize = 1024;

/// A FIFO queue for work that no worker owns.
///
/// Unbounded: a scheduler queues each process at most once, so its limit on processes is the bound.
///
/// # Blocking
/// A lock is held while a few items move. No code of the caller runs under it.
pub struct Global<T> {
    /// The number of items, so that nobody takes the lock to find nothing.
    length: AtomicUsize,
    items: Mutex<VecDeque<T>>,
}

impl<T> Global<T> {
    /// Makes an empty queue.
    pub fn new() -> Self {
        Self { length: AtomicUsize::new(0), items: Mutex::new(VecDeque::new()) }
    }

    /// Pushes behind everything queued.
    pub fn push(&self, item: T) {
        self.append(|items| items.push_back(item));
    }

    /// Runs `change`, which must not call user code, on the items.
    pub(crate) fn append<R>(&self, change: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let mut items = lock_with_backoff(&self.items).expect("nothing that can panic runs under this lock");
        let result = change(&mut items);
        // Relaxed: the items are published by the lock; the number is a hint.
        self.length.store(items.len(), Relaxed);
        result
    }

    /// Pops the oldest item.
    pub fn pop(&self) -> Option<T> {
        self.take(|items| items.pop_front())
    }

    /// Pops a worker's fair share, oldest first: one item to run at once, and at most
    /// `min(16, len / workers + 1)` more, and no more than `most` in all.
    ///
    /// The lock is released before this returns, so the caller may do anything with the items.
    ///
    /// # Panics
    /// If `workers` is 0.
    pub fn pop_share(&self, workers: usize, most: usize) -> Share<T> {
        assert!(workers > 0, "the caller is a worker");
        let mut share = [const { None }; 1 + BATCH_MAX];
        self.take(|items| {
            let count = 1 + (items.len() / workers + 1).min(BATCH_MAX);
            let count = count.min(items.len()).min(most);
            share.iter_mut().zip(items.drain(..count)).for_each(|(place, item)| *place = Some(item));
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
            if items.capacity() > SHRINK_MIN && items.len() < items.capacity() / 4 {
                // As much is copied as was taken since the last time, so the cost for each item is constant.
                items.shrink_to(items.capacity() / 2);
            }
            item
        })
    }

    /// How many items are queued, as far as this thread can see.
    pub fn len(&self) -> usize {
        self.length.load(Relaxed)
    }

    /// Whether nothing is queued, as far as this thread can see (crate documentation, *Parking*).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What [`Global::pop_share`] returns: an iterator over the items, oldest first.
///
/// Items that are not taken are dropped with it.
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
