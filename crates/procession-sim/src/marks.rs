//! Marks, which identify a decision in another run.
//!
//! A decision has a number on its track. If the shrinker leaves out a switch between threads, the
//! next run has other points, and the numbers of later decisions mean something else. A mark stays
//! the same. It says which process had its step, or which thread waited, and how many decisions of
//! this purpose were made there before. So a run of marked decisions does what the earlier run did,
//! except for what was left out, and as long as its processes have as many steps.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::tape::{Purpose, Tape, Tracks};

/// The mark of each decision of a run, by its number.
pub(crate) type Marks = Tracks<u64>;

/// Makes the marks of a run.
#[derive(Debug, Default)]
pub(crate) struct Marker {
    pub(crate) marks: Marks,
    /// The process or the thread that decisions are about.
    pub(crate) place: u64,
    /// How many decisions there were of each purpose at each place.
    seen: MixedMap<u32>,
}

impl Marker {
    /// Marks the next decision.
    pub(crate) fn mark(&mut self, purpose: Purpose) -> u64 {
        let place = mixed(self.place, purpose.track() as u64);
        let seen = self.seen.entry(place).or_default();
        *seen += 1;
        let mark = mixed(place, u64::from(*seen));
        self.marks[purpose].push(mark);
        mark
    }
}

/// Returns a number that stands for two, and is the same in each run.
pub(crate) fn mixed(one: u64, other: u64) -> u64 {
    // The finalizer of MurmurHash3.
    let mut mixed = one.rotate_left(24) ^ other.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

/// Returns a number that stands for a name.
pub(crate) fn mark_of_name(name: &str) -> u64 {
    name.bytes().fold(name.len() as u64, |mark, byte| mixed(mark, u64::from(byte)))
}

/// A map from numbers that are mixed already.
pub(crate) type MixedMap<T> = HashMap<u64, T, BuildHasherDefault<Mixed>>;

/// The hash of a number that is mixed already: the number.
#[derive(Debug, Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mixed(self.0, u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Decisions by their marks.
pub(crate) type Marked = MixedMap<u32>;

/// Returns the decisions of a tape that are not 0, by the marks of the run that made the tape.
pub(crate) fn marked(tape: &Tape, marks: &Marks) -> Marked {
    let tracks = Tape::purposes().flat_map(|purpose| marks[purpose].iter().zip(&tape[purpose]));
    tracks.filter(|(_, value)| **value != 0).map(|(&mark, &value)| (mark, value)).collect()
}
