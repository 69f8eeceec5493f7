//! A descriptor that becomes readable when it is rung: one end of a pair of sockets.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

#[derive(Debug)]
pub(crate) struct Bell {
    rope: UnixStream,
    rung: UnixStream,
}

impl Bell {
    /// Opens a bell that does not ring. Takes two descriptors.
    pub(crate) fn open() -> io::Result<Self> {
        let (rope, rung) = UnixStream::pair()?;
        rope.set_nonblocking(true)?;
        rung.set_nonblocking(true)?;
        Ok(Self { rope, rung })
    }

    /// Makes the descriptor readable, until the bell is silenced.
    pub(crate) fn ring(&self) {
        // Ignored: it fails if the buffer is full, and then the bell rings already.
        let _ = (&self.rope).write(&[1]);
    }

    /// Takes back all rings up to now.
    pub(crate) fn silence(&self) {
        // More than the number of threads that usually ring at the same time, so one call is
        // usually enough.
        let rings = &mut [0; 64];
        // An error means that another thread was faster, or that the bell has not been rung.
        while matches!((&self.rung).read(rings), Ok(count) if count == rings.len()) {}
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rung.as_fd()
    }
}
