//! The program around a peer's workloads: arguments, rounds and output. All peers written in Rust
//! share it.

use std::error::Error;
use std::io::{self, Write};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::workload::{self, Failed, Outcome, Report, Scale, Workload};

/// A runtime that is measured.
pub(crate) trait Peer: Sized + 'static {
    const NAME: &'static str;
    const WORKLOADS: &'static [Workload<Self>];

    fn start() -> io::Result<Self>;

    /// Runs the measurement for which `idle_mem` starts a fresh program.
    fn idle_memory(&self, scale: Scale) -> Outcome;

    /// Runs the measurement for which `population` starts a fresh program.
    fn population(&self, _: Scale) -> Outcome {
        Err(Failed::error(io::Error::other("it is not measured on this runtime")))
    }
}

/// A measurement for which a workload starts a fresh program.
type Here<P> = fn(&P, Scale) -> Outcome;

struct Options<P: 'static> {
    rounds: usize,
    json: bool,
    scale: Scale,
    here: Option<Here<P>>,
    workloads: Vec<&'static Workload<P>>,
}

/// Parses the arguments. Returns `None` for a request for help.
fn parse<P: Peer>(
    mut arguments: impl Iterator<Item = String>,
) -> Result<Option<Options<P>>, String> {
    let mut options = Options {
        rounds: workload::ROUNDS,
        json: false,
        scale: Scale::Full,
        here: None,
        workloads: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--json" => options.json = true,
            "--tiny" => options.scale = Scale::Tiny,
            "--idle-memory-here" => options.here = Some(P::idle_memory),
            "--population-here" => options.here = Some(P::population),
            "--rounds" => {
                let rounds = arguments.next().and_then(|text| text.parse().ok());
                let rounds = rounds.filter(|rounds| (1..=workload::ROUNDS_MAX).contains(rounds));
                options.rounds = rounds
                    .ok_or(format!("--rounds wants a number from 1 to {}", workload::ROUNDS_MAX))?;
            }
            name => {
                let workload =
                    P::WORKLOADS.iter().find(|workload| workload.definition.name == name);
                options
                    .workloads
                    .push(workload.ok_or(format!("unknown workload or option {name}"))?);
            }
        }
    }
    if options.workloads.is_empty() {
        options.workloads = P::WORKLOADS.iter().collect();
    }
    Ok(Some(options))
}

fn run<P: Peer>(options: &Options<P>, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    if let Some(here) = options.here {
        let figures = here(&P::start()?, options.scale).map_err(|failed| failed.to_string())?;
        let figures: Vec<_> = figures.iter().map(f64::to_string).collect();
        return Ok(writeln!(out, "{}", figures.join(" "))?);
    }
    let report = Report { runtime: P::NAME, json: options.json };
    for workload in &options.workloads {
        let failure = |failed| format!("cannot measure {}: {failed}", workload.definition.name);
        let spreads =
            workload.measure(&P::start()?, options.rounds, options.scale).map_err(failure)?;
        report.print(workload.definition, &spreads, out)?;
    }
    Ok(())
}

pub(crate) fn main<P: Peer>(arguments: impl Iterator<Item = String>) -> ExitCode {
    let usage = format!(
        "usage: {}-bench [--rounds N] [--json] [--tiny] [WORKLOAD]...\n\n\
         The workloads are those of `procession bench`, all of them if none is named; see its help.\n",
        P::NAME
    );
    let mut out = io::stdout().lock();
    let done = match parse::<P>(arguments) {
        Ok(Some(options)) => run(&options, &mut out).map_err(|error| (1, error.to_string())),
        Ok(None) => out.write_all(usage.as_bytes()).map_err(|error| (1, error.to_string())),
        Err(error) => Err((2, format!("{error}\n{usage}"))),
    };
    let Err((code, error)) = done else { return ExitCode::SUCCESS };
    // Ignored: if standard error is closed, the exit code must do.
    let _ = writeln!(io::stderr(), "{}-bench: {error}", P::NAME);
    code.into()
}

/// Number of workers, on a machine with at least as many CPUs.
const WIDTH: usize = 2;

pub(crate) fn width() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(WIDTH)
}

/// A lost wake-up must be reported, not waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the result of a workload, or `None` if it has panicked.
pub(crate) fn awaited(outcome: &Receiver<Outcome>) -> Option<Outcome> {
    match outcome.recv_timeout(PATIENCE) {
        Ok(outcome) => Some(outcome),
        Err(RecvTimeoutError::Timeout) => Some(Err(Failed::Late(PATIENCE))),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}
