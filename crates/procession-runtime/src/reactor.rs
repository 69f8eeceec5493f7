//! The verbs of the reactor: registering descriptors, polling the kernel, and waking the processes
//! that wait for descriptors.
//!
//! The kernel's queue of events is opened with the first descriptor. It is polled by:
//! - a worker that found nothing in its own queues, before it looks at other workers,
//! - each worker at each of its services (`scheduler/pace.rs`),
//! - the driver (`scheduler/driver.rs`), which waits in the kernel for as long as it is parked,
//! - the watchdog, if no worker has polled for a while.
//!
//! While one thread polls, all other threads skip their polls. The processes that a poll wakes are
//! queued before the worker runs any, so that other workers can steal them. Before the worker runs
//! such a process, it also leaves the driver role and wakes another worker.

#[cfg(feature = "tokio")]
use std::os::fd::AsRawFd as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use std::{fmt, io};

use procession_protocols::io::readiness::{Direction, Source, WaiterId, WakerLeft};
use procession_sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::process::unwind::guarded;
use crate::scheduler::shared::{Batch, Poller, Shared};
use crate::scheduler::starved::Starved;
use crate::sys::World;
use crate::sys::events::{EventMask, Kernel};

impl Poller {
    /// Returns the kernel's queue of events, and `true` if this call opened it.
    fn open(&self, world: &World) -> io::Result<(&Arc<Kernel>, bool)> {
        let _one = self.opening.lock();
        if let Some(kernel) = self.kernel.get() {
            return Ok((kernel, false));
        }
        let opened = Arc::new(world.open_kernel()?);
        Ok((self.kernel.get_or_init(|| opened), true))
    }

    /// Claims the kernel for one poll, unless another thread polls.
    fn begin_poll(&self) -> Option<(&Arc<Kernel>, Asking<'_>)> {
        let kernel = self.kernel()?;
        // A load first: while the driver waits, all other threads only read.
        if self.asking.load(Relaxed) || self.asking.swap(true, AcqRel) {
            return None;
        }
        self.polls.fetch_add(1, Relaxed);
        Some((kernel, Asking(self)))
    }

    /// Polls without waiting, unless another thread polls. Returns `true` if `batch` holds events,
    /// which the caller must `deliver`.
    pub(crate) fn poll(&self, batch: &mut Batch) -> bool {
        let Some((kernel, _asking)) = self.begin_poll() else { return false };
        // Ignored: it fails only if other code has closed the descriptor, which it does not own.
        // The driver then falls back on waiting for timers.
        let _ = kernel.wait(Some(Duration::ZERO), &mut batch.events);
        !batch.events.is_empty()
    }

    /// Marks the caller as waiting in the kernel from now on.
    pub(crate) fn begin_waiting(&self) -> Asking<'_> {
        self.asking.store(true, Release);
        self.polls.fetch_add(1, Relaxed);
        Asking(self)
    }

    /// Counts a waker that is left. On the test clock only.
    fn count_waiting(&self, world: &World) {
        if world.is_test() {
            self.waiting.fetch_add(1, Relaxed);
        }
    }
}

/// Marks the reactor as being polled until it is dropped.
pub(crate) struct Asking<'a>(&'a Poller);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.store(false, Release);
    }
}

impl Shared {
    /// Wakes the waiters for the events of `batch`, and empties it. Returns the number of wakers.
    pub(crate) fn deliver(&self, batch: &mut Batch) -> usize {
        self.poller.events.fetch_add(batch.events.len() as u64, Relaxed);
        self.poller.sources.set_ready(&batch.events, &mut batch.wakers);
        batch.events.clear();
        self.wake_all_of(&mut batch.wakers)
    }

    fn wake_all_of(&self, wakers: &mut Vec<Waker>) -> usize {
        let count = wakers.len();
        for waker in wakers.drain(..) {
            drop(guarded(|| waker.wake()));
        }
        // Only after all were woken: until then the test clock stands still for them.
        self.uncount_waiting(count as u32);
        count
    }

    fn uncount_waiting(&self, count: u32) {
        // Ordering: Release pairs with the Acquire of `is_waited_for`.
        if count > 0
            && self.world.is_test()
            && self.poller.waiting.fetch_sub(count, Release) == count
        {
            // A worker must check whether the clock may advance now.
            self.workforce.announce();
        }
    }

    /// Wakes everything that still waits for descriptors. Called when no process is left, because
    /// nothing polls the kernel from then on.
    pub(crate) fn give_up_descriptors(&self) {
        let mut wakers = Vec::new();
        self.poller.sources.take_all(&mut wakers);
        self.wake_all_of(&mut wakers);
    }
}

/// A descriptor in non-blocking mode, registered with a scheduler until this is dropped.
pub(crate) struct Registered<T: AsFd> {
    /// `Some` until the drop.
    io: Option<T>,
    source: Arc<Source>,
    shared: Arc<Shared>,
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Registered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.io.fmt(f)
    }
}

impl<T: AsFd> Registered<T> {
    /// Registers a descriptor, which must be in non-blocking mode already. An error returns the
    /// descriptor.
    pub(crate) fn new(shared: Arc<Shared>, io: T) -> Result<Self, (io::Error, T)> {
        let source = shared.poller.sources.add();
        Self::with(shared, source, io, EventMask::BOTH)
    }

    /// Registers a descriptor for one wait in one direction. The direction is taken not to be
    /// ready, and the kernel reports immediately if it is. No call is made through this
    /// registration, so the descriptor may be in any mode. An error returns the descriptor.
    pub(crate) fn for_one_wait(
        shared: Arc<Shared>,
        io: T,
        mask: EventMask,
    ) -> Result<Self, (io::Error, T)> {
        let source = shared.poller.sources.add();
        for direction in [&source.read, &source.write] {
            // No event can come before the registration.
            direction.use_up(direction.see());
        }
        Self::with(shared, source, io, mask)
    }

    fn with(
        shared: Arc<Shared>,
        source: Arc<Source>,
        io: T,
        mask: EventMask,
    ) -> Result<Self, (io::Error, T)> {
        // Relaxed: read by the last worker that parks, and the lock of the seats orders that later.
        #[cfg(feature = "tokio")]
        source.descriptor.store(io.as_fd().as_raw_fd().cast_unsigned(), Relaxed);
        let registered = shared.poller.open(&shared.world).and_then(|(kernel, first)| {
            if first {
                shared.settle_debt(shared.clock.driver.descriptors_opened());
            }
            kernel.register(io.as_fd(), source.token, mask)
        });
        if let Err(error) = registered {
            shared.poller.sources.remove(source.token);
            return Err((error, io));
        }
        Ok(Self { io: Some(io), source, shared })
    }

    #[inline]
    pub(crate) fn io(&self) -> &T {
        self.io_if_any().expect("there until the drop")
    }

    /// Returns the descriptor, unless the registration has ended.
    #[inline]
    pub(crate) fn io_if_any(&self) -> Option<&T> {
        self.io.as_ref()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Leaves a waker for one direction. Returns `true` if the caller must wait, and `false` if it
    /// should try its call again without waiting.
    ///
    /// # Errors
    /// The scheduler has ended, so no thread polls any more.
    pub(crate) fn leave(
        &self,
        direction: &Direction,
        waiter: &mut Option<WaiterId>,
        waker: Waker,
    ) -> io::Result<bool> {
        self.shared.poller.count_waiting(&self.shared.world);
        let (waits, before) = match direction.leave(waiter, waker) {
            WakerLeft::Waits(before) => (true, before),
            WakerLeft::Ready(before) => (false, before),
        };
        self.shared.uncount_waiting(before.is_some().into());
        drop(before);
        let has_ended = self.shared.lifetime.has_ended();
        if has_ended || !waits {
            self.forget(direction, *waiter);
        }
        if has_ended {
            return Err(io::Error::other(
                "the scheduler with which this descriptor is registered has ended",
            ));
        }
        Ok(waits)
    }

    /// Takes a waker back.
    pub(crate) fn forget(&self, direction: &Direction, waiter: Option<WaiterId>) {
        let waker = waiter.and_then(|waiter| direction.forget(waiter));
        self.shared.uncount_waiting(waker.is_some().into());
        drop(waker);
    }

    /// Ends the registration, and returns the descriptor. The first call does.
    pub(crate) fn deregister(&mut self) -> Option<T> {
        let io = self.io.take()?;
        if let Some(kernel) = self.shared.poller.kernel() {
            kernel.deregister(io.as_fd());
        }
        self.shared.poller.sources.remove(self.source.token);
        self.forget(&self.source.read, Some(WaiterId::ANY));
        self.forget(&self.source.write, Some(WaiterId::ANY));
        Some(io)
    }
}

impl<T: AsFd> Drop for Registered<T> {
    fn drop(&mut self) {
        if let Some(io) = self.deregister() {
            drop(io);
            Starved::of(&self.shared).note_closed();
        }
    }
}

impl<T: AsFd> AsFd for Registered<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io().as_fd()
    }
}
