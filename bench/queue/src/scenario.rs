//! Scenarios, and the measurement of their rivals beside each other.

use std::time::Instant;

/// Scenarios with the same rivals, which share a table.
pub(crate) struct Family {
    /// The first is Procession's. It is compared with the best of those that are not named after
    /// it.
    pub(crate) rivals: &'static [&'static str],
    /// The names of the scenarios, or patterns of them, and a sentence for each.
    pub(crate) definitions: &'static [(&'static str, &'static str)],
    pub(crate) scenarios: Vec<Scenario>,
}

pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) units: &'static [Unit],
    /// One run for each rival of the family, in their order.
    pub(crate) runs: Vec<Run>,
}

/// Does the work once, checks its result, and returns one number for each unit.
pub(crate) type Run = Box<dyn Fn(Scale) -> Vec<f64>>;

pub(crate) enum Unit {
    /// Less is better, and rivals are compared.
    Cost(&'static str),
    /// Explains a cost.
    Fact(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Full,
    Tiny,
}

impl Scale {
    /// Returns the number of repetitions of what a full run does `full` times.
    pub(crate) fn count(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Tiny => (full / 1000).max(1),
        }
    }
}

/// Counts and sums items, to prove that each came out once.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) count: usize,
    sum: usize,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, item: usize) {
        self.count += 1;
        self.sum += item;
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum + other.sum }
    }

    /// Asserts that the numbers below `count` were added once each.
    ///
    /// # Panics
    /// Panics if the count or the sum shows that they were not.
    pub(crate) fn assert_each_below(self, count: usize) {
        assert_eq!(self.count, count, "as many items come out as went in");
        assert_eq!(
            self.sum,
            count * count.saturating_sub(1) / 2,
            "the items that come out are those that went in"
        );
    }
}

/// Gives a value its own cache lines, since another thread uses its neighbours on the stack while
/// one thread writes it.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// Returns the nanoseconds that `work` took, and its result.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
#[inline]
pub(crate) fn timed<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_nanos() as f64, result)
}

#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// # Panics
    /// If there are no samples.
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let middle = samples.len() / 2;
        let median = if samples.len() % 2 == 1 {
            samples[middle]
        } else {
            samples[middle - 1].midpoint(samples[middle])
        };
        Self { min: samples[0], median, max: samples[samples.len() - 1] }
    }
}

impl Scenario {
    /// Runs all rivals in each round, so that a disturbance of the machine affects all of them.
    /// Each round starts with another rival. The first round does not count. Returns the spreads of
    /// each unit, rival by rival.
    pub(crate) fn measure(&self, rounds: usize, scale: Scale) -> Vec<Vec<Spread>> {
        let rivals = self.runs.len();
        let mut samples = vec![vec![Vec::with_capacity(rounds); rivals]; self.units.len()];
        for round in 0..=rounds {
            for turn in 0..rivals {
                let rival = (round + turn) % rivals;
                let values = self.runs[rival](scale);
                assert_eq!(
                    values.len(),
                    self.units.len(),
                    "a run returns one number for each unit"
                );
                for (unit, value) in values.into_iter().enumerate().filter(|_| round > 0) {
                    samples[unit][rival].push(value);
                }
            }
        }
        samples.into_iter().map(|rivals| rivals.into_iter().map(Spread::of).collect()).collect()
    }
}
