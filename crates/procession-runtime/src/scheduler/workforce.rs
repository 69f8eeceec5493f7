//! The workforce of a scheduler: its seats, the threads that work there, and what is queued for
//! them.

use std::io;
use std::sync::{Arc, Weak};

use procession_protocols::scheduler::idle::Idle;
use procession_protocols::scheduler::levels::{Level, Levels};
use procession_protocols::scheduler::seat_id::SeatId;
use procession_queue::Global;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::Ready;
use crate::scheduler::seat::{Seat, SeatTable};
use crate::scheduler::stalls::state::Watchdog;
use crate::scheduler::threads::state::ThreadSupply;
use crate::sys::World;

/// The seats of a scheduler, the threads that work there, and what is queued for them.
///
/// `announce.rs` has the methods that decide whether a worker is woken for a queued process, and
/// `threads.rs` the methods that wake or start its thread.
pub(crate) struct Workforce {
    pub(crate) idle: Idle,
    pub(crate) seats: SeatTable,
    pub(crate) queues: SharedQueues,
    /// The ready processes of high and of batch priority.
    pub(crate) levels: Levels<Ready>,
    pub(crate) threads: ThreadSupply,
    pub(crate) watchdog: Watchdog,
    pub(crate) world: Arc<World>,
    /// The scheduler, because only it can start its threads.
    pub(crate) starter: Weak<dyn Starter>,
}

/// The scheduler, as its workforce sees it: what a new thread runs.
pub(crate) trait Starter: Send + Sync {
    /// Returns `true` after the end of the scheduler, when no thread is needed.
    fn has_ended(&self) -> bool;

    /// Starts a thread for the worker in a claimed, vacant seat.
    fn start_worker(self: Arc<Self>, seat: SeatId) -> io::Result<()>;

    /// Starts the thread of the watchdog.
    fn start_watchdog(self: Arc<Self>) -> io::Result<()>;
}

impl Workforce {
    #[inline]
    pub(crate) fn seat(&self, seat: SeatId) -> &Seat {
        match self.seats.get_first(seat) {
            Some(place) => place,
            None => self.seats.get_extra(seat, &self.world),
        }
    }

    /// Returns every seat that may hold anything.
    #[inline]
    pub(crate) fn all_seats(&self) -> impl Iterator<Item = &Seat> {
        self.seats.up_to(self.idle.reach() as usize)
    }

    /// Returns the number of workers that may run concurrently.
    pub(crate) fn width(&self) -> usize {
        self.idle.width() as usize
    }

    /// Returns a vacant seat for which processes wait that are bound to it. The system has refused
    /// a thread for it, so nothing wakes it unless the watchdog tries again.
    pub(crate) fn stranded_seat(&self) -> Option<SeatId> {
        let waits = |seat: &SeatId| {
            let place = self.seat(*seat);
            // Relaxed: the lock of `is_vacant` decides.
            (!place.bound.is_empty() || self.has_bound_level(*seat))
                && place.thread.load(Relaxed) == 0
                && self.idle.is_vacant(*seat)
        };
        (0..self.seats.first()).map(SeatId).find(waits)
    }

    /// Returns `true` if anything is queued that any worker may take, except in LIFO slots.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queues.are_empty()
            || self.all_seats().any(|seat| !seat.queues.are_empty())
            || self.has_level()
    }

    /// Returns `true` if a high process is queued that any worker may take, or a batch process for
    /// which a permit is left.
    pub(crate) fn has_level(&self) -> bool {
        !self.levels.is_empty()
            && (self.levels.len(None, Level::High) > 0
                || self.levels.len(None, Level::Batch) > 0 && self.idle.has_batch_permit())
    }

    /// Returns `true` if a batch process is queued for which no permit is left.
    pub(crate) fn lacks_batch_permit(&self) -> bool {
        self.idle.is_batch_wanted()
            || self.levels.len(None, Level::Batch) > 0 && !self.idle.has_batch_permit()
    }

    /// Returns `true` if a high process is queued that only the worker in this seat may run, or a
    /// batch process for which the worker must try to get a permit.
    pub(crate) fn has_bound_level(&self, seat: SeatId) -> bool {
        !self.levels.is_empty()
            && (self.levels.len(Some(seat), Level::High) > 0
                || self.levels.len(Some(seat), Level::Batch) > 0 && self.idle.must_try_batch(seat))
    }

    /// Returns `true` if anything is queued, including bound queues and LIFO slots.
    pub(crate) fn has_work(&self) -> bool {
        self.has_queued()
            || !self.levels.is_empty()
            || self.all_seats().any(|seat| !seat.bound.is_empty() || !seat.next.look().is_null())
    }
}

/// The queues that belong to no worker.
pub(crate) struct SharedQueues {
    /// The global queue: processes that became ready outside of the workers, and processes for
    /// which a woken ring had no room.
    pub(crate) global: Global<Ready>,
    /// The overflow queue: processes for which a continued ring or a deque had no room.
    pub(crate) overflow: Global<Ready>,
    /// Set if the order is random wherever no caller may rely on it.
    pub(crate) shuffled: bool,
}

impl SharedQueues {
    pub(crate) fn new(shuffled: bool) -> Self {
        Self { global: Global::new(), overflow: Global::new(), shuffled }
    }

    #[inline]
    pub(crate) fn are_empty(&self) -> bool {
        self.global.is_empty() && self.overflow.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.global.len() + self.overflow.len()
    }
}
