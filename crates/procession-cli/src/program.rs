//! `procession run`: a program of processes in Lua.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _};
use std::ops::ControlFlow;
use std::time::Duration;

use procession::door::Observe;
use procession::scheduler::BuildError;
use procession::signal::{EndRequest, end_request};
use procession::snapshot::{ProcessSnapshot, Snapshot};
use procession::time::Instant;
use procession::{Exit, Pid, Scheduler, Select, SpawnOptions};
use procession_lua::{Output, Program, Value};

use crate::run::Failure;
use crate::see::own;

/// The time between two tables of statistics.
const TABLE_EVERY: Duration = Duration::from_secs(1);
/// Number of rows of the table.
const ROWS: usize = 10;
const DEADLINE: Duration = Duration::from_secs(5);
/// The time limit for the last line on standard error, which comes after the deadline.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct RunArgs {
    pub(crate) program: Option<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) deadline: Duration,
    pub(crate) stats: bool,
}

impl Default for RunArgs {
    fn default() -> Self {
        Self { program: None, arguments: Vec::new(), deadline: DEADLINE, stats: false }
    }
}

/// The error of a program that did not run to its end.
#[derive(Debug)]
pub(crate) enum RunError {
    Load(procession_lua::Error),
    Scheduler(BuildError),
    Signals(io::Error),
    /// Holds the program and the exit of its `main`.
    Ended(String, Exit),
    /// Holds the program and the number of processes that did not end in time.
    Unfinished(String, usize),
}

impl From<procession_lua::Error> for RunError {
    fn from(error: procession_lua::Error) -> Self {
        Self::Load(error)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Scheduler(error) => write!(f, "cannot start a scheduler: {error}"),
            Self::Signals(error) => write!(f, "cannot listen to signals: {error}"),
            Self::Ended(program, Exit::Failed(text)) => {
                write!(f, "main of {program} failed: {text}")
            }
            Self::Ended(program, exit) => write!(f, "main of {program} ended: {exit}"),
            Self::Unfinished(program, count) => {
                write!(f, "cannot end {program}: {count} of its processes did not end in time")
            }
        }
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let name = args.program.clone().unwrap_or_default();
    let (out, err) = Output::standard();
    let program = Program::read(&name)
        .map_err(RunError::Load)?
        .report_failures()
        .output(out.clone(), err.clone());
    let end = end_request().map_err(RunError::Signals)?;
    // The program reports its failures itself, among what it prints.
    let builder = || Scheduler::builder().on_exit(|_| {});
    let scheduler = own::build(builder, Observe::default()).map_err(RunError::Scheduler)?;
    let ended = scheduler.block_on(async {
        let result = run_program(args, &program, &scheduler, &end, &err).await;
        // One deadline covers the shutdown and the output together.
        let ends = Instant::now() + args.deadline;
        let left = || ends.saturating_duration_since(Instant::now());
        let unfinished = scheduler.shutdown(args.deadline).await;
        let written = out.flush(left());
        // Ignored: if standard error is closed, there is no reader for it.
        drop(err.flush(left()));
        match result? {
            Some(Err(exit)) => Err(RunError::Ended(name, exit).into()),
            _ if !unfinished.is_empty() => Err(RunError::Unfinished(name, unfinished.len()).into()),
            _ => written.map_err(Failure::Output),
        }
    });
    match ended {
        Err(failure) if !failure.is_closed_pipe() => {
            // After everything that the program printed. Ignored: if it is not read, the exit code
            // must do.
            err.try_write(format!("procession: {failure}\n").as_bytes());
            drop(err.flush(LAST_WORDS));
            Err(Failure::Told)
        }
        other => other,
    }
}

/// Runs the program until its `main` has ended, and returns how it ended. Returns `None` if a
/// signal came first.
async fn run_program(
    args: &RunArgs,
    program: &Program,
    scheduler: &Scheduler,
    end: &EndRequest,
    err: &Output,
) -> Result<Option<Result<Value, Exit>>, RunError> {
    let arguments: Vec<Value> = args.arguments.iter().map(Value::string).collect();
    let mut main =
        program.spawn_with(SpawnOptions::new().on(scheduler), "main", arguments)?.into_parts().1;
    let mut statistics = args.stats.then(|| Statistics::new(io::stderr().is_terminal()));
    loop {
        let ends = Select::new()
            .wait_for(&mut main, |result| ControlFlow::Break(Some(result)))
            .wait_for(end.asked(), |_| ControlFlow::Break(None));
        let ended = match &mut statistics {
            None => ends.await,
            Some(statistics) => {
                let ended = ends.timeout(TABLE_EVERY, || ControlFlow::Continue(())).await;
                statistics.print(&scheduler.snapshot(), err);
                ended
            }
        };
        if let ControlFlow::Break(result) = ended {
            return Ok(result);
        }
    }
}

/// The counts at the time of the last table.
struct Statistics {
    steps: HashMap<Pid, u32>,
    /// `true` if each table replaces the one before.
    in_place: bool,
    /// Number of lines of the last table.
    lines: usize,
}

impl Statistics {
    fn new(in_place: bool) -> Self {
        Self { steps: HashMap::new(), in_place, lines: 0 }
    }

    /// Prints the table in one piece on standard error. If there is no room, leaves this table out.
    fn print(&mut self, snapshot: &Snapshot, err: &Output) {
        if !err.try_write(self.table(snapshot).as_bytes()) {
            self.lines = 0;
        }
    }

    /// Returns the table of the processes that ran the most steps since the last one.
    fn table(&mut self, snapshot: &Snapshot) -> String {
        let before = std::mem::take(&mut self.steps);
        let since = |process: &ProcessSnapshot| {
            process.steps.wrapping_sub(before.get(&process.pid).copied().unwrap_or_default())
        };
        let mut busiest: Vec<_> = snapshot.processes.iter().collect();
        busiest.sort_by_key(|process| std::cmp::Reverse(since(process)));
        busiest.truncate(ROWS);
        let alive = snapshot.spawned.saturating_sub(snapshot.ended);
        let mut text = format!("{alive} processes, {} messages sent\n", snapshot.messages_sent);
        text += "pid            function                steps  mailbox  received  state\n";
        for process in busiest {
            let label = process.label.as_deref().unwrap_or("-");
            let pid = process.pid.to_string();
            let (steps, mailbox, received) = (since(process), process.mailbox, process.received);
            writeln!(
                text,
                "{pid:<14} {label:<20} {steps:>8} {mailbox:>8} {received:>9}  {:?}",
                process.state
            )
            .expect("a string has room");
        }
        self.steps =
            snapshot.processes.iter().map(|process| (process.pid, process.steps)).collect();
        let last = std::mem::replace(&mut self.lines, text.lines().count());
        if self.in_place && last > 0 {
            // Moves to the beginning of the last table, and erases everything below.
            text.insert_str(0, &format!("\x1b[{last}F\x1b[J"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use procession::Scheduler;
    use procession::signal::end_request;
    use procession_lua::{Output, Program};

    use super::{RunArgs, Statistics, run_program};

    #[test]
    fn a_program_that_waits_has_no_timer_of_the_command() {
        let scheduler = Scheduler::builder()
            .worker_threads(1)
            .test_clock()
            .build()
            .expect("it starts no thread");
        let program =
            Program::load("test", "function main() process.receive() end").expect("it is Lua");
        let (end, err) =
            (end_request().expect("signals can be heard"), Output::new(std::io::sink()));
        for stats in [false, true] {
            let args = RunArgs { stats, ..RunArgs::default() };
            let timers = scheduler.block_on(async {
                let mut running = pin!(run_program(&args, &program, &scheduler, &end, &err));
                poll_fn(|task| Poll::Ready(running.as_mut().poll(task).is_ready())).await;
                scheduler.snapshot().timers.pending
            });
            assert_eq!(timers, u64::from(stats));
        }
    }

    #[test]
    fn on_a_terminal_a_table_takes_the_place_of_the_last() {
        let scheduler = Scheduler::builder()
            .worker_threads(1)
            .test_clock()
            .build()
            .expect("it starts no thread");
        drop(scheduler.spawn(std::future::pending::<()>()));
        let snapshot = scheduler.snapshot();
        let mut statistics = Statistics::new(true);
        let first = statistics.table(&snapshot);
        assert_eq!(first.lines().count(), 3);
        assert!(first.starts_with("1 processes"));
        assert!(statistics.table(&snapshot).starts_with("\x1b[3F\x1b[J1 processes"));
        let mut elsewhere = Statistics::new(false);
        assert_eq!(elsewhere.table(&snapshot), first);
        assert!(elsewhere.table(&snapshot).starts_with("1 processes"));
    }
}
