//! The credentials of the process at the other end of a Unix socket.

use std::io;
use std::os::fd::AsFd;

use crate::sys::system::peer;

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
    /// process. Systems other than Linux do not report it.
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
    let (pid, uid, gid) = peer::credentials(socket.as_fd())?;
    Ok(UCred { pid, uid, gid })
}
