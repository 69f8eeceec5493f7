//! The events of descriptors, and a bell beside their queue.
//!
//! A thread that waits asks `poll(2)` for the queue and the bell, and then takes the events out of
//! the queue without waiting. So any number of threads may wait, the bell stays with the thread
//! that waits while others poll in passing, and the lock of the queue is never held in a wait.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use mio::Interest;
use mio::event::Event;
use procession_protocols::io::readiness::{DescriptorToken, ReadyEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::bell::Bell;
use super::queue::{EventQueue, READS};

/// Maximum number of events per call, as on Linux.
const BATCH_MAX: usize = 256;

// A number of an event has room for a token.
const _: () = assert!(size_of::<usize>() >= size_of::<u64>());

/// The longest wait. `poll(2)` counts milliseconds in 32 bits, which is 24 days. A wait may end
/// early.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// epoll reports urgent data as an event, and kqueue does not.
pub(crate) const REPORTS_URGENT_DATA: bool = cfg!(any(target_os = "android", target_os = "linux"));

/// The changes of a descriptor that are events. Errors and hang-ups always are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventMask(Interest);

impl EventMask {
    /// Something to read, or the end of the stream, and no urgent data.
    pub(crate) const READ: Self = Self(Interest::READABLE);
    pub(crate) const WRITE: Self = Self(Interest::WRITABLE);
    /// Also urgent data.
    pub(crate) const BOTH: Self = Self(READS.add(Interest::WRITABLE));
}

/// A queue of events, and its bell.
pub(crate) struct Kernel {
    queue: EventQueue,
    bell: Bell,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

impl Kernel {
    /// Opens a queue of events and its bell. Takes four descriptors.
    pub(in crate::sys) fn open() -> io::Result<Self> {
        Ok(Self { queue: EventQueue::open(BATCH_MAX)?, bell: Bell::open()? })
    }

    /// Registers a descriptor. From now on each of its changes is an event with this token.
    pub(crate) fn register(
        &self,
        descriptor: BorrowedFd<'_>,
        token: DescriptorToken,
        mask: EventMask,
    ) -> io::Result<()> {
        self.queue.add(descriptor.as_raw_fd(), token.raw() as usize, mask.0)
    }

    /// Ends the registration of a descriptor.
    pub(crate) fn deregister(&self, descriptor: BorrowedFd<'_>) {
        // Ignored: it fails if the descriptor is not registered, which is the wanted state.
        let _ = self.queue.remove(descriptor.as_raw_fd());
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
        if timeout != Some(Duration::ZERO) {
            let fds = &mut self.polled();
            let timeout =
                timeout.and_then(|timeout| Timespec::try_from(timeout.min(WAIT_MAX)).ok());
            match poll(fds, timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            // A bell that has been closed by mistake would end each wait at once.
            if fds[1].revents().intersects(PollFlags::ERR | PollFlags::NVAL) {
                return Err(Errno::BADF.into());
            }
            if !fds[1].revents().is_empty() {
                self.bell.silence();
            }
        }
        match self.take(BATCH_MAX, events) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            taken => taken,
        }
    }

    /// Adds at most `count_max` events that have happened. More come with the next call.
    pub(in crate::sys) fn take(
        &self,
        count_max: usize,
        events: &mut Vec<ReadyEvent>,
    ) -> io::Result<()> {
        self.queue.drain(count_max, |event| events.push(translate(event)))
    }

    /// Returns `true` if there are events, or the kernel cannot be asked: a wait then ends, and
    /// fails.
    pub(in crate::sys) fn has_events(&self) -> bool {
        poll(&mut self.polled(), Some(&AT_ONCE)) != Ok(0)
    }

    fn polled(&self) -> [PollFd<'_>; 2] {
        [self.queue.as_fd(), self.bell.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }
}

/// Marks a direction as ready rather too often than too seldom: a call then finds that it would
/// wait, and its process waits again.
fn translate(event: &Event) -> ReadyEvent {
    let failed = event.is_error();
    // Urgent data splits the data that can be read, so a short read proves nothing from now on.
    let read_closed = failed || event.is_read_closed() || event.is_priority();
    let write_closed = failed || event.is_write_closed();
    ReadyEvent {
        token: DescriptorToken::from_raw(event.token().0 as u64),
        read: read_closed || event.is_readable(),
        // Some systems report the end of the reader of a pipe to its writer as an event of reads.
        write: write_closed || read_closed || event.is_writable(),
        read_closed,
        write_closed,
    }
}
