//! What `poll(2)` asks for and reports about descriptors that may not be open.

use std::ops::BitOr;
use std::os::fd::RawFd;

use crate::sys::system;
pub(crate) use crate::sys::system::poll::{PollSet, ask};

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
    /// The peer of a stream has shut down its write direction. Other systems than Linux do not
    /// report it, and there it is no flag.
    pub const RDHUP: Self = Self(system::poll::RDHUP);
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
