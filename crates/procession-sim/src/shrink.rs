//! The shrinker: finds a short tape with the same failure. It knows nothing of the program.

use std::time::{Duration, Instant};

use crate::tape::Tape;

/// The limits of the search, of which the first one reached ends it.
const RUNS_MAX: u32 = 2000;
const TIME_MAX: Duration = Duration::from_secs(10);

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Shrunk {
    pub(crate) tape: Tape,
    pub(crate) runs: u32,
    pub(crate) time: Duration,
}

struct Search<'a> {
    best: Tape,
    fails: &'a mut dyn FnMut(&Tape) -> bool,
    runs: u32,
    began: Instant,
}

/// Returns a tape for which `fails` is `true`, with fewer and lower numbers than `tape` as far as
/// one is found.
pub(crate) fn shrink(tape: Tape, fails: &mut dyn FnMut(&Tape) -> bool) -> Shrunk {
    let mut search = Search { best: tape, fails, runs: 0, began: now() };
    search.best.trim();
    loop {
        let before = search.best.clone();
        search.cut_tail();
        search.clear_blocks();
        search.remove_blocks();
        search.lower_values();
        if search.best == before || search.is_over() {
            break;
        }
    }
    Shrunk { tape: search.best, runs: search.runs, time: search.began.elapsed() }
}

#[expect(clippy::disallowed_methods, reason = "the search is limited in real time")]
fn now() -> Instant {
    Instant::now()
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.runs >= RUNS_MAX || self.began.elapsed() >= TIME_MAX
    }

    /// Takes the candidate if it fails, too.
    fn attempt(&mut self, mut candidate: Tape) -> bool {
        candidate.trim();
        if candidate == self.best || self.is_over() {
            return false;
        }
        self.runs += 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    /// Removes as much of the end as possible.
    fn cut_tail(&mut self) {
        let mut step = self.best.0.len();
        while step > 0 {
            let kept = self.best.0.len().saturating_sub(step);
            let cut = Tape(self.best.0[..kept].to_vec());
            if !self.attempt(cut) {
                step /= 2;
            }
            step = step.min(self.best.0.len());
        }
    }

    /// Sets blocks of numbers to 0, large blocks first.
    fn clear_blocks(&mut self) {
        let mut size = self.best.weight();
        while size > 0 {
            let mut from = 0;
            while from < self.best.weight() && !self.is_over() {
                let filled: Vec<usize> =
                    (0..self.best.0.len()).filter(|&at| self.best.0[at] != 0).collect();
                let mut candidate = self.best.clone();
                for &at in filled.iter().skip(from).take(size) {
                    candidate.0[at] = 0;
                }
                if !self.attempt(candidate) {
                    from += size;
                }
            }
            size /= 2;
        }
    }

    /// Removes stretches of zeros, so that a number moves to an earlier decision.
    fn remove_blocks(&mut self) {
        let mut at = 0;
        while at < self.best.0.len() && !self.is_over() {
            let zeros = self.best.0[at..].iter().take_while(|&&value| value == 0).count();
            let mut size = zeros;
            while size > 0 {
                let mut candidate = self.best.clone();
                candidate.0.drain(at..at + size);
                if self.attempt(candidate) {
                    break;
                }
                size /= 2;
            }
            at += self.best.0[at.min(self.best.0.len())..]
                .iter()
                .take_while(|&&value| value == 0)
                .count()
                + 1;
        }
    }

    /// Lowers single numbers.
    fn lower_values(&mut self) {
        for at in 0..self.best.0.len() {
            let mut lower = 1;
            while let Some(&value) = self.best.0.get(at).filter(|&&value| value > lower) {
                let mut candidate = self.best.clone();
                candidate.0[at] = lower;
                if self.attempt(candidate) {
                    break;
                }
                // Half of the way each time.
                lower += ((value - lower) / 2).max(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tape, shrink};

    /// Goal: the shrinker ends with the decisions that the failure needs. Method: failures that
    /// need `k` known numbers of a random tape.
    #[test]
    fn what_the_failure_needs_is_left() {
        let (mut exact, rounds) = (0, 200);
        for seed in 0..rounds {
            let mut generator = fastrand::Rng::with_seed(seed);
            let tape = Tape((0..2000).map(|_| generator.u32(0..4)).collect());
            let needed: Vec<usize> = (0..generator.usize(1..6))
                .map(|_| {
                    loop {
                        let at = generator.usize(0..tape.0.len());
                        if tape.0[at] != 0 {
                            break at;
                        }
                    }
                })
                .collect();
            let mut fails = |tape: &Tape| {
                needed.iter().all(|&at| tape.0.get(at).is_some_and(|&value| value != 0))
            };
            let shrunk = shrink(tape, &mut fails);
            assert!(fails(&shrunk.tape), "seed {seed}: the result must fail");
            let mut distinct = needed.clone();
            distinct.sort_unstable();
            distinct.dedup();
            exact += u64::from(shrunk.tape.weight() == distinct.len());
        }
        assert!(exact * 100 >= rounds * 95, "{exact} of {rounds} ended with what is needed");
    }
}
