//! The progress of a scheduler's shutdown, and the waits for it.

use std::mem;
use std::panic::Location;
use std::task::Waker;

use procession_protocols::scheduler::dependents::Dependents;
use procession_protocols::scheduler::shutdown;
use procession_protocols::scheduler::shutdown::ShutdownPhase;
use procession_protocols::util::sorted_map::{SortedMap, SortedSet};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64};

use crate::Pid;

/// What ends during a shutdown before it was finished. The processes are counted elsewhere.
///
/// All accesses of the numbers are relaxed: each number is read after the processes that have added
/// to it were seen to have ended, or else it may miss what the last process has added.
#[derive(Default)]
pub(crate) struct Losses {
    /// Requests that the deadline cut off.
    pub(crate) requests: AtomicU64,
    /// Children that their supervisors terminated before the deadline.
    pub(crate) stopped: AtomicU64,
    /// Requests that ended before the deadline with their processes.
    pub(crate) stopped_requests: AtomicU64,
    dropped: Mutex<Dropped>,
}

/// The processes that the shutdown drops because nobody has chosen otherwise.
#[derive(Default)]
struct Dropped {
    /// The processes that were asked to end, and have not ended. Kept by PID, because several
    /// threads may ask one process, and a process may end by itself in the step that it was in.
    told: SortedSet<Pid>,
    /// The number of such processes that have ended, by the place of their spawn.
    ended: SortedMap<&'static Location<'static>, u64>,
}

impl Losses {
    /// Notes that the shutdown asks a process to end that a cancel drops.
    pub(super) fn note_told(&self, pid: Pid) {
        self.dropped.lock().told.insert(pid);
    }

    /// Counts a process, spawned at this place, that was dropped, if the shutdown has told it to
    /// end.
    fn count_dropped(&self, pid: Pid, place: &'static Location<'static>) {
        let mut dropped = self.dropped.lock();
        if dropped.told.remove(&pid) {
            *dropped.ended.get_or_default(place) += 1;
        }
    }

    /// Returns the places of the spawns of the dropped processes, each with the number of
    /// processes.
    pub(crate) fn dropped(&self) -> Vec<(&'static Location<'static>, u64)> {
        self.dropped.lock().ended.iter().map(|(place, count)| (*place, *count)).collect()
    }
}

/// The life of a scheduler.
pub(crate) struct Lifetime {
    pub(crate) closing: ShutdownPhase,
    /// The processes that wait for the ends of their parents before they are dropped.
    pub(crate) dependents: Dependents,
    /// The waits for processes to end, by number: how many processes may be left, and the waker.
    waiters: Mutex<SortedMap<u64, (u64, Waker)>>,
    last_waiter: AtomicU64,
    /// The number of the last write that was accepted here, in the table of the program.
    last_write: AtomicU64,
    /// When a shutdown terminates the processes, by the scheduler's clock. The greatest value if
    /// there is none.
    deadline: AtomicU64,
    /// `true` once a signal has ended the main function, and a shutdown follows.
    is_interrupted: AtomicBool,
    pub(crate) losses: Losses,
}

impl Lifetime {
    pub(crate) fn open() -> Self {
        Self {
            closing: ShutdownPhase::open(),
            dependents: Dependents::default(),
            waiters: Mutex::default(),
            last_waiter: AtomicU64::new(0),
            last_write: AtomicU64::new(0),
            deadline: AtomicU64::new(u64::MAX),
            is_interrupted: AtomicBool::new(false),
            losses: Losses::default(),
        }
    }

    /// Returns the number of the last write that was accepted here.
    #[inline]
    pub(crate) fn last_write(&self) -> u64 {
        // Relaxed: a thread that was told of a write sees it noted, and others need not.
        self.last_write.load(Relaxed)
    }

    pub(crate) fn note_write(&self, number: u64) {
        // Relaxed: as above.
        self.last_write.fetch_max(number, Relaxed);
    }

    /// Notes when a shutdown terminates the processes.
    pub(crate) fn note_deadline(&self, deadline: u64) {
        // Relaxed: only limits of time are derived from it.
        self.deadline.fetch_min(deadline, Relaxed);
    }

    /// Returns when a shutdown terminates the processes. The greatest value if there is none.
    #[cfg(feature = "hyper")]
    pub(crate) fn deadline(&self) -> u64 {
        // Relaxed: as above.
        self.deadline.load(Relaxed)
    }

    /// Notes that the processes which are cancelled from now on are lost by the shutdown that
    /// follows.
    #[cfg(feature = "signal")]
    pub(super) fn note_interrupted(&self) {
        // Relaxed: a worker that ends a process because of a later cancel was told of the cancel
        // through the state of the process.
        self.is_interrupted.store(true, Relaxed);
    }

    /// Returns `true` while a shutdown lets processes end in order.
    pub(crate) fn is_stopping(&self) -> bool {
        self.closing.phase() == shutdown::STOPPING
    }

    /// Counts a child that its supervisor has terminated, if a shutdown is under way.
    pub(crate) fn note_stopped(&self) {
        if self.is_stopping() {
            self.losses.stopped.fetch_add(1, Relaxed);
        }
    }

    /// Counts a process that ends because it was dropped, if a shutdown has dropped it.
    pub(crate) fn note_dropped(&self, pid: Pid, place: &'static Location<'static>) {
        // Relaxed: as above.
        if self.closing.phase() != shutdown::OPEN || self.is_interrupted.load(Relaxed) {
            self.losses.count_dropped(pid, place);
        }
    }

    /// Counts requests that end because their process is terminated, if a shutdown is under way.
    #[cfg(feature = "hyper")]
    pub(crate) fn note_cut_off(&self, requests: u64) {
        let count = match self.closing.phase() {
            shutdown::OPEN => return,
            shutdown::STOPPING => &self.losses.stopped_requests,
            _ => &self.losses.requests,
        };
        count.fetch_add(requests, Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.closing.phase() == shutdown::ENDED
    }

    /// Returns `true` if a new process is accepted. `inside` is `true` if one of the scheduler's
    /// own processes spawns it.
    pub(crate) fn takes_processes(&self, inside: bool) -> bool {
        // After the process was counted: either a shutdown sees the count, or this sees the
        // shutdown.
        match self.closing.phase_after_publishing() {
            shutdown::OPEN => true,
            shutdown::STOPPING => inside,
            _ => false,
        }
    }

    /// Returns a number for a wait.
    pub(crate) fn number(&self) -> u64 {
        self.last_waiter.fetch_add(1, Relaxed)
    }

    /// Registers a waker, to be woken once no more than `left` processes are alive. Returns the
    /// previous waker of this number.
    pub(crate) fn leave(&self, number: u64, left: u64, waker: Waker) -> Option<Waker> {
        Some(self.waiters.lock().insert(number, (left, waker))?.1)
    }

    /// Removes a wait. Returns its waker, to be dropped.
    pub(crate) fn forget(&self, number: u64) -> Option<Waker> {
        let mut waiters = self.waiters.lock();
        let own = waiters.remove(&number);
        if waiters.is_empty() {
            self.closing.unwatch(waiters);
        }
        Some(own?.1)
    }

    /// Takes the wakers of the waits that are over when `alive` processes are left.
    pub(crate) fn take_served(&self, alive: u64) -> Vec<Waker> {
        let mut waiters = self.waiters.lock();
        let served = waiters.take_if(|_, (left, _)| alive <= *left);
        served.into_iter().map(|(_, (_, waiter))| waiter).collect()
    }

    /// Takes the wakers of all waits.
    pub(crate) fn take_waiters(&self) -> impl Iterator<Item = Waker> + use<> {
        mem::take(&mut *self.waiters.lock()).into_values().map(|(_, waiter)| waiter)
    }
}
