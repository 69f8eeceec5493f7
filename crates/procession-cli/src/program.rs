//! `procession run` and `procession repl`: a program of processes in Lua.

use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _, Read as _};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procession::observe::{DoorOptions, ProcessInfo, Snapshot, Unfinished};
use procession::process::OnCancel;
use procession::scheduler::BuildError;
use procession::signal::{EndRequest, end_request};
use procession::sync::Select;
use procession::time::Instant;
use procession::{Exit, Pid, Scheduler, SpawnOptions};
use procession_lua::{
    Deployment, Output, PermissionError, Permissions, Program, Replaced, Tls, Value,
};

use crate::certificates::{Certificates, CertificatesError};
use crate::failure::Failure;
use crate::format::plain_lines;
use crate::node::NodeArgs;
use crate::permissions::Allowed;
use crate::repl;
use crate::watch::Watch;

/// The time between two tables of statistics.
const TABLE_EVERY: Duration = Duration::from_secs(1);
/// Number of rows of the table.
const ROWS: usize = 10;
const DEADLINE: Duration = Duration::from_secs(5);
/// The time limit for the last line on standard error, which is written after the deadline.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The kind of the processes of a program in reports. Processes of other kinds belong to the
/// runtime, such as the connections of a node.
const LUA_KIND: &str = "machine";

#[derive(Debug)]
pub(crate) struct RunArgs {
    pub(crate) program: Option<PathBuf>,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) deadline: Duration,
    pub(crate) stats: bool,
    pub(crate) watch: bool,
    pub(crate) entry: Entry,
    pub(crate) allowed: Allowed,
    pub(crate) certificates: Certificates,
    /// The options of the node that the program is, if it is one.
    pub(crate) node: Option<NodeArgs>,
}

/// The process that is started first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Main,
    Repl,
}

impl RunArgs {
    /// Returns the name of the program in reports.
    fn name(&self) -> String {
        self.program.as_deref().unwrap_or(Path::new("")).display().to_string()
    }
}

impl Default for RunArgs {
    fn default() -> Self {
        Self {
            program: None,
            arguments: Vec::new(),
            deadline: DEADLINE,
            stats: false,
            watch: false,
            entry: Entry::Main,
            allowed: Allowed::default(),
            certificates: Certificates::default(),
            node: None,
        }
    }
}

/// The error of a program that did not run to its end.
#[derive(Debug)]
pub(crate) enum RunError {
    Load(procession_lua::Error),
    Permission(PermissionError),
    Certificates(CertificatesError),
    Input(io::Error),
    Scheduler(BuildError),
    Signals(io::Error),
    /// Standard error was not written.
    Log(io::Error),
    /// Holds the program.
    Watch(String, io::Error),
    /// Holds the program and the exit of its `main`.
    Ended(String, Exit),
    /// Holds the program and what did not end in time.
    Unfinished(String, Box<Unfinished>),
}

impl From<procession_lua::Error> for RunError {
    fn from(error: procession_lua::Error) -> Self {
        Self::Load(error)
    }
}

impl From<PermissionError> for RunError {
    fn from(error: PermissionError) -> Self {
        Self::Permission(error)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Permission(error) => error.fmt(f),
            Self::Certificates(error) => error.fmt(f),
            Self::Input(error) => write!(f, "cannot read standard input: {error}"),
            Self::Scheduler(error) => write!(f, "cannot start a scheduler: {error}"),
            Self::Signals(error) => write!(f, "cannot listen to signals: {error}"),
            Self::Log(error) => write!(f, "cannot write to standard error: {error}"),
            Self::Watch(program, error) => write!(f, "cannot watch {program}: {error}"),
            Self::Ended(program, Exit::Failed(text)) => {
                write!(f, "main of {program} failed: {text}")
            }
            Self::Ended(program, exit) => write!(f, "main of {program} ended: {exit}"),
            Self::Unfinished(program, left) => {
                let parts = [
                    (left.processes.len() as u64, "of its processes did not end in time"),
                    (left.terminated.len() as u64, "of its processes had to be terminated"),
                    (left.requests, "requests were cut off"),
                    (left.writes as u64, "writes did not end or were lost"),
                    (left.messages, "messages to other nodes may be lost"),
                    (left.jobs as u64, "calls on other threads did not return"),
                ];
                write!(f, "cannot end {program}")?;
                let mut before = ": ";
                for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
                    write!(f, "{before}{count} {what}")?;
                    before = ", and ";
                }
                Ok(())
            }
        }
    }
}

impl Error for RunError {}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// The reason why a program does not go on.
enum Stop {
    /// Its first process has ended.
    Ended(Result<Value, Exit>),
    Signal,
    /// What it prints or logs is lost.
    OutputLost,
    /// Its file has changed. This is the new program.
    Changed(Program),
}

/// The outside world of the programs that the command runs one after another.
struct Host {
    out: Output,
    err: Output,
    /// Taken from the options once, so that a program cannot change what they mean.
    permissions: Permissions,
    tls: Tls,
    /// The source that was read from standard input.
    input: Vec<u8>,
}

/// Returns `true` for the path that stands for standard input.
fn is_input(path: &Path) -> bool {
    path == Path::new("-")
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    use_small_pages();
    let (out, err) = Output::standard();
    let permissions = args.allowed.permissions().map_err(RunError::from)?;
    let tls = args.certificates.tls().map_err(RunError::Certificates)?;
    let mut input = Vec::new();
    if args.program.as_deref().is_some_and(is_input) {
        io::stdin().read_to_end(&mut input).map_err(RunError::Input)?;
    }
    let host = Host { out, err, permissions, tls, input };
    let mut program = load(args, &host)?;
    let end = end_request().map_err(RunError::Signals)?;
    let watched = args.program.as_deref().filter(|path| args.watch && !is_input(path));
    let watch = watched.map(|path| Watch::start(path, program.files())).transpose();
    let watch = watch.map_err(|error| RunError::Watch(args.name(), error))?;
    loop {
        match run_once(args, &program, &end, watch.as_ref(), &host) {
            Ok(None) => return Ok(()),
            Ok(Some(changed)) => program = changed,
            Err(failure) if failure.is_closed_pipe() => return Err(failure),
            Err(failure) => {
                // After everything that the program printed. Ignored: if it is not read, the exit
                // code must do.
                report(&host.err, &failure);
                drop(host.err.flush(LAST_WORDS));
                return Err(Failure::Told);
            }
        }
    }
}

/// Lets the kernel give the command small pages only, so that a program takes the memory that it
/// uses. The allocator asks for huge pages of 2 MiB, and lets each thread begin in other ones. A
/// small server had 13 of them when idle, and 20 to 30 under load. Most of their bytes were never
/// written.
#[cfg(target_os = "linux")]
fn use_small_pages() {
    // Ignored: a kernel that refuses this has no huge pages.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn load(args: &RunArgs, host: &Host) -> Result<Program, RunError> {
    let program = match &args.program {
        Some(path) if is_input(path) => Program::load("-", host.input.clone())?,
        Some(path) => Program::read(path)?,
        None => Program::load("repl", "")?,
    };
    let program = program.permissions(host.permissions.clone()).tls(host.tls.clone());
    let program = program.report_failures().output(host.out.clone(), host.err.clone());
    // The repl reads the lines itself.
    Ok(if args.entry == Entry::Main { program.standard_input() } else { program })
}

fn report(err: &Output, failure: &impl fmt::Display) {
    err.try_write(format!("procession: {}\n", plain_lines(failure)).as_bytes());
}

/// Runs the program on a separate scheduler, and shuts the scheduler down. Returns the program that
/// is to run next, if its file has changed.
fn run_once(
    args: &RunArgs,
    program: &Program,
    end: &EndRequest,
    watch: Option<&Watch>,
    host: &Host,
) -> Result<Option<Program>, Failure> {
    let Host { out, err, .. } = host;
    let name = args.name();
    let builder = || {
        let err = err.clone();
        let builder = Scheduler::builder().on_exit(move |failed| {
            // The program reports the failures of its processes in its output.
            if failed.kind != LUA_KIND {
                report(&err, failed);
            }
        });
        match args.entry {
            Entry::Main => builder,
            Entry::Repl => builder.handler(repl::READ, repl::reader(out.clone())),
        }
    };
    let scheduler = procession_trial::build_with_door(builder, DoorOptions::default())
        .map_err(RunError::Scheduler)?;
    scheduler.block_on(async {
        let own = match &args.node {
            Some(node) => Some(program.clone().node(node.start(err).await?)),
            None => None,
        };
        let program = own.as_ref().unwrap_or(program);
        let result = run_program(args, program, &scheduler, end, host, watch).await;
        // The shutdown drains the node, so that the calls of other nodes are answered. One deadline
        // covers the shutdown and the output together.
        let ends = Instant::now() + args.deadline;
        let left = || ends.saturating_duration_since(Instant::now());
        let unfinished = scheduler.shutdown(args.deadline).await;
        let written = out.flush(left());
        let logged = err.flush(left()).or_else(log_failure);
        match result? {
            Stop::Ended(Err(exit)) => Err(RunError::Ended(name, exit).into()),
            // Processes that have not ended are no news: they ended for the output.
            Stop::OutputLost => written.map_err(Failure::from).and(logged).map(|()| None),
            stop => {
                // First: a program does not end because its output waits for a reader.
                written?;
                logged?;
                if !unfinished.is_empty() {
                    return Err(RunError::Unfinished(name, Box::new(unfinished)).into());
                }
                Ok(if let Stop::Changed(program) = stop { Some(program) } else { None })
            }
        }
    })
}

/// Returns the failure that an error of standard error is.
fn log_failure(error: io::Error) -> Result<(), Failure> {
    match error.kind() {
        // A slow reader loses lines of the log, and no results.
        io::ErrorKind::TimedOut => Ok(()),
        io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Err(RunError::Log(error).into()),
    }
}

/// What is reported if no process runs until a file changes.
const WAITING: &str = "waiting for a change of the program";

/// Runs the program until its first process has ended, a signal arrives, or its output is lost.
/// With `watch`, a change of the program is also awaited after its end, and processes of a program
/// with a function `upgrade` are upgraded.
async fn run_program(
    args: &RunArgs,
    program: &Program,
    scheduler: &Scheduler,
    end: &EndRequest,
    host: &Host,
    watch: Option<&Watch>,
) -> Result<Stop, RunError> {
    let Host { out, err, .. } = host;
    let arguments: Vec<Value> =
        args.arguments.iter().map(|word| Value::string(word.as_bytes())).collect();
    let options = SpawnOptions::new().on(scheduler);
    let deployment = watch.map(|_| Deployment::new(program.clone()));
    let program = deployment.as_ref().map_or_else(|| program.clone(), Deployment::program);
    let main = match args.entry {
        Entry::Main => program.spawn_with(options, "main", arguments),
        Entry::Repl => program.repl(options.on_cancel(OnCancel::Drop), repl::READ),
    };
    let mut main = match main {
        Ok(main) => Some(main.into_parts().1),
        // A file that is being written can be empty for a moment.
        Err(error) if watch.is_some() => {
            report(err, &error);
            report(err, &WAITING);
            None
        }
        Err(error) => return Err(error.into()),
    };
    let mut program = program;
    let mut upgrading = None;
    let mut statistics = args.stats.then(|| Statistics::new(io::stderr().is_terminal()));
    loop {
        // A change during an upgrade waits for its end.
        let watch = watch.filter(|_| upgrading.is_none());
        let ends = Select::new()
            .wait_for(ended(&mut main), |result| ControlFlow::Break(Stop::Ended(result)))
            .wait_for(end.asked(), |_| ControlFlow::Break(Stop::Signal))
            .wait_for(out.failed(), |()| ControlFlow::Break(Stop::OutputLost))
            .wait_for(err.failed(), |()| ControlFlow::Break(Stop::OutputLost))
            .wait_for(ended(&mut upgrading), |result| ControlFlow::Continue(Some(result)))
            .wait_for(changed(args, &program, watch, host), |new| {
                ControlFlow::Break(Stop::Changed(new))
            });
        let stopped = match &mut statistics {
            None => ends.await,
            Some(statistics) => {
                let ended = ends.timeout(TABLE_EVERY, || ControlFlow::Continue(None)).await;
                statistics.print(&scheduler.snapshot(), err);
                ended
            }
        };
        match stopped {
            ControlFlow::Break(Stop::Ended(result)) if deployment.is_some() => {
                if let Err(exit) = result {
                    report(err, &RunError::Ended(args.name(), exit));
                }
                report(err, &WAITING);
            }
            ControlFlow::Break(Stop::Changed(new))
                if let Some(deployment) = &deployment
                    && main.is_some()
                    && program.has_function("upgrade")? =>
            {
                upgrading = Some(Box::pin(upgrade(deployment, new)));
            }
            ControlFlow::Break(stop) => return Ok(stop),
            ControlFlow::Continue(None) => {}
            ControlFlow::Continue(Some(upgraded)) => {
                match upgraded {
                    Ok(replaced) => report(err, &Upgraded(replaced)),
                    Err(error) => report(err, &error),
                }
                program = deployment.as_ref().map_or(program, Deployment::program);
            }
        }
    }
}

/// Upgrades the processes. If that fails for all that could be upgraded, the program before is the
/// current one again.
async fn upgrade(deployment: &Deployment, new: Program) -> Result<Replaced, procession_lua::Error> {
    let replaced = deployment.replace(new).await?;
    if replaced.upgraded + replaced.pending == 0 && !replaced.failed.is_empty() {
        deployment.rollback().await?;
    }
    Ok(replaced)
}

/// The report of an upgrade.
struct Upgraded(Replaced);

impl fmt::Display for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replaced { upgraded, kept, failed, ended, pending, not_asked, .. } = &self.0;
        write!(f, "upgraded {upgraded} processes")?;
        let others = [
            ("failed", failed.len()),
            ("kept their version", *kept),
            ("ended", *ended),
            ("will follow", *pending),
            ("were not asked", *not_asked),
        ];
        others
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .try_for_each(|(what, count)| write!(f, ", {count} {what}"))
    }
}

/// Waits for the end of work. Waits forever if there is none, and once the result was returned.
async fn ended<F: Future + Unpin>(work: &mut Option<F>) -> F::Output {
    let Some(under_way) = work else { return std::future::pending().await };
    let result = under_way.await;
    *work = None;
    result
}

/// Waits for a change that makes another program. An invalid version is reported once, and the
/// running program continues.
async fn changed(args: &RunArgs, program: &Program, watch: Option<&Watch>, host: &Host) -> Program {
    let Some(watch) = watch else { return std::future::pending().await };
    let mut reported = String::new();
    loop {
        watch.changed().await;
        match load(args, host) {
            Ok(new) if new.version() == program.version() => reported.clear(),
            Ok(new) => {
                if let Err(error) = watch.add(new.files()) {
                    report(&host.err, &RunError::Watch(args.name(), error));
                }
                return new;
            }
            Err(error) => {
                // One change of an editor may be several events.
                let text = error.to_string();
                if text != reported {
                    report(&host.err, &error);
                    reported = text;
                }
            }
        }
    }
}

/// The counts at the time of the last table.
struct Statistics {
    steps: HashMap<Pid, u32>,
    /// `true` if each table replaces the previous table.
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
        let since = |process: &ProcessInfo| {
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
    use procession_lua::{Output, Permissions, Program, Tls};

    use super::{Host, RunArgs, Statistics, run_program};

    #[test]
    fn a_program_that_waits_has_no_timer_of_the_command() {
        let scheduler = Scheduler::builder()
            .worker_threads(1)
            .test_clock()
            .build()
            .expect("it starts no thread");
        let program =
            Program::load("test", "function main() process.receive() end").expect("it is Lua");
        let (end, out) =
            (end_request().expect("signals can be heard"), Output::new(std::io::sink()));
        let host = Host {
            err: out.clone(),
            out,
            permissions: Permissions::none(),
            tls: Tls::new(),
            input: Vec::new(),
        };
        for stats in [false, true] {
            let args = RunArgs { stats, ..RunArgs::default() };
            let timers = scheduler.block_on(async {
                let mut running = pin!(run_program(&args, &program, &scheduler, &end, &host, None));
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
