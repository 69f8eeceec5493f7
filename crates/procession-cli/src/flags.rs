//! What the command line may say: one table of flags, from which it is parsed and its help is written.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write};

use lexopt::Arg;

use crate::bench::{BenchArgs, ROUNDS_MAX, Scale, WORKLOADS};

/// What was asked for. Pure: nothing was looked at but the arguments.
#[derive(Debug)]
pub(crate) enum LowArgs {
    Help(String),
    Version,
    Bench(BenchArgs),
    /// Not in the help: what the workload `idle_mem` starts a fresh program for.
    IdleMemory(Scale),
    /// Not in the help: likewise for `co_alive`.
    CoroutineMemory(Scale),
}

struct Flag {
    long: &'static str,
    short: Option<char>,
    /// Empty for a flag that the help leaves out.
    help: &'static str,
    /// Whether it belongs to `bench`, not to the command as a whole.
    of_bench: bool,
    takes: Takes,
}

enum Takes {
    Nothing(fn(&mut Parsed)),
    /// What the value is called in the help.
    Value(&'static str, fn(&mut Parsed, &OsStr) -> Result<(), UsageError>),
}

const FLAGS: &[Flag] = &[
    Flag {
        long: "rounds",
        short: None,
        help: "measure each workload N times (5)",
        of_bench: true,
        takes: Takes::Value("N", set_rounds),
    },
    Flag {
        long: "json",
        short: None,
        help: "print an object for each figure: workload, runtime, value (the median), unit",
        of_bench: true,
        takes: Takes::Nothing(|parsed| parsed.bench.json = true),
    },
    Flag {
        long: "tiny",
        short: None,
        help: "do a hundredth of the work, to see that everything runs",
        of_bench: true,
        takes: Takes::Nothing(|parsed| parsed.bench.scale = Scale::Tiny),
    },
    Flag {
        long: "idle-memory-here",
        short: None,
        help: "",
        of_bench: true,
        takes: Takes::Nothing(|parsed| parsed.idle_memory = true),
    },
    Flag {
        long: "coroutine-memory-here",
        short: None,
        help: "",
        of_bench: true,
        takes: Takes::Nothing(|parsed| parsed.coroutine_memory = true),
    },
    Flag {
        long: "help",
        short: Some('h'),
        help: "show this, or the help of the command before it",
        of_bench: false,
        takes: Takes::Nothing(|parsed| parsed.help = true),
    },
    Flag {
        long: "version",
        short: Some('V'),
        help: "show the version",
        of_bench: false,
        takes: Takes::Nothing(|parsed| parsed.version = true),
    },
];

const COMMANDS: [(&str, &str); 1] = [("bench", "measure the runtime on this machine")];

fn set_rounds(parsed: &mut Parsed, value: &OsStr) -> Result<(), UsageError> {
    let rounds = value.to_str().and_then(|text| text.parse().ok()).filter(|rounds| (1..=ROUNDS_MAX).contains(rounds));
    parsed.bench.rounds = rounds.ok_or_else(|| UsageError::Rounds(lossy(value)))?;
    Ok(())
}

#[derive(Default)]
struct Parsed {
    is_bench: bool,
    bench: BenchArgs,
    idle_memory: bool,
    coroutine_memory: bool,
    help: bool,
    version: bool,
}

/// Understands a command line, without the name of the program. A call for help is heard beside any mistake.
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
        _ if parsed.help => Ok(LowArgs::Help(help(parsed.is_bench))),
        _ if parsed.version => Ok(LowArgs::Version),
        Some(mistake) => Err(mistake),
        None if !parsed.is_bench => Err(UsageError::NoCommand),
        None if parsed.idle_memory => Ok(LowArgs::IdleMemory(parsed.bench.scale)),
        None if parsed.coroutine_memory => Ok(LowArgs::CoroutineMemory(parsed.bench.scale)),
        None => Ok(LowArgs::Bench(parsed.bench)),
    }
}

/// Takes one argument, with its value. Says whether there was one.
fn take(parser: &mut lexopt::Parser, parsed: &mut Parsed) -> Result<bool, UsageError> {
    let (flag, written) = match parser.next()? {
        None => return Ok(false),
        Some(Arg::Value(word)) => return parsed.take_word(&lossy(&word)).map(|()| true),
        Some(Arg::Long(name)) => (FLAGS.iter().find(|flag| flag.long == name), format!("--{name}")),
        Some(Arg::Short(name)) => (FLAGS.iter().find(|flag| flag.short == Some(name)), format!("-{name}")),
    };
    match &flag.ok_or(UsageError::UnknownFlag(written))?.takes {
        Takes::Nothing(set) => set(parsed),
        Takes::Value(_, set) => set(parsed, &parser.value()?)?,
    }
    Ok(true)
}

impl Parsed {
    /// The first word is the command, the others are workloads.
    fn take_word(&mut self, word: &str) -> Result<(), UsageError> {
        if self.is_bench {
            let workload = WORKLOADS.iter().find(|workload| workload.definition.name == word);
            self.bench.workloads.push(workload.ok_or_else(|| UsageError::UnknownWorkload(word.to_owned()))?);
        } else if COMMANDS.iter().any(|(name, _)| *name == word) {
            self.is_bench = true;
        } else {
            return Err(UsageError::UnknownCommand(word.to_owned()));
        }
        Ok(())
    }
}

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Why a command line makes no sense.
#[derive(Debug)]
pub(crate) enum UsageError {
    NoCommand,
    UnknownCommand(String),
    UnknownFlag(String),
    UnknownWorkload(String),
    Rounds(String),
    /// A value is missing, or there where none is taken.
    Value(lexopt::Error),
}

impl From<lexopt::Error> for UsageError {
    fn from(error: lexopt::Error) -> Self {
        Self::Value(error)
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = COMMANDS.map(|(name, _)| name).join(", ");
        match self {
            Self::NoCommand => write!(f, "no command given: the commands are {commands}; see --help"),
            Self::UnknownCommand(name) => write!(f, "unknown command '{name}': the commands are {commands}"),
            Self::UnknownFlag(name) => write!(f, "unknown option '{name}': see --help"),
            Self::UnknownWorkload(name) => {
                let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.definition.name).collect();
                write!(f, "unknown workload '{name}': the workloads are {}", names.join(", "))
            }
            Self::Rounds(value) => write!(f, "invalid number of rounds '{value}': it must be from 1 to {ROUNDS_MAX}"),
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

const ABOUT_BENCH: &str = "\
Measures the runtime on this machine, with two workers if there are two CPUs. Each
workload runs once to warm up and then in rounds, and its result is checked each time.
Prints the median of each figure, and its range. Less is better.

Usage: procession bench [OPTION]... [WORKLOAD]...

Workloads, all of which are run if none is named:
";

const EXIT_CODES: &str = "
Exit codes:
  0  all went well, also if whoever read the output went away
  1  a workload gave a wrong result or could not run, or the output was not written
  2  the command line makes no sense
";

fn help(of_bench: bool) -> String {
    let mut text = String::from(if of_bench { ABOUT_BENCH } else { ABOUT });
    if of_bench {
        WORKLOADS.iter().for_each(|workload| row(&mut text, workload.definition.name, workload.definition.what));
    } else {
        COMMANDS.iter().for_each(|(name, what)| row(&mut text, name, what));
    }
    text.push_str("\nOptions:\n");
    for flag in FLAGS.iter().filter(|flag| !flag.help.is_empty() && (of_bench || !flag.of_bench)) {
        let short = flag.short.map_or(String::from("    "), |short| format!("-{short}, "));
        let value = if let Takes::Value(name, _) = flag.takes { format!(" {name}") } else { String::new() };
        row(&mut text, &format!("{short}--{}{value}", flag.long), flag.help);
    }
    text + EXIT_CODES
}

fn row(text: &mut String, left: &str, right: &str) {
    writeln!(text, "  {left:<15} {right}").expect("a string has room");
}
