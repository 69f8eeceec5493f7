//! Tests in Lua on a simulated system.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use procession::Scheduler;
use procession::scheduler::Builder;
use procession_sim::{Check, Fault, Faults, Sim};
use procession_sync::Mutex;

use crate::output::Output;
use crate::repeatable::RepeatableRun;
use crate::testing::{TestReport, Tests, outcome};

/// The numbers of workers that runs choose from.
const WORKERS: std::ops::RangeInclusive<usize> = 1..=4;
/// Seeds of the random numbers of Lua. A shrunk run has a low one.
const NUMBERS: u64 = 1 << 16;
/// The limit of processes and timers. With the usual one, a scheduler takes longer to begin than
/// most tests to run.
const LIMIT: u32 = 1 << 18;

/// The faults of the system that its calls hide from a program.
const FAULTS: Faults = Faults::none()
    .with(Fault::Stall)
    .with(Fault::LateWake)
    .with(Fault::EarlyWake)
    .with(Fault::NoMembarrier)
    .with(Fault::Interrupted)
    .with(Fault::Events)
    .with(Fault::ShortWrite)
    .with(Fault::SmallReads);

impl Tests {
    /// Runs a test in a simulation once with each seed, until it fails with one.
    ///
    /// A run has one to four workers, and the seed decides what these do at the same time: which
    /// process continues, which thread the system delays, and the random numbers of Lua. Time is
    /// virtual, as it is for [`run`](Self::run), but it moves a little at each step. A failure is
    /// made short. Its report ends with a line that replays it: the environment variable
    /// `PROCESSION_SIM`, which replaces the seeds, and the words of `command`.
    ///
    /// ```
    /// use procession_lua::{Program, Tests};
    ///
    /// let program = Program::load("account", "
    ///   balance = 0
    ///   function account()
    ///     while true do
    ///       local wanted, call = process.receive()
    ///       if call then process.reply(call, balance) else balance = wanted end
    ///     end
    ///   end
    ///   function deposits(account, parent)
    ///     process.send(account, process.call(account, 'balance') + 1)
    ///     process.send(parent, 'done')
    ///   end
    ///   function test_deposits()
    ///     local account = process.spawn('account')
    ///     for _ = 1, 2 do process.spawn('deposits', account, process.self()) end
    ///     for _ = 1, 2 do process.receive() end
    ///     assert(process.call(account, 'balance') == 2, 'a deposit is lost')
    ///   end
    /// ")?;
    /// let report = Tests::find(&program)?.simulate("test_deposits", 0..100, "my-tests");
    /// let failure = report.failure.expect("there is a mistake");
    /// assert!(failure.contains("a deposit is lost"), "{failure}");
    /// # Ok::<(), procession_lua::Error>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks the thread until the runs have ended.
    ///
    /// # Panics
    /// If there are no seeds.
    pub fn simulate(&self, name: &str, seeds: Range<u64>, command: &str) -> TestReport {
        let written = Arc::new(Mutex::new((None, Vec::new())));
        let (tests, test, last) = (self.clone(), Arc::<str>::from(name), Arc::clone(&written));
        let checked = Check::new()
            .seeds(seeds)
            .workers(WORKERS)
            .faults(FAULTS)
            .time_limit(Duration::MAX)
            .replay_command(command)
            .try_run_threads(move |sim| {
                // A run that does not finish has nothing of the previous run.
                *last.lock() = (None, Vec::new());
                let (failure, output) = tests.simulated(&sim, &test);
                // The rest is a traceback, with PIDs that differ in each run.
                let cause = failure.as_deref().map(|text| match text.lines().next() {
                    None | Some("") => "it fails without a text".to_owned(),
                    Some(line) => line.to_owned(),
                });
                // The report is about the last run.
                *last.lock() = (failure, output);
                if let Some(cause) = cause {
                    sim.always(&cause, false);
                }
            });
        let (failure, output) = std::mem::take(&mut *written.lock());
        let failure = checked.err().map(|report| match failure {
            Some(failure) => format!("{failure}\n{}", without_place(&report)),
            None => report,
        });
        TestReport { failure, output }
    }

    /// Runs a test on the threads of a simulation. Returns its failure, and its output.
    fn simulated(&self, sim: &Sim, name: &str) -> (Option<String>, Vec<u8>) {
        let output = Output::captured();
        let run = RepeatableRun::new(sim.choose(0..NUMBERS), self.steps_max());
        let program = self.program().clone().output(output.clone(), output.clone());
        let failure = match scheduler(Scheduler::builder()).build() {
            Ok(scheduler) => outcome(&scheduler, &program.repeatable(run), name, self.limit()),
            Err(error) => Some(format!("cannot start a scheduler: {error}")),
        };
        (failure, output.take_captured())
    }
}

/// Returns a report without the place in this file, which says nothing about the program.
fn without_place(report: &str) -> String {
    let begin = format!(" ({}:", file!());
    let parts = report.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(')')?;
        Some(format!("{before}{after}"))
    });
    parts.unwrap_or_else(|| report.to_owned())
}

fn scheduler(builder: Builder) -> Builder {
    builder.max_processes(LIMIT).max_timers(LIMIT).on_exit(|_| {})
}
