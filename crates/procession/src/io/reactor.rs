//! The poller of a scheduler: opened with the first descriptor, asked by whichever worker looks for
//! work, and waited in by the keeper.
//!
//! Who asks: a worker that found nothing of its own, before it looks at others; each worker at each
//! of its services (`scheduler/pace.rs`); the parked worker that keeps the time
//! (`scheduler/driver.rs`), for as long as it is parked; and the watchdog, if nobody else comes to
//! it. While one is at it, the others leave it to him. What a poll finds is queued at once, where
//! others can steal it, and the worker leaves the keeper's office and wakes another before it runs
//! any of it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use std::{fmt, io};

use procession_sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use crate::io::poller::{Batch, Poller};
use crate::io::readiness::{Direction, Left, Source, WaiterId};
use crate::process::unwind::guarded;
use crate::scheduler::shared::Shared;
use crate::sys::World;
use crate::sys::epoll::Kernel;

impl Poller {
    /// The same, opened if it is not yet; and whether this call has opened it.
    fn open(&self, world: &World) -> io::Result<(&Arc<Kernel>, bool)> {
        let _one = self.opening.lock();
        if let Some(kernel) = self.kernel.get() {
            return Ok((kernel, false));
        }
        let opened = Arc::new(world.open_kernel()?);
        Ok((self.kernel.get_or_init(|| opened), true))
    }
}

/// Says that somebody asks, until it goes.
pub(crate) struct Asking<'a>(&'a Poller);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.store(false, Release);
    }
}

impl Shared {
    /// Claims the kernel for the time of a poll, if nobody else is at it.
    fn begin_poll(&self) -> Option<(&Arc<Kernel>, Asking<'_>)> {
        let kernel = self.poller.kernel()?;
        // A load first: while the keeper waits, all others only look.
        if self.poller.asking.load(Relaxed) || self.poller.asking.swap(true, AcqRel) {
            return None;
        }
        self.poller.polls.fetch_add(1, Relaxed);
        Some((kernel, Asking(&self.poller)))
    }

    /// Asks without waiting, unless somebody else is at it; says whether `batch` has got anything,
    /// which the caller is to `deliver`.
    pub(crate) fn poll(&self, batch: &mut Batch) -> bool {
        let Some((kernel, _asking)) = self.begin_poll() else { return false };
        // Ignored: if it fails, somebody has closed the descriptor, which was not his. The keeper
        // falls back on waiting for timers.
        let _ = kernel.wait(Some(Duration::ZERO), &mut batch.events);
        !batch.events.is_empty()
    }

    /// Says that the caller waits in the kernel from now on.
    pub(crate) fn begin_waiting(&self) -> Asking<'_> {
        self.poller.asking.store(true, Release);
        self.poller.polls.fetch_add(1, Relaxed);
        Asking(&self.poller)
    }

    /// Wakes who waited for the events of `batch`, and empties it. Says how many wakers that were.
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
        // After they were woken: until then the test clock stands still for them.
        self.uncount_waiting(count as u32);
        count
    }

    fn count_waiting(&self) {
        if self.world.is_test() {
            self.poller.waiting.fetch_add(1, Relaxed);
        }
    }

    fn uncount_waiting(&self, count: u32) {
        // Ordering: Release pairs with the Acquire of `is_waited_for`.
        if count > 0
            && self.world.is_test()
            && self.poller.waiting.fetch_sub(count, Release) == count
        {
            // Somebody must look whether the clock may move now.
            self.announce();
        }
    }

    /// No process is left: who else waits for descriptors of this scheduler must not wait for ever.
    pub(crate) fn give_up_descriptors(&self) {
        let mut wakers = Vec::new();
        self.poller.sources.take_all(&mut wakers);
        self.wake_all_of(&mut wakers);
    }
}

/// A descriptor that is registered with a scheduler until this is dropped. It is in non-blocking
/// mode.
pub(crate) struct Registered<T: AsFd> {
    /// There until the drop.
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
    /// Registers a descriptor, which must be in non-blocking mode already.
    pub(crate) fn new(shared: Arc<Shared>, io: T) -> io::Result<Self> {
        let (kernel, first) = shared.poller.open(&shared.world)?;
        if first {
            shared.settle_debt(shared.clock.keeper.descriptors_opened());
        }
        let source = shared.poller.sources.add();
        if let Err(error) = kernel.register(io.as_fd(), source.token) {
            shared.poller.sources.remove(source.token);
            return Err(error);
        }
        Ok(Self { io: Some(io), source, shared })
    }

    #[inline]
    pub(crate) fn io(&self) -> &T {
        self.io.as_ref().expect("there until the drop")
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Leaves a waker for one direction; says whether to wait, and not to call again at once.
    ///
    /// # Errors
    /// The scheduler has ended: nobody polls any more.
    pub(crate) fn leave(
        &self,
        direction: &Direction,
        waiter: &mut Option<WaiterId>,
        waker: Waker,
    ) -> io::Result<bool> {
        self.shared.count_waiting();
        let (waits, before) = match direction.leave(waiter, waker) {
            Left::Waits(before) => (true, before),
            Left::Ready(before) => (false, before),
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

    /// Ends the registration, and gives the descriptor back.
    pub(crate) fn into_io(mut self) -> T {
        self.deregister().expect("there until the drop")
    }

    fn deregister(&mut self) -> Option<T> {
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
            self.shared.poller.starved.note_closed();
        }
    }
}

impl<T: AsFd> AsFd for Registered<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io().as_fd()
    }
}
