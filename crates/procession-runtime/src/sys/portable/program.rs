//! What the system tells about this program, and gives it.
//!
//! ## Invariants
//! - `[asks]` The call of the C library has no arguments and changes nothing.

use std::fs::File;
use std::io::{self, Read};

/// Returns `true` if the program has more rights than its caller.
#[cfg(not(target_os = "linux"))]
pub(crate) fn has_more_rights() -> bool {
    // SAFETY: [asks]
    unsafe { libc::issetugid() != 0 }
}

/// The C libraries of Linux do not say.
#[cfg(target_os = "linux")]
pub(crate) fn has_more_rights() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};

    getuid() != geteuid() || getgid() != getegid()
}

/// Fills the buffer with bytes that nobody can guess.
pub(crate) fn fill_at_random(buffer: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(buffer)
}
