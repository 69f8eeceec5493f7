//! The help, derived from the table of flags.

use std::fmt::Write;

use crate::flags::commands::{COMMANDS, Command};
use crate::flags::table::{Flag, Takes};
use crate::see::args::Verb;

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
programs may call, and programs/ has examples. The program may use no files, sockets and
variables of the environment, unless an option allows it. For PROGRAM.lua, - is standard
input.

The first SIGINT or SIGTERM shuts the program down in order. The second ends it
immediately.

Usage: procession run [OPTION]... PROGRAM.lua [ARGUMENT]...
";

const ABOUT_NODE: &str = "\
Runs a program in Lua as run does, as a node of a cluster of Erlang, Elixir and Procession
nodes. Its processes with registered names can be reached from the other nodes, and it
reaches theirs by the functions of `node` (docs/LUA.md). docs/CLUSTER.md has the rest.

The node listens on this machine only, unless --listen says otherwise. Then it needs
certificates, or --accept-plain-text.

Usage: procession node --name WORD@HOST [OPTION]... PROGRAM.lua [ARGUMENT]...
";

const ABOUT_CLUSTER: &str = "\
Asks a node of this kind, which must permit it by --grant-look: its connections, what waits
to be sent and for how long, what was refused and denied, the times of round trips, and how
connections have ended; groups, owners of names, and singletons. NODE is word@host, or
word@host:PORT if no EPMD is to be asked.

Usage: procession cluster status [OPTION]... NODE
";

const ABOUT_CHECK: &str = "\
Checks programs in Lua without running them. Prints a line for each mistake: a global that
nothing defines, a function that the library does not have, a wrong number of arguments for
a function of the library, a process with a function that the program does not have.

Usage: procession check [OPTION]... PROGRAM.lua...
";

const ABOUT_TEST: &str = "\
Runs the tests in programs in Lua: global functions with names that begin with test_. In a
folder, these are the files with names that end with _test.lua. Each test is a process on a
scheduler of its own with a clock that moves only while nothing can run. The same seed gives
the same outcome.

With --sim, a test runs once with each of many seeds, with one to four workers on a simulated
system. A failure is made short, and printed with a line that replays it.

Usage: procession test [OPTION]... PATH...
";

const ABOUT_REPL: &str = "\
Evaluates lines of Lua in a process, until the end of the input or a signal. The lines may
use the functions of the program, if one is given, and those of docs/LUA.md.

Usage: procession repl [OPTION]... [PROGRAM.lua]
";

const ABOUT_ANNOTATIONS: &str = "\
Prints declarations of the functions that programs in Lua may call. A file with them in the
workspace lets the Lua language server complete and check these functions.

Usage: procession annotations
";

const EXIT_CODES: &str = "
Exit codes:
  0    success, also if the reader of the output went away, or if one signal asked for the
       end
  1    a promise was broken, a program or a test failed, a mistake was found, something
       could not run, or the output was not written
  2    the command line is invalid
  130  a second SIGINT ended the program immediately
  143  a second SIGTERM ended the program immediately
";

/// Returns the help, or the help of a command. `flags` are all options.
pub(super) fn help(of: Option<Command>, flags: impl Iterator<Item = &'static Flag>) -> String {
    let mut text = String::from(match of {
        None => ABOUT,
        Some(Command::Trial) => ABOUT_TRIAL,
        Some(Command::Run) => ABOUT_RUN,
        Some(Command::Node) => ABOUT_NODE,
        Some(Command::Cluster) => ABOUT_CLUSTER,
        Some(Command::Check) => ABOUT_CHECK,
        Some(Command::Test) => ABOUT_TEST,
        Some(Command::Repl) => ABOUT_REPL,
        Some(Command::Annotations) => ABOUT_ANNOTATIONS,
        Some(Command::See(verb)) => return help_of_see(verb, flags),
    });
    if of.is_none() {
        COMMANDS.iter().for_each(|(name, _, what)| row(&mut text, name, what));
    }
    options(&mut text, of, flags);
    text + EXIT_CODES
}

fn help_of_see(verb: Verb, flags: impl Iterator<Item = &'static Flag>) -> String {
    let words = verb.words();
    let mut text =
        format!("{}\nUsage: procession {}{words} [OPTION]...\n", verb.about(), verb.name());
    text.push_str(ABOUT_TARGET);
    options(&mut text, Some(Command::See(verb)), flags);
    text + EXIT_CODES
}

fn options(text: &mut String, of: Option<Command>, flags: impl Iterator<Item = &'static Flag>) {
    text.push_str("\nOptions:\n");
    let is_of =
        |flag: &&'static Flag| flag.of.is_empty() || of.is_some_and(|of| flag.of.contains(&of));
    let rows: Vec<(String, &str)> =
        flags.filter(is_of).map(|flag| (written(flag), flag.help)).collect();
    let width = rows.iter().map(|(left, _)| left.len()).fold(WIDTH, usize::max);
    for (left, help) in rows {
        writeln!(text, "  {left:<width$} {help}").expect("a string has room");
    }
}

/// Returns an option with its value, as it is written.
fn written(flag: &Flag) -> String {
    let short = flag.short.map_or(String::from("    "), |short| format!("-{short}, "));
    let value = match flag.takes {
        Takes::Nothing(_) => String::new(),
        Takes::File(_) => " FILE".to_owned(),
        Takes::Value(name, _) => format!(" {name}"),
        Takes::Optional(name, _) => format!("[={name}]"),
    };
    format!("{short}--{}{value}", flag.long)
}

/// The width of the left column, in characters.
const WIDTH: usize = 18;

fn row(text: &mut String, left: &str, right: &str) {
    writeln!(text, "  {left:<WIDTH$} {right}").expect("a string has room");
}

const ABOUT_TARGET: &str = "
TARGET chooses the program: its name, its number in the system, the name of its scheduler,
or the path of its socket. Without one, the only program with a door is taken. A program
opens its door by Builder::door, or by the environment variable PROCESSION_DOOR=1 if
it has the feature.
";
