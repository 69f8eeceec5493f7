//! The options for the certificates of programs in Lua.

use std::path::PathBuf;

use crate::flags::commands::Command;
use crate::flags::table::{Flag, Parsed};

/// `node` has its own options of these names, for the connections of the cluster.
const PROGRAMS: &[Command] = &[Command::Run, Command::Test, Command::Repl];
const NODE: &[Command] = &[Command::Node];

fn set_certificate(parsed: &mut Parsed, file: PathBuf) {
    parsed.certificates.certificate = Some(file);
}

fn set_key(parsed: &mut Parsed, file: PathBuf) {
    parsed.certificates.key = Some(file);
}

pub(super) const FLAGS: &[Flag] = &[
    Flag::file(
        "tls-cert",
        "let it listen with TLS and the certificates in FILE",
        PROGRAMS,
        set_certificate,
    ),
    Flag::file(
        "tls-key",
        "use the private key in FILE, which not all users may read",
        PROGRAMS,
        set_key,
    ),
    Flag::file(
        "program-cert",
        "let the program listen with TLS and the certificates in FILE",
        NODE,
        set_certificate,
    ),
    Flag::file(
        "program-key",
        "use the private key in FILE for that, which not all users may read",
        NODE,
        set_key,
    ),
    Flag::file(
        "tls-roots",
        "trust servers of the authorities in FILE, and not those of the system",
        &[Command::Run, Command::Node, Command::Test, Command::Repl],
        |parsed, file| parsed.certificates.roots = Some(file),
    ),
];
