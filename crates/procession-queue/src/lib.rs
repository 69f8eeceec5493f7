//! The queues of a work-stealing scheduler.
//!
//! A scheduler runs *workers*. Each worker owns a **deque** ([`deque`]): it pushes and pops at the *newest* end,
//! where the caches are warm, while *thieves* (the other workers) take at the *oldest* end, half of the queue with
//! one compare-and-swap. What must wait its turn goes into the worker's **FIFO ring** ([`fifo`]) instead, which
//! thieves can halve just as well. The **global queue** ([`Global`]) takes what comes from outside the workers and what
//! overflows. An **event queue** ([`EventQueue`]) carries messages from many producers to one place, is taken whole, and
//! can be closed so that each message is either delivered or handed back.
//!
//! Nothing that a worker holds is hidden: every queued item can be stolen at any time, whatever its owner does
//! meanwhile, so a worker that is stuck strands no work.
//!
//! # The search for work
//!
//! The loop of a worker without work asks, in this order: its own deque, its FIFO ring, the global queue, and
//! then the others, each from a random start so that thieves spread.
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
//! fn find_work(own: &Worker, global: &Global<u32>, others: &[Other], start: usize) -> Option<u32> {
//!     if let Some(item) = own.fresh.pop().or_else(|| own.yielded.pop()) {
//!         return Some(item);
//!     }
//!     let mut share = global.pop_share(others.len() + 1, 1 + own.yielded.room());
//!     if let Some(item) = share.next() {
//!         // The rest waits in the order of age, behind what this worker has.
//!         share.for_each(|item| own.yielded.push(item).expect("there is room"));
//!         return Some(item);
//!     }
//!     // Four rounds: a thief that lost to another has not proved that there is nothing.
//!     for _ in 0..4 {
//!         let mut lost = false;
//!         for i in 0..others.len() {
//!             let other = &others[(start + i) % others.len()];
//!             // What is stolen, too: in the thief's deque, the oldest would end up below whatever comes.
//!             for stolen in [own.yielded.steal_half(&other.fresh), own.yielded.steal_half(&other.yielded)] {
//!                 match stolen {
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
//! assert_eq!(find_work(&idle, &Global::new(), &others, 0), Some(0)); // The oldest of a stolen half ...
//! assert_eq!(idle.yielded.pop(), Some(1)); // ... which goes on in its order,
//! assert_eq!(busy.fresh.pop(), Some(7)); // while its owner goes on with the newest.
//! # Ok::<(), procession_queue::Full<u32>>(())
//! ```
//!
//! # Parking
//!
//! A queue that a thief found empty may have been pushed to by somebody whose store it does not see yet. Before a
//! worker sleeps, it announces that it does, executes `fence(SeqCst)`, and looks at every queue once more; whoever
//! pushes executes `fence(SeqCst)` after the push and then looks for announcements. Then either the worker finds
//! the item or the pusher finds the worker. No operation here contains that fence, since most pushes need none.
//!
//! # Blocking and reclamation
//!
//! The deque, the ring and the event queue are lock-free. [`Global`] holds a lock for the time of
//! moving a few items. No code of the caller runs inside any of them, except the `Drop` of items in
//! queues that are dropped.
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

/// The README's example, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use event::{Batch, Closed, Entry, Event, EventQueue, Pushed};
pub use global::{Global, Share};

/// What came of an attempt to steal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Steal<T> {
    /// There was nothing to steal, as far as this thread can see (crate documentation, *Parking*).
    Empty,
    /// Another thread took something first; there may be more.
    Retry,
    /// Something was stolen.
    Success(T),
}

impl<T> Steal<T> {
    /// The stolen item, if there is one.
    pub fn success(self) -> Option<T> {
        match self {
            Self::Success(item) => Some(item),
            Self::Empty | Self::Retry => None,
        }
    }

    /// Whether another attempt may succeed at once.
    pub fn is_retry(&self) -> bool {
        matches!(self, Self::Retry)
    }
}

/// The error of a push that found no room; it holds the refused item.
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
