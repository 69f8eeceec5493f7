//! A queue of the events of descriptors, by `mio`: kqueue on macOS and the BSDs, epoll on Linux.
//!
//! # Rejected
//! - `polling`, another portable interface. It does not pass on that the other end has closed the
//!   connection (`EV_EOF`), so no short read would prove that nothing is left, and each read would
//!   need one more call. Its wake-ups are lost on a thread that polls in passing, its registration
//!   is unsafe, and it brings four crates, where `mio` brings two.
//! - kqueue by `rustix` or `libc`: an island of unsafe code that no test here can run.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use procession_sync::Mutex;

/// Everything that a read may find, including urgent data where it is an event.
#[cfg(any(target_os = "android", target_os = "linux"))]
pub(crate) const READS: Interest = Interest::READABLE.add(Interest::PRIORITY);
#[cfg(not(any(target_os = "android", target_os = "linux")))]
pub(crate) const READS: Interest = Interest::READABLE;

/// The queue is a descriptor, which is readable while there may be events.
pub(crate) struct EventQueue {
    registry: Registry,
    /// kqueue would let a second registration replace the first.
    added: Mutex<BTreeSet<RawFd>>,
    poll: Mutex<(Poll, Events)>,
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").finish_non_exhaustive()
    }
}

impl EventQueue {
    /// Opens a queue that reports at most `batch_max` events per call. Takes two descriptors.
    pub(crate) fn open(batch_max: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        Ok(Self {
            registry,
            added: Mutex::new(BTreeSet::new()),
            poll: Mutex::new((poll, Events::with_capacity(batch_max))),
        })
    }

    /// Adds a descriptor. From now on each of its changes is an event with this number. Fails with
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the descriptor was added before.
    pub(crate) fn add(
        &self,
        descriptor: RawFd,
        number: usize,
        interest: Interest,
    ) -> io::Result<()> {
        let mut added = self.added.lock();
        if added.contains(&descriptor) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.registry.register(&mut SourceFd(&descriptor), Token(number), interest)?;
        added.insert(descriptor);
        Ok(())
    }

    /// Removes a descriptor.
    pub(crate) fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        let mut added = self.added.lock();
        added.remove(&descriptor);
        self.registry.deregister(&mut SourceFd(&descriptor))
    }

    /// Calls `each` with each event that has happened, without waiting. More events than a batch
    /// has, or than `count_max`, come with the next call.
    pub(crate) fn drain(&self, count_max: usize, each: impl FnMut(&Event)) -> io::Result<()> {
        let (poll, events) = &mut *self.poll.lock();
        let mut fewer;
        let events = if count_max < events.capacity() {
            fewer = Events::with_capacity(count_max);
            &mut fewer
        } else {
            events
        };
        poll.poll(events, Some(Duration::ZERO))?;
        events.iter().for_each(each);
        Ok(())
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registry.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::{EventQueue, READS};

    /// Returns the numbers of the events that have happened.
    fn drained(queue: &EventQueue, count_max: usize) -> Vec<usize> {
        let mut numbers = Vec::new();
        queue.drain(count_max, |event| numbers.push(event.token().0)).expect("it is open");
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn a_descriptor_is_added_once_and_can_be_added_again_after_its_removal() {
        let queue = EventQueue::open(8).expect("there are descriptors");
        let (_other, one) = UnixStream::pair().expect("there are descriptors");
        let fd = one.as_raw_fd();
        queue.add(fd, 1, READS).expect("it is new");
        let error = queue.add(fd, 2, READS).expect_err("it is there");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        queue.remove(fd).expect("it is there");
        queue.add(fd, 3, READS).expect("it is new again");
    }

    #[test]
    fn each_change_is_one_event_and_what_a_batch_has_no_room_for_stays() {
        let queue = EventQueue::open(8).expect("there are descriptors");
        let pairs = [0; 3].map(|_| UnixStream::pair().expect("there are descriptors"));
        for (number, (_, one)) in pairs.iter().enumerate() {
            queue.add(one.as_raw_fd(), number, READS).expect("it is new");
        }
        assert!(drained(&queue, usize::MAX).is_empty());
        for (other, _) in &pairs {
            assert_eq!(rustix::io::write(other, b"data"), Ok(4));
        }
        let mut all = drained(&queue, 1);
        assert_eq!(all.len(), 1);
        all.extend(drained(&queue, usize::MAX));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert!(drained(&queue, usize::MAX).is_empty(), "nothing has changed since");
    }
}
