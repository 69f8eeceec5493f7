//! A worker's place, as the others see it.

use std::sync::Arc;
use std::time::Duration;

use procession_queue::Global;
use procession_sync::Mutex;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::process::slot::{Ready, Slot};
use crate::scheduler::core::{Core, Queues};
use crate::scheduler::lifo_slot::Next;
use crate::scheduler::root::Root;
use crate::scheduler::seat_id::NEVER;
use crate::scheduler::stats::Stats;
use crate::sys::{Cpus, Parker, ThreadFile};
use crate::time::action::Action;
use crate::time::timers::Timers;

/// A worker's place, as the others see it.
pub(crate) struct Seat {
    pub(crate) queues: Queues,
    pub(crate) next: Next<Slot>,
    /// Processes that run here only.
    pub(crate) bound: Global<Ready>,
    pub(crate) timers: Timers<Action>,
    /// Odd while a step runs: twice the number of steps that have ended. Written by the worker
    /// without a read-modify-write.
    pub(crate) step: AtomicU64,
    /// Whose step runs: the index of its slot and 1; 0 once that has ended. For the watchdog, as
    /// are the next two, and for snapshots.
    pub(crate) running: AtomicU32,
    /// Whether the thread is in a blocking section.
    pub(crate) in_section: AtomicBool,
    /// The system's number for the thread; 0 if none sits there.
    pub(crate) thread: AtomicU32,
    /// What tells the watchdog the state of that thread. Kept open by the watchdog, closed when the
    /// thread leaves.
    pub(crate) thread_file: Mutex<Option<ThreadFile>>,
    pub(crate) parker: Parker,
    pub(crate) stats: Stats,
    /// What the thread waits for, if that is the future of a `block_on`
    /// (`scheduler/wait_cycle.rs`).
    pub(crate) waits_for: Mutex<Option<Arc<Root>>>,
    /// Coroutines that have begun here, and so stay here.
    pub(crate) coroutines: AtomicU32,
    /// What the worker keeps to itself, while no thread sits here.
    pub(crate) core: Mutex<Option<Core>>,
}

/// A function that is called on threads of the scheduler.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// What the builder says about threads.
pub(crate) struct ThreadOptions {
    pub(crate) keep_alive: Duration,
    pub(crate) on_start: Option<Hook>,
    pub(crate) on_stop: Option<Hook>,
    /// On which processors they run, if not on all that the program may use.
    pub(crate) cpus: Option<Cpus>,
}

impl Seat {
    pub(crate) fn new(generator: fastrand::Rng, timers: u32) -> Self {
        let (core, queues) = Core::new(generator);
        Self {
            queues,
            next: Next::empty(),
            bound: Global::new(),
            timers: Timers::new(timers),
            step: AtomicU64::new(0),
            running: AtomicU32::new(0),
            in_section: AtomicBool::new(false),
            thread: AtomicU32::new(0),
            thread_file: Mutex::new(None),
            parker: Parker::default(),
            stats: Stats::default(),
            waits_for: Mutex::new(None),
            coroutines: AtomicU32::new(0),
            core: Mutex::new(Some(core)),
        }
    }

    /// Whether nothing is left in a vacant seat.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.are_empty()
            && self.bound.is_empty()
            && self.next.look().is_null()
            && self.timers.next() == NEVER
    }
}
