//! The tape: every decision of a run, in order.
//!
//! A decision is a number below a count. 0 is the tamest: the running thread goes on, there is no
//! fault, the first of a list is taken. A tape says nothing of what its numbers mean, so the
//! shrinker can change any of them. A number that is too large for its decision counts as 0, and so
//! does each decision after the end of the tape.

use std::fmt::Write;

/// The version of the written form.
const VERSION: &str = "1";

/// The decisions of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tape(pub(crate) Vec<u32>);

impl Tape {
    /// Removes what comes after the last number that is not 0.
    pub(crate) fn trim(&mut self) {
        let end = self.0.iter().rposition(|&value| value != 0).map_or(0, |at| at + 1);
        self.0.truncate(end);
    }

    /// Returns the written form: the version, and the numbers. Several zeros in a row are written
    /// as their count.
    pub(crate) fn encode(&self) -> String {
        let mut text = VERSION.to_owned();
        let mut zeros = 0;
        for &value in &self.0 {
            if value == 0 {
                zeros += 1;
                continue;
            }
            encode_zeros(&mut text, &mut zeros);
            let _ = write!(text, ".{value}");
        }
        text
    }

    /// Reads the written form.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        /// A longer run of zeros is no tape of this program.
        const ZEROS_MAX: usize = 1 << 24;
        let mut parts = text.split('.');
        if parts.next() != Some(VERSION) {
            return None;
        }
        let mut values = Vec::new();
        for part in parts {
            match part.strip_suffix("x0") {
                Some(count) => {
                    let count: usize = count.parse().ok().filter(|&count| count <= ZEROS_MAX)?;
                    values.resize(values.len() + count, 0);
                }
                None => values.push(part.parse().ok()?),
            }
        }
        Some(Self(values))
    }

    /// Returns how many decisions are not the tamest.
    pub(crate) fn weight(&self) -> usize {
        self.0.iter().filter(|&&value| value != 0).count()
    }
}

fn encode_zeros(text: &mut String, zeros: &mut usize) {
    match std::mem::take(zeros) {
        0 => {}
        1 => text.push_str(".0"),
        count => {
            let _ = write!(text, ".{count}x0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tape;

    #[test]
    fn a_tape_is_read_as_it_was_written() {
        for values in [vec![], vec![3], vec![0, 1], vec![0, 0, 0, 7, 0, 1, 0, 0, 4_000_000_000]] {
            let tape = Tape(values);
            assert_eq!(Tape::decode(&tape.encode()), Some(tape));
        }
        assert_eq!(Tape(vec![5, 0, 0, 0, 2]).encode(), "1.5.3x0.2");
    }

    #[test]
    fn what_is_no_tape_is_refused() {
        for text in ["", "2.1", "1.", "1.x0", "1.-1", "1.99999999999x0", "1.5000000000"] {
            assert_eq!(Tape::decode(text), None, "{text}");
        }
    }
}
