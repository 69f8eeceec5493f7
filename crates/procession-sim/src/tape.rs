//! The tape: every decision of a run, by purpose and in order.
//!
//! A decision is a number below a count. 0 is the tamest: the running thread continues, there is no
//! fault, the first of a list is taken. The shrinker can change any number, because a tape does not
//! record what its numbers mean. A number above the range of its decision counts as 0, and so does
//! each decision after the end of its track, except for programs that choose again and again
//! (`CHOICES_MAX` in `chance.rs`).
//!
//! A tape has one *track* for each purpose and for each class of faults. If the shrinker removes a
//! switch between threads, the following decisions of that track belong to other points, but the
//! choices of the program stay what they are.

use std::fmt::Write;
use std::ops::{Index, IndexMut};

use crate::faults::Fault;

/// The version of the written form.
const VERSION: &str = "2";

/// What a decision is about.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What is drawn for a whole run.
    Setup,
    /// Which classes of faults of calls exist.
    Calls,
    /// Which thread runs next.
    Schedule,
    /// Which stores are visible to other threads.
    Memory,
    /// The budgets of steps.
    Budget,
    /// What the program chooses.
    Program,
    Fault(Fault),
}

/// The purposes that are no faults, each with the letter of its track in the written form. The
/// tracks of faults follow. Their letters are capitals, in the order of the classes.
const TRACKS: [(Purpose, u8); 6] = [
    (Purpose::Setup, b'r'),
    (Purpose::Calls, b'c'),
    (Purpose::Schedule, b's'),
    (Purpose::Memory, b'm'),
    (Purpose::Budget, b'b'),
    (Purpose::Program, b'p'),
];
const COUNT: usize = TRACKS.len() + Fault::ALL.len();

/// The decisions of a run.
pub(crate) type Tape = Tracks<u32>;

/// Something for each decision of a run: a track for each purpose.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
pub(crate) struct Tracks<T>([Vec<T>; COUNT]);

impl Purpose {
    /// Returns what the decisions are about, in words.
    pub(crate) fn name(self) -> String {
        let name = match self {
            Self::Setup => "the set-up of the run",
            Self::Calls => "the classes of faults",
            Self::Schedule => "the next thread",
            Self::Memory => "stores",
            Self::Budget => "the budget of a step",
            Self::Program => "the program",
            Self::Fault(fault) => return format!("{fault:?}"),
        };
        name.to_owned()
    }

    /// Returns the number of its track.
    pub(crate) fn track(self) -> usize {
        match self {
            Self::Setup => 0,
            Self::Calls => 1,
            Self::Schedule => 2,
            Self::Memory => 3,
            Self::Budget => 4,
            Self::Program => 5,
            Self::Fault(fault) => TRACKS.len() + fault as usize,
        }
    }

    fn letter(self) -> char {
        let letter = match self {
            Self::Fault(fault) => b'A' + fault as u8,
            other => TRACKS[other.track()].1,
        };
        char::from(letter)
    }
}

impl<T> Index<Purpose> for Tracks<T> {
    type Output = Vec<T>;

    fn index(&self, purpose: Purpose) -> &Vec<T> {
        &self.0[purpose.track()]
    }
}

impl<T> IndexMut<Purpose> for Tracks<T> {
    fn index_mut(&mut self, purpose: Purpose) -> &mut Vec<T> {
        &mut self.0[purpose.track()]
    }
}

impl Tape {
    /// Returns the purposes, in the order of the written form.
    pub(crate) fn purposes() -> impl Iterator<Item = Purpose> {
        let faults = Fault::ALL.into_iter().map(Purpose::Fault);
        TRACKS.into_iter().map(|(purpose, _)| purpose).chain(faults)
    }

    /// Removes everything after the last number of each track that is not 0.
    pub(crate) fn trim(&mut self) {
        for track in &mut self.0 {
            let end = track.iter().rposition(|&value| value != 0).map_or(0, |at| at + 1);
            track.truncate(end);
        }
    }

    /// Returns the written form: the version, and each track that is not empty, with its letter and
    /// its numbers. Several zeros in a row are written as their count.
    pub(crate) fn encode(&self) -> String {
        let mut text = VERSION.to_owned();
        for purpose in Self::purposes() {
            if !self[purpose].is_empty() {
                text.extend(['-', purpose.letter()]);
                encode_track(&mut text, &self[purpose]);
            }
        }
        text
    }

    /// Reads the written form.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        if parts.next() != Some(VERSION) {
            return None;
        }
        let mut tape = Self::default();
        for part in parts {
            let mut numbers = part.chars();
            let letter = numbers.next()?;
            let purpose = Self::purposes().find(|purpose| purpose.letter() == letter)?;
            if !tape[purpose].is_empty() {
                return None;
            }
            tape[purpose] = decode_track(numbers.as_str())?;
        }
        Some(tape)
    }

    /// Returns the number of decisions.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Returns how many decisions are not the tamest.
    pub(crate) fn weight(&self) -> usize {
        Self::purposes().map(|purpose| self.weight_of(purpose)).sum()
    }

    /// Returns how many decisions of a purpose are not the tamest.
    pub(crate) fn weight_of(&self, purpose: Purpose) -> usize {
        self[purpose].iter().filter(|&&value| value != 0).count()
    }

    /// Returns the purpose and the number of the first decision that differs, if any.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<(Purpose, usize)> {
        Self::purposes().find_map(|purpose| {
            let (one, other) = (&self[purpose], &other[purpose]);
            let at = one.iter().zip(other).position(|(one, other)| one != other);
            let at = at.or((one.len() != other.len()).then(|| one.len().min(other.len())));
            at.map(|at| (purpose, at))
        })
    }
}

fn encode_track(text: &mut String, track: &[u32]) {
    let mut separator = "";
    for same in track.chunk_by(|one, other| *one == 0 && *other == 0) {
        let _ = match *same {
            [value] => write!(text, "{separator}{value}"),
            _ => write!(text, "{separator}{}x0", same.len()),
        };
        separator = ".";
    }
}

fn decode_track(text: &str) -> Option<Vec<u32>> {
    /// A longer run of zeros is no tape of this program.
    const ZEROS_MAX: usize = 1 << 24;
    let mut values = Vec::new();
    for part in text.split('.') {
        match part.strip_suffix("x0") {
            Some(count) => {
                let count: usize = count.parse().ok().filter(|&count| count <= ZEROS_MAX)?;
                values.resize(values.len() + count, 0);
            }
            None => values.push(part.parse().ok()?),
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::{Purpose, Tape};
    use crate::faults::Fault;

    fn tape(schedule: &[u32], program: &[u32]) -> Tape {
        let mut tape = Tape::default();
        tape[Purpose::Schedule] = schedule.to_vec();
        tape[Purpose::Program] = program.to_vec();
        tape
    }

    #[test]
    fn a_tape_is_read_as_it_was_written() {
        let tracks: [&[u32]; 5] =
            [&[], &[3], &[0, 1], &[0; 3], &[0, 0, 0, 7, 0, 1, 0, 0, u32::MAX]];
        for schedule in tracks {
            for program in tracks {
                let tape = tape(schedule, program);
                assert_eq!(Tape::decode(&tape.encode()), Some(tape));
            }
        }
        assert_eq!(tape(&[5, 0, 0, 0, 2], &[0, 1]).encode(), "2-s5.3x0.2-p0.1");
        assert_eq!(Tape::default().encode(), "2");
    }

    #[test]
    fn each_track_has_a_letter_of_its_own() {
        let mut tape = Tape::default();
        for (number, purpose) in Tape::purposes().enumerate() {
            tape[purpose].push(number as u32 + 1);
        }
        assert_eq!(Tape::decode(&tape.encode()), Some(tape.clone()));
        assert_eq!(tape.weight(), tape.len());
        let mut stalls = Tape::default();
        stalls[Purpose::Fault(Fault::Stall)].push(1);
        assert_eq!(stalls.encode(), "2-A1");
    }

    #[test]
    fn what_is_no_tape_is_refused() {
        for text in [
            "",
            "1.1",
            "1",
            "2-",
            "2-s",
            "2-s1.",
            "2-1",
            "2.s1",
            "2-sx0",
            "2-s-1",
            "2-s99999999999x0",
            "2-s5000000000",
            "2-z1",
            "2-s1-s1",
        ] {
            assert_eq!(Tape::decode(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_difference_is_named_by_purpose_and_number() {
        let one = tape(&[1, 2], &[3]);
        assert_eq!(one.first_difference(&one.clone()), None);
        let other = tape(&[1, 2], &[3, 0]);
        assert_eq!(one.first_difference(&other), Some((Purpose::Program, 1)));
        assert_eq!(one.first_difference(&tape(&[1, 3], &[])), Some((Purpose::Schedule, 1)));
    }
}
