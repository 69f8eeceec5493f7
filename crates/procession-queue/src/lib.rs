//! The queues of a work-stealing scheduler.
//!
//! A scheduler runs *workers*. Each worker owns a **deque** ([`deque`]). It pushes and pops at the
//! *newest* end, where the caches are warm. *Thieves* are the other workers: they take from the
//! *oldest* end, and move half of the queue with one compare-and-swap.
//!
//! Work that must wait its turn goes into the worker's **FIFO ring** ([`fifo`]) instead. Thieves
//! can halve it in the same way.
//!
//! The **global queue** ([`Global`]) holds work that was submitted from outside the workers, and
//! work that overflows their deques.
//!
//! An **event queue** ([`EventQueue`]) carries messages from many producers to one consumer, which
//! takes everything queued in one step. A queue that was closed returns each later message to its
//! producer, so a message is either delivered or handed back.
//!
//! Every queued item can be stolen at any time, whatever its owner is doing. A worker that is stuck
//! therefore strands no work.
//!
//! # The search for work
//!
//! A worker without work asks its own deque first, then its FIFO ring, then the global queue, and
//! then the other workers. It starts each search of the other workers at a random worker, so that
//! thieves spread.
//!
//! ```
//! use procession_queue::{Global, Steal, deque, fifo};
//!
//! struct Worker {
//!     fresh: deque::Owner<u32>,
//!     yielded: fifo::Owner<u32>,
//! }
//!
//! struct Other {
//!     fresh: deque::Stealer<u32>,
//!     yielded: fifo::Stealer<u32>,
//! }
//!
//! fn find_work(
//!     own: &Worker,
//!     global: &Global<u32>,
//!     others: &[Other],
//!     start: usize,
//! ) -> Option<u32> {
//!     if let Some(item) = own.fresh.pop().or_else(|| own.yielded.pop()) {
//!         return Some(item);
//!     }
//!     let mut share = global.pop_share(others.len() + 1, 1 + own.yielded.room());
//!     if let Some(item) = share.next() {
//!         // The rest waits behind this worker's own work, oldest first.
//!         share.for_each(|item| own.yielded.push(item).expect("there is room"));
//!         return Some(item);
//!     }
//!     // A lost race does not prove that a queue is empty, so try up to four times.
//!     for _ in 0..4 {
//!         let mut lost = false;
//!         for i in 0..others.len() {
//!             let other = &others[(start + i) % others.len()];
//!             // The ring keeps stolen items in order; in the deque, new work would bury them.
//!             for victim in [&other.fresh, &other.yielded] {
//!                 match own.yielded.steal_half(victim) {
//!                     Steal::Success(item) => return Some(item),
//!                     Steal::Retry => lost = true,
//!                     Steal::Empty => {}
//!                 }
//!             }
//!         }
//!         if !lost {
//!             break;
//!         }
//!     }
//!     None
//! }
//!
//! let (fresh, stealer) = deque::new();
//! let (yielded, yielded_stealer) = fifo::new();
//! let busy = Worker { fresh, yielded };
//! for item in 0..8 {
//!     busy.fresh.push(item)?;
//! }
//! let idle = Worker { fresh: deque::new().0, yielded: fifo::new().0 };
//! let others = [Other { fresh: stealer, yielded: yielded_stealer }];
//! assert_eq!(find_work(&idle, &Global::new(), &others, 0), Some(0)); // The oldest stolen item.
//! assert_eq!(idle.yielded.pop(), Some(1)); // The rest of the half follows in order.
//! assert_eq!(busy.fresh.pop(), Some(7)); // The owner continues with its newest item.
//! # Ok::<(), procession_queue::Full<u32>>(())
//! ```
//!
//! # Parking
//!
//! A thief can find a queue empty although another thread has just pushed to it, because the store
//! is not visible to the thief yet. A worker that is about to sleep must not miss such a push. It
//! takes three steps:
//!
//! 1. The worker announces that it is about to sleep.
//! 2. It executes `fence(SeqCst)`.
//! 3. It looks at every queue once more.
//!
//! A pusher executes `fence(SeqCst)` after its push, and looks for announcements after that. One of
//! the two fences is first in the total order, so either the worker finds the item or the pusher
//! finds the worker. The operations of this crate do not contain that fence, because most pushes do
//! not need it.
//!
//! # Blocking and reclamation
//!
//! The deque, the ring and the event queue are lock-free. [`Global`] holds a lock while it moves a
//! few items. Except for the `Drop` of items in a queue that is dropped, no code of the caller runs
//! inside a queue.
#![deny(clippy::unwrap_used)]

pub mod deque;
mod event;
pub mod fifo;
mod global;
#[cfg(all(test, procession_loom))]
mod models;
mod ring;

use std::error::Error;
use std::fmt;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use event::{Batch, Closed, Entry, Event, EventQueue, Pushed, SharedNodes};
pub use global::{Global, Share};

/// The result of an attempt to steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Steal<T> {
    /// Nothing was visible to this thread that it could steal. See *Parking* in the [crate
    /// documentation](crate).
    Empty,
    /// Another thread took an item first. There may be more.
    Retry,
    /// The stolen item.
    Success(T),
}

impl<T> Steal<T> {
    /// Returns the stolen item, if there is one.
    pub fn success(self) -> Option<T> {
        match self {
            Self::Success(item) => Some(item),
            Self::Empty | Self::Retry => None,
        }
    }

    /// Returns `true` if another attempt may succeed immediately.
    pub fn is_retry(&self) -> bool {
        matches!(self, Self::Retry)
    }
}

/// The error of a push to a full queue. It contains the refused item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is full")
    }
}

impl<T> Error for Full<T> {}
