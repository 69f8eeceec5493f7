//! The state of a thread in a seat, and what its worker keeps from one dispatch to the next.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

use procession_protocols::scheduler::checks::{CheckWord, Checks};
use procession_protocols::scheduler::levels::turns::LevelTurns;
use procession_protocols::scheduler::seat_id::{NEVER, SeatId};

use crate::machine::value::CommandResult;
use crate::process::request::MessageLog;
use crate::process::slot::{Ready, Slot};
use crate::scheduler::core::{Core, Stores};
use crate::scheduler::log::record::WorkerLog;
use crate::scheduler::root::BlockOnFuture;
use crate::scheduler::run_queues::RunQueues;
use crate::scheduler::shared::{Batch, Shared};
use crate::sys::nanoseconds;

/// The number of operations that a step may perform. The number is tokio's; at about 50 ns for each
/// operation, it makes a slice of some microseconds.
pub(crate) const BUDGET: u32 = 128;

/// The number of rounds over the other workers before a worker parks. After a search that found
/// nothing, the next one is half as long.
pub(crate) const ROUNDS: u32 = 4;

/// The age in nanoseconds at which an entry in a LIFO slot may be taken by another worker. The
/// number is Kotlin's.
pub(crate) const NEXT_AGE: u64 = 100_000;

/// The maximum time for which a parking worker waits before it looks at the LIFO slots again while
/// they stay full.
const NEXT_AGE_MAX: u64 = 10_000_000;

/// The minimum interval between two wake-ups of a worker for timers. The system needs nearly as
/// much time to wake it.
const APART: u64 = 20_000;

/// The same interval while timers come more often than that, so that most of the worker's time
/// would go into waking.
const APART_DENSE: u64 = 200_000;

/// The first nap of a worker after searches that found nothing, in nanoseconds. Each further nap is
/// twice as long, and after the last one it parks for good.
const NAP: u64 = 50_000;

const NAPS: u32 = 3;

/// The state of a thread in a seat.
pub(crate) struct LocalWorker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seat: SeatId,
    pub(crate) queues: RunQueues,
    pub(crate) levels: LevelState,
    pub(crate) stores: Stores,
    pub(crate) log: WorkerLog,
    pub(crate) step: CurrentStep,
    pub(crate) search: Search,
    pub(crate) firing: Firing,
    pub(crate) parking: Parking,
    pub(crate) checks: Checks,
    /// The word of the seat. Shared, so that a checkpoint finds it at once.
    pub(crate) check_word: Arc<CheckWord>,
    /// The number of nested blocking sections that the thread is in.
    pub(crate) sections: Cell<u32>,
    /// The buffer into which this worker polls.
    pub(crate) batch: RefCell<Batch>,
}

impl LocalWorker {
    pub(crate) fn new(shared: Arc<Shared>, seat: SeatId, core: Core, searching: bool) -> Self {
        let log = WorkerLog::new(&shared, seat);
        let step = CurrentStep::none(&shared);
        let check_word = Arc::clone(&shared.workforce.seat(seat).check_word);
        let queues = RunQueues::new(Arc::clone(&shared), seat, log.clone(), core.rings);
        Self {
            shared,
            seat,
            queues,
            levels: LevelState::default(),
            stores: core.stores,
            log,
            step,
            search: Search {
                is_on: Cell::new(searching),
                owes_next: Cell::new(false),
                rounds: Cell::new(ROUNDS),
                seen_next: RefCell::default(),
            },
            firing: Firing::default(),
            parking: Parking {
                timeout: Cell::new(NEXT_AGE),
                naps: Cell::new(0),
                fruitless_looks: Cell::new(0),
                useful: Cell::new(false),
                rested: Cell::new(0),
            },
            checks: Checks::default(),
            check_word,
            sections: Cell::new(0),
            batch: RefCell::default(),
        }
    }
}

/// The step that a worker runs.
pub(crate) struct CurrentStep {
    /// The process that runs its step.
    pub(crate) process: Cell<Option<NonNull<Slot>>>,
    /// The rest of the step's budget. A process that is run from the LIFO slot continues with the
    /// rest of its waker.
    pub(crate) budget: Cell<u32>,
    /// Set if the step asked for its turn to end.
    pub(crate) yields: Cell<bool>,
    /// Set if an operation of the step has acted although the budget was spent.
    pub(crate) is_overdrawn: Cell<bool>,
    /// Set while a poll has a fresh budget, until a search of the mailbox goes on beyond it.
    pub(crate) may_search_on: Cell<bool>,
    /// The process for which commands are being served.
    pub(crate) serving: Cell<Option<NonNull<Slot>>>,
    /// The scheduler for which the step uses this worker's counters. It is null in a step that
    /// records its messages for a trace, so that each message that it sends takes the slow path.
    pub(crate) counts_for: Cell<*const Shared>,
    /// Records the messages that the step sends, if they are traced.
    pub(crate) trace: RefCell<Option<Arc<MessageLog>>>,
    /// The result of one of these commands; `None` if none are served.
    pub(crate) served: RefCell<Option<(u64, CommandResult)>>,
}

impl CurrentStep {
    fn none(shared: &Shared) -> Self {
        Self {
            process: Cell::new(None),
            budget: Cell::new(BUDGET),
            yields: Cell::new(false),
            is_overdrawn: Cell::new(false),
            may_search_on: Cell::new(false),
            serving: Cell::new(None),
            counts_for: Cell::new(shared),
            trace: RefCell::new(None),
            served: RefCell::new(None),
        }
    }

    /// Returns `true` if a step runs.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.process.get().is_some()
    }

    /// Returns `true` if the running step belongs to the process in `slot`.
    #[inline]
    pub(crate) fn is_of(&self, slot: &Slot) -> bool {
        self.process.get() == Some(NonNull::from(slot))
    }

    pub(crate) fn spend(&self) {
        self.budget.set(self.budget.get().saturating_sub(1));
    }
}

/// What a worker remembers about levels from one dispatch to the next (`scheduler/levels.rs`).
#[derive(Default)]
pub(crate) struct LevelState {
    pub(crate) turns: LevelTurns,
    /// For each level, whether the last process from it was bound. Then the next turn belongs to
    /// one that any worker may run, should there be both.
    pub(crate) was_bound: [Cell<bool>; 2],
    /// The time since which the worker has a permit for batch processes.
    pub(crate) since: Cell<u64>,
    /// Set if its seat waits for such a permit.
    pub(crate) waits: Cell<bool>,
    /// The number of batch processes in a row.
    pub(crate) in_a_row: Cell<u32>,
}

/// The state of the search in the queues of other workers.
pub(crate) struct Search {
    /// Set if this worker is counted as searching.
    pub(crate) is_on: Cell<bool>,
    /// Set if this worker has left the search as the last one, and has woken no other yet.
    pub(crate) owes_next: Cell<bool>,
    /// The number of rounds of the next search.
    pub(crate) rounds: Cell<u32>,
    /// The LIFO slots of the other workers at the last look.
    pub(crate) seen_next: RefCell<Vec<SeenNext>>,
}

impl Search {
    /// Leaves the search, or work, for what may last long. The last worker to leave the search
    /// wakes the next worker, and so does a worker that has not done so yet.
    #[inline]
    pub(crate) fn stop(&self, shared: &Shared) {
        if self.owes_next.take() {
            shared.workforce.announce();
        }
        if self.is_on.take() && shared.workforce.idle.stop_searching() {
            shared.workforce.announce();
        }
    }
}

/// The times and numbers of the timers that this worker fires.
#[derive(Default)]
pub(crate) struct Firing {
    /// The time at which this worker last fired timers.
    at: Cell<u64>,
    /// The number of timers that it has fired since it parked.
    count: Cell<u32>,
    /// The value of `at` when it parked.
    before: Cell<u64>,
}

impl Firing {
    /// Notes that `fired` timers were fired at `now`.
    pub(crate) fn note(&self, now: u64, fired: u32) {
        self.at.set(now);
        self.count.set(self.count.get().saturating_add(fired));
    }

    /// Returns the time until which a worker that parks now does not wake for timers. Called once
    /// each time that it parks.
    pub(crate) fn not_before(&self) -> u64 {
        let at = self.at.get();
        let span = at - self.before.replace(at);
        let is_dense = u64::from(self.count.take()) * APART > span;
        at + if is_dense { APART_DENSE } else { APART }
    }
}

/// The times for which a worker parks before it looks again.
pub(crate) struct Parking {
    /// The time to park before looking at the LIFO slots of others again.
    timeout: Cell<u64>,
    /// The number of naps that this worker has taken in a row.
    naps: Cell<u32>,
    /// The number of times in a row that it has looked for another bound process and found none.
    pub(crate) fruitless_looks: Cell<u32>,
    /// Set if it has found something since it was woken.
    pub(crate) useful: Cell<bool>,
    /// The number of times that it may find something without immediately waking the next worker,
    /// because it has rested for long.
    pub(crate) rested: Cell<u32>,
}

impl Parking {
    /// Returns the time until which to park at most because a running worker's LIFO slot is full
    /// and must be looked at again.
    pub(crate) fn look_again_at(&self, shared: &Shared) -> u64 {
        let full = shared.workforce.all_seats().any(|seat| !seat.next.look().is_null());
        if !full || shared.world.is_test() || shared.workforce.idle.counts().0 > 0 {
            // The next look is soon.
            self.timeout.set(NEXT_AGE);
            return NEVER;
        }
        // Twice as long each time.
        let timeout = self.timeout.get();
        self.timeout.set((timeout * 2).min(NEXT_AGE_MAX));
        shared.world.now().saturating_add(timeout)
    }

    /// Returns the duration of a nap, if this worker is to take one: while others run, and if it
    /// has found nothing since it was woken.
    pub(crate) fn nap(&self, shared: &Shared, search: &Search) -> Option<u64> {
        let naps = self.naps.get();
        let fruitless = !self.useful.replace(false) && search.rounds.get() == 1;
        if !fruitless
            || naps == NAPS
            || shared.world.is_test()
            || !shared.workforce.idle.is_another_awake()
        {
            self.naps.set(0);
            return None;
        }
        self.naps.set(naps + 1);
        Some(NAP << naps)
    }
}

/// The LIFO slot of another worker, as it was seen.
#[derive(Clone, Copy)]
pub(crate) struct SeenNext {
    pub(crate) entry: *mut Slot,
    pub(crate) step: u64,
    pub(crate) since: u64,
}

impl Default for SeenNext {
    fn default() -> Self {
        Self { entry: std::ptr::null_mut(), step: 0, since: 0 }
    }
}

/// The purpose of a thread in a seat.
pub(crate) enum Stay<'a> {
    /// To run processes until the scheduler has ended.
    Always,
    /// To run processes until this future is complete.
    BlockOn(&'a BlockOnFuture, &'a mut dyn FnMut() -> bool),
    /// To run processes until none can run.
    Idle,
    /// To run the coroutines that have begun on this thread until they have ended. Holds the bound
    /// processes that were passed over.
    EndCoroutines(Vec<Ready>),
}

impl Stay<'_> {
    /// Returns `true` if the stay of this thread is over, or has work for it.
    pub(crate) fn is_over(&self, shared: &Shared) -> bool {
        match self {
            Self::Always => shared.lifetime.has_ended(),
            Self::BlockOn(root, _) => root.is_ready(),
            Self::EndCoroutines(_) => true,
            Self::Idle => false,
        }
    }

    /// Returns the time at which this thread leaves if it is not used until then. Never, if there
    /// is no surplus of threads.
    pub(crate) fn retire_at(&self, shared: &Shared, seat: SeatId) -> u64 {
        // Coroutines and local processes that have begun here stay on this thread.
        let keeps = shared.workforce.seat(seat).residents() > 0;
        if !matches!(self, Self::Always) || keeps || !shared.workforce.idle.has_surplus() {
            return NEVER;
        }
        shared.world.now().saturating_add(nanoseconds(shared.workforce.threads.options.keep_alive))
    }
}

/// The result of a thread's search for work, or of its wait.
pub(crate) enum Parked {
    Woken,
    /// Nothing can run in the whole scheduler, unless time passes or something outside acts.
    AllIdle,
    /// There are more threads than can be used, and this one has not been used for long.
    Retired,
}
