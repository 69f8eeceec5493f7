//! The shrinker: finds a short tape with the same failure. It knows nothing of the program.
//!
//! The shrinker first removes whole tracks, because most failures need decisions of one or two
//! purposes only, and because a run without switches between threads is fast. Then it leaves out
//! blocks of decisions. It finds the decisions that stay again by their [marks](crate::marks).

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::marks::{Marked, Marks, marked, mixed};
use crate::tape::{Purpose, Tape};

/// The limits of the search, of which the first one reached ends it. Of a planted defect, only the
/// seed that finds it is of interest.
pub(crate) const RUNS_MAX: u32 = if cfg!(procession_mutant) { 0 } else { 5000 };
const TIME_MAX: Duration = Duration::from_secs(10);

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Shrunk {
    pub(crate) tape: Tape,
    pub(crate) runs: u32,
    pub(crate) time: Duration,
}

/// The decisions of a run that is tried.
#[derive(Debug)]
pub(crate) enum Trial {
    /// By their numbers.
    Numbered(Box<Tape>),
    /// By the marks of the best run.
    Marked(Marked),
}

/// Runs a trial. If it fails, returns the decisions that the run has made and their marks: a number
/// above the range of its decision counts as 0, and after the failure there is no decision.
type Fails<'a> = dyn FnMut(Trial) -> Option<(Tape, Marks)> + 'a;

struct Search<'a> {
    best: Tape,
    marks: Marks,
    fails: &'a mut Fails<'a>,
    /// Set if decisions are found again by their marks, and not by their numbers.
    by_marks: bool,
    /// Digests of the trials. A second run would be the same.
    known: HashSet<u64>,
    runs: u32,
    runs_max: u32,
    began: Instant,
}

/// Returns a tape that fails, with fewer and lower numbers than `tape` as far as one is found.
pub(crate) fn shrink<'a>(mut tape: Tape, runs_max: u32, fails: &'a mut Fails<'a>) -> Shrunk {
    tape.trim();
    let mut search = Search {
        best: tape,
        marks: Marks::default(),
        fails,
        by_marks: true,
        known: HashSet::new(),
        runs: 0,
        runs_max,
        began: now(),
    };
    // The first run finds the marks.
    search.attempt(Trial::Numbered(Box::new(search.best.clone())));
    loop {
        let before = search.best.clone();
        // A decision that the failure needs may have moved to another process, and so to another
        // mark.
        for by_marks in [true, false] {
            search.by_marks = by_marks;
            search.pass();
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

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.runs >= self.runs_max || self.began.elapsed() >= TIME_MAX
    }

    /// Runs a trial. If it also fails, its run replaces the best run.
    fn attempt(&mut self, trial: Trial) -> bool {
        if self.is_over() || !self.known.insert(trial.digest()) {
            return false;
        }
        self.runs += 1;
        let Some((mut tape, marks)) = (self.fails)(trial) else { return false };
        tape.trim();
        (self.best, self.marks) = (tape, marks);
        true
    }

    /// Tries everything once.
    fn pass(&mut self) {
        let mut purposes: Vec<_> = Tape::purposes().collect();
        // The longest tracks are first, because they make runs slow.
        purposes.sort_by_key(|&purpose| Reverse(self.best.weight_of(purpose)));
        for &purpose in &purposes {
            self.replace(purpose, Vec::new());
        }
        // The shortest tracks are first, because they take few runs. Most of what belongs to a
        // class of faults disappears with the one decision that the class exists.
        purposes.sort_by_key(|&purpose| self.best.weight_of(purpose));
        for &purpose in &purposes {
            self.cut_tail(purpose);
        }
        for &purpose in &purposes {
            self.clear_blocks(purpose);
            self.remove_blocks(purpose);
            self.lower_values(purpose);
        }
    }

    /// Replaces a track by a track with fewer or lower decisions. Takes the run if it also fails.
    fn replace(&mut self, purpose: Purpose, track: Vec<u32>) -> bool {
        let mut candidate = self.best.clone();
        candidate[purpose] = track;
        if self.by_marks {
            return self.attempt(Trial::Marked(marked(&candidate, &self.marks)));
        }
        candidate.trim();
        self.attempt(Trial::Numbered(Box::new(candidate)))
    }

    /// Removes as much of the end as possible.
    fn cut_tail(&mut self, purpose: Purpose) {
        let mut step = self.best[purpose].len();
        while step > 0 {
            let kept = self.best[purpose].len().saturating_sub(step);
            let cut = self.best[purpose][..kept].to_vec();
            if !self.replace(purpose, cut) {
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
                if !self.replace(purpose, track) {
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
                let mut candidate = self.best.clone();
                candidate[purpose].drain(at..at + size);
                if self.attempt(Trial::Numbered(Box::new(candidate))) {
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
                if self.replace(purpose, track) {
                    break;
                }
                // Half of the way each time.
                lower += ((value - lower) / 2).max(1);
            }
            at += 1;
        }
    }
}

impl Trial {
    fn digest(&self) -> u64 {
        match self {
            Self::Numbered(tape) => {
                let values = Tape::purposes().flat_map(|purpose| {
                    let track = &tape[purpose];
                    track.iter().copied().chain([track.len() as u32])
                });
                values.fold(0, |digest, value| mixed(digest, u64::from(value)))
            }
            // A sum, because a map has no order.
            Self::Marked(decisions) => {
                let values = decisions.iter().map(|(&mark, &value)| mixed(mark, u64::from(value)));
                values.fold(1, u64::wrapping_add)
            }
        }
    }
}

/// Returns the number of zeros in a row from there on.
fn zeros(track: &[u32], at: usize) -> usize {
    track.iter().skip(at).take_while(|&&value| value == 0).count()
}

#[cfg(test)]
mod tests {
    use super::{Marks, Purpose, RUNS_MAX, Tape, Trial, shrink};
    use crate::marks::MixedMap;

    /// Returns a tape of 2000 decisions, a third of which belong to the program, and the places of
    /// up to five decisions that are not 0.
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

    /// Returns the decisions of a run, and as their marks their purposes and numbers.
    fn ran(trial: Trial) -> (Tape, Marks) {
        let mut tape = Tape::default();
        match trial {
            Trial::Numbered(given) => tape = *given,
            Trial::Marked(decisions) => {
                for (mark, value) in decisions {
                    let purpose = Tape::purposes().nth(mark as usize >> 32).expect("it is one");
                    let at = mark as u32 as usize;
                    let length = tape[purpose].len().max(at + 1);
                    tape[purpose].resize(length, 0);
                    tape[purpose][at] = value;
                }
            }
        }
        let mut marks = Marks::default();
        for (number, purpose) in (0_u64..).zip(Tape::purposes()) {
            marks[purpose] = (0..tape[purpose].len() as u64).map(|at| number << 32 | at).collect();
        }
        (tape, marks)
    }

    /// Goal: the shrinker ends with the decisions that the failure needs. Method: failures that
    /// need `k` known numbers of a random tape.
    #[test]
    fn what_the_failure_needs_is_left() {
        let rounds = 200;
        let mut exact = 0;
        for seed in 0..rounds {
            let (tape, needed) = draw(&mut fastrand::Rng::with_seed(seed));
            let fails = |tape: &Tape| {
                let is_there = |&(purpose, at): &(Purpose, usize)| {
                    tape[purpose].get(at).is_some_and(|&value| value != 0)
                };
                needed.iter().all(is_there)
            };
            let shrunk = shrink(tape, RUNS_MAX, &mut |trial| {
                let (tape, marks) = ran(trial);
                fails(&tape).then_some((tape, marks))
            });
            assert!(fails(&shrunk.tape), "seed {seed}: the result must fail");
            assert!(shrunk.runs < 300, "seed {seed}: {} runs", shrunk.runs);
            exact += u64::from(shrunk.tape.weight() == needed.len());
        }
        assert!(exact * 100 >= rounds * 95, "{exact} of {rounds} ended with what is needed");
    }

    /// Goal: one run is enough to remove the decisions after the failure. Method: a program that
    /// fails at the first choice, and then chooses no more.
    #[test]
    fn what_follows_the_failure_is_cut_by_one_run() {
        let (mut tape, _) = draw(&mut fastrand::Rng::with_seed(0));
        tape[Purpose::Schedule].clear();
        tape[Purpose::Program].insert(0, 1);
        let shrunk = shrink(tape, RUNS_MAX, &mut |trial| {
            let (mut tape, marks) = ran(trial);
            tape[Purpose::Program].truncate(1);
            (tape[Purpose::Program] == [1]).then_some((tape, marks))
        });
        assert_eq!(shrunk.tape.encode(), "2-p1");
        assert!(shrunk.runs <= 8, "{} runs", shrunk.runs);
    }

    /// Goal: decisions that stay keep their meaning, although other decisions before them are left
    /// out. Method: a program of 1000 steps with a decision each. If that is not 0, there is
    /// another decision, which does nothing. The failure needs two steps.
    #[test]
    fn decisions_are_found_again_by_their_marks() {
        let run = |trial: Trial| {
            let (mut tape, mut marks) = (Tape::default(), Marks::default());
            let mut decide = |mark: u64| {
                let track = &mut tape[Purpose::Schedule];
                let value = match &trial {
                    Trial::Numbered(given) => given[Purpose::Schedule].get(track.len()).copied(),
                    Trial::Marked(decisions) => decisions.get(&mark).copied(),
                };
                track.push(value.unwrap_or(0));
                marks[Purpose::Schedule].push(mark);
                value.unwrap_or(0)
            };
            let mut made = Vec::new();
            for step in 0..1000 {
                if decide(step) != 0 {
                    made.push(step);
                    decide(1000 + step);
                }
            }
            (made.contains(&300) && made.contains(&900)).then_some((tape, marks))
        };
        let mut generator = fastrand::Rng::with_seed(1);
        let mut first: MixedMap<u32> = (0..2000).map(|mark| (mark, generator.u32(0..2))).collect();
        first.extend([(300, 1), (900, 1)]);
        let (tape, _) = run(Trial::Marked(first)).expect("it fails");
        assert!(tape.weight() > 500);
        let shrunk = shrink(tape, RUNS_MAX, &mut { run });
        assert_eq!(shrunk.tape.weight(), 2, "{}", shrunk.tape.encode());
        assert!(shrunk.runs < 100, "{} runs", shrunk.runs);
    }

    /// A failure that each change ends takes no more than the limit.
    #[test]
    fn the_search_has_an_end() {
        let (mut tape, _) = draw(&mut fastrand::Rng::with_seed(0));
        tape.trim();
        let first = tape.clone();
        let shrunk = shrink(tape, 50, &mut |trial| {
            let (tape, marks) = ran(trial);
            (tape == first).then_some((tape, marks))
        });
        assert!(shrunk.tape == first && shrunk.runs == 50, "{} runs", shrunk.runs);
    }
}
