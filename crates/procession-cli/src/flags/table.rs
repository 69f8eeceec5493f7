//! What an option is, and what a command line says so far.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use procession_trial::TrialArgs;

use crate::certificates::Certificates;
use crate::flags::commands::Command;
use crate::flags::usage::{SECONDS_MAX, UsageError};
use crate::node::NodeArgs;
use crate::permissions::Allowed;
use crate::program::RunArgs;
use crate::see::args::SeeArgs;
use crate::tools::TestArgs;

pub(super) struct Flag {
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    pub(super) help: &'static str,
    /// The commands that have the flag. Empty if all have it.
    pub(super) of: &'static [Command],
    pub(super) takes: Takes,
}

pub(super) enum Takes {
    Nothing(fn(&mut Parsed)),
    /// Holds the name of the value in the help.
    Value(&'static str, Set),
    File(fn(&mut Parsed, PathBuf)),
    /// A value may follow a `=`. Holds the name of the value in the help.
    Optional(&'static str, fn(&mut Parsed, Option<&OsStr>)),
}

type Set = fn(&mut Parsed, &OsStr) -> Result<(), UsageError>;

impl Flag {
    pub(super) const fn new(
        long: &'static str,
        help: &'static str,
        of: &'static [Command],
        takes: Takes,
    ) -> Self {
        Self { long, short: None, help, of, takes }
    }

    pub(super) const fn plain(
        long: &'static str,
        help: &'static str,
        of: &'static [Command],
        set: fn(&mut Parsed),
    ) -> Self {
        Self::new(long, help, of, Takes::Nothing(set))
    }

    pub(super) const fn value(
        long: &'static str,
        name: &'static str,
        help: &'static str,
        of: &'static [Command],
        set: Set,
    ) -> Self {
        Self::new(long, help, of, Takes::Value(name, set))
    }

    pub(super) const fn file(
        long: &'static str,
        help: &'static str,
        of: &'static [Command],
        set: fn(&mut Parsed, PathBuf),
    ) -> Self {
        Self::new(long, help, of, Takes::File(set))
    }

    pub(super) const fn or_short(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }
}

#[derive(Default)]
pub(super) struct Parsed {
    pub(super) command: Option<Command>,
    /// The options that belong to one command. With another command they are refused.
    pub(super) used: Vec<&'static Flag>,
    /// The options with their values, as the command line has them.
    pub(super) options: Vec<(&'static str, Option<OsString>)>,
    pub(super) trial: TrialArgs,
    pub(super) run: RunArgs,
    pub(super) see: SeeArgs,
    pub(super) node: NodeArgs,
    pub(super) test: TestArgs,
    /// Set if tests run in a simulation.
    pub(super) simulates: bool,
    pub(super) seeds: Option<NonZeroU64>,
    /// The permissions of a program in Lua.
    pub(super) allowed: Allowed,
    pub(super) certificates: Certificates,
    /// The words after `check`, and after a command that looks into a program.
    pub(super) words: Vec<OsString>,
    pub(super) help: bool,
    pub(super) version: bool,
}

/// Parses the value of an option of which the message of its type says all.
pub(super) fn key<T: FromStr>(flag: &'static str, value: &OsStr) -> Result<T, UsageError> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| UsageError::Key(flag, lossy(value)))
}

pub(super) fn seconds(flag: &'static str, value: &OsStr) -> Result<u64, UsageError> {
    let seconds = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|count| (1..=SECONDS_MAX).contains(count));
    seconds.ok_or_else(|| UsageError::Seconds(flag, lossy(value)))
}

pub(super) fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}
