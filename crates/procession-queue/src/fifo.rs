//! A ring for work that must wait its turn: oldest first, for its owner and for thieves.
//!
//! A process that yields must not go back to the newest end of a deque. It would be popped again
//! immediately and starve everything older. This ring is the same structure as
//! [`deque`](crate::deque), but both sides take from the oldest end. Thieves halve it in the same
//! way. A push needs no atomic read-modify-write, and a pop needs one compare-and-swap.
//!
//! ```
//! use procession_queue::fifo;
//!
//! let (owner, stealer) = fifo::new::<_, 256>();
//! for n in 1..=4 {
//!     owner.push(n)?;
//! }
//! let (thief, _) = fifo::new::<_, 256>();
//! assert_eq!(thief.steal_half(&stealer).success(), Some(1));
//! assert_eq!(thief.pop(), Some(2));
//! assert_eq!(owner.pop(), Some(3));
//! # Ok::<(), procession_queue::Full<i32>>(())
//! ```

use std::fmt;

use procession_sync::Arc;

pub use crate::deque::Stealer;
use crate::ring::{Arrange, Owned, mutation::SOUND};
use crate::{Full, Global, Steal};

/// Creates a ring, and returns the owner's handle and one handle for thieves.
pub fn new<T, const CAPACITY: usize>() -> (Owner<T, CAPACITY>, Stealer<T, CAPACITY>) {
    let owner = Owner::new();
    let stealer = owner.stealer();
    (owner, stealer)
}

/// The owner's handle to a ring. It is `Send` but not `Sync`, so only one thread at a time can use
/// it.
///
/// Items that are still queued when the owner is dropped can still be stolen. The last handle to be
/// dropped drops the items that remain.
pub struct Owner<T, const CAPACITY: usize = 256>(Owned<T, CAPACITY, SOUND>);

impl<T, const CAPACITY: usize> Owner<T, CAPACITY> {
    /// Creates an empty ring. If `CAPACITY` is not a power of two, this does not compile.
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
    /// If there is no room, returns the item in [`Full`], as described for
    /// [`deque::Owner::push`](crate::deque::Owner::push).
    #[inline]
    pub fn push(&self, item: T) -> Result<(), Full<T>> {
        self.0.push(item)
    }

    /// Pushes an item at the newest end, and moves items to `global` if there is no room.
    ///
    /// If the ring is full, its oldest half moves to `global` first, under one lock. If a thief's
    /// copying keeps every slot occupied even then, the item itself follows them to `global`.
    /// Returns the number of items that went to `global`.
    #[inline]
    pub fn push_overflowing(&self, item: T, global: &Global<T>) -> usize {
        self.0.push_overflowing(item, global)
    }

    /// Pops the oldest item.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.0.pop_oldest()
    }

    /// Steals half of `victim`, rounded up, or as much as fits into this ring.
    ///
    /// Returns the oldest stolen item. The other stolen items are pushed behind what is queued
    /// here, in their order. The victim may have another capacity, and it may be a deque: its
    /// oldest half then continues oldest first.
    pub fn steal_half<const VICTIM: usize>(&self, victim: &Stealer<T, VICTIM>) -> Steal<T> {
        self.0.steal_half(&victim.0, Arrange::OldestFirst)
    }

    /// Returns the number of items that fit now. Only a push or a steal by the caller makes it
    /// smaller.
    pub fn room(&self) -> usize {
        self.0.room(CAPACITY)
    }

    /// Returns the number of queued items. Thieves may take items at any time.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the ring is empty. It stays empty until the caller adds an item.
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
