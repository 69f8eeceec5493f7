//! The workforce of a scheduler: its seats, the threads that work there and their watchdog, and
//! what is queued for them.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use procession_protocols::scheduler::idle::Idle;
use procession_protocols::scheduler::levels::{Level, Levels};
use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::watchdog::park::WatchdogPark;
use procession_queue::Global;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

use crate::process::slot::Ready;
use crate::scheduler::seat::{Seat, SeatTable};
use crate::sys::alarm::Alarm;
use crate::sys::{Cpus, World, nanoseconds};

/// The seats of a scheduler, the threads that work there, and what is queued for them.
///
/// `threads.rs` has the methods that wake or start the thread of a worker.
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

/// The publisher's side of the parking protocol (`scheduler/idle/parking.rs`): wakes workers for
/// queued processes.
impl Workforce {
    /// Changes how many workers may run concurrently, and wakes some if anything is queued.
    pub(crate) fn set_worker_threads(&self, width: u32) {
        self.idle.set_worker_threads(width);
        if self.has_queued() {
            self.announce_many(width as usize);
        }
    }

    /// Wakes a worker for an entry that was just queued, unless one is searching.
    #[inline]
    pub(crate) fn announce(&self) {
        self.wake(self.idle.claim_one());
    }

    /// Wakes a worker like `announce`, for a thread that will not run the entry itself. A worker
    /// that was woken before and counts as searching may be late, so late workers are written off
    /// first.
    pub(crate) fn announce_from_outside(&self) {
        let written_off = || match self.idle.write_off_if_late(|| self.world.now()) {
            0 => None,
            late => {
                self.watchdog.count_late(late);
                self.idle.claim_one()
            }
        };
        self.wake(self.idle.claim_one().or_else(written_off));
    }

    /// Wakes a worker like `announce`, for entries that this worker will most likely run itself,
    /// soon after its step. Wakes none while a worker naps.
    #[inline]
    pub(crate) fn announce_own(&self) {
        self.wake(self.idle.claim_one_unless_napping());
    }

    /// Wakes a worker like `announce`, for an entry that this worker will run itself otherwise. May
    /// miss a worker that parks, or leaves the search, at this moment.
    #[inline]
    pub(crate) fn announce_in_sight(&self) {
        self.wake(self.idle.claim_one_in_sight());
    }

    /// Wakes up to `count` workers for that many entries, even if other workers are searching.
    pub(crate) fn announce_many(&self, count: usize) {
        fence(SeqCst);
        for _ in 0..count.min(self.width()) {
            match self.idle.claim() {
                Some(seat) => self.wake_seat(seat),
                None => return,
            }
        }
    }

    /// Queues a process that only the worker in `seat` can run, and wakes that worker.
    // Never inlined, because it would make the push of a process that is bound to no worker dearer.
    #[inline(never)]
    pub(crate) fn enqueue_bound(&self, seat: SeatId, ready: Ready) {
        self.seat(seat).bound.push(ready);
        fence(SeqCst);
        self.wake_this(seat);
    }

    /// Wakes the worker in `seat`, unless it is awake: only this worker can do what waits for it.
    pub(crate) fn wake_this(&self, seat: SeatId) {
        self.wake(self.idle.claim_this(seat).then_some(seat));
    }

    #[inline]
    fn wake(&self, claimed: Option<SeatId>) {
        if let Some(seat) = claimed {
            self.wake_seat(seat);
        }
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

/// The time for which no thread is started after the system has refused one. It will hardly have
/// changed its state by then, and each attempt costs a system call.
const REFUSAL_REST: u64 = 10_000_000;

/// A function that is called on threads of the scheduler.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The options that the builder sets for threads.
pub(crate) struct ThreadOptions {
    pub(crate) keep_alive: Duration,
    pub(crate) on_start: Option<Hook>,
    pub(crate) on_stop: Option<Hook>,
    /// The processors on which the threads run, unless these are all that the program may use.
    pub(crate) cpus: Option<Cpus>,
}

/// The threads of a scheduler: their options, and the outcome of their starts.
pub(crate) struct ThreadSupply {
    pub(crate) options: ThreadOptions,
    started: AtomicU32,
    refused: AtomicU32,
    /// The time until which no thread is started, because the system has just refused one.
    rest_until: AtomicU64,
    /// In a simulated system, the number of looks of the watchdog until which vacant seats may be
    /// left alone after that; `u64::MAX` if the number is not known yet.
    #[cfg(feature = "sim")]
    pub(crate) looks_in_rest: AtomicU64,
}

impl ThreadSupply {
    pub(crate) fn new(options: ThreadOptions) -> Self {
        Self {
            options,
            started: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            rest_until: AtomicU64::new(0),
            #[cfg(feature = "sim")]
            looks_in_rest: AtomicU64::new(0),
        }
    }

    /// Returns the number of threads that were started.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Relaxed)
    }

    /// Returns the number of threads that the system has refused.
    pub(crate) fn refused(&self) -> u32 {
        self.refused.load(Relaxed)
    }

    pub(crate) fn count_started(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Returns `true` if the system has refused a thread a moment ago.
    pub(crate) fn is_resting(&self, world: &World) -> bool {
        // Relaxed: a thread that reads an old value tries once more than necessary.
        !world.is_test() && world.now() < self.rest_until.load(Relaxed)
    }

    /// Notes that the system has refused a thread.
    pub(crate) fn rest(&self, world: &World) {
        self.count_refused();
        #[cfg(feature = "sim")]
        self.looks_in_rest.store(u64::MAX, Relaxed);
        self.rest_until.store(world.now().saturating_add(REFUSAL_REST), Relaxed);
    }
}

/// Nanoseconds between two looks while a worker runs: a quarter of the default `stall_after`, so
/// that a stall is noticed at most a quarter late.
pub(crate) const LOOK_EVERY: u64 = 2_500_000;

/// Returns the builder's `stall_after` in nanoseconds, but at least two looks: a shorter stall
/// cannot be seen.
pub(crate) fn stall_after(duration: Duration) -> u64 {
    nanoseconds(duration).max(2 * LOOK_EVERY)
}

/// The builder's options for the watchdog.
pub(crate) struct WatchdogOptions {
    pub(crate) is_on: bool,
    pub(crate) stall_after: u64,
    /// Maximum number of computing workers that may be replaced at the same time.
    pub(crate) max_computing: usize,
}

/// The state that the scheduler and its watchdog share.
pub(crate) struct Watchdog {
    pub(crate) options: WatchdogOptions,
    pub(crate) alarm: Alarm,
    pub(crate) park: WatchdogPark,
    pub(crate) is_started: AtomicBool,
    pub(crate) counts: StallCounts,
}

#[derive(Default)]
pub(crate) struct StallCounts {
    pub(crate) blocked: AtomicU64,
    pub(crate) computing: AtomicU64,
    pub(crate) replaced: AtomicU64,
    pub(crate) lifo_slots: AtomicU64,
    pub(crate) unreported: AtomicU64,
    pub(crate) looks: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) guessed: AtomicU64,
    pub(crate) files: AtomicU64,
}

impl Watchdog {
    pub(crate) fn new(options: WatchdogOptions) -> Self {
        let is_started = AtomicBool::new(!options.is_on);
        Self {
            alarm: Alarm::new(options.is_on),
            options,
            park: WatchdogPark::default(),
            is_started,
            counts: StallCounts::default(),
        }
    }

    /// Returns `true` if the thread was started, and so writes the beacon while any worker runs.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        // Relaxed: before the thread has started, and if it was refused, workers read the clock
        // more often.
        self.options.is_on && self.is_started.load(Relaxed)
    }

    /// Adds to the number of workers that were woken and did not come.
    pub(crate) fn count_late(&self, count: u32) {
        // Relaxed: statistics.
        self.counts.late.fetch_add(count.into(), Relaxed);
    }

    /// Returns `true` if the watchdog is to look only after `until`, although no sleep has begun.
    #[cfg(feature = "sim")]
    pub(crate) fn pauses_beyond(&self, until: u64) -> bool {
        !self.park.is_sleeping() && self.alarm.is_after(until)
    }

    /// Wakes the watchdog, since the scheduler has ended.
    pub(crate) fn dismiss(&self) {
        self.park.dismiss(|when| self.alarm.set(when));
    }
}
