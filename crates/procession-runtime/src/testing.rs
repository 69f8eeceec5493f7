//! What tests call: the attribute `test`, which runs tests on a scheduler with a test clock, and
//! checks.

use std::any::Any;
use std::env;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::process::{ExitCode, Termination};
use std::sync::Arc;
use std::time::Duration;

use crate::observe::leaks::Leaks;
use crate::observe::look::detail;
use crate::observe::process_info::{ProcessInfo, ProcessWait};
use crate::observe::process_state::ProcessState;
use crate::process::shown_waits::WaitReason;
use crate::process::slot::Slot;
use crate::process::wait_reason::{WaitTarget, Waiting};
use crate::report::unseen::UnseenPanics;
use crate::scheduler::builder::Builder;
use crate::scheduler::owner::Scheduler;
use crate::time::timeout;

/// The environment variable with a seed that replaces the seeds of all tests.
const SEED_VARIABLE: &str = "PROCESSION_SEED";
/// The default limit on the test clock. If nothing in a test can run, the test reaches the limit
/// immediately. A test that continues forever with a step in each second takes some seconds to
/// reach it.
const TEST_CLOCK_LIMIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The default limit on the real clock.
const REAL_CLOCK_LIMIT: Duration = Duration::from_secs(60);
/// The most processes that the report of a test lists.
const LISTED_MAX: usize = 20;

/// A test and its options. What the attribute calls, and no promise.
#[doc(hidden)]
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

    /// Sets the seed of the first run. Each further run has the next seed.
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
        // The scheduler ends before the failure is reported.
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
        let unseen = Arc::<UnseenPanics>::default();
        let mut builder = self.builder(seed);
        builder.report_hooks().unseen = Some(Arc::clone(&unseen));
        let scheduler = builder
            .build()
            .unwrap_or_else(|error| panic!("cannot build the scheduler of the test: {error}"));
        let default = if self.has_real_clock { REAL_CLOCK_LIMIT } else { TEST_CLOCK_LIMIT };
        let limit = self.limit.unwrap_or(default);
        let outcome = scheduler.block_on(async {
            let mut body = pin!(test());
            // The processes are listed before the body is dropped, because they may wait for what
            // the body holds.
            timeout(limit, body.as_mut()).await.map_err(|_| overdue(&scheduler, limit))
        });
        // A panic is reported first, because it explains why a test never ends.
        let unseen = unseen.take();
        let late = outcome.as_ref().err().map(|late| format!("\n{late}")).unwrap_or_default();
        assert!(unseen.is_empty(), "{}{late}", unseen_panics(&unseen));
        match outcome {
            Ok(output) => {
                let is_success = output.report() == ExitCode::SUCCESS;
                assert!(is_success, "the test returned an error");
            }
            Err(late) => panic!("{late}"),
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

/// Panics with the list of the [leaked](crate::look::Leaks::leaked) processes, if there are any.
///
/// A leak is known once its processes wait. On the test clock, call
/// [`run_until_idle`](Scheduler::run_until_idle) before, so that all that can run has run.
///
/// ```should_panic
/// use procession::sync::Mutex;
/// use procession::testing::assert_no_leaks;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let scheduler = procession::Scheduler::builder().worker_threads(1).test_clock().build()?;
/// let lock = Arc::new(Mutex::new(()));
/// for _ in 0..2 {
///     let lock = Arc::clone(&lock);
///     scheduler.spawn(async move { std::mem::forget(lock.lock().await) });
/// }
/// scheduler.run_until_idle();
/// assert_no_leaks(&scheduler);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// See above. Suspicions alone do not panic.
#[track_caller]
pub fn assert_no_leaks(scheduler: &Scheduler) {
    let leaks = Leaks { suspected: Vec::new(), ..scheduler.leaks() };
    assert!(leaks.is_empty(), "{leaks}");
}

/// Returns the seed in the environment variable, if it is set.
fn chosen_seed(value: Option<&std::ffi::OsStr>) -> Option<u64> {
    let text = value?.to_string_lossy();
    match text.parse() {
        Ok(seed) => Some(seed),
        Err(_) => panic!("{SEED_VARIABLE} is {text:?}, which is not a seed from 0 to {}", u64::MAX),
    }
}

/// Returns the report of panics that nobody has seen.
fn unseen_panics(unseen: &[String]) -> String {
    let mut report = String::from("a process panicked, and nobody has awaited or monitored it");
    for line in unseen.iter().take(LISTED_MAX) {
        report.push_str(&format!("\n{line}"));
    }
    if unseen.len() > LISTED_MAX {
        report.push_str(&format!("\nand {} more panics", unseen.len() - LISTED_MAX));
    }
    report
}

/// Returns the report of a test that has not ended within its limit.
fn overdue(scheduler: &Scheduler, limit: Duration) -> String {
    let mut alive = scheduler.snapshot().processes;
    alive.retain(|process| process.state != ProcessState::Complete);
    let limit = in_words(limit);
    let mut report = format!("the test has not ended within {limit} of its scheduler's clock");
    for process in alive.iter().take(LISTED_MAX) {
        let (name, place) = (name_of(process), process.location);
        report.push_str(&format!("\n{name}, spawned at {place}, "));
        report.push_str(&match process.state {
            ProcessState::Blocked | ProcessState::Idle => wait_of(scheduler, process, &alive),
            state => format!("is {state}"),
        });
    }
    if alive.len() > LISTED_MAX {
        report.push_str(&format!("\nand {} more processes", alive.len() - LISTED_MAX));
    }
    report
}

/// Returns the label of a process with its PID.
fn name_of(process: &ProcessInfo) -> String {
    let label = process.label.as_deref().unwrap_or("a process");
    format!("{label} ({})", process.pid)
}

/// Returns what a process waits for, where it waits, and which process it waits behind.
fn wait_of(scheduler: &Scheduler, process: &ProcessInfo, alive: &[ProcessInfo]) -> String {
    let mut text = format!("waits for {}", process.waiting);
    let shared = scheduler.shared();
    let row = detail::of(shared, process.pid).and_then(|detail| detail.wait);
    let Some(ProcessWait { reasons, location, target, in_cycle, .. }) = row else { return text };
    if let Some(location) = location {
        text.push_str(&format!(" at {location}"));
    }
    let slot = shared.table().pin(process.pid.slot(), process.pid.generation());
    let ahead = match target {
        Some(pid) => {
            let known = alive.iter().find(|other| other.pid == pid).map(name_of);
            Some(known.unwrap_or_else(|| pid.to_string()))
        }
        None => slot
            .is_some_and(|slot| is_behind_outside(&slot))
            .then(|| String::from("the test function")),
    };
    if let Some(ahead) = ahead {
        let is_lock = reasons.contains(WaitReason::Lock);
        let relation = if is_lock { "which it gets after" } else { "namely" };
        text.push_str(&format!(", {relation} {ahead}"));
    }
    if in_cycle {
        text.push_str(", so it waits for itself");
    }
    text
}

/// Returns `true` if a process waits for a lock that code outside of processes has, or gets first.
fn is_behind_outside(slot: &Slot) -> bool {
    let target = slot.shared().processes.edges.target(slot.index());
    slot.waiting.get().has(Waiting::LOCK) && target == WaitTarget::OUTSIDE
}

/// Returns a duration as people say it, such as `30 days`.
fn in_words(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] =
        [(24 * 60 * 60, "day"), (60 * 60, "hour"), (60, "minute"), (1, "second")];
    let seconds = duration.as_secs();
    let unit = UNITS.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    match unit {
        Some((unit, name)) if duration.subsec_nanos() == 0 => {
            let count = seconds / unit;
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {name}{plural}")
        }
        _ => format!("{duration:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use std::time::Duration;

    use super::{chosen_seed, in_words};

    #[test]
    fn durations_are_in_the_largest_unit_that_fits() {
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(in_words(30 * day), "30 days");
        assert_eq!(in_words(day), "1 day");
        assert_eq!(in_words(36 * day / 24), "36 hours");
        assert_eq!(in_words(Duration::from_secs(90)), "90 seconds");
        assert_eq!(in_words(Duration::from_millis(1500)), "1.5s");
        assert_eq!(in_words(Duration::ZERO), "0ns");
    }

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
