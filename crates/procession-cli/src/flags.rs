//! The command line: one table of flags, which the parser and the help are both derived from.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write};
use std::time::Duration;

use lexopt::Arg;

use crate::bench::{BenchArgs, Here, ROUNDS_MAX, Scale, WORKLOADS};
use crate::program::RunArgs;
use crate::trial::{SECONDS_MAX, TrialArgs};

/// The parsed command line. Nothing but the arguments was looked at.
#[derive(Debug)]
pub(crate) enum LowArgs {
    Help(String),
    Version,
    Trial(TrialArgs),
    Run(RunArgs),
    Bench(BenchArgs),
    /// A measurement in a fresh program that a workload starts. Not in the help.
    BenchHere(Here, Scale),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Trial,
    Run,
    Bench,
}

struct Flag {
    long: &'static str,
    short: Option<char>,
    /// Empty for a flag that is not in the help.
    help: &'static str,
    /// The command of the flag. `None` if all commands have it.
    of: Option<Command>,
    takes: Takes,
}

enum Takes {
    Nothing(fn(&mut Parsed)),
    /// Holds the name of the value in the help.
    Value(&'static str, fn(&mut Parsed, &OsStr) -> Result<(), UsageError>),
}

const FLAGS: &[Flag] = &[
    Flag {
        long: "listen",
        short: None,
        help: "serve at ADDR, a host and a port (127.0.0.1:0, any free port)",
        of: Some(Command::Trial),
        takes: Takes::Value("ADDR", |parsed, value| {
            parsed.trial.listen =
                value.to_str().ok_or_else(|| UsageError::Listen(lossy(value)))?.to_owned();
            Ok(())
        }),
    },
    Flag {
        long: "seconds",
        short: None,
        help: "take about N seconds for all stages together (20)",
        of: Some(Command::Trial),
        takes: Takes::Value("N", |parsed, value| {
            parsed.trial.seconds = seconds("--seconds", value)?;
            Ok(())
        }),
    },
    Flag {
        long: "deadline",
        short: None,
        help: "allow N seconds for a shutdown (5)",
        of: Some(Command::Trial),
        takes: Takes::Value("N", |parsed, value| {
            parsed.trial.deadline = Duration::from_secs(seconds("--deadline", value)?);
            Ok(())
        }),
    },
    Flag {
        long: "deadline",
        short: None,
        help: "allow N seconds for a shutdown (5)",
        of: Some(Command::Run),
        takes: Takes::Value("N", |parsed, value| {
            parsed.run.deadline = Duration::from_secs(seconds("--deadline", value)?);
            Ok(())
        }),
    },
    Flag {
        long: "stats",
        short: None,
        help: "print the busiest processes to standard error each second, and at the end; in place on a terminal",
        of: Some(Command::Run),
        takes: Takes::Nothing(|parsed| parsed.run.stats = true),
    },
    Flag {
        long: "rounds",
        short: None,
        help: "measure each workload N times (5)",
        of: Some(Command::Bench),
        takes: Takes::Value("N", set_rounds),
    },
    Flag {
        long: "json",
        short: None,
        help: "print an object for each figure: workload, runtime, value (the median), unit",
        of: Some(Command::Bench),
        takes: Takes::Nothing(|parsed| parsed.bench.json = true),
    },
    Flag {
        long: "tiny",
        short: None,
        help: "do a hundredth of the work, to see that everything runs",
        of: Some(Command::Bench),
        takes: Takes::Nothing(|parsed| parsed.bench.scale = Scale::Tiny),
    },
    Flag {
        long: "idle-memory-here",
        short: None,
        help: "",
        of: Some(Command::Bench),
        takes: Takes::Nothing(|parsed| parsed.here = Some(Here::IdleMemory)),
    },
    Flag {
        long: "downs-here",
        short: None,
        help: "",
        of: Some(Command::Bench),
        takes: Takes::Nothing(|parsed| parsed.here = Some(Here::Downs)),
    },
    Flag {
        long: "population-here",
        short: None,
        help: "",
        of: Some(Command::Bench),
        takes: Takes::Nothing(|parsed| parsed.here = Some(Here::Population)),
    },
    Flag {
        long: "coroutine-memory-here",
        short: None,
        help: "",
        of: Some(Command::Bench),
        takes: Takes::Nothing(|parsed| parsed.here = Some(Here::CoroutineMemory)),
    },
    Flag {
        long: "help",
        short: Some('h'),
        help: "show this help, or that of the command before it",
        of: None,
        takes: Takes::Nothing(|parsed| parsed.help = true),
    },
    Flag {
        long: "version",
        short: Some('V'),
        help: "show the version",
        of: None,
        takes: Takes::Nothing(|parsed| parsed.version = true),
    },
];

const COMMANDS: [(&str, Command, &str); 3] = [
    ("trial", Command::Trial, "run a service while everything goes wrong, and judge it"),
    ("run", Command::Run, "run a program of processes in Lua"),
    ("bench", Command::Bench, "measure the runtime on this machine"),
];

fn seconds(flag: &'static str, value: &OsStr) -> Result<u64, UsageError> {
    let seconds = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|count| (1..=SECONDS_MAX).contains(count));
    seconds.ok_or_else(|| UsageError::Seconds(flag, lossy(value)))
}

fn set_rounds(parsed: &mut Parsed, value: &OsStr) -> Result<(), UsageError> {
    let rounds = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|rounds| (1..=ROUNDS_MAX).contains(rounds));
    parsed.bench.rounds = rounds.ok_or_else(|| UsageError::Rounds(lossy(value)))?;
    Ok(())
}

#[derive(Default)]
struct Parsed {
    command: Option<Command>,
    /// The options that belong to one command. With another command they are refused.
    used: Vec<(&'static str, Command)>,
    trial: TrialArgs,
    run: RunArgs,
    bench: BenchArgs,
    help: bool,
    version: bool,
    here: Option<Here>,
}

/// Parses a command line, without the name of the program. A request for help takes effect even
/// beside a mistake.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<LowArgs, UsageError> {
    let mut parsed = Parsed::default();
    let mut mistake = None;
    let mut parser = lexopt::Parser::from_args(arguments);
    loop {
        match take(&mut parser, &mut parsed) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                mistake.get_or_insert(error);
            }
        }
    }
    match mistake {
        _ if parsed.help => return Ok(LowArgs::Help(help(parsed.command))),
        _ if parsed.version => return Ok(LowArgs::Version),
        Some(mistake) => return Err(mistake),
        None => {}
    }
    let command = parsed.command.ok_or(UsageError::NoCommand)?;
    if let Some((flag, _)) = parsed.used.iter().find(|(_, of)| *of != command) {
        return Err(UsageError::OtherCommand(flag));
    }
    Ok(match command {
        Command::Trial => LowArgs::Trial(parsed.trial),
        Command::Run if parsed.run.program.is_none() => return Err(UsageError::NoProgram),
        Command::Run => LowArgs::Run(parsed.run),
        Command::Bench => match parsed.here {
            Some(here) => LowArgs::BenchHere(here, parsed.bench.scale),
            None => LowArgs::Bench(parsed.bench),
        },
    })
}

/// Takes one argument, with its value. Returns `false` if there is none left.
fn take(parser: &mut lexopt::Parser, parsed: &mut Parsed) -> Result<bool, UsageError> {
    let (flag, written) = match parser.next()? {
        None => return Ok(false),
        // Everything that follows belongs to the program.
        Some(Arg::Value(word)) if parsed.command == Some(Command::Run) => {
            parsed.run.program =
                Some(word.into_string().map_err(|word| UsageError::Word(lossy(&word)))?);
            for argument in parser.raw_args()? {
                parsed
                    .run
                    .arguments
                    .push(argument.into_string().map_err(|word| UsageError::Word(lossy(&word)))?);
            }
            return Ok(false);
        }
        Some(Arg::Value(word)) => return parsed.take_word(&lossy(&word)).map(|()| true),
        Some(Arg::Long(name)) => {
            let fits = |flag: &&Flag| {
                flag.long == name && flag.of.is_none_or(|of| parsed.command == Some(of))
            };
            // An option of another command is recognised here and refused later.
            let any = || FLAGS.iter().find(|flag| flag.long == name);
            (FLAGS.iter().find(fits).or_else(any), format!("--{name}"))
        }
        Some(Arg::Short(name)) => {
            (FLAGS.iter().find(|flag| flag.short == Some(name)), format!("-{name}"))
        }
    };
    let flag = flag.ok_or(UsageError::UnknownFlag(written))?;
    parsed.used.extend(flag.of.map(|of| (flag.long, of)));
    match &flag.takes {
        Takes::Nothing(set) => set(parsed),
        Takes::Value(_, set) => set(parsed, &parser.value()?)?,
    }
    Ok(true)
}

impl Parsed {
    /// Takes a word. The first word is the command, which decides what the other words are.
    fn take_word(&mut self, word: &str) -> Result<(), UsageError> {
        match self.command {
            None => {
                let command = COMMANDS.iter().find(|(name, ..)| *name == word);
                self.command =
                    Some(command.ok_or_else(|| UsageError::UnknownCommand(word.to_owned()))?.1);
            }
            Some(Command::Bench) => {
                let workload = WORKLOADS.iter().find(|workload| workload.definition.name == word);
                self.bench
                    .workloads
                    .push(workload.ok_or_else(|| UsageError::UnknownWorkload(word.to_owned()))?);
            }
            Some(Command::Trial | Command::Run) => return Err(UsageError::Word(word.to_owned())),
        }
        Ok(())
    }
}

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// The error of an invalid command line.
#[derive(Debug)]
pub(crate) enum UsageError {
    NoCommand,
    NoProgram,
    UnknownCommand(String),
    UnknownFlag(String),
    UnknownWorkload(String),
    Rounds(String),
    /// Holds the option and its value.
    Seconds(&'static str, String),
    Listen(String),
    /// An option of another command.
    OtherCommand(&'static str),
    /// A word where none is expected.
    Word(String),
    /// A value is missing, or is given where none is expected.
    Value(lexopt::Error),
}

impl From<lexopt::Error> for UsageError {
    fn from(error: lexopt::Error) -> Self {
        Self::Value(error)
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = COMMANDS.map(|(name, ..)| name).join(", ");
        match self {
            Self::NoCommand => {
                write!(f, "no command given: the commands are {commands}; see --help")
            }
            Self::NoProgram => f.write_str("no program given: see run --help"),
            Self::UnknownCommand(name) => {
                write!(f, "unknown command '{name}': the commands are {commands}")
            }
            Self::UnknownFlag(name) => write!(f, "unknown option '{name}': see --help"),
            Self::UnknownWorkload(name) => {
                let names: Vec<&str> =
                    WORKLOADS.iter().map(|workload| workload.definition.name).collect();
                write!(f, "unknown workload '{name}': the workloads are {}", names.join(", "))
            }
            Self::Rounds(value) => {
                write!(f, "invalid number of rounds '{value}': it must be from 1 to {ROUNDS_MAX}")
            }
            Self::Seconds(flag, value) => {
                write!(
                    f,
                    "invalid value '{value}' of option '{flag}': it must be a whole number of seconds from 1 to {SECONDS_MAX}"
                )
            }
            Self::Listen(value) => {
                write!(f, "invalid address '{value}': it must be a host and a port")
            }
            Self::OtherCommand(flag) => {
                write!(f, "the option '--{flag}' belongs to another command: see --help")
            }
            Self::Word(word) => write!(f, "unexpected word '{word}': see --help"),
            Self::Value(error) => error.fmt(f),
        }
    }
}

const ABOUT: &str = "\
Procession runs processes (small, isolated, addressable state machines inside one
program, not operating-system processes) on a work-stealing scheduler.

Usage: procession COMMAND [OPTION]...

Commands:
";

const ABOUT_TRIAL: &str = "\
Runs a real HTTP service while everything goes wrong that can go wrong in programs: a
million idle processes, twice as many blocked threads as CPUs, endless computations,
panics, slow clients, and a shutdown under load. Clients in this program, on their own
scheduler, send requests over TCP all the time. You can send requests with curl, too.

Each stage prints one line: requests per second, latencies, the threads of this program,
and how often the watchdog replaced a stalled worker (rescues). At the end, the sums of the
ledger must agree, and no request may be lost.

The first SIGINT or SIGTERM shuts the service down in order. The second ends the program
immediately.

Usage: procession trial [OPTION]...
";

const ABOUT_RUN: &str = "\
Runs a program in Lua: calls its function main as a process, with the words after the
program as arguments, and ends when that process ends. docs/LUA.md lists the functions that
programs may call, and programs/ has examples.

The first SIGINT or SIGTERM shuts the program down in order. The second ends it
immediately.

Usage: procession run [OPTION]... PROGRAM.lua [ARGUMENT]...
";

const ABOUT_BENCH: &str = "\
Measures the runtime on this machine, with two workers if there are two CPUs. Each
workload runs once to warm up and then in rounds, and its result is checked each time.
Prints the median of each figure, and its range. Less is better.

Usage: procession bench [OPTION]... [WORKLOAD]...

Workloads (all are run if none is named):
";

const EXIT_CODES: &str = "
Exit codes:
  0    success, also if the reader of the output went away, or if one signal asked for the
       end
  1    a promise was broken, a program failed, a workload gave a wrong result, something
       could not run, or the output was not written
  2    the command line is invalid
  130  a second SIGINT ended the program immediately
  143  a second SIGTERM ended the program immediately
";

fn help(of: Option<Command>) -> String {
    let mut text = String::from(match of {
        None => ABOUT,
        Some(Command::Trial) => ABOUT_TRIAL,
        Some(Command::Run) => ABOUT_RUN,
        Some(Command::Bench) => ABOUT_BENCH,
    });
    match of {
        None => COMMANDS.iter().for_each(|(name, _, what)| row(&mut text, name, what)),
        Some(Command::Trial | Command::Run) => {}
        Some(Command::Bench) => {
            WORKLOADS.iter().for_each(|workload| {
                row(&mut text, workload.definition.name, workload.definition.what)
            });
        }
    }
    text.push_str("\nOptions:\n");
    for flag in
        FLAGS.iter().filter(|flag| !flag.help.is_empty() && (flag.of.is_none() || flag.of == of))
    {
        let short = flag.short.map_or(String::from("    "), |short| format!("-{short}, "));
        let value =
            if let Takes::Value(name, _) = flag.takes { format!(" {name}") } else { String::new() };
        row(&mut text, &format!("{short}--{}{value}", flag.long), flag.help);
    }
    text + EXIT_CODES
}

fn row(text: &mut String, left: &str, right: &str) {
    writeln!(text, "  {left:<18} {right}").expect("a string has room");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_line_of_the_readme_makes_sense() {
        let readme = include_str!("../README.md");
        let lines: Vec<&str> =
            readme.lines().filter_map(|line| line.strip_prefix("procession ")).collect();
        for line in &lines {
            let words = line.split('#').next().unwrap_or_default().split_whitespace();
            if let Err(error) = parse(words.map(OsString::from)) {
                panic!("procession {line}: {error}");
            }
        }
        assert!(lines.len() > 4, "the README has command lines");
    }
}
