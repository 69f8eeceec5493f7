//! A descriptor that becomes readable when it is rung: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// Opens a bell that does not ring. Takes a descriptor.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable, until the bell is silenced.
    pub(crate) fn ring(&self) {
        // Ignored: it fails only after 2^64 - 2 rings without a silencing, and then the bell rings
        // already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Takes back all rings up to now.
    pub(crate) fn silence(&self) {
        // Ignored: another thread was faster, or the bell has not been rung.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
