//! The options for the permissions of programs in Lua.

use std::ffi::OsStr;

use crate::flags::commands::Command;
use crate::flags::table::{Flag, Parsed, Takes};
use crate::permissions::Kind;

const OF: &[Command] = &[Command::Run, Command::Node, Command::Test, Command::Repl];

type Set = fn(&mut Parsed, Option<&OsStr>);

const fn optional(long: &'static str, value: &'static str, help: &'static str, set: Set) -> Flag {
    Flag::new(long, help, OF, Takes::Optional(value, set))
}

const fn plain(long: &'static str, help: &'static str, set: fn(&mut Parsed)) -> Flag {
    Flag::plain(long, help, OF, set)
}

pub(super) const FLAGS: &[Flag] = &[
    optional(
        "allow-net",
        "HOST[:PORT]",
        "let the program connect to all addresses, or to this one",
        |parsed, value| parsed.allowed.add(Kind::Net, value.map(OsStr::to_owned)),
    ),
    plain("allow-listen", "let it listen for connections", |parsed| {
        parsed.allowed.add(Kind::Listen, None);
    }),
    optional(
        "allow-read",
        "PATH",
        "let it read all files, or this one, or those below this folder",
        |parsed, value| parsed.allowed.add(Kind::Read, value.map(OsStr::to_owned)),
    ),
    optional(
        "allow-write",
        "PATH",
        "let it write all files, or this one, or those below this folder",
        |parsed, value| parsed.allowed.add(Kind::Write, value.map(OsStr::to_owned)),
    ),
    optional(
        "allow-env",
        "NAME",
        "let it read all variables of the environment, or this one",
        |parsed, value| parsed.allowed.add(Kind::Env, value.map(OsStr::to_owned)),
    ),
    plain("allow-exits", "let it end processes of the host and of other programs", |parsed| {
        parsed.allowed.add(Kind::Exits, None);
    }),
    plain("allow-all", "let it do all of this", |parsed| parsed.allowed.add(Kind::All, None)),
];
