//! The program around the workloads of a runtime: arguments, rounds and output. All programs that
//! are written in Rust share it.

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
    /// The measurements for which a workload starts a fresh program, each with its option.
    const HERE: &'static [(&'static str, Here<Self>)] = &[];
    /// The options of this runtime alone, each with what it does.
    const OPTIONS: &'static [(&'static str, &'static str)] = &[];

    /// Starts the runtime. `options` are those of [`OPTIONS`](Self::OPTIONS) that were given.
    fn start(options: &[&'static str]) -> io::Result<Self>;
}

/// A measurement for which a workload starts a fresh program.
pub(crate) type Here<P> = fn(&P, Scale) -> Outcome;

struct Options<P: 'static> {
    own: Vec<&'static str>,
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
        own: Vec::new(),
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
            "--rounds" => {
                let rounds = arguments.next().and_then(|text| text.parse().ok());
                let rounds = rounds.filter(|rounds| (1..=workload::ROUNDS_MAX).contains(rounds));
                options.rounds = rounds
                    .ok_or(format!("--rounds wants a number from 1 to {}", workload::ROUNDS_MAX))?;
            }
            name => {
                let here = P::HERE.iter().find(|(option, _)| *option == name);
                let own = P::OPTIONS.iter().find(|(option, _)| *option == name);
                let workload =
                    P::WORKLOADS.iter().find(|workload| workload.definition.name == name);
                match (here, own, workload) {
                    (Some((_, here)), ..) => options.here = Some(*here),
                    (_, Some((own, _)), _) => options.own.push(own),
                    (.., Some(workload)) => options.workloads.push(workload),
                    _ => return Err(format!("unknown workload or option {name}")),
                }
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
        let figures =
            here(&P::start(&options.own)?, options.scale).map_err(|failed| failed.to_string())?;
        let figures: Vec<_> = figures.iter().map(f64::to_string).collect();
        return Ok(writeln!(out, "{}", figures.join(" "))?);
    }
    let report = Report { runtime: P::NAME, json: options.json };
    for workload in &options.workloads {
        let failure = |failed| format!("cannot measure {}: {failed}", workload.definition.name);
        let runtime = P::start(&options.own)?;
        let spreads = workload.measure(&runtime, options.rounds, options.scale).map_err(failure)?;
        report.print(workload.definition, &spreads, out)?;
    }
    Ok(())
}

/// Returns the help: the options, and all workloads with their definitions.
fn help<P: Peer>() -> String {
    let name = P::NAME;
    let mut help = format!(
        "\
Measures {name} on this machine, with two workers if there are two CPUs. Each workload runs
once to warm up and then in rounds, and its result is checked each time. Prints the median
of each figure, and its range. Less is better.

Usage: {name}-bench [OPTION]... [WORKLOAD]...

Workloads (all are run if none is named):
"
    );
    let workloads = P::WORKLOADS.iter().map(|workload| workload.definition);
    let options = [
        ("--rounds N", "measure each workload N times (5)"),
        ("--json", "print an object for each figure: workload, runtime, value (the median), unit"),
        ("--tiny", "do a hundredth of the work, to see that everything runs"),
        ("-h, --help", "show this help"),
    ];
    workloads.for_each(|workload| row(&mut help, workload.name, workload.what));
    help.push_str("\nOptions:\n");
    options.iter().chain(P::OPTIONS).for_each(|(option, what)| row(&mut help, option, what));
    help
}

fn row(help: &mut String, left: &str, right: &str) {
    help.push_str(&format!("  {left:<18} {right}\n"));
}

pub(crate) fn main<P: Peer>(arguments: impl Iterator<Item = String>) -> ExitCode {
    let mut out = io::stdout().lock();
    let done = match parse::<P>(arguments) {
        Ok(Some(options)) => run(&options, &mut out).map_err(|error| (1, error)),
        Ok(None) => out.write_all(help::<P>().as_bytes()).map_err(|error| (1, error.into())),
        Err(error) => Err((2, format!("{error}: see --help").into())),
    };
    let Err((code, error)) = done else { return ExitCode::SUCCESS };
    // The reader of the output went away, which is no failure.
    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(is_closed) {
        return ExitCode::SUCCESS;
    }
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
