//! The options of the commands that look into a running program.

use std::ffi::OsStr;

use crate::flags::commands::Command;
use crate::flags::table::{Flag, Parsed, Takes, key, lossy};
use crate::flags::usage::UsageError;
use crate::see::args::Verb;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        long: "json",
        short: None,
        help: "print the answer of the program as JSON",
        of: &[
            Command::See(Verb::Top),
            Command::See(Verb::Ps),
            Command::See(Verb::Tree),
            Command::See(Verb::Crashes),
            Command::See(Verb::Stack),
            Command::See(Verb::Inspect),
            Command::See(Verb::Trace),
        ],
        takes: Takes::Nothing(|parsed| parsed.see.json = true),
    },
    Flag {
        long: "number",
        short: None,
        help: "show only the report N, with the backtrace of its panic if the program keeps it",
        of: &[Command::See(Verb::Crashes)],
        takes: Takes::Value("N", |parsed, value| {
            parsed.see.number = Some(key("--number", value)?);
            Ok(())
        }),
    },
    Flag {
        long: "once",
        short: None,
        help: "print one look and end, also on a terminal",
        of: &[Command::See(Verb::Top)],
        takes: Takes::Nothing(|parsed| parsed.see.once = true),
    },
    Flag {
        long: "sort",
        short: None,
        help: "sort by KEY: samples, steps, mailbox, growth, age, memory (samples)",
        of: &[Command::See(Verb::Top), Command::See(Verb::Ps)],
        takes: Takes::Value("KEY", |parsed, value| {
            parsed.see.sort = key("--sort", value)?;
            Ok(())
        }),
    },
    Flag {
        long: "group",
        short: None,
        help: "group by KEY: place, state, waiting",
        of: &[Command::See(Verb::Top), Command::See(Verb::Ps)],
        takes: Takes::Value("KEY", |parsed, value| {
            parsed.see.group = Some(key("--group", value)?);
            Ok(())
        }),
    },
    Flag {
        long: "top",
        short: None,
        help: "show at most N processes, up to 1000 (50)",
        of: &[Command::See(Verb::Top), Command::See(Verb::Ps)],
        takes: Takes::Value("N", |parsed, value| {
            parsed.see.top = key("--top", value)?;
            Ok(())
        }),
    },
    Flag {
        long: "filter",
        short: None,
        help: "show only processes with such a pid, state, waiting, kind, label or place",
        of: &[Command::See(Verb::Top), Command::See(Verb::Ps)],
        takes: Takes::Value("N=V", |parsed, value| {
            let pair = value.to_str().and_then(|text| text.split_once('='));
            let (name, value) = pair.ok_or_else(|| UsageError::Key("--filter", lossy(value)))?;
            parsed.see.filters.push((name.to_owned(), value.to_owned()));
            Ok(())
        }),
    },
    Flag {
        long: "seconds",
        short: None,
        help: "record the next N seconds, 1 to 10, instead of taking the latest events",
        of: &[Command::See(Verb::Dump)],
        takes: Takes::Value("N", set_seconds),
    },
    Flag {
        long: "seconds",
        short: None,
        help: "give up after N seconds, 1 to 10, if the process neither waits nor stays in a step (1)",
        of: &[Command::See(Verb::Stack)],
        takes: Takes::Value("N", set_seconds),
    },
    Flag {
        long: "seconds",
        short: None,
        help: "stop the process for N seconds, 1 to 60 (5)",
        of: &[Command::See(Verb::Suspend)],
        takes: Takes::Value("N", set_seconds),
    },
    Flag {
        long: "seconds",
        short: None,
        help: "trace for at most N seconds, 1 to 10 (5)",
        of: &[Command::See(Verb::Trace)],
        takes: Takes::Value("N", set_seconds),
    },
    Flag {
        long: "count",
        short: Some('n'),
        help: "end after N messages, at most 1000 (20)",
        of: &[Command::See(Verb::Trace)],
        takes: Takes::Value("N", |parsed, value| {
            parsed.see.count = Some(key("--count", value)?);
            Ok(())
        }),
    },
    Flag {
        long: "cancel",
        short: None,
        help: "ask the process to end, and do not terminate it",
        of: &[Command::See(Verb::Kill)],
        takes: Takes::Nothing(|parsed| parsed.see.cancel = true),
    },
];

fn set_seconds(parsed: &mut Parsed, value: &OsStr) -> Result<(), UsageError> {
    parsed.see.seconds = Some(key("--seconds", value)?);
    Ok(())
}
