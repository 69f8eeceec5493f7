//! The `procession` command. `flags.rs` parses the command line, `run.rs` does what it asks for.
//!
//! # Exit codes
//! | code | meaning |
//! |---|---|
//! | 0 | success, even if the reader of the output went away, or if one signal asked for the end |
//! | 1 | a broken promise, a failed program or test, a mistake, or output that was not written |
//! | 2 | the command line is invalid |
//! | 130, 143 | a second SIGINT or SIGTERM ended the program immediately |
#![deny(unsafe_code)]

mod certificates;
mod failure;
mod flags;
mod format;
mod node;
mod permissions;
mod program;
mod repl;
mod run;
mod see;
mod tools;
mod watch;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    use std::io::{self, Write};

    // Not locked: another thread writes what programs print.
    let mut out = io::stdout();
    let parsed = flags::parse(std::env::args_os().skip(1)).map_err(failure::Failure::from);
    match parsed.and_then(|args| run::run(args, &mut out)) {
        Ok(()) => 0.into(),
        Err(failure) if failure.is_closed_pipe() => 0.into(),
        Err(failure @ failure::Failure::Told) => failure.exit_code().into(),
        Err(failure) => {
            // Ignored: if standard error is closed, the exit code must do.
            let text = format::plain_lines(&failure);
            let _ = writeln!(io::stderr(), "procession: {text}");
            failure.exit_code().into()
        }
    }
}
