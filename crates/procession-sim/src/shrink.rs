//! The shrinker: finds a short tape with the same failure. It knows nothing of the program.
//!
//! Whole tracks go first: most failures need decisions of one or two purposes only. A run without
//! switches between threads is also a fast one.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::tape::{Purpose, Tape};

/// The limits of the search, of which the first one reached ends it.
const RUNS_MAX: u32 = 5000;
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
    fails: &'a mut dyn FnMut(&Tape) -> Option<Tape>,
    /// Digests of the tapes that have run. A second run would be the same.
    known: HashSet<u64>,
    runs: u32,
    began: Instant,
}

/// Returns a tape that fails, with fewer and lower numbers than `tape` as far as one is found.
///
/// `fails` runs a tape. If the run fails, it returns the decisions that the run has made: the
/// numbers of the tape up to the failure, and 0 for those that are too large.
pub(crate) fn shrink(tape: Tape, fails: &mut dyn FnMut(&Tape) -> Option<Tape>) -> Shrunk {
    let known = HashSet::from([digest(&tape)]);
    let mut search = Search { best: tape, fails, known, runs: 0, began: now() };
    search.best.trim();
    loop {
        let before = search.best.clone();
        let mut purposes: Vec<_> = Tape::purposes().collect();
        // The longest ones make runs slow.
        purposes.sort_by_key(|&purpose| Reverse(search.best.weight_of(purpose)));
        for &purpose in &purposes {
            search.attempt_with(purpose, Vec::new());
        }
        // The shortest ones take few runs, and most of what belongs to a class of faults goes with
        // the one decision that the class exists.
        purposes.sort_by_key(|&purpose| search.best.weight_of(purpose));
        for &purpose in &purposes {
            search.cut_tail(purpose);
        }
        for &purpose in &purposes {
            search.clear_blocks(purpose);
            search.remove_blocks(purpose);
            search.lower_values(purpose);
        }
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

fn digest(tape: &Tape) -> u64 {
    let mut hasher = DefaultHasher::new();
    tape.hash(&mut hasher);
    hasher.finish()
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.runs >= RUNS_MAX || self.began.elapsed() >= TIME_MAX
    }

    /// Replaces a track. Takes the candidate if it fails, too.
    fn attempt_with(&mut self, purpose: Purpose, track: Vec<u32>) -> bool {
        let mut candidate = self.best.clone();
        candidate[purpose] = track;
        candidate.trim();
        if self.is_over() || !self.known.insert(digest(&candidate)) {
            return false;
        }
        self.runs += 1;
        let Some(mut ran) = (self.fails)(&candidate) else { return false };
        ran.trim();
        self.known.insert(digest(&ran));
        self.best = ran;
        true
    }

    /// Removes as much of the end as possible.
    fn cut_tail(&mut self, purpose: Purpose) {
        let mut step = self.best[purpose].len();
        while step > 0 {
            let kept = self.best[purpose].len().saturating_sub(step);
            let cut = self.best[purpose][..kept].to_vec();
            if !self.attempt_with(purpose, cut) {
                step /= 2;
            }
            step = step.min(self.best[purpose].len());
        }
    }

    /// Sets blocks of numbers to 0, large blocks first.
    fn clear_blocks(&mut self, purpose: Purpose) {
        let mut size = self.best.weight_of(purpose);
        while size > 0 {
            let mut from = 0;
            while from < self.best.weight_of(purpose) && !self.is_over() {
                let mut track = self.best[purpose].clone();
                let filled = track.iter_mut().filter(|value| **value != 0);
                filled.skip(from).take(size).for_each(|value| *value = 0);
                if !self.attempt_with(purpose, track) {
                    from += size;
                }
            }
            size /= 2;
        }
    }

    /// Removes stretches of zeros, so that a number moves to an earlier decision.
    fn remove_blocks(&mut self, purpose: Purpose) {
        let mut at = 0;
        while at < self.best[purpose].len() && !self.is_over() {
            let mut size = zeros(&self.best[purpose], at);
            while size > 0 {
                let mut track = self.best[purpose].clone();
                track.drain(at..at + size);
                if self.attempt_with(purpose, track) {
                    break;
                }
                size /= 2;
            }
            at += zeros(&self.best[purpose], at) + 1;
        }
    }

    /// Lowers single numbers.
    fn lower_values(&mut self, purpose: Purpose) {
        let mut at = 0;
        while at < self.best[purpose].len() && !self.is_over() {
            let mut lower = 1;
            while let Some(&value) = self.best[purpose].get(at).filter(|&&value| value > lower) {
                let mut track = self.best[purpose].clone();
                track[at] = lower;
                if self.attempt_with(purpose, track) {
                    break;
                }
                // Half of the way each time.
                lower += ((value - lower) / 2).max(1);
            }
            at += 1;
        }
    }
}

/// Returns the number of zeros in a row from there on.
fn zeros(track: &[u32], at: usize) -> usize {
    track.iter().skip(at).take_while(|&&value| value == 0).count()
}

#[cfg(test)]
mod tests {
    use super::{Purpose, RUNS_MAX, Tape, shrink};

    /// Returns a tape of 2000 decisions, a third of which belong to the program, and the places of
    /// up to five of them that are not 0.
    fn draw(generator: &mut fastrand::Rng) -> (Tape, Vec<(Purpose, usize)>) {
        let mut tape = Tape::default();
        for _ in 0..2000 {
            let purposes = [Purpose::Schedule, Purpose::Schedule, Purpose::Program];
            tape[purposes[generator.usize(0..3)]].push(generator.u32(0..4));
        }
        let filled = [Purpose::Schedule, Purpose::Program].into_iter().flat_map(|purpose| {
            let track = tape[purpose].iter().enumerate();
            track.filter(|(_, value)| **value != 0).map(move |(at, _)| (purpose, at))
        });
        let count = generator.usize(1..6);
        let needed = generator.choose_multiple(filled, count);
        (tape, needed)
    }

    /// Goal: the shrinker ends with the decisions that the failure needs. Method: failures that
    /// need `k` known numbers of a random tape.
    #[test]
    fn what_the_failure_needs_is_left() {
        let (mut exact, rounds) = (0, 200);
        for seed in 0..rounds {
            let (tape, needed) = draw(&mut fastrand::Rng::with_seed(seed));
            let mut fails = |tape: &Tape| {
                let is_there = |&(purpose, at): &(Purpose, usize)| {
                    tape[purpose].get(at).is_some_and(|&value| value != 0)
                };
                needed.iter().all(is_there).then(|| tape.clone())
            };
            let shrunk = shrink(tape, &mut fails);
            assert!(fails(&shrunk.tape).is_some(), "seed {seed}: the result must fail");
            assert!(shrunk.runs < 300, "seed {seed}: {} runs", shrunk.runs);
            exact += u64::from(shrunk.tape.weight() == needed.len());
        }
        assert!(exact * 100 >= rounds * 95, "{exact} of {rounds} ended with what is needed");
    }

    /// Goal: what a run does not come to goes at once. Method: a program that fails at the first
    /// choice, and then chooses no more.
    #[test]
    fn what_follows_the_failure_is_cut_by_one_run() {
        let (mut tape, _) = draw(&mut fastrand::Rng::with_seed(0));
        tape[Purpose::Schedule].clear();
        tape[Purpose::Program].insert(0, 1);
        let mut fails = |tape: &Tape| {
            let has_failed = tape[Purpose::Program].first() == Some(&1);
            has_failed.then(|| {
                let mut ran = tape.clone();
                ran[Purpose::Program].truncate(1);
                ran
            })
        };
        let shrunk = shrink(tape, &mut fails);
        assert_eq!(shrunk.tape.encode(), "2-p1");
        assert!(shrunk.runs <= 6, "{} runs", shrunk.runs);
    }

    /// A failure that each change ends takes no more than the limit.
    #[test]
    fn the_search_has_an_end() {
        let (mut tape, _) = draw(&mut fastrand::Rng::with_seed(0));
        tape[Purpose::Budget] = vec![1; 3 * RUNS_MAX as usize];
        let mut trimmed = tape.clone();
        trimmed.trim();
        let shrunk = shrink(tape, &mut |_| None);
        assert_eq!((shrunk.tape, shrunk.runs), (trimmed, RUNS_MAX));
    }
}
