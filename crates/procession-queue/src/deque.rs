//! The run queue of a worker: newest first for its owner, oldest first for thieves.
//!
//! One [`Owner`] pushes and pops; any number of cloned [`Stealer`]s take from the other end. The capacity is fixed, a
//! power of two, 256 by default: enough that overflow is rare, and small enough to stay in the first-level cache.
//! What does not fit goes to a [`Global`] queue in batches ([`Owner::push_overflowing`]).
//!
//! Owner operations cost one uncontended compare-and-swap for a pop and none for a push. Stealing half costs one
//! compare-and-swap and one addition, however many items move. The protocol and its proof are in the source of the
//! private module `ring`.
//!
//! ```
//! use procession_queue::{Steal, deque};
//!
//! let (owner, stealer) = deque::new::<_, 256>();
//! for n in 1..=5 {
//!     owner.push(n)?;
//! }
//! assert_eq!(owner.pop(), Some(5));
//! assert_eq!(owner.pop_oldest(), Some(1));
//! assert_eq!(stealer.steal(), Steal::Success(2));
//! # Ok::<(), procession_queue::Full<i32>>(())
//! ```
//!
//! An owner belongs to one thread at a time:
//!
//! ```compile_fail,E0277
//! fn share<T: Sync>(_: T) {}
//! share(procession_queue::deque::new::<u32, 256>().0);
//! ```

use std::fmt;

use procession_sync::Arc;

use crate::ring::{Arrange, Owned, Ring, mutation::SOUND};
use crate::{Full, Global, Steal};

/// Makes a deque: its owner's side, and one for thieves.
pub fn new<T, const CAPACITY: usize>() -> (Owner<T, CAPACITY>, Stealer<T, CAPACITY>) {
    let owner = Owner::new();
    let stealer = owner.stealer();
    (owner, stealer)
}

/// The owner's side of a deque. `Send` but not `Sync`: one thread at a time may use it.
///
/// When it is dropped, what is queued can still be stolen; the last side to go drops what remains.
pub struct Owner<T, const CAPACITY: usize = 256>(pub(crate) Owned<T, CAPACITY, SOUND>);

impl<T, const CAPACITY: usize> Owner<T, CAPACITY> {
    /// Makes an empty deque. A capacity that is no power of two does not compile.
    pub fn new() -> Self {
        Self(Owned::new())
    }

    /// A side for thieves.
    pub fn stealer(&self) -> Stealer<T, CAPACITY> {
        Stealer(Arc::clone(self.0.ring()))
    }

    /// Pushes at the newest end.
    ///
    /// # Errors
    /// [`Full`] returns the item if there is no room. A thief in the middle of copying its half keeps the room of what it
    /// took, and everything newer, occupied until it is done.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), Full<T>> {
        self.0.push(item)
    }

    /// Pushes at the newest end; if there is no room, the oldest half of the deque moves to `global` first, under one
    /// lock. Returns how many items went to `global`.
    ///
    /// The item itself goes there, behind the others, only if a thief's copying keeps all room occupied.
    #[inline]
    pub fn push_overflowing(&self, item: T, global: &Global<T>) -> usize {
        self.0.push_overflowing(item, global)
    }

    /// Pops the newest item.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.0.pop_newest()
    }

    /// Pops the oldest item: what a scheduler does once in a while, so that the newest do not starve it.
    #[inline]
    pub fn pop_oldest(&self) -> Option<T> {
        self.0.pop_oldest()
    }

    /// Takes half of `victim`, rounded up, as far as there is room here. The oldest item is returned; the others are pushed
    /// so that [`pop`](Self::pop) goes on with the next oldest.
    pub fn steal_half(&self, victim: &Stealer<T, CAPACITY>) -> Steal<T> {
        self.0.steal_half(&victim.0, Arrange::OldestLast)
    }

    /// How many items are queued; thieves may take some of them at any time.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is queued. Nobody but the caller can change that.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T, const CAPACITY: usize> Default for Owner<T, CAPACITY> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const CAPACITY: usize> fmt::Debug for Owner<T, CAPACITY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The thieves' side of a deque or of a FIFO ring.
pub struct Stealer<T, const CAPACITY: usize = 256>(pub(crate) Arc<Ring<T, CAPACITY, SOUND>>);

impl<T, const CAPACITY: usize> Stealer<T, CAPACITY> {
    /// Steals the oldest item.
    pub fn steal(&self) -> Steal<T> {
        self.0.steal_one()
    }

    /// How many items were queued at some moment during the call.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was queued at some moment during the call (crate documentation, *Parking*).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T, const CAPACITY: usize> Clone for Stealer<T, CAPACITY> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T, const CAPACITY: usize> fmt::Debug for Stealer<T, CAPACITY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stealer").field("len", &self.len()).field("capacity", &CAPACITY).finish()
    }
}
