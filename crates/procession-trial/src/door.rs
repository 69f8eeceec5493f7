//! The doors of a command's own schedulers.

use std::io::{self, Write};

use procession::Scheduler;
use procession::observe::DoorOptions;
use procession::scheduler::{BuildError, Builder};

/// Builds a scheduler with a door. If the door is refused, reports why on standard error, and
/// continues without a door.
///
/// # Errors
/// The scheduler is refused.
pub fn build_with_door(
    builder: impl Fn() -> Builder,
    options: DoorOptions,
) -> Result<Scheduler, BuildError> {
    match builder().door(options).build() {
        Err(BuildError::Door(error)) => {
            // Ignored: if standard error is closed, there is no reader for it.
            let _ = writeln!(io::stderr(), "procession: {error}");
            builder().no_door().build()
        }
        built => built,
    }
}
