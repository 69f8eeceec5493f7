//! The private state of a worker, and its queues as other workers see them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;

use procession_coroutine::StackCache;
use procession_protocols::scheduler::pace::{OwedTurns, Pace};
use procession_queue::{deque, fifo};

use crate::process::slot::{Ready, Slot};
use crate::process::table::CACHE;
use crate::scheduler::lane::Lane;
use crate::scheduler::log::places::PlaceCache;
use crate::util::generator::Generator;

/// Capacity of the continued ring. It has room for 1000 processes that yield, because each turn of
/// a process outside of the ring takes a lock. The woken ring is smaller, since woken processes run
/// soon.
const CONTINUED: usize = 1024;
const WOKEN: usize = 256;
/// Capacity of the deque.
pub(crate) const DEQUE: usize = 256;

/// The maximum number of free stacks that a worker keeps. A worker never keeps more than its part
/// of a sixteenth of the limit, so that a coroutine that finds no stack can wait for one to come
/// back.
pub(crate) const STACKS_CACHED: usize = 64;

/// The private state of a worker. It stays in the seat while no thread works there.
pub(crate) struct Core {
    pub(crate) deque: deque::Owner<Ready, DEQUE>,
    /// The woken ring, in front of the global queue.
    pub(crate) woken: Lane<Ready, WOKEN>,
    /// The continued ring, in front of the overflow queue.
    pub(crate) continued: Lane<Ready, CONTINUED>,
    pub(crate) generator: RefCell<Generator>,
    pub(crate) pace: Pace,
    pub(crate) owed: OwedTurns,
    /// The number of services that found something in the overflow queue.
    pub(crate) services: Cell<u32>,
    /// The number of consecutive services that did not know the time.
    pub(crate) timeless: Cell<u32>,
    /// The number of processes that were taken out of the continued ring.
    pub(crate) rounds_taken: Cell<u32>,
    /// Free slots, so that most spawns take no lock.
    pub(crate) slots: RefCell<Vec<NonNull<Slot>>>,
    /// Woken processes bound to this worker that it queued itself, each with its place in the chain
    /// of wake-ups (`CurrentStep::chain`). Those that other threads queue come through the worker's
    /// seat.
    pub(crate) bound: RefCell<VecDeque<(Ready, u32)>>,
    /// Continued processes bound to this worker, each with the value of `rounds_taken` at which its
    /// turn comes.
    pub(crate) bound_continued: RefCell<VecDeque<(Ready, u32)>>,
    /// The number of coroutines that began on the thread that sits here, or sat here last, and that
    /// have not ended. They stay on that thread.
    pub(crate) begun: Cell<u32>,
    /// Free stacks, so that most coroutines take no lock.
    pub(crate) stacks: RefCell<Option<StackCache>>,
    /// The places of the processes that ended here last, for the recorder.
    pub(crate) places: PlaceCache,
}

// SAFETY: the cached slots are free, [free] only the core's owner touches them; all else is Send.
unsafe impl Send for Core {}

impl Core {
    pub(crate) fn new(generator: Generator) -> (Self, Queues) {
        let (deque, deque_stealer) = deque::new();
        let (woken, woken_stealer) = Lane::new();
        let (continued, continued_stealer) = Lane::new();
        let core = Self {
            deque,
            woken,
            continued,
            generator: RefCell::new(generator),
            pace: Pace::default(),
            owed: OwedTurns::default(),
            services: Cell::new(0),
            timeless: Cell::new(0),
            rounds_taken: Cell::new(0),
            slots: RefCell::new(Vec::with_capacity(CACHE + 1)),
            bound: RefCell::new(VecDeque::new()),
            bound_continued: RefCell::new(VecDeque::new()),
            begun: Cell::new(0),
            stacks: RefCell::new(None),
            places: PlaceCache::default(),
        };
        (core, Queues { deque: deque_stealer, woken: woken_stealer, continued: continued_stealer })
    }
}

/// The queues of a worker, as thieves see them.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) deque: deque::Stealer<Ready, DEQUE>,
    pub(crate) woken: fifo::Stealer<Ready, WOKEN>,
    pub(crate) continued: fifo::Stealer<Ready, CONTINUED>,
}

impl Queues {
    /// Returns `true` if nothing is queued, as far as the calling thread can see.
    #[inline]
    pub(crate) fn are_empty(&self) -> bool {
        self.deque.is_empty() && self.woken.is_empty() && self.continued.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.deque.len() + self.woken.len() + self.continued.len()
    }
}
