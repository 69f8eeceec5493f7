//! `poll(2)` for descriptors that may not be open.
//!
//! ## Invariants
//! - `[transparent]` a [`PollFd`] is laid out as a `pollfd`.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::Duration;

use mio::Interest;

use super::queue::{EventQueue, READS};
use crate::sys::World;
use crate::sys::poll::PollFd;

/// The peer of a stream has shut down its write direction.
#[cfg(target_os = "linux")]
pub(crate) const RDHUP: i16 = libc::POLLRDHUP;
/// There is no such flag.
#[cfg(not(target_os = "linux"))]
pub(crate) const RDHUP: i16 = 0;

/// Makes the system's call, which counts milliseconds. A longer timeout takes several calls.
pub(crate) fn ask(descriptors: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    let until =
        timeout.map(|timeout| World::real_now().saturating_add(crate::sys::nanoseconds(timeout)));
    loop {
        let left = until.map(|until| until.saturating_sub(World::real_now()));
        let whole =
            left.map_or(-1, |left| i32::try_from(left.div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let count = descriptors.len() as libc::nfds_t;
        // SAFETY: [transparent] the pointer and `count` describe a slice of `pollfd`s.
        let answered = unsafe { libc::poll(descriptors.as_mut_ptr().cast(), count, whole) };
        let answered = usize::try_from(answered).map_err(|_| io::Error::last_os_error())?;
        if answered > 0 || whole != i32::MAX {
            return Ok(answered);
        }
    }
}

/// The number of reports that are taken out of a set at a time.
const BATCH_MAX: usize = 16;

/// A descriptor that becomes readable once one of several descriptors may have a report.
pub(crate) struct PollSet(EventQueue);

impl PollSet {
    /// Opens a set without descriptors. Takes two descriptors.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(EventQueue::open(BATCH_MAX)?))
    }

    /// Adds a descriptor, for some of the flags of `poll`.
    pub(crate) fn add(&self, descriptor: RawFd, events: i16) -> io::Result<()> {
        const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;
        // Errors and hang-ups are events of both directions.
        let interest = match (events & WRITE != 0, events & !WRITE != 0) {
            (true, false) => Interest::WRITABLE,
            (false, true) => READS,
            _ => READS.add(Interest::WRITABLE),
        };
        match self.0.add(descriptor, 0, interest) {
            // A file, which is always ready for everything it can be ready for, so `ask` has found
            // that nothing else was asked for. Or a descriptor that was just closed, which the next
            // call reports.
            Err(error)
                if error.kind() == ErrorKind::PermissionDenied
                    || error.raw_os_error() == Some(libc::EBADF) =>
            {
                Ok(())
            }
            added => added,
        }
    }

    /// Takes the reports up to now out of the set, before they are asked for. The set becomes
    /// readable again with the next report.
    pub(crate) fn settle(&self) {
        let mut is_empty = false;
        while !is_empty {
            is_empty = true;
            // Ignored: the caller asks in any case.
            let _ = self.0.drain(usize::MAX, |_| is_empty = false);
        }
    }
}

impl AsFd for PollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
