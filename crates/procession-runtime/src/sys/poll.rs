//! `poll(2)` and `epoll_ctl(2)` for descriptors that may not be open.
//!
//! ## Invariants
//! - `[transparent]` a [`PollFd`] is laid out as a `pollfd`.

use std::io;
use std::ops::BitOr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// The conditions that [`poll`](crate::net::poll) asks for and reports about a descriptor: the
/// flags of `poll(2)`.
///
/// Combine flags with `|`.
///
/// ```
/// use procession::net::PollFlags;
///
/// let flags = PollFlags::IN | PollFlags::OUT;
/// assert!(flags.contains(PollFlags::IN) && !flags.contains(PollFlags::HUP));
/// assert!(PollFlags::EMPTY.is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PollFlags(i16);

impl PollFlags {
    /// No flags.
    pub const EMPTY: Self = Self(0);
    /// There is data to read.
    pub const IN: Self = Self(libc::POLLIN);
    /// There is an exceptional condition, such as urgent TCP data.
    pub const PRI: Self = Self(libc::POLLPRI);
    /// There is room to write.
    pub const OUT: Self = Self(libc::POLLOUT);
    /// The peer of a stream has shut down its write direction.
    pub const RDHUP: Self = Self(libc::POLLRDHUP);
    /// The descriptor has an error. Reported even if it is not asked for.
    pub const ERR: Self = Self(libc::POLLERR);
    /// The peer has hung up. Reported even if it is not asked for.
    pub const HUP: Self = Self(libc::POLLHUP);
    /// The descriptor is not open. Reported even if it is not asked for.
    pub const NVAL: Self = Self(libc::POLLNVAL);

    /// Creates flags from the system's bits.
    pub const fn from_bits(bits: i16) -> Self {
        Self(bits)
    }

    /// Returns the system's bits.
    pub const fn bits(self) -> i16 {
        self.0
    }

    /// Returns `true` if no flag is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns `true` if all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for PollFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A descriptor for [`poll`](crate::net::poll), with the flags to ask for and the flags that were
/// reported.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct PollFd(libc::pollfd);

impl PollFd {
    /// Creates an entry that asks for `events` of a descriptor.
    ///
    /// The descriptor is only asked about, so it need not be open. A negative number is ignored.
    pub const fn new(descriptor: RawFd, events: PollFlags) -> Self {
        Self(libc::pollfd { fd: descriptor, events: events.0, revents: 0 })
    }

    /// Returns the descriptor.
    pub const fn descriptor(&self) -> RawFd {
        self.0.fd
    }

    /// Returns the flags that are asked for.
    pub const fn events(&self) -> PollFlags {
        PollFlags(self.0.events)
    }

    /// Returns the flags that the last [`poll`](crate::net::poll) reported.
    pub const fn answer(&self) -> PollFlags {
        PollFlags(self.0.revents)
    }
}

impl std::fmt::Debug for PollFd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollFd")
            .field("descriptor", &self.descriptor())
            .field("events", &self.events())
            .field("answer", &self.answer())
            .finish()
    }
}

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

/// Adds a descriptor to an `epoll` descriptor, for some of the flags of `poll`.
pub(crate) fn add(together: &OwnedFd, descriptor: RawFd, events: i16) -> io::Result<()> {
    let mut event = libc::epoll_event { events: (events & SHARED) as u32, u64: 0 };
    // SAFETY: the event outlives the call, and `epoll_ctl` takes any number as a descriptor.
    let added = unsafe {
        libc::epoll_ctl(together.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
    };
    if added == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // A file, which is always ready for everything it can be ready for, so `ask_at_once` has
        // found that nothing else was asked for. Or a descriptor that was just closed, which the
        // next call reports.
        Some(libc::EPERM | libc::EBADF) => Ok(()),
        _ => Err(error),
    }
}
