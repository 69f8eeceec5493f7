//! The trial with its default options, for a reader of a fresh clone: it builds neither Lua nor the
//! cluster. `procession trial` is the same, and has options.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use procession_trial::{TrialArgs, TrialError, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Not locked, because another thread writes what goes wrong.
    match run(&TrialArgs::default(), &mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough.
        Err(TrialError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            // Ignored: if standard error is closed, the exit code must do.
            let _ = writeln!(io::stderr(), "trial: {error}");
            ExitCode::FAILURE
        }
    }
}
