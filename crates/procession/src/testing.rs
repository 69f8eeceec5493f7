//! The runs of a test that has the attribute `test`. What the attribute calls, and no promise.

use std::any::Any;
use std::env;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{ExitCode, Termination};
use std::time::Duration;

use crate::process::state::ProcessState;
use crate::scheduler::builder::Builder;
use crate::scheduler::owner::Scheduler;
use crate::time::timeout;

/// The environment variable with a seed that replaces those of all tests.
const SEED_VARIABLE: &str = "PROCESSION_SEED";
/// The default limit on the test clock, which a test reaches at once if nothing in it can run. A
/// test that goes on forever with a step in each second takes some seconds to reach it.
const TEST_CLOCK_LIMIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The default limit on the real clock.
const REAL_CLOCK_LIMIT: Duration = Duration::from_secs(60);
/// The most processes that the report of a test lists.
const LISTED_MAX: usize = 20;

/// A test and its options.
pub struct Test {
    name: &'static str,
    seed: u64,
    repeats: u32,
    limit: Option<Duration>,
    has_real_clock: bool,
    configure: Option<Box<dyn Fn(Builder) -> Builder>>,
}

impl fmt::Debug for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Test")
            .field("name", &self.name)
            .field("seed", &self.seed)
            .field("repeats", &self.repeats)
            .finish_non_exhaustive()
    }
}

/// A run of a test that failed.
struct Failure {
    seed: u64,
    run: u32,
    payload: Box<dyn Any + Send>,
}

impl Test {
    /// Creates a test with the default options.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, seed: 0, repeats: 1, limit: None, has_real_clock: false, configure: None }
    }

    /// Sets the seed of the first run. Each further run has the next one.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of runs. With more than one, each has its order of processes.
    #[must_use]
    pub fn repeats(mut self, runs: u32) -> Self {
        self.repeats = runs;
        self
    }

    /// Sets how long a run may take by the clock of its scheduler.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Lets the test go by the real clock.
    #[must_use]
    pub fn real_clock(mut self) -> Self {
        self.has_real_clock = true;
        self
    }

    /// Sets what a run does with the builder of its scheduler.
    #[must_use]
    pub fn configure(mut self, configure: impl Fn(Builder) -> Builder + 'static) -> Self {
        self.configure = Some(Box::new(configure));
        self
    }

    /// Runs the test.
    ///
    /// # Panics
    /// Panics as the first run that fails does. If its output is an `Err`, if it exceeds its limit,
    /// or if an option is wrong, panics with a message about that.
    pub fn run<F>(self, test: impl Fn() -> F)
    where
        F: Future,
        F::Output: Termination,
    {
        assert!(self.repeats > 0, "`repeats` is 0, so the test {} would never run", self.name);
        let chosen = chosen_seed(env::var_os(SEED_VARIABLE).as_deref());
        let outcome = match chosen {
            Some(seed) => self.run_once(seed, 1, &test),
            None => (0..self.repeats).try_for_each(|run| {
                self.run_once(self.seed.wrapping_add(u64::from(run)), run + 1, &test)
            }),
        };
        if let Err(failure) = outcome {
            if self.repeats > 1 && chosen.is_none() {
                self.tell(&failure);
            }
            resume_unwind(failure.payload);
        }
    }

    #[expect(clippy::print_stderr, reason = "the harness of tests shows it with the failed test")]
    fn tell(&self, failure: &Failure) {
        let Self { name, repeats, .. } = self;
        let Failure { seed, run, .. } = failure;
        eprintln!(
            "{name} failed with the seed {seed}, in run {run} of {repeats}; {SEED_VARIABLE}={seed} \
             repeats this run alone"
        );
    }

    fn run_once<F>(&self, seed: u64, run: u32, test: &impl Fn() -> F) -> Result<(), Failure>
    where
        F: Future,
        F::Output: Termination,
    {
        // The scheduler ends before the failure is told.
        catch_unwind(AssertUnwindSafe(|| self.attempt(seed, test))).map_err(|payload| Failure {
            seed,
            run,
            payload,
        })
    }

    fn attempt<F>(&self, seed: u64, test: &impl Fn() -> F)
    where
        F: Future,
        F::Output: Termination,
    {
        let scheduler = self
            .builder(seed)
            .build()
            .unwrap_or_else(|error| panic!("cannot build the scheduler of the test: {error}"));
        let default = if self.has_real_clock { REAL_CLOCK_LIMIT } else { TEST_CLOCK_LIMIT };
        let limit = self.limit.unwrap_or(default);
        match scheduler.block_on(async { timeout(limit, test()).await }) {
            Ok(output) => {
                let is_success = output.report() == ExitCode::SUCCESS;
                assert!(is_success, "the test returned an error");
            }
            Err(_) => panic!("{}", overdue(&scheduler, limit)),
        }
    }

    fn builder(&self, seed: u64) -> Builder {
        let mut builder = Scheduler::builder().seed(seed);
        if !self.has_real_clock {
            builder = builder.worker_threads(1).test_clock();
        }
        if self.repeats > 1 {
            builder = builder.shuffled();
        }
        match &self.configure {
            Some(configure) => configure(builder),
            None => builder,
        }
    }
}

/// Returns the seed in the environment variable, if it is set.
fn chosen_seed(value: Option<&std::ffi::OsStr>) -> Option<u64> {
    let text = value?.to_string_lossy();
    match text.parse() {
        Ok(seed) => Some(seed),
        Err(_) => panic!("{SEED_VARIABLE} is {text:?}, which is not a seed from 0 to {}", u64::MAX),
    }
}

/// Returns the report of a test that has not ended within its limit.
fn overdue(scheduler: &Scheduler, limit: Duration) -> String {
    let mut alive = scheduler.snapshot().processes;
    alive.retain(|process| process.state != ProcessState::Complete);
    let mut report = format!("the test has not ended within {limit:?} of its scheduler's clock");
    for process in alive.iter().take(LISTED_MAX) {
        let label = process.label.as_deref().unwrap_or("a process");
        let (pid, place) = (process.pid, process.location);
        report.push_str(&format!("\n{label} ({pid}, spawned at {place}) "));
        report.push_str(&match process.state {
            ProcessState::Blocked | ProcessState::Idle => format!("waits for {}", process.waiting),
            state => format!("is {state}"),
        });
    }
    if alive.len() > LISTED_MAX {
        report.push_str(&format!("\nand {} more processes", alive.len() - LISTED_MAX));
    }
    report
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::chosen_seed;

    #[test]
    fn a_seed_is_a_number() {
        assert_eq!(chosen_seed(None), None);
        assert_eq!(chosen_seed(Some(OsStr::new("18446744073709551615"))), Some(u64::MAX));
    }

    #[test]
    #[should_panic(expected = "PROCESSION_SEED is \"x7\", which is not a seed from 0 to 1844")]
    fn anything_else_is_refused_by_name() {
        chosen_seed(Some(OsStr::new("x7")));
    }
}
