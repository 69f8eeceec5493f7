//! The command line: one table of flags, which the parser and the help are both derived from.

mod certificates;
mod commands;
mod help;
mod node;
mod permissions;
mod see;
mod table;
mod tools;
mod usage;

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Arg;
use procession_trial::TrialArgs;

use crate::flags::commands::{COMMANDS, Command};
use crate::flags::table::{Flag, Parsed, Takes, lossy, seconds};
use crate::flags::usage::UsageError;
use crate::node::{NodeArgs, Peer};
use crate::program::{Entry, RunArgs};
use crate::see::args::SeeArgs;
use crate::tools::{SEEDS, TestArgs};

/// The parsed command line. Nothing but the arguments was looked at.
#[derive(Debug)]
pub(crate) enum LowArgs {
    Help(String),
    Version,
    Trial(TrialArgs),
    Run(RunArgs),
    See(SeeArgs),
    /// Holds the node to ask.
    ClusterStatus(NodeArgs, Peer),
    /// Holds the files.
    Check(Vec<OsString>),
    Test(TestArgs),
    Annotations,
}

const FLAGS: &[Flag] = &[
    Flag::value(
        "listen",
        "ADDR",
        "serve at ADDR, a host and a port (127.0.0.1:0, any free port)",
        &[Command::Trial],
        |parsed, value| {
            parsed.trial.listen =
                value.to_str().ok_or_else(|| UsageError::Listen(lossy(value)))?.to_owned();
            Ok(())
        },
    ),
    Flag::value(
        "seconds",
        "N",
        "take about N seconds for all stages together (20)",
        &[Command::Trial],
        |parsed, value| seconds("--seconds", value).map(|it| parsed.trial.seconds = it),
    ),
    Flag::value(
        "deadline",
        "N",
        "allow N seconds for a shutdown (5)",
        &[Command::Trial],
        |parsed, value| {
            seconds("--deadline", value).map(|it| parsed.trial.deadline = Duration::from_secs(it))
        },
    ),
    Flag::value(
        "deadline",
        "N",
        "allow N seconds for a shutdown (5)",
        &[Command::Run, Command::Node],
        |parsed, value| {
            seconds("--deadline", value).map(|it| parsed.run.deadline = Duration::from_secs(it))
        },
    ),
    Flag::plain(
        "stats",
        "print the busiest processes to standard error each second, and at the end; in place on a terminal",
        &[Command::Run, Command::Node],
        |parsed| parsed.run.stats = true,
    ),
    Flag::plain("help", "show this help, or that of the command before it", &[], |parsed| {
        parsed.help = true
    })
    .or_short('h'),
    Flag::plain("version", "show the version", &[], |parsed| parsed.version = true).or_short('V'),
];

/// Returns the options of all commands.
fn flags() -> impl Iterator<Item = &'static Flag> {
    let of_programs = permissions::FLAGS.iter().chain(certificates::FLAGS);
    tools::FLAGS.iter().chain(see::FLAGS).chain(node::FLAGS).chain(of_programs).chain(FLAGS)
}

/// Parses a command line, without the name of the program. A request for help takes effect even if
/// the line has a mistake.
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
        _ if parsed.help => return Ok(LowArgs::Help(help::help(parsed.command, flags()))),
        _ if parsed.version => return Ok(LowArgs::Version),
        Some(mistake) => return Err(mistake),
        None => {}
    }
    let command = parsed.command.ok_or(UsageError::NoCommand)?;
    let is_other = |flag: &&&Flag| !flag.of.is_empty() && !flag.of.contains(&command);
    if let Some(flag) = parsed.used.iter().find(is_other) {
        return Err(UsageError::OtherCommand(flag.long));
    }
    Ok(match command {
        Command::Trial => LowArgs::Trial(parsed.trial),
        Command::Run | Command::Node if parsed.run.program.is_none() => {
            return Err(UsageError::NoProgram);
        }
        Command::Node if parsed.node.name.is_none() => return Err(UsageError::NoName),
        Command::Node => {
            let mut allowed = parsed.allowed;
            parsed.node.allow(&mut allowed);
            let (node, certificates) = (Some(parsed.node), parsed.certificates);
            LowArgs::Run(RunArgs { allowed, certificates, node, ..parsed.run })
        }
        Command::Cluster => {
            let words = parsed.words.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
            match &*words {
                [verb, node] if verb == "status" => {
                    let peer = node.parse().map_err(|()| UsageError::Word(node.clone()))?;
                    LowArgs::ClusterStatus(parsed.node, peer)
                }
                [verb, ..] if verb != "status" => return Err(UsageError::Word(verb.clone())),
                _ => return Err(UsageError::NoNode),
            }
        }
        Command::Run => {
            let (allowed, certificates) = (parsed.allowed, parsed.certificates);
            LowArgs::Run(RunArgs { allowed, certificates, ..parsed.run })
        }
        Command::Check | Command::Test if parsed.words.is_empty() => {
            return Err(UsageError::NoFiles);
        }
        Command::Check => LowArgs::Check(parsed.words),
        Command::Test => {
            let (paths, allowed) = (parsed.words, parsed.allowed);
            let certificates = parsed.certificates;
            let simulated = match (parsed.simulates, parsed.seeds) {
                (false, Some(_)) => return Err(UsageError::NoSimulation),
                (false, None) => None,
                (true, seeds) => Some(seeds.map_or(SEEDS, NonZeroU64::get)),
            };
            let options = parsed.options;
            LowArgs::Test(TestArgs {
                paths,
                allowed,
                certificates,
                simulated,
                options,
                ..parsed.test
            })
        }
        Command::Repl => {
            let program = parsed.words.pop().map(PathBuf::from);
            let (allowed, certificates) = (parsed.allowed, parsed.certificates);
            let entry = Entry::Repl;
            LowArgs::Run(RunArgs { program, entry, allowed, certificates, ..parsed.run })
        }
        Command::Annotations => LowArgs::Annotations,
        Command::See(verb) => {
            let missing = parsed.words.len() < verb.words_min();
            if missing {
                return Err(UsageError::Missing(verb));
            }
            let words = parsed.words.into_iter().map(text).collect::<Result<_, _>>()?;
            LowArgs::See(SeeArgs { verb, words, ..parsed.see })
        }
    })
}

/// Takes one argument, with its value. Returns `false` if there is none left.
fn take(parser: &mut lexopt::Parser, parsed: &mut Parsed) -> Result<bool, UsageError> {
    let (flag, written) = match parser.next()? {
        None => return Ok(false),
        // Everything that follows belongs to the program.
        Some(Arg::Value(word)) if matches!(parsed.command, Some(Command::Run | Command::Node)) => {
            parsed.run.program = Some(word.into());
            parsed.run.arguments.extend(parser.raw_args()?);
            return Ok(false);
        }
        Some(Arg::Value(word)) => return parsed.take_word(word).map(|()| true),
        Some(Arg::Long(name)) => {
            let fits = |flag: &&Flag| {
                flag.long == name
                    && (flag.of.is_empty()
                        || parsed.command.is_some_and(|command| flag.of.contains(&command)))
            };
            // An option of another command is recognised here and refused later.
            let any = || flags().find(|flag| flag.long == name);
            (flags().find(fits).or_else(any), format!("--{name}"))
        }
        Some(Arg::Short(name)) => {
            (flags().find(|flag| flag.short == Some(name)), format!("-{name}"))
        }
    };
    let flag = flag.ok_or(UsageError::UnknownFlag(written))?;
    parsed.used.push(flag);
    let value = match &flag.takes {
        Takes::Nothing(set) => {
            set(parsed);
            None
        }
        Takes::Value(_, set) => {
            let value = parser.value()?;
            set(parsed, &value)?;
            Some(value)
        }
        Takes::File(set) => {
            let value = parser.value()?;
            set(parsed, PathBuf::from(&value));
            Some(value)
        }
        Takes::Optional(_, set) => {
            let value = parser.optional_value();
            set(parsed, value.as_deref());
            value
        }
    };
    parsed.options.push((flag.long, value));
    Ok(true)
}

impl Parsed {
    /// Takes a word. The first word is the command, which decides what the other words are.
    fn take_word(&mut self, word: OsString) -> Result<(), UsageError> {
        match self.command {
            None => {
                let command = COMMANDS.iter().find(|(name, ..)| word == **name);
                self.command =
                    Some(command.ok_or_else(|| UsageError::UnknownCommand(lossy(&word)))?.1);
            }
            Some(Command::See(verb)) if self.words.len() <= verb.words_min() => {
                self.words.push(word);
            }
            Some(Command::Check | Command::Test) => self.words.push(word),
            Some(Command::Cluster) if self.words.len() < 2 => self.words.push(word),
            Some(Command::Repl) if self.words.is_empty() => self.words.push(word),
            Some(
                Command::Trial
                | Command::Run
                | Command::Node
                | Command::Cluster
                | Command::Repl
                | Command::Annotations
                | Command::See(_),
            ) => {
                return Err(UsageError::Word(lossy(&word)));
            }
        }
        Ok(())
    }
}

/// Returns a word that must be in UTF-8.
fn text(word: OsString) -> Result<String, UsageError> {
    word.into_string().map_err(|word| UsageError::Word(lossy(&word)))
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
