//! What a worker keeps to itself, and its queues as others see them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;

use procession_coroutine::StackCache;
use procession_queue::{deque, fifo};

use crate::process::slot::{Ready, Slot};
use crate::process::table::CACHE;
use crate::scheduler::lane::Lane;
use crate::scheduler::pace::{OwedTurns, Pace};

/// Processes that the continued ring holds: 1000 that yield are to fit, since each turn of those
/// that do not takes a lock. The ring of woken ones is smaller, since they run soon.
const CONTINUED: usize = 1024;
const WOKEN: usize = 256;

/// Stacks that a worker keeps to itself at most, and never more than its part of a sixteenth of the
/// limit: so who finds none can wait for one to come back.
pub(crate) const STACKS_CACHED: usize = 64;

/// What a worker keeps to itself; it stays in its seat while no thread works there.
pub(crate) struct Core {
    pub(crate) deque: deque::Owner<Ready>,
    /// Before the global queue.
    pub(crate) woken: Lane<Ready, WOKEN>,
    /// Before the overflow queue.
    pub(crate) continued: Lane<Ready, CONTINUED>,
    pub(crate) generator: RefCell<fastrand::Rng>,
    pub(crate) pace: Pace,
    pub(crate) owed: OwedTurns,
    /// How many services have found something in the overflow queue.
    pub(crate) services: Cell<u32>,
    /// Services in a row that did not know the time.
    pub(crate) timeless: Cell<u32>,
    /// How many processes it has taken out of the continued ring.
    pub(crate) rounds_taken: Cell<u32>,
    /// Free slots, so that most spawns take no lock.
    pub(crate) slots: RefCell<Vec<NonNull<Slot>>>,
    /// Woken processes bound to this worker that it has queued itself, each with its place in the
    /// chain of wake-ups (`CurrentStep::chain`). Others come through the worker's seat.
    pub(crate) bound: RefCell<VecDeque<(Ready, u32)>>,
    /// Those that continue, each with the value of `rounds_taken` at which its turn comes.
    pub(crate) bound_continued: RefCell<VecDeque<(Ready, u32)>>,
    /// Coroutines that have begun on the thread that sits here, or sat here last, and that have not
    /// ended. They stay on that thread.
    pub(crate) begun: Cell<u32>,
    /// Stacks, so that most coroutines take no lock.
    pub(crate) stacks: RefCell<Option<StackCache>>,
}

// SAFETY: the cached slots are free, [free] the core's owner alone touches them; all else is Send.
unsafe impl Send for Core {}

impl Core {
    pub(crate) fn new(generator: fastrand::Rng) -> (Self, Queues) {
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
        };
        (core, Queues { deque: deque_stealer, woken: woken_stealer, continued: continued_stealer })
    }
}

/// The queues of a worker, as thieves see them.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) deque: deque::Stealer<Ready>,
    pub(crate) woken: fifo::Stealer<Ready, WOKEN>,
    pub(crate) continued: fifo::Stealer<Ready, CONTINUED>,
}

impl Queues {
    /// Whether nothing is queued, as far as the calling thread can see.
    #[inline]
    pub(crate) fn are_empty(&self) -> bool {
        self.deque.is_empty() && self.woken.is_empty() && self.continued.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.deque.len() + self.woken.len() + self.continued.len()
    }
}
