//! The measurement of a workload, and the printing of its figures.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::{Definition, Figure};

/// The fraction of the work that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Full,
    /// A hundredth, with meaningless figures.
    Tiny,
}

impl Scale {
    pub(crate) fn of(self, count: u64) -> u64 {
        match self {
            Self::Full => count,
            Self::Tiny => count.div_ceil(100),
        }
    }
}

/// A workload on the runtime `R`.
#[derive(Debug)]
pub(crate) struct Workload<R> {
    pub(crate) definition: &'static Definition,
    /// Runs the workload once.
    pub(crate) run: fn(&R, Scale) -> Outcome,
}

/// The result of one run: a value for each figure of the definition.
pub(crate) type Outcome = Result<Vec<f64>, Failed>;

/// The reason why a workload has no figures.
#[derive(Debug)]
pub(crate) enum Failed {
    Wrong {
        what: &'static str,
        expected: u64,
        found: u64,
    },
    /// The workload did not end in time.
    Late(Duration),
    /// A sleep ended before its time.
    Early,
    System {
        act: &'static str,
        cause: io::Error,
    },
    /// An error of the runtime.
    Runtime(Box<dyn Error + Send + Sync>),
}

impl Failed {
    pub(crate) fn error(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Runtime(Box::new(error))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong { what, expected, found } => {
                write!(f, "{what}: {found} instead of {expected}")
            }
            Self::Late(timeout) => write!(f, "it did not end within {} s", timeout.as_secs()),
            Self::Early => f.write_str("a sleep ended before its time"),
            Self::System { act, cause } => write!(f, "cannot {act}: {cause}"),
            Self::Runtime(error) => error.fmt(f),
        }
    }
}

pub(crate) fn check(what: &'static str, expected: u64, found: u64) -> Result<(), Failed> {
    if expected == found { Ok(()) } else { Err(Failed::Wrong { what, expected, found }) }
}

/// Returns the nanoseconds since `start` for each of `count` operations.
pub(crate) fn each(start: Instant, count: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / count as f64
}

/// The default number of rounds.
pub(crate) const ROUNDS: usize = 5;
/// The maximum number of rounds. More would take an hour.
pub(crate) const ROUNDS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        // For an even number of values, this is the mean of the two in the middle.
        let median = (values[middle] + values[(values.len() - 1) / 2]) / 2.0;
        Self { median, min: values[0], max: values[values.len() - 1] }
    }
}

impl<R> Workload<R> {
    /// Measures `rounds` rounds, after one that does not count.
    pub(crate) fn measure(
        &self,
        runtime: &R,
        rounds: usize,
        scale: Scale,
    ) -> Result<Vec<Spread>, Failed> {
        (self.run)(runtime, scale)?;
        let outcomes =
            (0..rounds).map(|_| (self.run)(runtime, scale)).collect::<Result<Vec<_>, _>>()?;
        let of_figure = |figure: usize| outcomes.iter().map(|outcome| outcome[figure]).collect();
        Ok((0..self.definition.figures.len()).map(|figure| Spread::of(of_figure(figure))).collect())
    }
}

/// The format in which figures are printed.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) runtime: &'static str,
    pub(crate) json: bool,
}

impl Report {
    pub(crate) fn print(
        &self,
        definition: &Definition,
        spreads: &[Spread],
        out: &mut impl Write,
    ) -> io::Result<()> {
        for (figure, spread) in definition.figures.iter().zip(spreads) {
            let Figure { name, unit, per } = figure;
            let Spread { median, min, max } = spread;
            if self.json {
                let runtime = self.runtime;
                writeln!(
                    out,
                    r#"{{"workload":"{name}","runtime":"{runtime}","value":{median:.2},"unit":"{unit}"}}"#
                )?;
            } else {
                let what = format!("{unit} per {per}");
                writeln!(out, "{name:<20} {median:>9.1} {what:<20} {min:.1}..{max:.1}")?;
            }
        }
        out.flush()
    }
}

/// Returns the median and the maximum of some durations, in microseconds.
pub(crate) fn middle_and_worst(mut all: Vec<Duration>) -> [f64; 2] {
    all.sort();
    [all[all.len() / 2], all[all.len() - 1]].map(microseconds)
}

/// Returns the percentiles of some durations in microseconds, one for each number of per mille.
pub(crate) fn percentiles<const N: usize>(
    mut all: Vec<Duration>,
    per_mille: [usize; N],
) -> [f64; N] {
    all.sort();
    per_mille.map(|part| microseconds(all[(all.len() * part / 1000).min(all.len() - 1)]))
}

pub(crate) fn microseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}
