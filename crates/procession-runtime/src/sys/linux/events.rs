//! epoll, and the bell in it.
//!
//! # Rejected
//! - `epoll_pwait2`, for timeouts finer than a millisecond. Kernels before 5.11 and some
//!   system-call filters refuse it, and some of these filters kill the program. It would need a
//!   probe and a second way for these kernels. `rustix` offers it only with a feature that would
//!   apply to all other crates of the program. `ppoll` on the epoll descriptor takes nanoseconds on
//!   every kernel. A wait with a deadline that ends by an event costs one more call, of 0.1 us. A
//!   wait that ends by its deadline, or has no deadline, costs no more.
//! - A timerfd: 0.4 us for each deadline, and a descriptor.
//! - Few events per call for a busy worker: 32. (Users of tokio found 1024 more than needed, and 8
//!   enough.) Ready descriptors then wait in the kernel's list, and when it is the turn of a
//!   socket, no cache contains the socket any more. With 256, a worker continues with the sockets
//!   that its own last steps have made ready. With 1000 connections on one CPU, a round trip took
//!   18.2 us with 32 and 14.0 to 14.5 us with 256; on two CPUs, it took 0.83 of the time. The price
//!   is less even latency: on two CPUs, p99 was 12 to 15 ms with 32, and 28 to 35 ms with 256, as
//!   with tokio. The worker's fairness, and not this number, bounds how long other work is
//!   deferred.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use procession_protocols::io::readiness::{DescriptorToken, ReadyEvent};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::bell::Bell;

/// Maximum number of events per call. Further events come with the next call. A FIFO ring has room
/// for as many processes.
const BATCH_MAX: usize = 256;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The token of the bell, which no descriptor has.
const BELL: u64 = u64::MAX;

/// Urgent data is an event.
pub(crate) const REPORTS_URGENT_DATA: bool = true;

/// The changes of a descriptor that are events. Errors and hang-ups always are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventMask(epoll::EventFlags);

impl EventMask {
    /// Something to read, or the end of the stream, and no urgent data.
    pub(crate) const READ: Self = Self(epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP));
    pub(crate) const WRITE: Self = Self(epoll::EventFlags::OUT);
    /// Also urgent data.
    pub(crate) const BOTH: Self =
        Self(Self::READ.0.union(Self::WRITE.0).union(epoll::EventFlags::PRI));
}

/// An epoll instance with its bell.
pub(crate) struct Kernel {
    epoll: OwnedFd,
    bell: Bell,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

impl Kernel {
    /// Opens an epoll instance and its bell. Takes two descriptors.
    pub(in crate::sys) fn open() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Bell::open()?;
        // Level-triggered, so that a thread that polls in passing does not take the ring away from
        // the waiting thread, which may be about to enter the kernel. The waiting thread silences
        // the bell once it returns.
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Self { epoll, bell })
    }

    /// Registers a descriptor. From now on each of its changes is an event with this token.
    pub(crate) fn register(
        &self,
        descriptor: BorrowedFd<'_>,
        token: DescriptorToken,
        mask: EventMask,
    ) -> io::Result<()> {
        let flags = mask.0 | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token.raw()), flags)?)
    }

    /// Ends the registration of a descriptor.
    pub(crate) fn deregister(&self, descriptor: BorrowedFd<'_>) {
        // Ignored: it fails if the descriptor is not registered, which is the wanted state.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Wakes the thread that waits, or else the next thread that will wait.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Waits as [`wait`](Self::wait) does, on a real thread.
    pub(in crate::sys) fn wait_in_kernel(
        &self,
        timeout: Option<Duration>,
        events: &mut Vec<ReadyEvent>,
    ) -> io::Result<()> {
        let waits = timeout != Some(Duration::ZERO);
        let at_once = match timeout {
            None => None,
            Some(Duration::ZERO) => Some(&AT_ONCE),
            Some(timeout) => {
                let fds = &mut [PollFd::from_borrowed_fd(self.epoll.as_fd(), PollFlags::IN)];
                // A timeout that the kernel cannot represent is longer than any program runs.
                let timeout = Timespec::try_from(timeout).ok();
                match poll(fds, timeout.as_ref()) {
                    Ok(0) | Err(Errno::INTR) => return Ok(()),
                    Ok(_) => Some(&AT_ONCE),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let mut buffer = [const { MaybeUninit::uninit() }; BATCH_MAX];
        match epoll::wait(&self.epoll, &mut buffer, at_once) {
            Ok((happened, _)) => {
                events.extend(happened.iter().filter_map(translate));
                if waits && happened.iter().any(|event| event.data.u64() == BELL) {
                    self.bell.silence();
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Adds at most `count_max` events that have happened. More come with the next call.
    pub(in crate::sys) fn take(
        &self,
        count_max: usize,
        events: &mut Vec<ReadyEvent>,
    ) -> io::Result<()> {
        let mut buffer = [const { MaybeUninit::uninit() }; BATCH_MAX];
        let room = count_max.min(BATCH_MAX);
        let (happened, _) = epoll::wait(&self.epoll, &mut buffer[..room], Some(&AT_ONCE))?;
        events.extend(happened.iter().filter_map(translate));
        Ok(())
    }

    /// Returns `true` if there are events, or the kernel cannot be asked: a wait then ends, and
    /// fails.
    pub(in crate::sys) fn has_events(&self) -> bool {
        let fds = &mut [PollFd::from_borrowed_fd(self.epoll.as_fd(), PollFlags::IN)];
        poll(fds, Some(&AT_ONCE)) != Ok(0)
    }
}

fn translate(event: &epoll::Event) -> Option<ReadyEvent> {
    use epoll::EventFlags as Flags;
    let (flags, token) = (event.flags, event.data.u64());
    let ended = flags.intersects(Flags::HUP | Flags::ERR);
    (token != BELL).then(|| ReadyEvent {
        token: DescriptorToken::from_raw(token),
        read: ended || flags.intersects(Flags::IN | Flags::RDHUP | Flags::PRI),
        write: ended || flags.intersects(Flags::OUT),
        // Urgent data splits the data that can be read, so a short read proves nothing from now on.
        read_closed: flags.intersects(Flags::HUP | Flags::RDHUP | Flags::PRI | Flags::ERR),
        write_closed: ended,
    })
}
