//! A ring of what must wait its turn: oldest first for its owner and for thieves.
//!
//! A process that gives up its turn must not come back at the newest end of a deque, where it would be popped at once and
//! starve everything older. This ring is the same structure with both sides at the old end, so that thieves halve it
//! just as they halve a deque. Push costs no read-modify-write, pop one compare-and-swap.
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

/// Makes a ring: its owner's side, and one for thieves.
pub fn new<T, const CAPACITY: usize>() -> (Owner<T, CAPACITY>, Stealer<T, CAPACITY>) {
    let owner = Owner::new();
    let stealer = owner.stealer();
    (owner, stealer)
}

/// The owner's side of a ring. `Send` but not `Sync`: one thread at a time may use it.
///
/// When it is dropped, what is queued can still be stolen; the last side to go drops what remains.
pub struct Owner<T, const CAPACITY: usize = 256>(Owned<T, CAPACITY, SOUND>);

impl<T, const CAPACITY: usize> Owner<T, CAPACITY> {
    /// Makes an empty ring. A capacity that is no power of two does not compile.
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
    /// [`Full`] returns the item if there is no room, as for [`deque::Owner::push`](crate::deque::Owner::push).
    #[inline]
    pub fn push(&self, item: T) -> Result<(), Full<T>> {
        self.0.push(item)
    }

    /// Pushes at the newest end; if there is no room, the oldest half of the ring moves to `global` first, under one lock.
    /// Returns how many items went to `global`.
    #[inline]
    pub fn push_overflowing(&self, item: T, global: &Global<T>) -> usize {
        self.0.push_overflowing(item, global)
    }

    /// Pops the oldest item.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.0.pop_oldest()
    }

    /// Takes half of `victim`, rounded up, as far as there is room here. The oldest item is returned;
    /// the others follow what is queued here, in their order. The victim may be a deque, whose
    /// oldest half then goes on in the order of age, and may have another capacity.
    pub fn steal_half<const VICTIM: usize>(&self, victim: &Stealer<T, VICTIM>) -> Steal<T> {
        self.0.steal_half(&victim.0, Arrange::OldestFirst)
    }

    /// How many items fit now. Only a push or a steal by the caller makes it less.
    pub fn room(&self) -> usize {
        self.0.room(CAPACITY)
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
