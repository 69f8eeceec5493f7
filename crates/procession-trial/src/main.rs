//! The trial as a program of its own, which takes no arguments. `procession trial` has options.
//!
//! # Exit codes
//! | code | meaning |
//! |---|---|
//! | 0 | every promise was kept, or the reader of the output went away |
//! | 1 | a promise was broken, the trial could not be held, or the output was not written |
//! | 2 | an argument was given |
//! | 130, 143 | a second SIGINT or SIGTERM ended the program immediately |
#![deny(unsafe_code)]

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use procession_trial::{TrialArgs, TrialError, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(argument) = std::env::args_os().nth(1) {
        tell(&format!("unexpected argument {argument:?}: see procession trial --help"));
        return 2.into();
    }
    // Not locked: another thread writes what goes wrong.
    match run(&TrialArgs::default(), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(TrialError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            tell(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn tell(text: &str) {
    // Ignored: if standard error is closed, the exit code must do.
    let _ = writeln!(io::stderr(), "procession-trial: {text}");
}
