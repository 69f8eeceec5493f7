//! Predicts what the scheduler does on machines with more processors than this one.
//!
//! The scheduler that ships runs on a simulated machine. Each of its workers has a processor and a
//! clock of its own. The clock moves by what the operations of the worker cost ([`Costs`]), and by
//! what the machine adds where processors meet ([`Machine`]): a cache line that another processor
//! has must be fetched, and a line that many want is had by one after the other. Workers steal,
//! park and wake each other as always, and the result is read from the clocks.
//!
//! ```
//! use std::time::Duration;
//!
//! use procession::time::Instant;
//! use procession_sim::scaling::{Costs, Machine, Model, compute};
//!
//! // 64 processes that compute for 100 us each.
//! async fn program() -> Duration {
//!     let start = Instant::now();
//!     let work = || procession::spawn(async { compute(Duration::from_micros(100)) });
//!     for process in Vec::from_iter((0..64).map(|_| work())) {
//!         process.await.unwrap();
//!     }
//!     Instant::now() - start
//! }
//!
//! let model = Model::new(Machine::EIGHT_A_CACHE, Costs { step: 20.0, ..Costs::default() });
//! let (one, four) = (model.workers(1).run(program)?, model.workers(4).run(program)?);
//! let speed_up = one.elapsed.as_secs_f64() / four.elapsed.as_secs_f64();
//! assert!((3.5..=4.0).contains(&speed_up), "{speed_up}");
//! # Ok::<(), procession_sim::scaling::ModelError>(())
//! ```
//!
//! A run depends on nothing but the program, the model and its seed. [`Check`](crate::Check) looks
//! for wrong behaviour; this looks at time, and there are no faults.
//!
//! # What is modelled
//! The idle word, the global queue and the overflow queue, the table of free slots, the queues,
//! LIFO slots and timers of each worker, the slots of processes with their mailboxes, messages that
//! are received on another processor than that of their sender, and the waking of threads.
//!
//! # What is not
//! - Memory: caches that are too small, the allocator, clearing of pages, bandwidth.
//! - Atomics, locks and channels of the program. Where they matter, use [`compute`] and [`hold`].
//! - Descriptors. A worker notices their events when no thread has anything else to do.
//! - The watchdog and other threads that are no workers do not take a worker's processor. There are
//!   as many threads as processors, so no worker is replaced while its step takes long.

mod engine;
mod lines;
mod machine;
mod os;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use procession::Scheduler;
use procession::sim::SharedLine;
use procession_sync::host::Mutex;

use self::engine::{Engine, Outcome};
use self::lines::PROCESSORS;
use self::machine::picoseconds_of;
pub use self::machine::{Costs, Machine};

/// The limit of processes, and of timers on each worker.
const LIMIT: u32 = 1 << 20;
/// The time in which a scheduler has to shut down.
const SHUTDOWN: Duration = Duration::from_secs(60);

/// A machine, the costs of the runtime on it, and a number of workers.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    machine: Machine,
    costs: Costs,
    workers: usize,
    seed: u64,
}

impl Model {
    /// The greatest number of workers.
    pub const WORKERS_MAX: usize = PROCESSORS as usize - 1;

    /// Creates a model with one worker.
    ///
    /// # Panics
    /// Panics if a group or a socket of the machine has no processors, or if a time is negative or
    /// not a number.
    pub fn new(machine: Machine, costs: Costs) -> Self {
        assert!(machine.group > 0 && machine.socket > 0, "a group or a socket has no processors");
        let Machine { near, far, remote, unpark, wake, hold, clock, .. } = machine;
        let Costs { step, spawn, wake: wakes, send, receive, join, timer } = costs;
        let times = [near, far, remote, unpark, wake, hold, clock];
        let costs_of = [step, spawn, wakes, send, receive, join, timer];
        let is_time = |time: &f64| time.is_finite() && *time >= 0.0;
        assert!(times.iter().chain(&costs_of).all(is_time), "a time is negative or no number");
        Self { machine, costs, workers: 1, seed: 0 }
    }

    /// Sets the number of workers, each of which has a processor of its own.
    ///
    /// # Panics
    /// Panics if it is 0, or more than [`WORKERS_MAX`](Self::WORKERS_MAX).
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        assert!((1..=Self::WORKERS_MAX).contains(&workers), "{workers} workers are out of range");
        self.workers = workers;
        self
    }

    /// Sets the seed of the scheduler's free choices. The default is 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs a program twice on one scheduler, and returns what was counted the second time. The
    /// threads exist by then, and the queues have their memory.
    ///
    /// Each future runs as a process, and returns the time that it took, on the clock of
    /// [`procession::time::Instant`].
    ///
    /// # Errors
    /// The system refuses a thread, or the scheduler cannot be built, or all processes wait and
    /// nothing is due. In the last case, the threads of the run stay until the program ends.
    ///
    /// # Panics
    /// A panic of the program's process is resumed.
    ///
    /// # Blocking
    /// Blocks the thread until the program has ended.
    pub fn run<F>(self, program: impl Fn() -> F + Send + 'static) -> Result<Figures, ModelError>
    where
        F: Future<Output = Duration> + Send + 'static,
    {
        let engine = Engine::new(self.machine, self.costs, self.workers, self.seed);
        let result = Arc::new(Mutex::new(None));
        let (for_main, of_run) = (Arc::clone(&engine), Arc::clone(&result));
        let main = move || {
            let ran = catch_unwind(AssertUnwindSafe(|| drive(&for_main, &program)));
            *of_run.lock() = Some(ran);
            for_main.finish();
        };
        let outcome = engine.run(Box::new(main)).map_err(ModelError::Thread)?;
        let ran = result.lock().take();
        match (ran, outcome) {
            (Some(Ok(figures)), Outcome::Ended) => figures,
            (Some(Err(panic)), _) => resume_unwind(panic),
            _ => Err(ModelError::Stuck),
        }
    }
}

/// The main function of the first virtual thread.
fn drive<F>(engine: &Engine, program: impl Fn() -> F) -> Result<Figures, ModelError>
where
    F: Future<Output = Duration> + Send + 'static,
{
    let scheduler = Scheduler::builder()
        .name("model")
        .worker_threads(engine.workers)
        .max_threads(engine.workers)
        .max_processes(LIMIT)
        .max_timers(LIMIT)
        .build()
        .map_err(|error| ModelError::Scheduler(error.to_string()))?;
    let run = || match scheduler.spawn(program()).join() {
        Ok(elapsed) => elapsed,
        Err(exit) => panic!("the program ends with {exit}"),
    };
    run();
    engine.state().forget_counts();
    let before = Totals::of(&scheduler);
    let elapsed = run();
    let after = Totals::of(&scheduler);
    let figures = figures(engine, elapsed, &before, &after);
    scheduler.block_on(scheduler.shutdown(SHUTDOWN));
    Ok(figures)
}

/// Counters of all workers together.
struct Totals {
    steals: u64,
    searches: u64,
    parks: u64,
}

impl Totals {
    fn of(scheduler: &Scheduler) -> Self {
        let workers = scheduler.snapshot().workers;
        Self {
            steals: workers.iter().map(|worker| worker.steals).sum(),
            searches: workers.iter().map(|worker| worker.searches).sum(),
            parks: workers.iter().map(|worker| worker.parks).sum(),
        }
    }
}

fn figures(engine: &Engine, elapsed: Duration, before: &Totals, after: &Totals) -> Figures {
    let state = engine.state();
    let duration = |picoseconds: u64| Duration::from_nanos(picoseconds / 1000);
    let of_kind = |(&name, spent): (&&'static str, &lines::Spent)| LineFigures {
        name,
        transfers: spent.transfers,
        moving: duration(spent.moving),
        waiting: duration(spent.waiting),
        failed_swaps: spent.failed,
        contended_locks: spent.contended,
    };
    let mut lines: Vec<_> = state.lines.spent.iter().map(of_kind).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.moving + line.waiting));
    let counts = &state.counts;
    Figures {
        elapsed,
        steps: counts.steps,
        steals: after.steals - before.steals,
        searches: after.searches - before.searches,
        parks: after.parks - before.parks,
        wake_ups: counts.wake_ups,
        longest_wait: duration(counts.longest_wait),
        mean_wait: duration(counts.waited / counts.steps.max(1)),
        lines,
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// The time that the program took.
    pub elapsed: Duration,
    /// Steps of processes.
    pub steps: u64,
    /// Successful searches: a worker took processes of another.
    pub steals: u64,
    /// Searches of workers that had nothing to do.
    pub searches: u64,
    /// The number of times that a worker went to sleep.
    pub parks: u64,
    /// The number of times that a thread woke another.
    pub wake_ups: u64,
    /// The longest time between the moment at which a process became ready and its step.
    pub longest_wait: Duration,
    /// The mean of these times.
    pub mean_wait: Duration,
    /// The time that went into shared cache lines, the most expensive kind first.
    pub lines: Vec<LineFigures>,
}

impl Figures {
    /// Returns the number of compare-and-swaps that failed, because another processor wrote the
    /// line after it had been read.
    pub fn failed_swaps(&self) -> u64 {
        self.lines.iter().map(|line| line.failed_swaps).sum()
    }
}

/// What one kind of shared cache lines has cost in a run, over all workers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LineFigures {
    /// The name of the kind.
    pub name: &'static str,
    /// The number of times that a line moved from one processor to another.
    pub transfers: u64,
    /// The time that this took.
    pub moving: Duration,
    /// The time for which processors waited for lines that others were using.
    pub waiting: Duration,
    /// The number of compare-and-swaps that failed.
    pub failed_swaps: u64,
    /// The number of locks that another thread held.
    pub contended_locks: u64,
}

/// The reason why a model has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelError {
    /// The system refuses a thread.
    Thread(io::Error),
    /// The scheduler cannot be built. With the message of the error.
    Scheduler(String),
    /// All processes wait, and nothing is due.
    Stuck,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "cannot start a thread of the model: {error}"),
            Self::Scheduler(error) => write!(f, "cannot build the scheduler: {error}"),
            Self::Stuck => f.write_str("all processes of the program wait, and nothing is due"),
        }
    }
}

impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            Self::Scheduler(_) | Self::Stuck => None,
        }
    }
}

/// Computes for some time: in a model on the clock of the calling thread, elsewhere in real time.
pub fn compute(duration: Duration) {
    match engine::current() {
        Some(engine) => engine.busy(picoseconds_of(duration)),
        None => spin(duration),
    }
}

/// Holds a lock of the program for some time, in a model. Each number is a lock of its own, in a
/// cache line of its own. Elsewhere, this is [`compute`].
pub fn hold(lock: u32, duration: Duration) {
    match engine::current() {
        Some(engine) => engine.hold(SharedLine::Program(lock), picoseconds_of(duration)),
        None => spin(duration),
    }
}

/// Keeps the processor busy in real time.
#[expect(clippy::disallowed_methods, reason = "outside of a model, time is real")]
fn spin(duration: Duration) {
    let start = std::time::Instant::now();
    while start.elapsed() < duration {
        procession_sync::hint::spin_loop();
    }
}
