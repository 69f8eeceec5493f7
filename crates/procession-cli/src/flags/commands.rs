//! The commands.

use crate::see::args::Verb;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Trial,
    Run,
    Node,
    Cluster,
    Check,
    Test,
    Repl,
    Annotations,
    See(Verb),
}

pub(super) const COMMANDS: [(&str, Command, &str); 22] = [
    ("trial", Command::Trial, "run a service while everything goes wrong, and judge it"),
    ("run", Command::Run, "run a program of processes in Lua"),
    ("node", Command::Node, "run a program in Lua as a node of an Erlang cluster"),
    ("cluster", Command::Cluster, "ask a node of a cluster for its status"),
    ("check", Command::Check, "find mistakes in programs in Lua"),
    ("test", Command::Test, "run tests that are written in Lua"),
    ("repl", Command::Repl, "evaluate lines of Lua in a process"),
    ("annotations", Command::Annotations, "print the library for the Lua language server"),
    ("top", Command::See(Verb::Top), "show what a running program does, again and again"),
    ("ps", Command::See(Verb::Ps), "list the processes of a running program"),
    ("tree", Command::See(Verb::Tree), "show the supervision tree of a running program"),
    ("crashes", Command::See(Verb::Crashes), "list the processes that failed, and why"),
    ("cycles", Command::See(Verb::Cycles), "list the processes that wait for one another"),
    ("leaks", Command::See(Verb::Leaks), "list the processes that can never continue"),
    ("stack", Command::See(Verb::Stack), "print where a process waits, or what its step does"),
    ("inspect", Command::See(Verb::Inspect), "print what a process shows of itself"),
    ("trace", Command::See(Verb::Trace), "print the headers of the next messages of a process"),
    ("dump", Command::See(Verb::Dump), "write the latest events of a running program to a file"),
    ("record", Command::See(Verb::Record), "record a running program for hours, in files"),
    ("suspend", Command::See(Verb::Suspend), "stop a process for a time, if the program allows it"),
    ("resume", Command::See(Verb::Resume), "let a process go on, if the program allows it"),
    (
        "kill",
        Command::See(Verb::Kill),
        "end a process of a running program, if the program allows it",
    ),
];
