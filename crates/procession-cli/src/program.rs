//! `procession run`: a program of processes in Lua.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use procession::{BuildError, Exit, Pid, ProcessSnapshot, Scheduler, Snapshot, SpawnOptions};
use procession_lua::{Program, Value};

use crate::run::Failure;
use crate::signals::EndAsked;

/// How often signals are looked at while the program runs: nobody notices a tenth of a second at its end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A table of statistics comes each so many looks.
const LOOKS_PER_TABLE: u32 = 10;
/// Rows of the table.
const ROWS: usize = 10;
const DEADLINE: Duration = Duration::from_secs(5);

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

/// Why a program did not run to its end.
#[derive(Debug)]
pub(crate) enum RunError {
    Load(procession_lua::Error),
    Scheduler(BuildError),
    Signals(io::Error),
    /// The program, and how its `main` ended.
    Ended(String, Exit),
    /// The program, and how many of its processes did not end in time.
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
            Self::Ended(program, Exit::Failed(text)) => write!(f, "main of {program} failed: {text}"),
            Self::Ended(program, exit) => write!(f, "main of {program} ended: {exit}"),
            Self::Unfinished(program, count) => {
                write!(f, "cannot end {program}: {count} of its processes did not end in time")
            }
        }
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    Ok(run_program(args)?)
}

fn run_program(args: &RunArgs) -> Result<(), RunError> {
    let name = args.program.clone().unwrap_or_default();
    let program = Program::read(&name)?.report_failures();
    let end_asked = EndAsked::listen().map_err(RunError::Signals)?;
    let scheduler = Scheduler::builder().build().map_err(RunError::Scheduler)?;
    let arguments: Vec<Value> = args.arguments.iter().map(Value::string).collect();
    let mut main = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", arguments)?.into_parts().1;
    let mut statistics = args.stats.then(|| Statistics::new(io::stderr().is_terminal()));
    let (mut looks, mut told) = (0, false);
    let result = loop {
        match main.join_timeout(LOOK_EVERY) {
            Ok(result) => break Some(result),
            Err(still) => main = still,
        }
        looks += 1;
        if let Some(statistics) = &mut statistics
            && looks % LOOKS_PER_TABLE == 0
        {
            statistics.print(&scheduler.snapshot());
        }
        if end_asked.is_asked() && !std::mem::replace(&mut told, true) {
            break None;
        }
    };
    if let Some(statistics) = &mut statistics {
        statistics.print(&scheduler.snapshot());
    }
    let unfinished = scheduler.block_on(scheduler.shutdown(args.deadline));
    match result {
        Some(Err(exit)) => Err(RunError::Ended(name, exit)),
        _ if !unfinished.is_empty() => Err(RunError::Unfinished(name, unfinished.len())),
        _ => Ok(()),
    }
}

/// What was counted when the last table was printed.
struct Statistics {
    steps: HashMap<Pid, u32>,
    /// Whether a table takes the place of the last one.
    in_place: bool,
    /// Lines of the last one.
    lines: usize,
}

impl Statistics {
    fn new(in_place: bool) -> Self {
        Self { steps: HashMap::new(), in_place, lines: 0 }
    }

    /// Prints the table, in one piece, on standard error.
    fn print(&mut self, snapshot: &Snapshot) {
        // Ignored: with standard error closed, nobody wants it.
        drop(io::stderr().lock().write_all(self.table(snapshot).as_bytes()));
    }

    /// The processes that did the most steps since the last time.
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
            writeln!(text, "{pid:<14} {label:<20} {steps:>8} {mailbox:>8} {received:>9}  {:?}", process.state)
                .expect("a string has room");
        }
        self.steps = snapshot.processes.iter().map(|process| (process.pid, process.steps)).collect();
        let last = std::mem::replace(&mut self.lines, text.lines().count());
        if self.in_place && last > 0 {
            // To the beginning of the line so many lines above, and what is below goes.
            text.insert_str(0, &format!("\x1b[{last}F\x1b[J"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use procession::Scheduler;

    use super::Statistics;

    #[test]
    fn on_a_terminal_a_table_takes_the_place_of_the_last() {
        let scheduler = Scheduler::builder().width(1).test_clock().build().expect("it starts no thread");
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
