//! The credentials of the process at the other end of a Unix socket.
//!
//! ## Invariants
//! - `[plain]` `ucred` of the C library is three numbers, and every value is valid.
//!
//! # Rejected
//! - `socket_peercred` of rustix: its PID cannot be 0, but the kernel returns 0 for a process that
//!   this program cannot see, for example one outside of its container.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// The user, the group and the PID of the process at the other end of a Unix socket, at the time
/// when it connected, listened, or made the pair.
///
/// The kernel vouches for them. A PID may belong to another process by now, so decide by the user
/// and the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    pid: Option<u32>,
    uid: u32,
    gid: u32,
}

impl UCred {
    /// Returns the PID of the process in the system, or `None` if this program cannot see the
    /// process.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Returns the effective user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the effective group.
    pub fn gid(&self) -> u32 {
        self.gid
    }
}

/// Returns the credentials of the peer of a Unix socket.
pub(crate) fn peer_cred(socket: impl AsFd) -> io::Result<UCred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    let value = (&raw mut credentials).cast();
    // SAFETY: [plain] the kernel writes at most `length` bytes, which is the size of the value.
    let result = unsafe {
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = u32::try_from(credentials.pid).ok().filter(|&pid| pid != 0);
    Ok(UCred { pid, uid: credentials.uid, gid: credentials.gid })
}
