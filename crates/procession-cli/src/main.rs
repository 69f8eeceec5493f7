//! The `procession` command. `flags.rs` parses the command line, `run.rs` does what it asks for.
//!
//! # Exit codes
//! | code | meaning |
//! |---|---|
//! | 0 | success, also if the reader of the output went away, or if one signal asked for the end |
//! | 1 | a promise was broken, a program or a test failed, a mistake was found, something could not run, or the output was not written |
//! | 2 | the command line is invalid |
//! | 130, 143 | a second SIGINT or SIGTERM ended the program immediately |
#![deny(unsafe_code)]

#[cfg(not(procession_loom))]
mod certificates;
#[cfg(not(procession_loom))]
mod flags;
#[cfg(not(procession_loom))]
mod node;
#[cfg(not(procession_loom))]
mod permissions;
mod program;
#[cfg(not(procession_loom))]
mod repl;
#[cfg(not(procession_loom))]
mod run;
#[cfg(not(procession_loom))]
mod see;
#[cfg(not(procession_loom))]
mod tools;
#[cfg(not(procession_loom))]
mod trial;
#[cfg(not(procession_loom))]
mod watch;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(not(procession_loom))]
fn main() -> std::process::ExitCode {
    use std::io::{self, Write};

    // Not locked: another thread writes what programs print.
    let mut out = io::stdout();
    let parsed = flags::parse(std::env::args_os().skip(1)).map_err(run::Failure::Usage);
    match parsed.and_then(|args| run::run(args, &mut out)) {
        Ok(()) => 0.into(),
        Err(failure) if failure.is_closed_pipe() => 0.into(),
        Err(failure @ run::Failure::Told) => failure.exit_code().into(),
        Err(failure) => {
            // Ignored: if standard error is closed, the exit code must do.
            let text = see::format::plain_lines(&failure);
            let _ = writeln!(io::stderr(), "procession: {text}");
            failure.exit_code().into()
        }
    }
}

/// A build for models has no runtime, so its command does nothing.
#[cfg(procession_loom)]
fn main() {}
