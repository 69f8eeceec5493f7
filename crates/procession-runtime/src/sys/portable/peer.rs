//! The user at the other end of a Unix socket. The C libraries of Linux do not have this call, so
//! the module of Linux is compiled there.
//!
//! ## Invariants
//! - `[two]` The C library writes two numbers to the addresses that it is given, and keeps no
//!   pointer to them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns no PID, the effective user and the effective group.
pub(crate) fn credentials(socket: BorrowedFd<'_>) -> io::Result<(Option<u32>, u32, u32)> {
    let (mut user, mut group) = (0, 0);
    // SAFETY: [two] both are variables of this function.
    let result = unsafe { libc::getpeereid(socket.as_raw_fd(), &raw mut user, &raw mut group) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((None, user, group))
}
