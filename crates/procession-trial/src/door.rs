//! The doors of a command's own schedulers.

use std::io::{self, Write};

use procession::door::Observe;
use procession::scheduler::BuildError;
use procession::{Builder, Scheduler};

/// Builds a scheduler with a door. If the door is refused, reports why on standard error, and
/// continues without a door.
///
/// # Errors
/// The scheduler is refused.
pub fn build_with_door(
    builder: impl Fn() -> Builder,
    observe: Observe,
) -> Result<Scheduler, BuildError> {
    match builder().observe(observe).build() {
        Err(BuildError::Observe(error)) => {
            // Ignored: if standard error is closed, there is no reader for it.
            let _ = writeln!(io::stderr(), "procession: {error}");
            builder().no_observe().build()
        }
        built => built,
    }
}
