//! An indexed 4-ary heap of 16-byte keys.
//!
//! Four siblings share a cache line. The root is the last key of the first line, and the children
//! of the key at position p are the whole line p - 2. A place without a key holds a key that sorts
//! after all others, so the first of four children is found without counting them. `places` holds
//! the position of each slot's key, so that any key can be moved or removed without a search. A
//! sift writes `places` at each level, so it is kept dense and apart from the slots.
//!
//! # Order
//! Keys are ordered by deadline, then by number. A number is the creation number of a timer less a
//! base, in 32 bits. When the numbers are used up, the base moves on by half the numbers, and one
//! pass lowers the numbers of all keys by as much. So the order of equal deadlines is wrong only
//! for two timers that were both created more than 2^31 timers ago. A pass takes 3 ms for a million
//! keys, once in 2^31 timers.
//!
//! # Rejected
//! - Lazy deletion with a compaction when a quarter is dead (Go): not faster, and the compaction is
//!   a pause.
//! - A wheel instead: faster only for far more than 100,000 timers, and it rounds deadlines.
//! - A wheel before the heap, exact: far keys in unsorted buckets (the finest 2^20 ns wide, 8
//!   levels of 64, chunks of 16 keys from one pool), each poured into the heap or into finer
//!   buckets when its first key is due. With a million timers and no other load, a firing takes 190
//!   ns instead of 380, a hundred of these because slots are then read 64 at a time; an insertion
//!   32 instead of 21; an insertion and a removal 33, as before. On one CPU, a million sleepers
//!   that are all set first, and then due within 0.2 s, take 12 to 15 % less CPU (1.14 to 1.16 us
//!   each, instead of 1.29 to 1.36). But `timers_fire_cpu` stays the same (2.11 us, and 2.08
//!   before): workers keep up with the deadlines, and spend what they save on searching, and on
//!   parking for the microsecond until the next. `timers_cancel` takes 4 % less (122 ns instead of
//!   127). Against this: 400 lines, 16 bytes more for each timer, 8 KB for each worker that ever
//!   had one, and a pause, because nothing in a bucket fires before the whole bucket is poured: 9
//!   ms for a million timers in one.
//! - To fetch two levels ahead on the way down, 16 lines instead of four: `timers_fire_cpu` 5 %
//!   more, `timers_cancel` 18 %.
//! - To compare deadline and wrapping number apart, which needs no base: 10 % slower than one
//!   comparison of 128 bits (33 against 30 ns for an insertion and a removal, with all their
//!   surroundings).
#![forbid(unsafe_code)]

use crate::util::prefetch::prefetch;

/// A deadline that is never reached. No key in the heap has it.
pub(super) const NEVER: u64 = u64::MAX;

/// The position of the root. There is nothing before it.
const ROOT: usize = 3;

/// The place of a slot without a key.
const NOWHERE: u32 = 0;

/// The distance by which the base moves when the numbers are used up.
const REBASE: u32 = 1 << 31;

/// `deadline:64 | number:32 | slot:32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    const NONE: Self = Self(u128::MAX);

    #[inline]
    fn new(when: u64, number: u32, slot: u32) -> Self {
        Self(u128::from(when) << 64 | u128::from(number) << 32 | u128::from(slot))
    }

    #[inline]
    pub(super) fn when(self) -> u64 {
        (self.0 >> 64) as u64
    }

    #[inline]
    fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// Four siblings.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([Key; 4]);

impl Line {
    /// Returns the first of the four, with its index. There are no branches, because they could not
    /// be predicted.
    #[inline]
    fn first(&self) -> (usize, Key) {
        let keys = &self.0;
        let low = usize::from(keys[1] < keys[0]);
        let high = 2 + usize::from(keys[3] < keys[2]);
        let first = if keys[high] < keys[low] { high } else { low };
        (first, keys[first])
    }
}

#[derive(Debug)]
pub(super) struct Heap {
    lines: Vec<Line>,
    /// The position after the last key.
    end: usize,
    /// For each slot, the position of its key, or `NOWHERE`.
    places: Vec<u32>,
    /// The number of timers that were created, wrapping.
    created: u32,
    /// The creation number that would be number 0.
    base: u32,
}

impl Heap {
    /// Returns an empty heap, before which `created` timers were created.
    #[inline]
    pub(super) fn new(created: u32) -> Self {
        Self { lines: Vec::new(), end: ROOT, places: Vec::new(), created, base: 0 }
    }

    /// Makes room for the keys of `slots` slots.
    pub(super) fn track(&mut self, slots: usize) {
        self.places.resize(slots, NOWHERE);
    }

    /// Counts a new timer. Returns its creation number, which `insert` needs to order equal
    /// deadlines.
    #[inline]
    pub(super) fn create(&mut self) -> u32 {
        let sequence = self.created;
        if sequence.wrapping_sub(self.base) == u32::MAX {
            self.rebase();
        }
        self.created = sequence.wrapping_add(1);
        sequence
    }

    #[cold]
    fn rebase(&mut self) {
        self.base = self.base.wrapping_add(REBASE);
        for key in self.lines.iter_mut().flat_map(|line| &mut line.0) {
            if *key != Key::NONE {
                *key = Key::new(key.when(), key.number().saturating_sub(REBASE), key.slot());
            }
        }
    }

    /// Returns the number of a timer, which is 0 if the timer is older than the base.
    #[inline]
    fn number(&self, sequence: u32) -> u32 {
        let age = self.created.wrapping_sub(sequence);
        self.created.wrapping_sub(self.base).saturating_sub(age)
    }

    /// The first key.
    #[inline]
    pub(super) fn first(&self) -> Option<Key> {
        (self.end > ROOT).then(|| self.at(ROOT))
    }

    /// Returns the deadline in the key of this slot, if there is one.
    #[inline]
    pub(super) fn when_of(&self, slot: u32) -> Option<u64> {
        match self.places[slot as usize] {
            NOWHERE => None,
            place => Some(self.at(place as usize).when()),
        }
    }

    /// Inserts a key for a slot without a key.
    #[inline]
    pub(super) fn insert(&mut self, when: u64, sequence: u32, slot: u32) {
        debug_assert_eq!(self.places[slot as usize], NOWHERE, "a slot has one key");
        debug_assert_ne!(when, NEVER, "what does not come has none");
        if self.end / 4 == self.lines.len() {
            self.lines.push(Line([Key::NONE; 4]));
        }
        let hole = self.end;
        self.end += 1;
        self.sift_up(hole, Key::new(when, self.number(sequence), slot));
    }

    /// Removes the key of a slot, if there is one.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let place = std::mem::replace(&mut self.places[slot as usize], NOWHERE);
        if place == NOWHERE {
            return;
        }
        self.end -= 1;
        let last = self.at(self.end);
        self.lines[self.end / 4].0[self.end % 4] = Key::NONE;
        if place as usize != self.end {
            self.sift(place as usize, last);
        }
    }

    /// Changes the deadline in the key of a slot that has one.
    #[inline]
    pub(super) fn change(&mut self, slot: u32, when: u64) {
        let place = self.places[slot as usize] as usize;
        let key = self.at(place);
        self.sift(place, Key::new(when, key.number(), slot));
    }

    #[inline]
    fn at(&self, position: usize) -> Key {
        self.lines[position / 4].0[position % 4]
    }

    #[inline]
    fn set(&mut self, position: usize, key: Key) {
        self.lines[position / 4].0[position % 4] = key;
        self.places[key.slot() as usize] = position as u32;
    }

    #[inline]
    fn sift(&mut self, hole: usize, key: Key) {
        if hole > ROOT && key < self.at(parent(hole)) {
            self.sift_up(hole, key);
        } else {
            self.sift_down(hole, key);
        }
    }

    #[inline]
    fn sift_up(&mut self, mut hole: usize, key: Key) {
        while hole > ROOT {
            let above = self.at(parent(hole));
            if above < key {
                break;
            }
            self.set(hole, above);
            hole = parent(hole);
        }
        self.set(hole, key);
    }

    #[inline]
    fn sift_down(&mut self, mut hole: usize, key: Key) {
        while (hole - 2) * 4 < self.end {
            let line = hole - 2;
            // The children of all four, which are adjacent. One of the lines is needed next, and in
            // a large heap it is in no cache.
            for below in 4 * line - 2..4 * line + 2 {
                prefetch(self.lines.as_ptr().wrapping_add(below));
            }
            let (which, child) = self.lines[line].first();
            if key < child {
                break;
            }
            self.set(hole, child);
            hole = (hole - 2) * 4 + which;
        }
        self.set(hole, key);
    }

    #[cfg(all(test, not(procession_loom)))]
    pub(super) fn capacity(&self) -> usize {
        self.lines.capacity()
    }

    /// Panics unless keys and places agree.
    #[cfg(all(test, not(procession_loom)))]
    pub(super) fn assert_sound(&self) {
        let keys: Vec<Key> = self.lines.iter().flat_map(|line| line.0).collect();
        for (position, key) in keys.iter().enumerate() {
            if !(ROOT..self.end).contains(&position) {
                assert_eq!(*key, Key::NONE, "only positions in the heap hold keys");
                continue;
            }
            assert_eq!(
                self.places[key.slot() as usize] as usize,
                position,
                "a place is where the key is"
            );
            let above = if position == ROOT { *key } else { keys[parent(position)] };
            assert!(
                (above.when(), above.number()) <= (key.when(), key.number()),
                "a child comes after its parent"
            );
        }
        let placed = self.places.iter().filter(|place| **place != NOWHERE).count();
        assert_eq!(placed, self.end - ROOT, "each key has one place");
    }
}

#[inline]
fn parent(position: usize) -> usize {
    position / 4 + 2
}
