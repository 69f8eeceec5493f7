//! `poll(2)` and `epoll_ctl(2)` for descriptors that may not be open.
//!
//! ## Invariants
//! - `[transparent]` a [`PollFd`] is laid out as a `pollfd`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use rustix::event::epoll;

use crate::sys::poll::PollFd;

/// The peer of a stream has shut down its write direction.
pub(crate) const RDHUP: i16 = libc::POLLRDHUP;

/// Makes the system's call.
pub(crate) fn ask(descriptors: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    // A timeout that the system cannot represent is longer than any program runs.
    let timeout = timeout.and_then(|timeout| {
        let tv_sec = libc::time_t::try_from(timeout.as_secs()).ok()?;
        Some(libc::timespec { tv_sec, tv_nsec: timeout.subsec_nanos().into() })
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = descriptors.len() as libc::nfds_t;
    // SAFETY: [transparent] the pointer and `count` describe a slice of `pollfd`s. `timeout` is
    // null or points to a value that outlives the call, and there is no signal mask.
    let answered =
        unsafe { libc::ppoll(descriptors.as_mut_ptr().cast(), count, timeout, ptr::null()) };
    usize::try_from(answered).map_err(|_| io::Error::last_os_error())
}

/// The flags of `poll` that `epoll` has, with the same values. The other flags of `epoll` change
/// its behaviour.
const SHARED: i16 = libc::POLLIN
    | libc::POLLPRI
    | libc::POLLOUT
    | libc::POLLRDNORM
    | libc::POLLRDBAND
    | libc::POLLWRNORM
    | libc::POLLWRBAND
    | libc::POLLRDHUP;

/// A descriptor that becomes readable once one of several descriptors may have a report.
pub(crate) struct PollSet(OwnedFd);

impl PollSet {
    /// Opens a set without descriptors. Takes a descriptor.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor, for some of the flags of `poll`.
    pub(crate) fn add(&self, descriptor: RawFd, events: i16) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (events & SHARED) as u32, u64: 0 };
        // SAFETY: the event outlives the call, and `epoll_ctl` takes any number as a descriptor.
        let added = unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
        };
        if added == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // A file, which is always ready for everything it can be ready for, so `ask` has found
            // that nothing else was asked for. Or a descriptor that was just closed, which the next
            // call reports.
            Some(libc::EPERM | libc::EBADF) => Ok(()),
            _ => Err(error),
        }
    }

    /// Takes the reports up to now out of the set, before they are asked for.
    pub(crate) fn settle(&self) {
        // There is nothing to take: the set asks the descriptors itself.
    }
}

impl AsFd for PollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
