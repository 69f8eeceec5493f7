//! The options that give certificates to programs in Lua.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::flags::commands::Command;
use crate::flags::table::{Flag, Parsed, Takes};
use crate::flags::usage::UsageError;

/// `node` has its own options of these names, for the connections of the cluster.
const PROGRAMS: &[Command] = &[Command::Run, Command::Test, Command::Repl];
const NODE: &[Command] = &[Command::Node];

type Set = fn(&mut Parsed, &OsStr) -> Result<(), UsageError>;

const fn file(long: &'static str, help: &'static str, of: &'static [Command], set: Set) -> Flag {
    Flag { long, short: None, help, of, takes: Takes::Value("FILE", set) }
}

fn set_certificate(parsed: &mut Parsed, file: &OsStr) -> Result<(), UsageError> {
    parsed.certificates.certificate = Some(PathBuf::from(file));
    Ok(())
}

fn set_key(parsed: &mut Parsed, file: &OsStr) -> Result<(), UsageError> {
    parsed.certificates.key = Some(PathBuf::from(file));
    Ok(())
}

pub(super) const FLAGS: &[Flag] = &[
    file(
        "tls-cert",
        "let it listen with TLS and the certificates in FILE",
        PROGRAMS,
        set_certificate,
    ),
    file("tls-key", "use the private key in FILE, which not all users may read", PROGRAMS, set_key),
    file(
        "program-cert",
        "let the program listen with TLS and the certificates in FILE",
        NODE,
        set_certificate,
    ),
    file(
        "program-key",
        "use the private key in FILE for that, which not all users may read",
        NODE,
        set_key,
    ),
    file(
        "tls-roots",
        "trust servers of the authorities in FILE, and not those of the system",
        &[Command::Run, Command::Node, Command::Test, Command::Repl],
        |parsed, file| {
            parsed.certificates.roots = Some(PathBuf::from(file));
            Ok(())
        },
    ),
];
