//! What the commands that look into a program are to do.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use procession::observe::{GroupKey, SortKey};
use serde_json::Value;

use crate::see::door::encode;

const TOP_DEFAULT: usize = 50;

/// A command that looks into a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verb {
    #[default]
    Top,
    Ps,
    Tree,
    Crashes,
    Cycles,
    Leaks,
    Stack,
    Inspect,
    Trace,
    Dump,
    Record,
    Suspend,
    Resume,
    Kill,
}

/// A number of bytes. Parses `100MB`, `64MiB`, `10kB` and plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

impl FromStr for ByteSize {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let unit = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1000,
            "m" | "mb" => 1_000_000,
            "g" | "gb" => 1_000_000_000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            _ => return Err(()),
        };
        let count: u64 = digits.parse().map_err(|_| ())?;
        count.checked_mul(unit).filter(|&bytes| bytes > 0).map(Self).ok_or(())
    }
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Top => "top",
            Self::Ps => "ps",
            Self::Tree => "tree",
            Self::Crashes => "crashes",
            Self::Cycles => "cycles",
            Self::Leaks => "leaks",
            Self::Stack => "stack",
            Self::Inspect => "inspect",
            Self::Trace => "trace",
            Self::Dump => "dump",
            Self::Record => "record",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Kill => "kill",
        }
    }

    /// Returns the words after the command, as the help shows them.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Top
            | Self::Ps
            | Self::Tree
            | Self::Crashes
            | Self::Cycles
            | Self::Leaks
            | Self::Record => " [TARGET]",
            Self::Dump => " FILE [TARGET]",
            Self::Trace => " PID [TARGET] | FILE",
            Self::Stack | Self::Inspect | Self::Suspend | Self::Resume | Self::Kill => {
                " PID [TARGET]"
            }
        }
    }

    /// Returns the number of words that have to be there.
    pub(crate) fn words_min(self) -> usize {
        match self {
            Self::Top
            | Self::Ps
            | Self::Tree
            | Self::Crashes
            | Self::Cycles
            | Self::Leaks
            | Self::Record => 0,
            _ => 1,
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Top => {
                "\
Shows which processes of a running program use the processor, which wait, and for what. It
looks again every second, or as seldom as it takes to use less than 1 % of the processors.
Press h for the keys. If standard output is no terminal, prints one look and ends.
"
            }
            Self::Ps => {
                "\
Lists the processes of a running program, with their shares of a processor in the last
second.
"
            }
            Self::Tree => "Shows the supervisors of a running program and their children.\n",
            Self::Crashes => {
                "Lists the last 64 processes that failed, the latest first, and the reasons.\n"
            }
            Self::Cycles => {
                "\
Lists the last 16 cycles of processes that wait for one another, the latest first. A program
looks for them once a process has waited for 5 s, or for as long as it has chosen.
"
            }
            Self::Leaks => {
                "\
Lists the processes of a running program that can never continue, because nothing is left that
could wake them, and groups of processes for which this is only suspected.
"
            }
            Self::Stack => {
                "\
Prints the stacks of a process of a running program: where it waits, or what its step does.
"
            }
            Self::Inspect => {
                "\
Prints what a process of a running program shows of itself. The program decides what that is,
by Process::inspect and Context::inspect_with.
"
            }
            Self::Trace => {
                "\
Prints the headers of the next messages that a process of a running program receives and sends:
when, from or to which process, and of which type. What is in them is not shown.

With a FILE of record or dump instead, prints which processes computed, by samples.
"
            }
            Self::Suspend => {
                "\
Stops a process of a running program after its present step, for a time. Its mailbox still
takes messages. The program must allow it by DoorOptions::allow_actions.
"
            }
            Self::Resume => {
                "\
Lets a process that is suspended go on. The program must allow it by DoorOptions::allow_actions.
"
            }
            Self::Dump => {
                "\
Writes the latest events of a running program to FILE, for the viewer at
https://ui.perfetto.dev. FILE must not exist yet; - is standard output.
"
            }
            Self::Record => {
                "\
Writes what the workers of a running program do to files, until a signal asks for the end or the
program ends: each event with its time, and samples of what computes. The viewer at
https://ui.perfetto.dev and procession trace FILE read the files. While it records, each event
costs the program 10 to 40 ns. Between two windows some milliseconds are missing.
"
            }
            Self::Kill => {
                "\
Terminates a process of a running program between two of its steps. The program must allow
it by DoorOptions::allow_actions.
"
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct SeeArgs {
    pub(crate) verb: Verb,
    pub(crate) words: Vec<String>,
    pub(crate) json: bool,
    pub(crate) once: bool,
    pub(crate) sort: SortKey,
    pub(crate) group: Option<GroupKey>,
    pub(crate) top: usize,
    /// Names and values of filters, which the door checks.
    pub(crate) filters: Vec<(String, String)>,
    pub(crate) seconds: Option<u64>,
    /// The number of messages to trace.
    pub(crate) count: Option<u64>,
    /// The number of a report.
    pub(crate) number: Option<u64>,
    pub(crate) cancel: bool,
    /// The maximum size of a file of a recording.
    pub(crate) rotate: Option<ByteSize>,
    /// The number of files of a recording that are kept.
    pub(crate) keep: Option<NonZeroUsize>,
    /// Where the files of a recording are.
    pub(crate) directory: Option<PathBuf>,
}

impl Default for SeeArgs {
    fn default() -> Self {
        Self {
            verb: Verb::Top,
            words: Vec::new(),
            json: false,
            once: false,
            sort: SortKey::Samples,
            group: None,
            top: TOP_DEFAULT,
            filters: Vec::new(),
            seconds: None,
            count: None,
            number: None,
            cancel: false,
            rotate: None,
            keep: None,
            directory: None,
        }
    }
}

/// Returns the target of a look.
pub(super) fn view_target(args: &SeeArgs, since: Option<&Value>) -> String {
    let mut target = format!("/view?sort={}&top={}", args.sort.name(), args.top);
    if let Some(key) = args.group {
        target.push_str(&format!("&group={}", key.name()));
    }
    for (name, value) in &args.filters {
        target.push_str(&format!("&{}={}", encode(name), encode(value)));
    }
    if let Some(number) = since.and_then(Value::as_u64) {
        target.push_str(&format!("&since={number}"));
    }
    target
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("100MB", 100_000_000),
            ("64MiB", 64 << 20),
            ("1k", 1000),
            ("2GB", 2_000_000_000),
            ("7", 7),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "MB", "0", "-1", "1.5MB", "1XB", "99999999999GB", "1 MB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(()), "{text}");
        }
    }
}
