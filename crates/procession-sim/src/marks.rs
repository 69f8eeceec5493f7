//! Marks: by which a decision is found again in another run.
//!
//! A decision has a number on its track. If the shrinker leaves out a switch between threads, the
//! next run has other points, and the numbers of the decisions after it mean something else. A mark
//! stays: it says which process had its step, or which thread waited, and the how many-th decision
//! of this purpose it was there. So a run of marked decisions does what the earlier run did, except
//! for what was left out, and as long as its processes have as many steps.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

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
    seen: HashMap<u64, u32>,
}

impl Marker {
    /// Marks the next decision.
    pub(crate) fn mark(&mut self, purpose: Purpose) -> u64 {
        let seen = self.seen.entry(digest((purpose, self.place))).or_default();
        *seen += 1;
        let mark = digest((purpose, self.place, *seen));
        self.marks[purpose].push(mark);
        mark
    }
}

/// Returns a number that stands for a value, and is the same in each run.
pub(crate) fn digest(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Decisions by their marks.
pub(crate) type Marked = HashMap<u64, u32>;

/// Returns the decisions of a tape that are not 0, by the marks of the run that it comes from.
pub(crate) fn marked(tape: &Tape, marks: &Marks) -> Marked {
    let tracks = Tape::purposes().flat_map(|purpose| marks[purpose].iter().zip(&tape[purpose]));
    tracks.filter(|(_, value)| **value != 0).map(|(&mark, &value)| (mark, value)).collect()
}
