//! The command from outside: arguments go in; standard output, standard error and the exit code
//! come out.

mod layers;
mod node;
mod programs;
mod record;
mod see;
mod tls;
mod tools;
mod trial;
mod wall;

use std::io::pipe;
use std::process::{Command, Stdio};

fn procession(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_procession"));
    command.args(arguments.split_whitespace());
    command
}

/// Runs the command, and compares all of its output.
fn check(arguments: &str, expected: &str) {
    let output = procession(arguments).output().expect("the command can be started");
    let said = format!(
        "{}{}exit code: {}\n",
        String::from_utf8(output.stdout).expect("the output is text"),
        String::from_utf8(output.stderr).expect("the errors are text"),
        output.status.code().expect("it was not killed"),
    );
    assert_eq!(said, expected, "procession {arguments}, which said:\n{said}");
}

#[test]
fn help_tells_commands_and_exit_codes() {
    check("--help", include_str!("snapshots/help.txt"));
    check("-h", include_str!("snapshots/help.txt"));
}

#[test]
fn help_of_trial_tells_what_it_does() {
    check("trial --help", include_str!("snapshots/trial_help.txt"));
}

#[test]
fn help_of_run_tells_what_it_does() {
    check("run --help", include_str!("snapshots/run_help.txt"));
}

#[test]
fn help_is_heard_beside_mistakes() {
    check(
        "trial --seconds many nonsense --nonsense --seconds=3 -h",
        include_str!("snapshots/trial_help.txt"),
    );
    check("nonsense --help", include_str!("snapshots/help.txt"));
}

#[test]
fn version() {
    check("--version", &format!("procession {}\nexit code: 0\n", env!("CARGO_PKG_VERSION")));
    check("trial -V", &format!("procession {}\nexit code: 0\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    check(
        "",
        "procession: no command given: the commands are trial, run, node, cluster, check, test, repl, annotations, top, ps, tree, crashes, cycles, leaks, stack, inspect, trace, dump, record, suspend, resume, kill; see --help\nexit code: 2\n",
    );
    check(
        "bunch",
        "procession: unknown command 'bunch': the commands are trial, run, node, cluster, check, test, repl, annotations, top, ps, tree, crashes, cycles, leaks, stack, inspect, trace, dump, record, suspend, resume, kill\nexit code: 2\n",
    );
    check("run --stats", "procession: no program given: see run --help\nexit code: 2\n");
    check(
        "run nowhere.lua",
        "procession: cannot read nowhere.lua: No such file or directory (os error 2)\nexit code: 1\n",
    );
    // A path may hold anything, and must not change the terminal.
    for command in ["run", "check", "test"] {
        check(
            &format!("{command} no\u{1b}[31m\u{202e}where.lua"),
            "procession: cannot read no\\u{1b}[31m\\u{202e}where.lua: No such file or directory (os error 2)\nexit code: 1\n",
        );
    }
    check("trial spawn", "procession: unexpected word 'spawn': see --help\nexit code: 2\n");
    check(
        "run --seconds 3",
        "procession: the option '--seconds' belongs to another command: see --help\nexit code: 2\n",
    );
    check("trial --second 3", "procession: unknown option '--second': see --help\nexit code: 2\n");
    check("trial -x", "procession: unknown option '-x': see --help\nexit code: 2\n");
    check(
        "run --stats=3",
        "procession: unexpected argument for option '--stats': \"3\"\nexit code: 2\n",
    );
    check("trial --seconds", "procession: missing argument for option '--seconds'\nexit code: 2\n");
}

#[test]
fn a_number_of_seconds_is_checked() {
    for (flag, value) in
        [("--seconds", "0"), ("--seconds", "3601"), ("--deadline", "-1"), ("--deadline", "soon")]
    {
        check(
            &format!("trial {flag} {value}"),
            &format!(
                "procession: invalid value '{value}' of option '{flag}': it must be a whole number of seconds from 1 to \
                 3600\nexit code: 2\n"
            ),
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for arguments in ["--help", "annotations"] {
        let (reader, writer) = pipe().expect("the system gives a pipe");
        drop(reader);
        let output = procession(arguments).stdout(writer).stderr(Stdio::piped()).spawn();
        let output =
            output.and_then(|child| child.wait_with_output()).expect("the command can be started");
        assert!(output.status.success(), "procession {arguments}: {}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "procession {arguments}");
    }
}

#[test]
fn an_output_that_takes_nothing_is_a_failure() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("there is a device that is always full");
    let output = procession("--version").stdout(full).stderr(Stdio::piped()).spawn();
    let output =
        output.and_then(|child| child.wait_with_output()).expect("the command can be started");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "procession: cannot write to standard output: No space left on device (os error 28)\n"
    );
}
