//! A check: many runs, and the report of a failure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;
use std::future::Future;
use std::ops::{Range, RangeInclusive};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use procession::Scheduler;
use procession::observe::Snapshot;
use procession::scheduler::Builder;

use crate::again::{CAUSES, compare_with_child, differing, is_child_of, run_in_child};
use crate::chance::{Chance, Strategy};
use crate::explore::{Finding, Outcome, explore};
use crate::faults::Faults;
#[cfg(procession_sim)]
use crate::memory::Processor;
use crate::program::{Inspect, Program, Rules, Run, block_on, run};
use crate::seen::Seen;
use crate::shrink::{RUNS_MAX, Shrunk, Trial, shrink};
use crate::sim::{Configure, Sim};
use crate::story::{Kind, Story, place};
use crate::tape::Tape;
use crate::time::duration;

/// The environment variable that holds a tape to be replayed.
const REPLAY: &str = "PROCESSION_SIM";
/// Threads that failed runs may leave behind before the search for a shorter tape ends.
const LOST_MAX: usize = 1000;
/// The largest number of workers.
const WORKERS_MAX: usize = 64;
/// The longest story, in lines.
const LINES_MAX: usize = 40;

/// A check of a program: with which seeds, workers and faults it runs.
///
/// ```
/// use procession_sim::{Check, Fault, Faults};
///
/// let outcome = Check::new()
///     .seeds(0..20)
///     .workers(1..=3)
///     .faults(Faults::all().without(Fault::ClockLeap))
///     .try_run(|sim| async move {
///         let answer = procession::spawn(async { 42 }).await;
///         sim.always("the process answers", answer.unwrap() == 42);
///     });
/// assert!(outcome.is_ok());
/// ```
#[must_use]
#[derive(Clone)]
pub struct Check {
    seeds: Range<u64>,
    workers: RangeInclusive<usize>,
    strategy: Strategy,
    faults: Faults,
    jobs: usize,
    time_limit: Duration,
    step_limit: Duration,
    panics_fail: bool,
    draws_budgets: bool,
    keeps_files: bool,
    /// The events that some run is to meet.
    expected: Vec<String>,
    /// The place at which a run in a child process was asked for.
    child: Option<String>,
    replay: Option<String>,
    /// The command that replays a run.
    command: Option<Arc<str>>,
    #[cfg(procession_sim)]
    pub(crate) at_atomics: bool,
    #[cfg(procession_sim)]
    pub(crate) processor: Processor,
    configure: Arc<Configure>,
    inspect: Option<Arc<Inspect>>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("seeds", &self.seeds)
            .field("workers", &self.workers)
            .field("strategy", &self.strategy)
            .field("faults", &self.faults)
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}

impl Default for Check {
    fn default() -> Self {
        Self::new()
    }
}

impl Check {
    /// A check with seeds 0 to 99, one after the other, with 1 to 4 workers, all faults and the
    /// portfolio of strategies.
    pub fn new() -> Self {
        Self {
            seeds: 0..100,
            workers: 1..=4,
            strategy: Strategy::Portfolio,
            faults: Faults::all(),
            jobs: 1,
            time_limit: Duration::from_secs(60),
            step_limit: Duration::from_secs(10),
            panics_fail: true,
            draws_budgets: true,
            keeps_files: false,
            expected: Vec::new(),
            child: None,
            replay: None,
            command: None,
            #[cfg(procession_sim)]
            at_atomics: false,
            #[cfg(procession_sim)]
            processor: Processor::default(),
            configure: Arc::new(|builder| builder),
            inspect: None,
        }
    }

    /// Sets the seeds.
    ///
    /// # Panics
    /// Panics if the range is empty, because such a check would test nothing.
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        assert!(!seeds.is_empty(), "cannot check without seeds: {seeds:?}");
        self.seeds = seeds;
        self
    }

    /// Sets the numbers of workers that runs choose from.
    ///
    /// # Panics
    /// Panics if the range is empty, or exceeds 1 to 64.
    pub fn workers(mut self, workers: RangeInclusive<usize>) -> Self {
        assert!(
            1 <= *workers.start()
                && workers.start() <= workers.end()
                && *workers.end() <= WORKERS_MAX,
            "cannot simulate {workers:?} workers: the numbers are 1 to {WORKERS_MAX}"
        );
        self.workers = workers;
        self
    }

    /// Sets how runs choose which thread is next.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the classes of faults that may happen.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Sets how many runs there are at a time. Each run has a processor for itself if the system
    /// has as many. The default is one.
    ///
    /// The result is the same with any number. If the program has statics, the runs share them, so
    /// one run may depend on another run.
    ///
    /// # Panics
    /// Panics if `jobs` is 0.
    pub fn jobs(mut self, jobs: usize) -> Self {
        assert!(jobs > 0, "cannot run 0 seeds at a time");
        self.jobs = jobs;
        self
    }

    /// Sets the real time after which no further seed begins. The default is one minute. At least
    /// one seed runs.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Sets the real time after which a step that does not end is a failure. The default is 10 s.
    ///
    /// # Panics
    /// Panics if `limit` is zero.
    pub fn step_limit(mut self, limit: Duration) -> Self {
        assert!(!limit.is_zero(), "cannot give a step no time");
        self.step_limit = limit;
        self
    }

    /// Allows panics of processes. By default, each panic is a failure of its run.
    pub fn allow_panics(mut self) -> Self {
        self.panics_fail = false;
        self
    }

    /// Sets the usual budget for each step. By default, some runs draw the budget of each step, so
    /// that an operation which could continue yields instead. A program that polls by hand, and
    /// relies on the answer, needs this.
    pub fn usual_budgets(mut self) -> Self {
        self.draws_budgets = false;
        self
    }

    /// Lets schedulers write the files of their [recorders](procession::observe), if they have a
    /// directory for them. By default they write none, because a check repeats a failure many
    /// times.
    pub fn keep_files(mut self) -> Self {
        self.keeps_files = true;
        self
    }

    /// Names events of [`Sim::sometimes`] that the check is to meet. The check also fails if no run
    /// reaches the call that asks about a named event. Without this method, the check knows an
    /// event only after some run has reached the call.
    ///
    /// ```
    /// use procession_sim::Check;
    ///
    /// let check = Check::new().seeds(0..5).expect_sometimes(["a retry succeeds"]);
    /// let report = check.try_run(|_| async {}).unwrap_err();
    /// assert!(report.contains("a retry succeeds (never asked)"), "{report}");
    /// ```
    pub fn expect_sometimes<E: Into<String>>(
        mut self,
        events: impl IntoIterator<Item = E>,
    ) -> Self {
        self.expected.extend(events.into_iter().map(Into::into));
        self
    }

    /// Runs the first seed once more, in a child process, and fails if that run differs. The report
    /// shows the first event that differs. In this process, the runs of the first seed and of one
    /// in 20 are always repeated. A run in another process also shows what depends on addresses or
    /// on statics, because both differ there.
    ///
    /// The child is this program, which runs the test of the same name up to the same check. So
    /// this works in tests of the usual harness. It does nothing on a thread without the name of a
    /// test, for example with `--test-threads=1`.
    #[track_caller]
    pub fn again_in_child(mut self) -> Self {
        self.child = Some(numbered(place(Location::caller())));
        self
    }

    /// Replays one run, which a report names, instead of running seeds. The environment variable
    /// `PROCESSION_SIM` does the same.
    pub fn replay(mut self, tape: impl Into<String>) -> Self {
        self.replay = Some(tape.into());
        self
    }

    /// Sets the command that reports show to replay a run, with the environment variable before it.
    /// The default is `cargo test` with the name of the test.
    pub fn replay_command(mut self, command: impl Into<Arc<str>>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// Changes the builder of the scheduler that the program runs on. Its workers and threads are
    /// set already.
    pub fn scheduler(
        mut self,
        configure: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    ) -> Self {
        self.configure = Arc::new(configure);
        self
    }

    /// Looks at the snapshot of the program's scheduler after each run, once the scheduler is shut
    /// down. If a law is broken there, or the closure panics, the run has failed.
    ///
    /// ```
    /// use procession_sim::Check;
    ///
    /// let check = Check::new().seeds(0..10).inspect(|sim, snapshot| {
    ///     sim.always("the process is counted", snapshot.spawned == 1);
    /// });
    /// check.run(|sim| async move { sim.spawn(async {}).await.unwrap() });
    /// ```
    pub fn inspect(mut self, look: impl Fn(&Sim, &Snapshot) + Send + Sync + 'static) -> Self {
        self.inspect = Some(Arc::new(look));
        self
    }

    /// Runs the program with each seed, on its own scheduler.
    ///
    /// The environment variable `PROCESSION_SIM` replays one run instead. A report names its value.
    ///
    /// # Panics
    /// Panics with the report if a run fails, or if an event of [`Sim::sometimes`] never happens.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn run<F, P>(self, program: F) -> Outcome
    where
        F: Fn(Sim) -> P + Send + Sync + 'static,
        P: Future<Output = ()> + 'static,
    {
        match self.try_run(program) {
            Ok(outcome) => outcome,
            Err(report) => panic!("{report}"),
        }
    }

    /// Runs the program like [`run`](Self::run).
    ///
    /// # Errors
    /// Returns the report of a failure.
    pub fn try_run<F, P>(self, program: F) -> Result<Outcome, String>
    where
        F: Fn(Sim) -> P + Send + Sync + 'static,
        P: Future<Output = ()> + 'static,
    {
        self.try_program(on_scheduler(program))
    }

    /// Runs a program that builds its schedulers itself, like the main function of a program, with
    /// each seed. The settings of [`scheduler`](Self::scheduler) and [`workers`](Self::workers) are
    /// not used, except that the simulated machine has as many processors as there would be
    /// workers.
    ///
    /// The thread that runs it is part of the simulation. The program starts more simulated threads
    /// with [`thread`](crate::thread).
    ///
    /// ```
    /// use procession_sim::{Check, mpsc, thread};
    ///
    /// let outcome = Check::new().seeds(0..10).run_threads(|_| {
    ///     let (sender, receiver) = mpsc::channel();
    ///     let other = thread::spawn(move || procession::run(async move { sender.send(1) }));
    ///     assert_eq!(receiver.recv(), Ok(1));
    ///     assert!(other.join().is_ok());
    /// });
    /// assert_eq!(outcome.seeds, 10);
    /// ```
    ///
    /// # Panics
    /// Panics like [`run`](Self::run). Also panics if [`inspect`](Self::inspect) was called,
    /// because there is no scheduler of the check to look at.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn run_threads(self, program: impl Fn(Sim) + Send + Sync + 'static) -> Outcome {
        match self.try_run_threads(program) {
            Ok(outcome) => outcome,
            Err(report) => panic!("{report}"),
        }
    }

    /// Runs a program like [`run_threads`](Self::run_threads).
    ///
    /// # Errors
    /// Returns the report of a failure.
    ///
    /// # Panics
    /// Panics if [`inspect`](Self::inspect) was called.
    pub fn try_run_threads(
        self,
        program: impl Fn(Sim) + Send + Sync + 'static,
    ) -> Result<Outcome, String> {
        assert!(
            self.inspect.is_none(),
            "Check::inspect looks at the scheduler of a check, and run_threads has none"
        );
        self.try_program(Program::Alone(Arc::new(program)))
    }

    fn try_program(self, program: Program) -> Result<Outcome, String> {
        self.run_by(&self.rules(program))
    }

    pub(crate) fn rules(&self, program: Program) -> Rules {
        Rules {
            program,
            configure: Arc::clone(&self.configure),
            inspect: self.inspect.clone(),
            workers: (*self.workers.start(), *self.workers.end()),
            faults: self.faults,
            panics_fail: self.panics_fail,
            draws_budgets: self.draws_budgets,
            keeps_files: self.keeps_files,
            timeout: self.step_limit,
            command: self.command.clone(),
            seen: Arc::new(Seen::of(&self.expected)),
            #[cfg(procession_sim)]
            at_atomics: self.at_atomics,
            #[cfg(procession_sim)]
            processor: self.processor,
        }
    }

    pub(crate) fn run_by(&self, rules: &Rules) -> Result<Outcome, String> {
        let child = self.child.as_deref();
        if child.is_some_and(is_child_of) {
            run_in_child(rules, self.seeds.start, self.strategy);
        }
        // What is not Unicode is no tape either.
        let wanted = || Some(std::env::var_os(REPLAY)?.to_string_lossy().into_owned());
        match self.replay.clone().or_else(wanted) {
            Some(text) => replay(rules, &text),
            None => self.explore(rules),
        }
    }

    fn explore(&self, rules: &Rules) -> Result<Outcome, String> {
        let outcome = explore(rules, self.seeds.clone(), self.strategy, self.jobs, self.time_limit);
        let missing = rules.seen.missing();
        match (outcome, missing) {
            (Err(finding), _) => {
                let Finding { seed, ran, again } = *finding;
                Err(match again {
                    Some(again) => differing(rules, seed, self.strategy, &ran, &again),
                    None => report(rules, seed, ran),
                })
            }
            (Ok(outcome), Some(events)) => Err(format!(
                "no run of {} did what some should: {events}\nTry more seeds, or a program that does \
                 it more often.",
                outcome.seeds
            )),
            (Ok(outcome), None) => {
                if let Some(place) = &self.child {
                    compare_with_child(rules, self.seeds.start, self.strategy, place)?;
                }
                Ok(outcome)
            }
        }
    }
}

/// Adds to a place how many checks this thread has made there before. A loop or a function may make
/// several.
fn numbered(place: String) -> String {
    thread_local! {
        static MADE: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
    }
    let number = MADE.with_borrow_mut(|made| {
        let number = made.entry(place.clone()).or_default();
        *number += 1;
        *number
    });
    format!("{place}, number {number}")
}

/// Returns the program that starts a future on the scheduler of its check, and waits for it.
pub(crate) fn on_scheduler<F, P>(program: F) -> Program
where
    F: Fn(Sim) -> P + Send + Sync + 'static,
    P: Future<Output = ()> + 'static,
{
    let program = move |sim: Sim, scheduler: &Scheduler| block_on(sim, scheduler, &program);
    Program::OnScheduler(Arc::new(program))
}

/// Runs one tape.
fn replay(rules: &Rules, text: &str) -> Result<Outcome, String> {
    let tape = Tape::decode(text.trim())
        .ok_or_else(|| format!("{REPLAY} holds no tape of this version: {text}"))?;
    let ran = run(rules, Chance::replayed(tape.clone()), Story::told());
    let outcome = Outcome {
        seeds: 1,
        points: ran.points,
        hash: ran.hash,
        #[cfg(procession_sim)]
        counts: ran.counts,
    };
    if ran.failure.is_none() {
        return Ok(outcome);
    }
    let mut text = format!("the replay failed: {}\n", headline(&ran));
    tell(&mut text, &ran);
    Err(text)
}

/// Makes a failure short, and returns its report.
fn report(rules: &Rules, seed: u64, ran: Run) -> String {
    let Some(failure) = ran.failure.clone() else { return String::new() };
    let mut text = format!("seed {seed} failed: {}\n", headline(&ran));
    if failure.kind == Kind::Stuck {
        // Each further run would take as long, and leave a thread that computes.
        let mut tape = ran.tape;
        tape.trim();
        let _ = write!(text, "replay:  {REPLAY}={} {}", tape.encode(), command(rules));
        return text;
    }
    let mut lost = ran.lost_threads;
    let before = ran.tape.len();
    let mut fails = |trial: Trial| {
        if lost > LOST_MAX {
            return None;
        }
        let chance = match trial {
            Trial::Numbered(tape) => Chance::replayed(*tape).marking(),
            Trial::Marked(decisions) => Chance::marked(decisions),
        };
        let again = run(rules, chance, Story::default());
        lost += again.lost_threads;
        let fails = again.failure.is_some_and(|other| other.is_like(&failure));
        fails.then_some((again.tape, again.marks))
    };
    let Shrunk { tape, runs, time } = shrink(ran.tape, RUNS_MAX, &mut fails);
    let told = run(rules, Chance::replayed(tape.clone()), Story::told());
    let _ = writeln!(
        text,
        "shrunk from {before} decisions to {}, in {runs} runs and {:.1} s",
        tape.weight(),
        time.as_secs_f64()
    );
    tell(&mut text, &told);
    if !told.failure.as_ref().is_some_and(|other| other.is_like(&failure)) {
        let _ =
            writeln!(text, "This run does not fail, although the seed decides the same.\n{CAUSES}");
    }
    let _ = write!(text, "replay:  {REPLAY}={} {}", tape.encode(), command(rules));
    text
}

/// Returns the command that replays a run.
fn command(rules: &Rules) -> String {
    match (&rules.command, std::thread::current().name()) {
        (Some(command), _) => command.to_string(),
        (None, Some(test)) if test != "main" => format!("cargo test {test}"),
        _ => "cargo test".to_owned(),
    }
}

pub(crate) fn headline(ran: &Run) -> String {
    ran.failure.as_ref().map_or_else(String::new, |failure| {
        format!("{}, after {} of virtual time", failure.describe(), duration(failure.after))
    })
}

/// Adds the story of a run.
pub(crate) fn tell(text: &mut String, ran: &Run) {
    let faults: Vec<_> = ran.setup.faults.iter().map(|fault| format!("{fault:?}")).collect();
    let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
    let _ = writeln!(text, "workers: {}; classes of faults: {faults}", ran.setup.workers);
    for (number, (at, event)) in ran.story.events.iter().take(LINES_MAX).enumerate() {
        let at = duration(at.saturating_sub(crate::time::START));
        let _ = writeln!(text, "{:3}  at {at}  {event}", number + 1);
    }
    if let Some(more) = ran.story.events.len().checked_sub(LINES_MAX).filter(|&more| more > 0) {
        let _ = writeln!(text, "     and {more} more");
    }
    for waiting in &ran.story.waiting {
        let _ = writeln!(text, "     {waiting}");
    }
}
