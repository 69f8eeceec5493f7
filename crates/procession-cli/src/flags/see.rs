//! The options of the commands that look into a running program.

use std::ffi::OsStr;

use crate::flags::commands::Command;
use crate::flags::table::{Flag, Parsed, key, lossy};
use crate::flags::usage::UsageError;
use crate::see::args::Verb;

pub(super) const FLAGS: &[Flag] = &[
    Flag::plain(
        "json",
        "print the answer of the program as JSON",
        &[
            Command::See(Verb::Top),
            Command::See(Verb::Ps),
            Command::See(Verb::Tree),
            Command::See(Verb::Crashes),
            Command::See(Verb::Cycles),
            Command::See(Verb::Stack),
            Command::See(Verb::Inspect),
            Command::See(Verb::Trace),
        ],
        |parsed| parsed.see.json = true,
    ),
    Flag::value(
        "number",
        "N",
        "show only the report N, with the backtrace of its panic if the program keeps it",
        &[Command::See(Verb::Crashes)],
        |parsed, value| key("--number", value).map(|it| parsed.see.number = Some(it)),
    ),
    Flag::plain(
        "once",
        "print one look and end, also on a terminal",
        &[Command::See(Verb::Top)],
        |parsed| parsed.see.once = true,
    ),
    Flag::value(
        "sort",
        "KEY",
        "sort by KEY: samples, steps, mailbox, growth, age, memory (samples)",
        &[Command::See(Verb::Top), Command::See(Verb::Ps)],
        |parsed, value| key("--sort", value).map(|it| parsed.see.sort = it),
    ),
    Flag::value(
        "group",
        "KEY",
        "group by KEY: location, state, waiting",
        &[Command::See(Verb::Top), Command::See(Verb::Ps)],
        |parsed, value| key("--group", value).map(|it| parsed.see.group = Some(it)),
    ),
    Flag::value(
        "top",
        "N",
        "show at most N processes, up to 1000 (50)",
        &[Command::See(Verb::Top), Command::See(Verb::Ps)],
        |parsed, value| key("--top", value).map(|it| parsed.see.top = it),
    ),
    Flag::value(
        "filter",
        "N=V",
        "show only processes with such a pid, state, waiting, kind, label or location",
        &[Command::See(Verb::Top), Command::See(Verb::Ps)],
        |parsed, value| {
            let pair = value.to_str().and_then(|text| text.split_once('='));
            let (name, value) = pair.ok_or_else(|| UsageError::Key("--filter", lossy(value)))?;
            parsed.see.filters.push((name.to_owned(), value.to_owned()));
            Ok(())
        },
    ),
    Flag::value(
        "seconds",
        "N",
        "record the next N seconds, 1 to 10, instead of taking the latest events",
        &[Command::See(Verb::Dump)],
        set_seconds,
    ),
    Flag::value(
        "seconds",
        "N",
        "give up after N seconds, 1 to 10, if the process neither waits nor stays in a step (1)",
        &[Command::See(Verb::Stack)],
        set_seconds,
    ),
    Flag::value(
        "seconds",
        "N",
        "stop the process for N seconds, 1 to 60 (5)",
        &[Command::See(Verb::Suspend)],
        set_seconds,
    ),
    Flag::value(
        "seconds",
        "N",
        "trace for at most N seconds, 1 to 10 (5)",
        &[Command::See(Verb::Trace)],
        set_seconds,
    ),
    Flag::value(
        "count",
        "N",
        "end after N messages, at most 1000 (20)",
        &[Command::See(Verb::Trace)],
        |parsed, value| key("--count", value).map(|it| parsed.see.count = Some(it)),
    )
    .or_short('n'),
    Flag::value(
        "seconds",
        "N",
        "ask for windows of N seconds, 1 to 10 (5)",
        &[Command::See(Verb::Record)],
        set_seconds,
    ),
    Flag::value(
        "rotate",
        "SIZE",
        "begin a new file before one is larger than SIZE, such as 100MB (100MB)",
        &[Command::See(Verb::Record)],
        |parsed, value| key("--rotate", value).map(|it| parsed.see.rotate = Some(it)),
    ),
    Flag::value(
        "keep",
        "N",
        "keep the last N files, with the one that grows (10)",
        &[Command::See(Verb::Record)],
        |parsed, value| key("--keep", value).map(|it| parsed.see.keep = Some(it)),
    ),
    Flag::file(
        "directory",
        "write the files to FILE, a directory, which is made if it is not there (.)",
        &[Command::See(Verb::Record)],
        |parsed, path| parsed.see.directory = Some(path),
    ),
    Flag::plain(
        "cancel",
        "ask the process to end, and do not terminate it",
        &[Command::See(Verb::Kill)],
        |parsed| parsed.see.cancel = true,
    ),
];

fn set_seconds(parsed: &mut Parsed, value: &OsStr) -> Result<(), UsageError> {
    parsed.see.seconds = Some(key("--seconds", value)?);
    Ok(())
}
