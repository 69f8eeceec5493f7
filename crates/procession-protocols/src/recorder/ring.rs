//! The latest words of one thread, which other threads copy.
//!
//! # EventRing protocol
//!
//! ## Problem
//! A worker records an event at each step. It must wait for no reader, and make no
//! read-modify-write. A reader copies the ring while the worker continues to write, so the worker
//! overwrites words during the copy.
//!
//! ## States
//! The words, and the *position*: the number of words written so far. The word with the number `p`
//! is in place `p` modulo the capacity.
//!
//! ## Steps
//! Writer: `Write` the word in the place of the position · `Publish` the next position.
//!
//! Reader: `Begin` read the position · `Copy` the words before it, at most the capacity · `Check`
//! read the position again, and drop each word if its place may have been written since `Begin`.
//!
//! ## Why it works
//! - *No word is seen before it is written.* `Publish` releases the word, and `Begin` acquires it.
//! - *No word is taken for an older one.* Assume that `Copy` finds the word `q` in the place of
//!   word `p`, so `q` is `p` plus the capacity or more. `Write` of `q` releases the `Publish` of
//!   position `q`, which came before it, and `Copy` acquires it. So `Check` sees the position `q`
//!   at least, and drops `p`.
//! - The reader drops a word if the position is the capacity after it, since `Write` of that
//!   position may have begun. A full ring therefore shows one word less than it has places.
//!
//! ## Allowed
//! A reader that is slower than the writer may find nothing.
//!
//! ## Rejected
//! - A sequence number in each word: half of the bits, or twice the memory.
//! - A ring that readers drain: the events must still be there when something goes wrong.
//!
//! ## Checked by
//! `models::copy_against_write`, `models::canary_position_read_once`,
//! `models::canary_word_relaxed`, `models::canary_position_relaxed`.

use std::fmt;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[cfg(all(test, procession_loom))]
mod models;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Check` does not look.
    pub const POSITION_READ_ONCE: u8 = 1;
    /// `Write` releases nothing.
    pub const WORD_RELAXED: u8 = 2;
    /// `Publish` releases nothing.
    pub const POSITION_RELAXED: u8 = 3;
}

/// The latest words of one thread.
pub struct EventRing<const MUTATION: u8 = { mutation::SOUND }> {
    /// The position, plus the capacity. So it is the number of no place, whatever the position.
    position: AtomicU64,
    /// What turns the position into the number of a place: all of its low bits, or `NO_PLACE`.
    /// Changed by any thread.
    mask: AtomicU64,
    /// A power of two of places, or none.
    words: Box<[AtomicU64]>,
}

impl<const MUTATION: u8> fmt::Debug for EventRing<MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventRing(..)")
    }
}

/// The mask of a ring that `try_push` finds no place in: nothing is recorded, or a time is to be
/// recorded before each event. So the usual case needs no separate test.
const NO_PLACE: u64 = u64::MAX;

/// A copy of some words of a ring.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// The number of the first word.
    pub first: u64,
    /// The words, oldest first.
    pub words: Vec<u64>,
}

impl Copied {
    /// Returns the number of the word after the last one.
    #[inline]
    pub fn end(&self) -> u64 {
        self.first + self.words.len() as u64
    }
}

impl<const MUTATION: u8> EventRing<MUTATION> {
    /// Creates a ring that keeps `capacity` words. The capacity is a power of two, or 0 for a ring
    /// that records nothing.
    pub fn new(capacity: usize, is_fine: bool) -> Self {
        debug_assert!(capacity == 0 || capacity.is_power_of_two(), "places are found by a mask");
        // The conversion reuses the memory, of which the system makes pages only when they are
        // written. A worker with little to do has few.
        let words = vec![0; capacity].into_iter().map(AtomicU64::new).collect();
        let ring =
            Self { position: AtomicU64::new(capacity as u64), mask: AtomicU64::new(0), words };
        ring.set_fine(is_fine);
        ring
    }

    fn capacity(&self) -> u64 {
        self.words.len() as u64
    }

    /// Returns the number of words written so far.
    pub fn position(&self) -> u64 {
        // Relaxed: the caller reads no words.
        self.position.load(Relaxed) - self.capacity()
    }

    /// Returns `true` if a time is to be recorded before each event.
    pub fn is_fine(&self) -> bool {
        // Relaxed: a writer may notice the change some events late.
        !self.words.is_empty() && self.mask.load(Relaxed) == NO_PLACE
    }

    /// Lets the writer record times, or not.
    pub fn set_fine(&self, is_fine: bool) {
        let mask = if is_fine { NO_PLACE } else { self.capacity().wrapping_sub(1) };
        // Relaxed: as in `is_fine`.
        self.mask.store(mask, Relaxed);
    }

    /// `Write` and `Publish`, unless nothing is recorded or the ring is fine. Returns `true` if the
    /// word was written. Only the ring's one writer may call this.
    #[inline]
    pub fn try_push(&self, word: u64) -> bool {
        // Relaxed: as in `is_fine`.
        self.push_masked(word, self.mask.load(Relaxed))
    }

    /// `Write` and `Publish`. Only the ring's one writer may call this.
    pub fn push(&self, word: u64) {
        self.push_masked(word, self.capacity().wrapping_sub(1));
    }

    #[inline]
    fn push_masked(&self, word: u64, mask: u64) -> bool {
        // Relaxed: only this thread writes it.
        let position = self.position.load(Relaxed);
        let Some(place) = self.words.get((position & mask) as usize) else { return false };
        // Ordering: Release pairs with the Acquire of `Copy`: a reader that finds this word also
        // finds that the position has come here.
        place.store(word, if MUTATION == mutation::WORD_RELAXED { Relaxed } else { Release });
        // Ordering: Release pairs with the Acquire of `Begin`: a reader that finds this position
        // finds the word.
        let release = if MUTATION == mutation::POSITION_RELAXED { Relaxed } else { Release };
        self.position.store(position.wrapping_add(1), release);
        true
    }

    /// Copies the words from number `from` on, as far as they are still there.
    pub fn copy_since(&self, from: u64) -> Copied {
        let capacity = self.capacity();
        // Ordering: Acquire pairs with the Release of `Publish`.
        let end = self.position.load(Acquire) - capacity;
        let first = from.max(end.saturating_sub(capacity)).min(end);
        // Ordering: Acquire pairs with the Release of `Write`.
        let copy = |at: u64| self.words[(at & (capacity - 1)) as usize].load(Acquire);
        let mut words: Vec<u64> = (first..end).map(copy).collect();
        let after = match MUTATION {
            mutation::POSITION_READ_ONCE => end,
            // Relaxed: the loads of `Copy` are before this one, and acquire.
            _ => self.position(),
        };
        let whole = (after + 1).saturating_sub(capacity).clamp(first, end);
        words.drain(..(whole - first) as usize);
        Copied { first: whole, words }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::EventRing;

    #[test]
    fn a_full_ring_keeps_all_but_a_prefix() {
        let ring: EventRing = EventRing::new(8, false);
        for number in 0..30 {
            ring.push(number);
            let copied = ring.copy_since(0);
            let first = (number + 1).saturating_sub(7);
            assert_eq!((copied.first, copied.end()), (first, number + 1));
            assert_eq!(copied.words, (first..=number).collect::<Vec<_>>());
        }
        assert_eq!(ring.copy_since(28).words, [28, 29]);
        assert!(ring.copy_since(30).words.is_empty());
        assert!(ring.copy_since(99).words.is_empty());
    }

    #[test]
    fn a_ring_without_places_takes_nothing() {
        let ring: EventRing = EventRing::new(0, true);
        for is_fine in [true, false, true] {
            ring.set_fine(is_fine);
            ring.push(1);
            assert!(!ring.try_push(2) && !ring.is_fine());
        }
        assert_eq!((ring.position(), ring.copy_since(0).words), (0, vec![]));
    }

    #[test]
    fn a_fine_ring_takes_nothing_without_a_time() {
        let ring: EventRing = EventRing::new(8, true);
        for number in 0..20 {
            assert!(ring.is_fine() && !ring.try_push(number));
            ring.push(number);
        }
        ring.set_fine(false);
        assert!(!ring.is_fine() && ring.try_push(20));
        assert_eq!(ring.copy_since(18).words, [18, 19, 20]);
    }
}
