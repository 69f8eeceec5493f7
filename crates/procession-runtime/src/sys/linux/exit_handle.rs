//! A descriptor that becomes readable when a process has ended: a pidfd.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Opens the descriptor for a child, before its status was asked for.
pub(crate) fn open(child: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(child, PidfdFlags::empty())?)
}
