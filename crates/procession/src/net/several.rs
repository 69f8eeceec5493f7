//! `poll` over several descriptors, in blocking style.
//!
//! A coroutine that has to wait creates an `epoll` descriptor for the duration of the call. It adds
//! the descriptors it asks about to that one, and registers only that one with its scheduler. The
//! descriptors therefore keep their mode and their registrations, and other callers may ask about
//! them at the same time. Each time the `epoll` descriptor becomes readable, the coroutine asks the
//! kernel again with `poll` and returns its answer. The flags and the count are thus the system's
//! by construction.
//!
//! # Rejected
//! - Registering each descriptor with the scheduler's own poller. It refuses a descriptor that it
//!   already knows, such as that of a socket, and the flags would have to be derived from read and
//!   write readiness.

use std::io;
use std::ops::BitOr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use rustix::event::epoll;

use super::io::{Done, Io, Side};
use crate::coroutine;

/// The conditions that [`poll`] asks for and reports about a descriptor: the flags of `poll(2)`.
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

/// A descriptor for [`poll`], with the flags to ask for and the flags that were reported.
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

    /// Returns the flags that the last [`poll`] reported.
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

/// Waits until at least one of several descriptors is ready, for at most `timeout`.
///
/// `None` waits without a limit. Returns the number of descriptors with a report, which
/// [`PollFd::answer`] returns. Returns 0 if the timeout elapses first.
///
/// The rules are those of `poll(2)`. A descriptor that is not open is reported as
/// [`PollFlags::NVAL`]. A negative one is ignored. [`PollFlags::ERR`] and [`PollFlags::HUP`] are
/// reported even if they are not asked for. A list that is empty, or has only negative entries,
/// makes the call a sleep. The same descriptor may occur several times.
///
/// ```
/// use std::io::Write;
/// use std::os::fd::AsRawFd;
/// use std::os::unix::net::UnixStream;
/// use procession::net::{PollFd, PollFlags, poll};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // SAFETY: the coroutine keeps the residual rule: no thread-local refers to its frames, no frame
/// // refers to a thread-local, and every frame can be unwound.
/// let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// let (mut writer, reader) = UnixStream::pair()?;
/// let (_silent, other) = UnixStream::pair()?;
/// let waits = scheduler.spawn_coroutine(move |_: procession::co::Context<()>| {
///     let mut both = [&reader, &other].map(|one| PollFd::new(one.as_raw_fd(), PollFlags::IN));
///     poll(&mut both, None).map(|count| (count, both.map(|one| one.answer())))
/// })?;
/// writer.write_all(b"!")?;
/// assert_eq!(waits.join()??, (1, [PollFlags::IN, PollFlags::EMPTY]));
/// # Ok(())
/// # }
/// ```
///
/// # Blocking
/// Suspends a coroutine. Everywhere else, and where a coroutine cannot be suspended, this is the
/// system's blocking call; in a process it runs as a [blocking section](crate::blocking). A
/// coroutine also makes the blocking call if the system has no file descriptor left to wait with.
///
/// # Cancellation
/// A coroutine that is cancelled or terminated unwinds from here. Nothing stays registered.
///
/// # Errors
/// Returns the system's error, such as `InvalidInput` for too many descriptors. Outside of
/// coroutines, returns `Interrupted` if a signal arrives. Returns an error if the scheduler has
/// ended.
pub fn poll(descriptors: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    if timeout == Some(Duration::ZERO) {
        return ask(descriptors, timeout);
    }
    if !coroutine::may_suspend() {
        return crate::blocking(|| ask(descriptors, timeout));
    }
    let count = ask_at_once(descriptors)?;
    if count > 0 {
        return Ok(count);
    }
    if descriptors.iter().all(|one| one.0.fd < 0) {
        match timeout {
            Some(timeout) => coroutine::sleep(timeout),
            None => coroutine::wait(std::future::pending()),
        }
        return Ok(0);
    }
    // None of the timeout has been used yet. So whatever the system refuses here, the blocking call
    // can still wait for all of it.
    let Ok(together) = watch(descriptors).and_then(Io::new) else {
        return crate::blocking(|| ask(descriptors, timeout));
    };
    let answered =
        coroutine::wait(together.run_within(Side::Read, timeout, |_| {
            match ask_at_once(descriptors)? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                count => Ok(Done::whole(count)),
            }
        }));
    match answered {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => ask_at_once(descriptors),
        answered => answered,
    }
}

/// Makes the system's call.
fn ask(descriptors: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
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

fn ask_at_once(descriptors: &mut [PollFd]) -> io::Result<usize> {
    ask(descriptors, Some(Duration::ZERO))
}

/// Returns a descriptor that becomes readable once one of `descriptors` may have a report.
fn watch(descriptors: &[PollFd]) -> io::Result<OwnedFd> {
    let together = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut asked: Vec<_> =
        descriptors.iter().map(|one| (one.0.fd, one.0.events)).filter(|one| one.0 >= 0).collect();
    // A descriptor that occurs several times is added once, with all flags that are asked for.
    asked.sort_unstable();
    asked.dedup_by(|later, first| {
        let same = later.0 == first.0;
        first.1 |= if same { later.1 } else { 0 };
        same
    });
    for (descriptor, events) in asked {
        add(&together, descriptor, events)?;
    }
    Ok(together)
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

fn add(together: &OwnedFd, descriptor: RawFd, events: i16) -> io::Result<()> {
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
        // found that nothing else was asked for. Or a descriptor that was closed meanwhile, which
        // the next call reports.
        Some(libc::EPERM | libc::EBADF) => Ok(()),
        _ => Err(error),
    }
}
