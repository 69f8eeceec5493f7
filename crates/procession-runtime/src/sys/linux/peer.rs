//! The user at the other end of a Unix socket.
//!
//! ## Invariants
//! - `[plain]` `ucred` of the C library is three numbers, and every value is valid.
//!
//! # Rejected
//! - `socket_peercred` of rustix: its PID cannot be 0, but the kernel returns 0 for a process that
//!   this program cannot see, for example one outside of its container.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the PID, if this program can see the process, the effective user and the effective
/// group.
pub(crate) fn credentials(socket: BorrowedFd<'_>) -> io::Result<(Option<u32>, u32, u32)> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let descriptor = socket.as_raw_fd();
    let value = (&raw mut credentials).cast();
    // SAFETY: [plain] the kernel writes at most `length` bytes, which is the size of the value.
    let result = unsafe {
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = u32::try_from(credentials.pid).ok().filter(|&pid| pid != 0);
    Ok((pid, credentials.uid, credentials.gid))
}
