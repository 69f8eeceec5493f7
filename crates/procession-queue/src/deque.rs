//! A worker's run queue: newest first for its owner, oldest first for thieves.
//!
//! One [`Owner`] pushes and pops at the newest end. Any number of cloned [`Stealer`]s take from the
//! oldest end. The capacity is fixed and must be a power of two. The default of 256 is large enough
//! that overflow is rare, and small enough to stay in the first-level cache. Items that do not fit
//! can go to a [`Global`] queue in batches, see [`Owner::push_overflowing`].
//!
//! A push needs no atomic read-modify-write, and a pop needs one uncontended compare-and-swap.
//! Stealing half takes one compare-and-swap and one addition, however many items move. The source
//! of the private module `ring` describes the protocol and its proof.
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
//! Only one thread at a time can use an owner:
//!
//! ```compile_fail,E0277
//! fn share<T: Sync>(_: T) {}
//! share(procession_queue::deque::new::<u32, 256>().0);
//! ```

use std::fmt;

use procession_sync::Arc;

use crate::ring::{Arrange, Owned, Ring, mutation::SOUND};
use crate::{Full, Global, Steal};

/// Creates a deque, and returns the owner's handle and one handle for thieves.
pub fn new<T, const CAPACITY: usize>() -> (Owner<T, CAPACITY>, Stealer<T, CAPACITY>) {
    let owner = Owner::new();
    let stealer = owner.stealer();
    (owner, stealer)
}

/// The owner's handle to a deque. It is `Send` but not `Sync`, so only one thread at a time can use
/// it.
///
/// Items that are still queued when the owner is dropped can still be stolen. The last handle to be
/// dropped drops the items that remain.
pub struct Owner<T, const CAPACITY: usize = 256>(pub(crate) Owned<T, CAPACITY, SOUND>);

impl<T, const CAPACITY: usize> Owner<T, CAPACITY> {
    /// Creates an empty deque. If `CAPACITY` is not a power of two, this does not compile.
    pub fn new() -> Self {
        Self(Owned::new())
    }

    /// Returns a new handle for thieves.
    pub fn stealer(&self) -> Stealer<T, CAPACITY> {
        Stealer(Arc::clone(self.0.ring()))
    }

    /// Pushes an item at the newest end.
    ///
    /// # Errors
    /// If there is no room, returns the item in [`Full`]. While a thief copies its half, the slots
    /// of that half, and of everything newer, stay occupied.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), Full<T>> {
        self.0.push(item)
    }

    /// Pushes an item at the newest end, and moves items to `global` if there is no room.
    ///
    /// If the deque is full, its oldest half moves to `global` first, under one lock. If a thief's
    /// copying keeps every slot occupied even then, the item itself follows them to `global`.
    /// Returns the number of items that went to `global`.
    #[inline]
    pub fn push_overflowing(&self, item: T, global: &Global<T>) -> usize {
        self.0.push_overflowing(item, global)
    }

    /// Pops the newest item.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.0.pop_newest()
    }

    /// Pops the oldest item. A scheduler does this once in a while, so that new items do not starve
    /// old items.
    #[inline]
    pub fn pop_oldest(&self) -> Option<T> {
        self.0.pop_oldest()
    }

    /// Steals half of `victim`, rounded up, or as much as fits into this deque.
    ///
    /// Returns the oldest stolen item. The other stolen items are pushed here, arranged so that
    /// [`pop`](Self::pop) returns the next oldest first.
    pub fn steal_half(&self, victim: &Stealer<T, CAPACITY>) -> Steal<T> {
        self.0.steal_half(&victim.0, Arrange::OldestLast)
    }

    /// Returns the number of queued items. Thieves may take items at any time.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the deque is empty. It stays empty until the caller adds an item.
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

/// The thieves' handle to a deque or to a FIFO ring.
pub struct Stealer<T, const CAPACITY: usize = 256>(pub(crate) Arc<Ring<T, CAPACITY, SOUND>>);

impl<T, const CAPACITY: usize> Stealer<T, CAPACITY> {
    /// Steals the oldest item.
    pub fn steal(&self) -> Steal<T> {
        self.0.steal_one()
    }

    /// Returns a number that changes whenever an item is taken, by the owner or by a thief. If it
    /// is the same at two looks at a queue that is not empty, its items have waited since the
    /// first.
    pub fn taken(&self) -> u64 {
        self.0.taken()
    }

    /// Returns the number of items that were queued at some moment during the call.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the queue was empty at some moment during the call. See *Parking* in the
    /// [crate documentation](crate).
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
