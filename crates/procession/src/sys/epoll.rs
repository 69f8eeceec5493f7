//! Waiting in the kernel for descriptors: epoll, and a bell that wakes who waits.
//!
//! # Rejected
//! - `epoll_pwait2`, for timeouts finer than a millisecond: kernels before 5.11 and some system-call filters refuse it, and some of those kill
//!   the program, so it takes a probe and a second way beside it; and `rustix` offers it only by a feature that would be in force for all other
//!   crates of the program. `ppoll` on the epoll descriptor takes nanoseconds everywhere. A wait with a deadline that ends by an event costs
//!   one call more, of 0.1 us; one that ends by its deadline, or has none, costs none.
//! - A timerfd: 0.4 us for each deadline, and a descriptor.
//! - Few events at a time for a worker that is busy (32; tokio's users found 1024 too many, and 8 enough): what is ready waits in the kernel's list
//!   then, and each of many sockets is out of every cache when its turn comes. With 256 a worker goes on with those that its own last
//!   steps have made ready. 1000 connections on one CPU: 18.2 us for each round trip with 32, 14.0 to 14.5 with 256; on two, 0.83 of the time.
//!   It costs evenness: on two CPUs 12 to 15 ms at p99 with 32, and 28 to 35 with 256, as with tokio; what is put off meanwhile comes
//!   back by the worker's fairness, not by this number.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::io::readiness::{Event, Token};

/// Events that one call takes at most: what does not fit comes with the next. As many as a FIFO ring has room for.
const BATCH_MAX: usize = 256;

/// The token of the bell; no descriptor has it.
const BELL: u64 = u64::MAX;

/// An epoll instance with its bell.
pub(crate) struct Kernel {
    epoll: OwnedFd,
    bell: OwnedFd,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

impl Kernel {
    /// Takes two descriptors.
    pub(super) fn open() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Level-triggered: one who only looks in passing does not take the ring away from the one it is for, who may be on his way into the
        // kernel. That one, once he is through, silences it.
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(Self { epoll, bell })
    }

    /// From now on each change of the descriptor is an event with this token.
    pub(crate) fn register(&self, descriptor: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        use epoll::EventFlags as Flags;
        let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::PRI | Flags::ET;
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token.raw()), flags)?)
    }

    /// No more of that.
    pub(crate) fn deregister(&self, descriptor: BorrowedFd<'_>) {
        // Ignored: it fails if the descriptor is not there, which is what is wanted.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Wakes the thread that waits, or else the next that will.
    pub(crate) fn ring(&self) {
        // Ignored: it fails only after 2^64 - 2 rings that nobody has silenced, and then it rings already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Adds to `events`, at most [`BATCH_MAX`], what has happened, or the first that happens within `patience`; `None` is for ever. May end early
    /// without any: by the bell, or a signal.
    pub(crate) fn wait(&self, patience: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let waits = patience != Some(Duration::ZERO);
        let at_once = match patience {
            None => None,
            Some(Duration::ZERO) => Some(&AT_ONCE),
            Some(patience) => {
                let fds = &mut [PollFd::from_borrowed_fd(self.epoll.as_fd(), PollFlags::IN)];
                // One that the kernel cannot count is longer than any program runs.
                let timeout = Timespec::try_from(patience).ok();
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
                    // Ignored: another who waited was faster. A ring that comes after him wakes once too often.
                    let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn translate(event: &epoll::Event) -> Option<Event> {
    use epoll::EventFlags as Flags;
    let (flags, token) = (event.flags, event.data.u64());
    let ended = flags.intersects(Flags::HUP | Flags::ERR);
    (token != BELL).then(|| Event {
        token: Token::from_raw(token),
        read: ended || flags.intersects(Flags::IN | Flags::RDHUP | Flags::PRI),
        write: ended || flags.intersects(Flags::OUT),
        // Urgent data split what can be read, so a short read says nothing from now on.
        read_closed: flags.intersects(Flags::HUP | Flags::RDHUP | Flags::PRI | Flags::ERR),
        write_closed: ended,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use procession_sync::atomic::AtomicBool;
    use procession_sync::atomic::Ordering::Relaxed;

    use crate::scheduler::seat_id::NEVER;
    use crate::sys::{Parker, World};

    /// Goal: whoever looks in passing does not take a wake-up away. Method: one waits in the kernel, and is woken while another looks all the
    /// time.
    #[test]
    fn a_ring_reaches_who_waits_whoever_looks_meanwhile() {
        let world = World::real(Some(0));
        let kernel = Arc::new(world.open_kernel().expect("the system has descriptors"));
        let (parker, stop) = (Parker::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (told, tells) = mpsc::channel();
            scope.spawn(|| {
                let mut events = Vec::new();
                while !stop.load(Relaxed) {
                    world.park_in_kernel(&parker, &kernel, NEVER, &mut events);
                    // Ignored: the test is over.
                    let _ = told.send(());
                }
                drop(told);
            });
            scope.spawn(|| {
                let mut events = Vec::new();
                while !stop.load(Relaxed) {
                    kernel.wait(Some(Duration::ZERO), &mut events).expect("it is open");
                }
            });
            let mut lost = 0;
            for _ in 0..20_000 {
                parker.unpark();
                if tells.recv_timeout(Duration::from_secs(5)).is_err() {
                    lost += 1;
                    break;
                }
            }
            stop.store(true, Relaxed);
            // Twice, for the one that may have been lost.
            parker.unpark();
            kernel.ring();
            assert_eq!(lost, 0, "a ring was lost");
        });
    }
}
