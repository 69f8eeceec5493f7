//! An indexed 4-ary heap of 16-byte keys.
//!
//! Four siblings share a cache line: the root is the last key of the first line, and the children of the key at position p
//! are the whole line p - 2. Positions without a key hold one that never comes, so that the earliest of four children is
//! found without asking how many there are. `places` says where each slot's key is, so that any key can be moved or removed
//! without a search; it lies beside the heap and not in the slots because a sift writes it at each step (DESIGN.md goals,
//! `timers_cancel`).
//!
//! ## Rejected
//! - Lazy deletion with compaction at a quarter dead keys (Go before and after 1.23): no faster, and the compaction is a
//!   pause of milliseconds at a million timers.
//! - A hierarchical wheel: faster only at far more than 100,000 timers, and it rounds deadlines.
//! - The sequence number as part of one 128-bit comparison: it could not wrap.
#![forbid(unsafe_code)]

/// A deadline that never comes; no key in the heap has it.
pub(super) const NEVER: u64 = u64::MAX;

/// Where the root is; smaller positions hold nothing.
const ROOT: usize = 3;

/// The place of a slot whose key is not in the heap.
const NOWHERE: u32 = 0;

/// What the heap is ordered by, and the slot that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) when: u64,
    /// Orders equal deadlines. It wraps: two that were made 2^31 timers apart are taken for the wrong way round.
    pub(super) sequence: u32,
    pub(super) slot: u32,
}

impl Key {
    const NONE: Self = Self { when: NEVER, sequence: 0, slot: u32::MAX };

    fn is_before(self, other: Self) -> bool {
        let is_older = (self.sequence.wrapping_sub(other.sequence) as i32) < 0;
        // Without branches: which of two keys is first cannot be predicted.
        (self.when < other.when) | (self.when == other.when) & is_older
    }
}

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([Key; 4]);

impl Line {
    /// Which of the four is first; one that never comes if there is none.
    #[inline]
    fn first(&self) -> (usize, Key) {
        let [a, b, c, d] = self.0;
        let ab = usize::from(b.is_before(a));
        let cd = 2 + usize::from(d.is_before(c));
        let which = if self.0[cd].is_before(self.0[ab]) { cd } else { ab };
        (which, self.0[which])
    }
}

#[derive(Debug)]
pub(super) struct Heap {
    lines: Vec<Line>,
    /// Behind the last key.
    end: usize,
    /// For each slot the position of its key, or `NOWHERE`.
    places: Vec<u32>,
}

impl Heap {
    pub(super) fn new() -> Self {
        Self { lines: Vec::new(), end: ROOT, places: Vec::new() }
    }

    /// Makes room to remember the places of this many slots.
    pub(super) fn track(&mut self, slots: usize) {
        self.places.resize(slots, NOWHERE);
    }

    /// The key that comes first.
    #[inline]
    pub(super) fn first(&self) -> Option<Key> {
        (self.end > ROOT).then(|| self.at(ROOT))
    }

    /// The deadline of this slot's key, if it has one here.
    pub(super) fn when_of(&self, slot: u32) -> Option<u64> {
        match self.places[slot as usize] {
            NOWHERE => None,
            place => Some(self.at(place as usize).when),
        }
    }

    /// Puts in the key of a slot that has none here.
    #[inline]
    pub(super) fn insert(&mut self, key: Key) {
        debug_assert_eq!(self.places[key.slot as usize], NOWHERE, "a slot has one key");
        debug_assert_ne!(key.when, NEVER, "what never comes waits outside");
        if self.end / 4 == self.lines.len() {
            self.lines.push(Line([Key::NONE; 4]));
        }
        let hole = self.end;
        self.end += 1;
        self.sift_up(hole, key);
    }

    /// Removes a slot's key, if it has one here.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let place = std::mem::replace(&mut self.places[slot as usize], NOWHERE);
        if place == NOWHERE {
            return;
        }
        let hole = place as usize;
        self.end -= 1;
        let last = self.at(self.end);
        self.lines[self.end / 4].0[self.end % 4] = Key::NONE;
        if hole != self.end {
            self.sift(hole, last);
        }
    }

    /// Changes the deadline of a slot that has a key here.
    pub(super) fn change(&mut self, slot: u32, when: u64) {
        let hole = self.places[slot as usize] as usize;
        let key = Key { when, ..self.at(hole) };
        debug_assert_eq!(key.slot, slot, "a place is where the key is");
        self.sift(hole, key);
    }

    #[inline]
    fn at(&self, position: usize) -> Key {
        self.lines[position / 4].0[position % 4]
    }

    #[inline]
    fn set(&mut self, position: usize, key: Key) {
        self.lines[position / 4].0[position % 4] = key;
        self.places[key.slot as usize] = position as u32;
    }

    fn sift(&mut self, hole: usize, key: Key) {
        if hole > ROOT && key.is_before(self.at(parent(hole))) {
            self.sift_up(hole, key);
        } else {
            self.sift_down(hole, key);
        }
    }

    #[inline]
    fn sift_up(&mut self, mut hole: usize, key: Key) {
        while hole > ROOT {
            let above = parent(hole);
            let parent = self.at(above);
            if !key.is_before(parent) {
                break;
            }
            self.set(hole, parent);
            hole = above;
        }
        self.set(hole, key);
    }

    #[inline]
    fn sift_down(&mut self, mut hole: usize, key: Key) {
        loop {
            let children = hole - 2;
            if children * 4 >= self.end {
                break;
            }
            let (which, child) = self.lines[children].first();
            if !child.is_before(key) {
                break;
            }
            self.set(hole, child);
            hole = children * 4 + which;
        }
        self.set(hole, key);
    }
}

fn parent(position: usize) -> usize {
    position / 4 + 2
}
