//! `poll` over several descriptors, in blocking style.
//!
//! A coroutine that has to wait makes an `epoll` descriptor of its own for the time of the call, adds what it asks about, and registers that one
//! with its scheduler, so the descriptors themselves keep their mode and their registrations, and may be asked about by others too. Each
//! time it becomes readable the kernel is asked again by `poll`, whose answer is the answer: flags and count are the system's by construction.
//!
//! # Rejected
//! - Registering each descriptor with the scheduler's own poller: one that it knows already, such as that of a socket, is refused, and the flags
//!   would have to be made out of read and write.

use std::io;
use std::ops::BitOr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use rustix::event::epoll;

use super::io::{Done, Io, Side};
use crate::coroutine;

/// What is asked about a descriptor, and what is answered: the flags of `poll(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PollFlags(i16);

impl PollFlags {
    /// None.
    pub const EMPTY: Self = Self(0);
    /// There is something to read.
    pub const IN: Self = Self(libc::POLLIN);
    /// There is something exceptional, such as urgent data of TCP.
    pub const PRI: Self = Self(libc::POLLPRI);
    /// There is room to write.
    pub const OUT: Self = Self(libc::POLLOUT);
    /// The peer of a stream has ended its direction.
    pub const RDHUP: Self = Self(libc::POLLRDHUP);
    /// An error; answered without being asked for.
    pub const ERR: Self = Self(libc::POLLERR);
    /// Hung up; answered without being asked for.
    pub const HUP: Self = Self(libc::POLLHUP);
    /// No such descriptor is open; answered without being asked for.
    pub const NVAL: Self = Self(libc::POLLNVAL);

    /// Of the system's bits.
    pub const fn from_bits(bits: i16) -> Self {
        Self(bits)
    }

    /// The system's bits.
    pub const fn bits(self) -> i16 {
        self.0
    }

    /// Whether none is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` are set.
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

/// A descriptor for [`poll`], with what is asked, and what was answered.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct PollFd(libc::pollfd);

impl PollFd {
    /// Asks for `events` of a descriptor. Nothing is done with it but asking, so it need not be open; a negative one is passed over.
    pub const fn new(descriptor: RawFd, events: PollFlags) -> Self {
        Self(libc::pollfd { fd: descriptor, events: events.0, revents: 0 })
    }

    /// The descriptor.
    pub const fn descriptor(&self) -> RawFd {
        self.0.fd
    }

    /// What is asked.
    pub const fn events(&self) -> PollFlags {
        PollFlags(self.0.events)
    }

    /// What the last [`poll`] answered.
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

/// Waits until one of several descriptors is ready, for at most `patience`; `None` is for ever. Says how many have an answer, which is then in
/// their [`PollFd::answer`]; none once the time has passed.
///
/// The rules are those of `poll(2)`: a descriptor that is not open is answered with [`PollFlags::NVAL`], a negative one is passed over, and
/// [`PollFlags::ERR`] and [`PollFlags::HUP`] are answered without being asked for. Negative ones alone, or none at all, make it a sleep. One may
/// be there several times.
///
/// ```
/// use std::io::Write;
/// use std::os::fd::AsRawFd;
/// use std::os::unix::net::UnixStream;
/// use procession::net::{PollFd, PollFlags, poll};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // SAFETY: the coroutine holds no thread-local pointer that is scoped to a frame across a suspension.
/// let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// let (mut there, here) = UnixStream::pair()?;
/// let (_silent, other) = UnixStream::pair()?;
/// let waits = scheduler.spawn_coroutine(move |_: procession::co::Context<()>| {
///     let mut both = [&here, &other].map(|one| PollFd::new(one.as_raw_fd(), PollFlags::IN));
///     poll(&mut both, None).map(|count| (count, both.map(|one| one.answer())))
/// })?;
/// there.write_all(b"!")?;
/// assert_eq!(waits.join()??, (1, [PollFlags::IN, PollFlags::EMPTY]));
/// # Ok(())
/// # }
/// ```
///
/// # Blocking
/// A coroutine is suspended. Outside of coroutines, and where one cannot be suspended, this is the system's call, in a process as a
/// [blocking section](crate::blocking). If the system has no descriptor left to wait by, a coroutine does the same.
///
/// # Cancellation
/// A coroutine that is cancelled or terminated unwinds from here; nothing stays registered.
///
/// # Errors
/// The system's: too many descriptors (`InvalidInput`); outside of coroutines a signal has come (`Interrupted`). The scheduler has ended.
pub fn poll(descriptors: &mut [PollFd], patience: Option<Duration>) -> io::Result<usize> {
    if patience == Some(Duration::ZERO) {
        return ask(descriptors, patience);
    }
    if !coroutine::may_suspend() {
        return crate::blocking(|| ask(descriptors, patience));
    }
    let count = ask_at_once(descriptors)?;
    if count > 0 {
        return Ok(count);
    }
    if descriptors.iter().all(|one| one.0.fd < 0) {
        match patience {
            Some(patience) => coroutine::sleep(patience),
            None => coroutine::wait(std::future::pending()),
        }
        return Ok(0);
    }
    // Nothing of the time has been used up, so whatever the system refuses, it can still be asked to wait itself.
    let Ok(together) = watch(descriptors).and_then(Io::new) else {
        return crate::blocking(|| ask(descriptors, patience));
    };
    let answered = coroutine::wait(together.run_within(Side::Read, patience, |_| match ask_at_once(descriptors)? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        count => Ok(Done::whole(count)),
    }));
    match answered {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => ask_at_once(descriptors),
        answered => answered,
    }
}

/// The system's call.
fn ask(descriptors: &mut [PollFd], patience: Option<Duration>) -> io::Result<usize> {
    // Longer than any program runs is for ever.
    let patience = patience.and_then(|patience| {
        let tv_sec = libc::time_t::try_from(patience.as_secs()).ok()?;
        Some(libc::timespec { tv_sec, tv_nsec: patience.subsec_nanos().into() })
    });
    let patience = patience.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = descriptors.len() as libc::nfds_t;
    // SAFETY: [transparent] the slice is one of `pollfd`s, of that length; the time is there for the call, and there is no signal mask.
    let answered = unsafe { libc::ppoll(descriptors.as_mut_ptr().cast(), count, patience, ptr::null()) };
    usize::try_from(answered).map_err(|_| io::Error::last_os_error())
}

fn ask_at_once(descriptors: &mut [PollFd]) -> io::Result<usize> {
    ask(descriptors, Some(Duration::ZERO))
}

/// A descriptor that becomes readable when there may be an answer for one of `descriptors`.
fn watch(descriptors: &[PollFd]) -> io::Result<OwnedFd> {
    let together = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut asked: Vec<_> = descriptors.iter().map(|one| (one.0.fd, one.0.events)).filter(|one| one.0 >= 0).collect();
    // One that is there several times is added once, with all that is asked about it.
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

/// The flags of `poll` that `epoll` has, with the same values; its others change what it does.
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
    // SAFETY: the event is there for the call, and descriptors are only numbers to it.
    let added = unsafe { libc::epoll_ctl(together.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event) };
    if added == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // A file, which is always ready for what it can be ready for, so nothing else was asked; or one closed meanwhile, which the next look
        // answers.
        Some(libc::EPERM | libc::EBADF) => Ok(()),
        _ => Err(error),
    }
}
