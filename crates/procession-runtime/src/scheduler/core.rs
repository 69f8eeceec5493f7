//! The private state of a worker, and its queues as other workers see them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use procession_coroutine::{Stack, StackCache, StackError};
use procession_protocols::scheduler::pace::{OwedTurns, Pace};
use procession_queue::{deque, fifo};
use procession_sync::Mutex;

use crate::process::slot::{Home, Ready, Slot, prefetch_slot};
use crate::process::table::{CACHE, Table};
use crate::scheduler::lane::Lane;
use crate::scheduler::log::PlaceCache;
use crate::scheduler::supply::Supply;
use crate::scheduler::wake_waits::WakeSampler;
use crate::util::generator::Generator;

/// Capacity of the continued ring. It has room for 1000 processes that yield, because each turn of
/// a process outside of the ring takes a lock. The woken ring is smaller, since woken processes run
/// soon.
const CONTINUED: usize = 1024;
const WOKEN: usize = 256;
/// Capacity of the deque.
pub(crate) const DEQUE: usize = 256;

/// The maximum number of free stacks in a seat. As many seats as there are workers keep at most a
/// sixteenth of the limit together, so that coroutines seldom look for a stack in other seats.
const STACKS_CACHED: usize = 64;

/// The private state of a worker. It stays in the seat while no thread works there.
pub(crate) struct Core {
    pub(crate) rings: WorkerRings,
    pub(crate) stores: Stores,
}

/// The private side of the run queues of a worker, and what decides the order in them.
pub(crate) struct WorkerRings {
    pub(crate) deque: deque::Owner<Ready, DEQUE>,
    /// The woken ring, in front of the global queue.
    pub(crate) woken: Lane<Ready, WOKEN>,
    /// The continued ring, in front of the overflow queue.
    pub(crate) continued: Lane<Ready, CONTINUED>,
    pub(crate) generator: RefCell<Generator>,
    pub(crate) sampler: WakeSampler,
    pub(crate) pace: Pace,
    pub(crate) owed: OwedTurns,
    /// The number of services that found something in the overflow queue.
    pub(crate) services: Cell<u32>,
    /// The number of processes that were taken out of the continued ring.
    pub(crate) rounds_taken: Cell<u32>,
    /// Woken processes bound to this worker that it queued itself, each with its place in the chain
    /// of wake-ups (`StepTurn::chain`). Bound processes that other threads queue arrive through the
    /// worker's seat.
    pub(crate) bound: RefCell<VecDeque<(Ready, u32)>>,
    /// Continued processes bound to this worker, each with the value of `rounds_taken` at which it
    /// is its turn.
    pub(crate) bound_continued: RefCell<VecDeque<(Ready, u32)>>,
}

/// What a worker keeps for the processes that start and end on it.
pub(crate) struct Stores {
    /// Free slots, so that most spawns take no lock.
    pub(crate) slots: RefCell<Vec<NonNull<Slot>>>,
    /// The number of coroutines that began on the thread that sits here, or sat here last, and that
    /// have not ended. They stay on that thread.
    pub(crate) begun: Cell<u32>,
    /// The number of consecutive services that did not know the time.
    pub(crate) timeless: Cell<u32>,
    /// The places of the processes that ended here last, for the recorder.
    pub(crate) places: PlaceCache,
}

// SAFETY: the cached slots are free, [free] only their owner touches them; all else is Send.
unsafe impl Send for Stores {}

impl Core {
    pub(crate) fn new(generator: Generator) -> (Self, Queues) {
        let (deque, deque_stealer) = deque::new();
        let (woken, woken_stealer) = Lane::new();
        let (continued, continued_stealer) = Lane::new();
        // From a copy, so that samples change nothing about the choices of the worker.
        let sampler = WakeSampler::new(Generator::with_seed(generator.clone().any()));
        let rings = WorkerRings {
            deque,
            woken,
            continued,
            generator: RefCell::new(generator),
            sampler,
            pace: Pace::default(),
            owed: OwedTurns::default(),
            services: Cell::new(0),
            rounds_taken: Cell::new(0),
            bound: RefCell::new(VecDeque::new()),
            bound_continued: RefCell::new(VecDeque::new()),
        };
        let stores = Stores {
            slots: RefCell::new(Vec::with_capacity(CACHE + 1)),
            begun: Cell::new(0),
            timeless: Cell::new(0),
            places: PlaceCache::default(),
        };
        let core = Self { rings, stores };
        (core, Queues { deque: deque_stealer, woken: woken_stealer, continued: continued_stealer })
    }
}

impl Stores {
    /// Returns a free slot of the worker. It takes them in batches from the table of its scheduler,
    /// `home`.
    pub(crate) fn free_slot<H: Home>(&self, table: &Table, home: &Arc<H>) -> Option<NonNull<Slot>> {
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            let batch = (table.cache() / 2).max(1);
            table.take_free(home, batch, &mut slots);
        }
        let slot = slots.pop()?;
        if let Some(next) = slots.last() {
            // One of many slots that were used once is in no cache by now.
            prefetch_slot(next.as_ptr());
        }
        Some(slot)
    }

    pub(crate) fn return_slots(&self, table: &Table) {
        let mut slots = mem::take(&mut *self.slots.borrow_mut());
        // The caller keeps the scheduler itself alive.
        drop(table.return_free(&mut slots, true));
    }
}

/// The free stacks that coroutines left in a seat, so that most coroutines take no lock that other
/// workers want. Any worker may empty it.
#[derive(Default)]
pub(crate) struct FreeStacks(Mutex<Option<StackCache>>);

impl FreeStacks {
    /// Takes the stack that was used here last, or else a stack of the slab. `width` is the number
    /// of workers that share the supply.
    pub(crate) fn take(
        &self,
        supply: &Supply,
        width: usize,
        bytes: usize,
    ) -> Result<Stack, StackError> {
        let stacks = supply.slab();
        let most = STACKS_CACHED.min(supply.stacks_limit / width / 16);
        self.0.lock().get_or_insert_with(|| StackCache::new(stacks, most)).take(bytes)
    }

    /// Takes back the stack of a coroutine that has ended. Returns `true` if stacks went to the
    /// slab.
    pub(crate) fn put(&self, stack: Stack) -> bool {
        match &mut *self.0.lock() {
            Some(cache) => cache.put(stack),
            None => {
                drop(stack);
                true
            }
        }
    }

    /// Returns all stacks to the slab, where all workers find them. Returns `true` if there were
    /// any.
    pub(crate) fn empty(&self) -> bool {
        self.0.lock().take().is_some_and(|cache| !cache.is_empty())
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
