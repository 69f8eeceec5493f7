#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

// All printed numbers are counted or measured. `ledger.rs` lists the promises that are judged.

mod door;
mod error;
#[path = "../examples/faults/faults.rs"]
mod faults;
mod figures;
mod ledger;
mod load;
mod machine;
mod service;
mod stage;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::available_parallelism;
use std::time::Duration;

use procession::Scheduler;
use procession::observe::Unfinished;
use procession::signal::{EndRequest, end_request};
use procession::time::Instant;
use procession_sync::Arc;
use procession_sync::atomic::Ordering::Relaxed;

use crate::figures::{Latencies, Sums};
use crate::ledger::Ledger;
use crate::load::{CONNECTIONS, Client};
use crate::service::Service;
use crate::stage::{STAGES, Stage};

pub use crate::door::build_with_door;
pub use crate::error::TrialError;

/// The default duration. It is long enough for each stage to show something, and short enough for a
/// first look at the repository.
const SECONDS: u64 = 20;
const DEADLINE_SECONDS: u64 = 5;
/// Number of descriptors for everything except connections: standard streams, the descriptors of
/// the schedulers, the listener, a pipe, the door and its connections, and files that are read
/// during the trial.
const DESCRIPTORS_KEPT: u64 = 44;
/// Each client and each slow client has one descriptor at either end.
const DESCRIPTORS_EACH: u64 = 4;
/// Number of threads beyond the threads that the stages may block.
const THREADS_SPARE: usize = 64;
const THREADS_MAX: usize = 4096;
/// The time between two looks at the figures, at the terminal, and at the flag of the signals.
const TICK: Duration = Duration::from_millis(100);
/// The time that clients get beyond the end of a stage and the timeout of each. If they need more,
/// the service has forgotten a client.
const CLIENTS_TIMEOUT: Duration = Duration::from_secs(60);

/// What a trial may be asked for.
#[derive(Debug)]
pub struct TrialArgs {
    /// The address of the service, `127.0.0.1:0` by default: any free port.
    pub listen: String,
    /// The duration of all stages together in seconds, 20 by default.
    pub seconds: u64,
    /// The time limit of the shutdown, 5 seconds by default.
    pub deadline: Duration,
}

impl Default for TrialArgs {
    fn default() -> Self {
        Self {
            listen: String::from("127.0.0.1:0"),
            seconds: SECONDS,
            deadline: Duration::from_secs(DEADLINE_SECONDS),
        }
    }
}

/// Holds the trial on the calling thread, and prints each stage as soon as it is over.
///
/// The first SIGINT or SIGTERM of the program ends the trial in order. The hook for panics of the
/// program stays replaced: it leaves out the panics that a trial intends.
///
/// # Errors
/// A promise of the runtime was broken, the trial could not be held, or `out` refuses what it
/// prints.
pub fn run(args: &TrialArgs, out: &mut impl Write) -> Result<(), TrialError> {
    let end = end_request()
        .map_err(|cause| TrialError::System { act: "listen to signals".into(), cause })?;
    keep_expected_panics_quiet();
    let mut trial = Trial::begin(args, end)?;
    trial.head(out)?;
    let mut shutdown = None;
    for stage in STAGES {
        shutdown = trial.hold(*stage, out)?;
        if shutdown.is_some() {
            break;
        }
    }
    let shutdown = shutdown.expect("the last stage is a shutdown");
    let ledger = Ledger::new(&trial.service, &trial.sums, &shutdown.unfinished.processes);
    ledger.print(out)?;
    let broken = ledger.broken() + usize::from(!shutdown.in_time) + trial.silent_stages;
    if trial.silent_stages > 0 {
        writeln!(out, "  broken: {} stages in which nothing was answered", trial.silent_stages)?;
    }
    if !shutdown.in_time {
        writeln!(
            out,
            "  broken: the shutdown took {:.1?}, and had {:.1?}",
            shutdown.took, args.deadline
        )?;
    }
    if broken > 0 {
        return Err(TrialError::Broken(broken));
    }
    let cut = if shutdown.was_asked { ", as far as it was held: a signal ended it" } else { "" };
    writeln!(out, "verdict: every promise was kept{cut}")?;
    Ok(())
}

struct Trial {
    service: Service,
    clients: Scheduler,
    sums: Arc<Sums>,
    end: EndRequest,
    connections: u64,
    stage_time: Duration,
    seconds: u64,
    deadline: Duration,
    /// Number of stages in which no request was answered.
    silent_stages: usize,
}

/// The end of the service.
struct Shutdown {
    took: Duration,
    in_time: bool,
    was_asked: bool,
    /// Number of requests that were answered after it began.
    finished: u64,
    unfinished: Unfinished,
}

impl Trial {
    fn begin(args: &TrialArgs, end: EndRequest) -> Result<Self, TrialError> {
        let width = available_parallelism().map_or(1, NonZero::get);
        let connections = (machine::descriptors().saturating_sub(DESCRIPTORS_KEPT)
            / DESCRIPTORS_EACH)
            .clamp(1, CONNECTIONS);
        let max_threads = (stage::blocked_threads(width) + width + THREADS_SPARE).min(THREADS_MAX);
        let service = Service::start(&args.listen, max_threads, args.deadline)?;
        // One worker: the clients should measure, not compete.
        let clients = Scheduler::builder().name("clients").worker_threads(1).build();
        let clients = clients.map_err(|cause| TrialError::runtime("start a scheduler", cause))?;
        let stage_time = Duration::from_secs(args.seconds) / STAGES.len() as u32;
        let (sums, seconds, deadline) = (Arc::new(Sums::default()), args.seconds, args.deadline);
        Ok(Self {
            service,
            clients,
            sums,
            end,
            connections,
            stage_time,
            seconds,
            deadline,
            silent_stages: 0,
        })
    }

    fn head(&self, out: &mut impl Write) -> io::Result<()> {
        let (width, connections, address) =
            (self.service.scheduler.worker_threads(), self.connections, self.service.address);
        writeln!(
            out,
            "An HTTP service at http://{address}/ (curl it meanwhile), a process for each connection,"
        )?;
        writeln!(
            out,
            "{width} workers; {connections} clients in this program, on a scheduler of their own."
        )?;
        let link = self.service.scheduler.door().and_then(|door| door.link().ok().flatten());
        if let Some(link) = link {
            writeln!(out, "Look into it at {link} (once), or by procession top.")?;
        }
        writeln!(out)?;
        let [rate, p50, p99, longest, threads, rescues] =
            ["requests/s", "p50 ms", "p99 ms", "longest", "threads", "rescues"];
        writeln!(out, "{:<46}{rate:>10}{p50:>8}{p99:>8}{longest:>9}{threads:>9}{rescues:>9}", "")?;
        out.flush()
    }

    /// Holds one stage. Ends the service if this is the last stage, or if a signal asks for the
    /// end.
    fn hold(&mut self, stage: Stage, out: &mut impl Write) -> Result<Option<Shutdown>, TrialError> {
        let scheduler = &self.service.scheduler;
        let fault = stage.begin(scheduler, self.seconds)?;
        let answered_before = self.sums.answered.load(Relaxed);
        let replaced_before = scheduler.stalls().replaced;
        let (latencies, begun) = (Arc::new(Latencies::new()), Instant::now());
        let (ends, ended) = mpsc::channel();
        let client = Client {
            target: self.service.address,
            until: begun + self.stage_time,
            sums: Arc::clone(&self.sums),
            latencies: Arc::clone(&latencies),
            _ends: ends,
        };
        self.start_clients(stage, &client);
        drop(client);
        let mut line =
            Line { title: fault.title(self.connections), threads: 0, latencies, ..Line::default() };
        let (mut fault, mut shutdown) = (Some(fault), None);
        loop {
            let waited = ended.recv_timeout(TICK);
            line.took = Instant::now().saturating_duration_since(begun);
            line.answered = self.sums.answered.load(Relaxed) - answered_before;
            line.threads = line.threads.max(machine::threads());
            line.rescues = scheduler.stalls().replaced - replaced_before;
            if !matches!(waited, Err(RecvTimeoutError::Timeout)) {
                break;
            }
            if io::stdout().is_terminal() {
                write!(out, "\r{line}")?;
                out.flush()?;
            }
            let is_due = stage == Stage::Shutdown && line.took >= self.stage_time / 2;
            if shutdown.is_none() && (is_due || self.end.signal().is_some()) {
                // The processes that block or compute here run until the fault ends. If it did not
                // end now, the shutdown would wait for them.
                fault.take().map(|fault| fault.end()).transpose()?;
                shutdown = Some(self.shut_down(!is_due));
            }
            if line.took > self.stage_time + CLIENTS_TIMEOUT {
                return Err(TrialError::Stuck(stage.name()));
            }
        }
        fault.take().map(|fault| fault.end()).transpose()?;
        self.silent_stages += usize::from(line.answered == 0 && shutdown.is_none());
        let is_shown = if io::stdout().is_terminal() { "\r" } else { "" };
        writeln!(out, "{is_shown}{line}")?;
        if let Some(shutdown) = &shutdown {
            let why = if shutdown.was_asked { "asked for by a signal" } else { "amid the load" };
            let (took, finished) = (shutdown.took, shutdown.finished);
            writeln!(
                out,
                "  shutdown, {why}: took {took:.1?}, answered {finished} requests meanwhile"
            )?;
        }
        out.flush()?;
        Ok(shutdown)
    }

    fn start_clients(&self, stage: Stage, client: &Client) {
        for number in 0..self.connections {
            drop(self.clients.spawn(client.clone().run(number, stage == Stage::Panics)));
            if stage == Stage::SlowClients {
                drop(self.clients.spawn(client.clone().run_slowly()));
            }
        }
    }

    fn shut_down(&self, was_asked: bool) -> Shutdown {
        let scheduler = &self.service.scheduler;
        let answered = self.sums.answered.load(Relaxed);
        self.sums.end();
        let start = Instant::now();
        let unfinished = scheduler.block_on(scheduler.shutdown(self.deadline));
        let took = Instant::now().saturating_duration_since(start);
        let finished = self.sums.answered.load(Relaxed) - answered;
        // The clients of a trial are slow on purpose, so their requests may be cut off.
        let in_time = unfinished.processes.is_empty() && unfinished.writes == 0;
        Shutdown { took, in_time, was_asked, finished, unfinished }
    }
}

/// The line that reports a stage.
struct Line {
    title: String,
    took: Duration,
    answered: u64,
    latencies: Arc<Latencies>,
    threads: u64,
    rescues: u64,
}

impl Default for Line {
    fn default() -> Self {
        let latencies = Arc::new(Latencies::new());
        Self {
            title: String::new(),
            took: Duration::ZERO,
            answered: 0,
            latencies,
            threads: 0,
            rescues: 0,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.answered as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE);
        let milliseconds = |latency: Duration| latency.as_secs_f64() * 1e3;
        let [p50, p99] = [500, 990].map(|share| milliseconds(self.latencies.permille(share)));
        let longest = milliseconds(self.latencies.longest());
        let Self { title, threads, rescues, .. } = self;
        write!(
            f,
            "{title:<46}{rate:>10.0}{p50:>8.2}{p99:>8.2}{longest:>9.1}{threads:>9}{rescues:>9}"
        )
    }
}

/// Silences the panics of the trial, which are intended and of which there are thousands. All
/// others are reported as usual.
fn keep_expected_panics_quiet() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>();
        if !text.is_some_and(|text| text.starts_with(faults::FAILURE)) {
            usual(info);
        }
    }));
}
