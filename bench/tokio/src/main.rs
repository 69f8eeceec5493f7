//! The workloads of `procession bench`, on tokio. `README.md` says how to run it.

mod memory;
mod messages;
mod network;
mod processes;
mod rescue;
mod timers;

// The very files of the command, so that both do and count the same.
#[path = "../../../crates/procession-cli/src/bench/latch.rs"]
mod latch;
#[path = "../../../crates/procession-cli/src/bench/meter.rs"]
mod meter;
#[expect(dead_code, reason = "tokio has no commands to yield")]
#[path = "../../../crates/procession-cli/src/bench/workload.rs"]
mod workload;

use std::env;
use std::error::Error;
use std::future::Future;
use std::io::{self, Write};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Runtime};
use tokio::task::JoinError;

use workload::{Failed, Outcome, Report, Scale, Workload};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WORKLOADS: &[Workload<Runtime>] = &[
    Workload { definition: &workload::SPAWN, run: |runtime, scale| inside(runtime, processes::spawn(scale)) },
    Workload { definition: &workload::SKYNET, run: |runtime, scale| inside(runtime, processes::skynet(scale)) },
    Workload { definition: &workload::PINGPONG, run: |runtime, scale| inside(runtime, messages::pingpong(scale)) },
    Workload { definition: &workload::RING, run: |runtime, scale| inside(runtime, messages::ring(scale)) },
    Workload { definition: &workload::FANIN, run: |runtime, scale| inside(runtime, messages::fanin(scale)) },
    Workload { definition: &workload::YIELD, run: |runtime, scale| inside(runtime, processes::yields(scale)) },
    Workload { definition: &workload::STEP, run: |runtime, scale| inside(runtime, processes::step(scale)) },
    Workload { definition: &workload::IDLE_MEM, run: |_, scale| meter::in_fresh_program(&memory::arguments(scale)) },
    Workload { definition: &workload::TIMERS_CANCEL, run: |runtime, scale| inside(runtime, timers::cancel(scale)) },
    Workload { definition: &workload::TIMERS_FIRE, run: |runtime, scale| inside(runtime, timers::fire(scale)) },
    Workload { definition: &workload::SLEEP_50US, run: |runtime, scale| inside(runtime, timers::sleep_50us(scale)) },
    Workload {
        definition: &workload::TIMER_BEHIND_HOG,
        run: |runtime, scale| inside(runtime, timers::behind_hog(scale)),
    },
    Workload { definition: &workload::ECHO, run: |runtime, scale| inside(runtime, network::echo(scale)) },
    Workload { definition: &workload::HTTP, run: |runtime, scale| inside(runtime, network::http(scale)) },
    Workload { definition: &workload::TIMERS_RESET, run: |runtime, scale| inside(runtime, timers::reset(scale)) },
    Workload { definition: &workload::RESCUE, run: |_, scale| rescue::rescue(scale) },
    Workload { definition: &workload::MIXED, run: |runtime, scale| inside(runtime, rescue::mixed(scale)) },
    Workload { definition: &workload::IDLE_WAKES, run: |_, scale| rescue::idle_wakes(scale) },
];

const USAGE: &str = "\
usage: tokio-bench [--rounds N] [--json] [--tiny] [WORKLOAD]...

The workloads are those of `procession bench`, all of them if none is named; see its help.
";

struct Options {
    rounds: usize,
    json: bool,
    scale: Scale,
    idle_memory: bool,
    workloads: Vec<&'static Workload<Runtime>>,
}

/// What the arguments ask for; `None` is a call for help.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        rounds: workload::ROUNDS,
        json: false,
        scale: Scale::Full,
        idle_memory: false,
        workloads: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--json" => options.json = true,
            "--tiny" => options.scale = Scale::Tiny,
            "--idle-memory-here" => options.idle_memory = true,
            "--rounds" => {
                let rounds = arguments.next().and_then(|text| text.parse().ok());
                let rounds = rounds.filter(|rounds| (1..=workload::ROUNDS_MAX).contains(rounds));
                options.rounds = rounds.ok_or(format!("--rounds wants a number from 1 to {}", workload::ROUNDS_MAX))?;
            }
            name => {
                let workload = WORKLOADS.iter().find(|workload| workload.definition.name == name);
                options.workloads.push(workload.ok_or(format!("unknown workload or option {name}"))?);
            }
        }
    }
    if options.workloads.is_empty() {
        options.workloads = WORKLOADS.iter().collect();
    }
    Ok(Some(options))
}

fn run(options: &Options, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    if options.idle_memory {
        let bytes = inside(&runtime()?, memory::idle(options.scale)).map_err(|failed| failed.to_string())?;
        return Ok(writeln!(out, "{}", bytes[0])?);
    }
    let report = Report { runtime: "tokio", json: options.json };
    for workload in &options.workloads {
        let failure = |failed| format!("cannot measure {}: {failed}", workload.definition.name);
        let spreads = workload.measure(&runtime()?, options.rounds, options.scale).map_err(failure)?;
        report.print(workload.definition, &spreads, out)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut out = io::stdout().lock();
    let done = match parse(env::args().skip(1)) {
        Ok(Some(options)) => run(&options, &mut out).map_err(|error| (1, error.to_string())),
        Ok(None) => out.write_all(USAGE.as_bytes()).map_err(|error| (1, error.to_string())),
        Err(error) => Err((2, format!("{error}\n{USAGE}"))),
    };
    let Err((code, error)) = done else { return ExitCode::SUCCESS };
    // Ignored: with standard error closed, the exit code must do.
    let _ = writeln!(io::stderr(), "tokio-bench: {error}");
    code.into()
}

/// Workers, on a machine that has as many CPUs.
const WIDTH: usize = 2;

fn runtime() -> io::Result<Runtime> {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    runtime::Builder::new_multi_thread().worker_threads(cpus.min(WIDTH)).enable_all().build()
}

/// A lost wake-up must be reported, not waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `workload` as a task.
fn inside(runtime: &Runtime, workload: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
    let (to_here, outcome) = mpsc::sync_channel(1);
    let task = runtime.spawn(async move { to_here.send(workload.await) });
    match outcome.recv_timeout(PATIENCE) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(Failed::Late(PATIENCE)),
        // It has panicked.
        Err(RecvTimeoutError::Disconnected) => Err(runtime.block_on(task).expect_err("it has sent nothing").into()),
    }
}

impl From<JoinError> for Failed {
    fn from(error: JoinError) -> Self {
        Self::error(error)
    }
}

impl<M: Send + Sync + 'static> From<tokio::sync::mpsc::error::SendError<M>> for Failed {
    fn from(error: tokio::sync::mpsc::error::SendError<M>) -> Self {
        Self::error(error)
    }
}
