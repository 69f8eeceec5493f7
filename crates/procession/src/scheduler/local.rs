//! A thread's seat, and what the worker in it keeps from one dispatch to the next.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::io::poller::Batch;
use crate::machine::value::CommandResult;
use crate::process::slot::{Ready, Slot};
use crate::scheduler::core::Core;
use crate::scheduler::root::Root;
use crate::scheduler::seat_id::SeatId;
use crate::scheduler::shared::Shared;

/// What a step may spend: tokio's number, which at some 50 ns for each operation is a slice of some
/// microseconds.
pub(crate) const BUDGET: u32 = 128;

/// Rounds over the other workers, before a worker parks. After a search that found nothing, the
/// next is half as long.
pub(crate) const ROUNDS: u32 = 4;

/// How old an entry in a next slot must be before another worker takes it: Kotlin's number.
pub(crate) const NEXT_AGE: u64 = 100_000;

/// How long a parking worker waits at most to look at the next slots again, once they keep
/// changing.
const NEXT_AGE_MAX: u64 = 10_000_000;

/// How far apart a worker wakes for timers at least: what the system needs to wake it is not much
/// less.
const APART: u64 = 20_000;

/// Likewise, if they come more often than that, so that most of its time would go into waking.
const APART_DENSE: u64 = 200_000;

/// A thread's seat.
pub(crate) struct LocalWorker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seat: SeatId,
    pub(crate) core: Core,
    pub(crate) step: CurrentStep,
    pub(crate) bound: BoundTurns,
    pub(crate) search: Search,
    pub(crate) firing: Firing,
    pub(crate) parking: Parking,
    /// Whether a ring has received something for which nobody was woken.
    pub(crate) unannounced: Cell<bool>,
    /// When this worker last compared its rings with those of others.
    pub(crate) balanced_at: Cell<u64>,
    /// How many blocking sections the thread is in, one in the other.
    pub(crate) sections: Cell<u32>,
    /// What this worker polls into.
    pub(crate) batch: RefCell<Batch>,
}

impl LocalWorker {
    pub(crate) fn new(shared: Arc<Shared>, seat: SeatId, core: Core, searching: bool) -> Self {
        Self {
            shared,
            seat,
            core,
            step: CurrentStep::none(),
            bound: BoundTurns::default(),
            search: Search {
                is_on: Cell::new(searching),
                rounds: Cell::new(ROUNDS),
                seen_next: RefCell::default(),
            },
            firing: Firing::default(),
            parking: Parking {
                patience: Cell::new(NEXT_AGE),
                naps: Cell::new(0),
                useful: Cell::new(false),
            },
            unannounced: Cell::new(false),
            balanced_at: Cell::new(0),
            sections: Cell::new(0),
            batch: RefCell::default(),
        }
    }
}

/// The step that a worker runs.
pub(crate) struct CurrentStep {
    /// The process whose step runs.
    pub(crate) process: Cell<Option<NonNull<Slot>>>,
    /// What its step may still spend; a process run out of the next slot goes on with what its
    /// waker left.
    pub(crate) budget: Cell<u32>,
    /// Whether the step asked for its turn to end.
    pub(crate) gives_way: Cell<bool>,
    /// How long the chain of wake-ups is that led to the running step: 0 unless a step of this
    /// worker woke the process and it ran next, and then one more than that of the step.
    pub(crate) chain: Cell<u32>,
    /// Whether the process to run came out of the next slot.
    pub(crate) inherits: Cell<bool>,
    /// The process whose commands are being served.
    pub(crate) serving: Cell<Option<NonNull<Slot>>>,
    /// What has come of one of them; nothing, if none are.
    pub(crate) served: RefCell<Option<(u64, CommandResult)>>,
}

impl CurrentStep {
    fn none() -> Self {
        Self {
            process: Cell::new(None),
            budget: Cell::new(BUDGET),
            gives_way: Cell::new(false),
            chain: Cell::new(0),
            inherits: Cell::new(false),
            serving: Cell::new(None),
            served: RefCell::new(None),
        }
    }

    /// Whether a step runs.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.process.get().is_some()
    }

    /// Whether it is that of the process in `slot`.
    #[inline]
    pub(crate) fn is_of(&self, slot: &Slot) -> bool {
        self.process.get() == Some(NonNull::from(slot))
    }

    pub(crate) fn spend(&self) {
        self.budget.set(self.budget.get().saturating_sub(1));
    }

    /// The chain of a process that is woken now and runs next.
    #[inline]
    pub(crate) fn next_chain(&self) -> u32 {
        if self.is_any() { self.chain.get().saturating_add(1) } else { 0 }
    }
}

/// Whose turn it is among the processes bound to this worker, and between them and others.
#[derive(Default)]
pub(crate) struct BoundTurns {
    /// Whether the last process from here was a bound one.
    pub(crate) ran_last: Cell<bool>,
    /// Whether bound processes that others have queued are next.
    pub(crate) of_others: Cell<bool>,
    /// Whether a bound process has run since this worker has last found nothing.
    pub(crate) had_any: Cell<bool>,
    /// How often in a row it has then looked for another in vain.
    pub(crate) looked_in_vain: Cell<u32>,
}

/// The search in the queues of other workers.
pub(crate) struct Search {
    /// Whether this worker is counted as searching.
    pub(crate) is_on: Cell<bool>,
    /// How many rounds the next search makes.
    pub(crate) rounds: Cell<u32>,
    /// The next slots of the others, as they were at the last look.
    pub(crate) seen_next: RefCell<Vec<SeenNext>>,
}

/// When and how many timers a worker fires.
#[derive(Default)]
pub(crate) struct Firing {
    /// When this worker has last fired timers.
    at: Cell<u64>,
    /// How many it has fired since it parked.
    count: Cell<u32>,
    /// What `at` was when it parked.
    before: Cell<u64>,
}

impl Firing {
    /// So many timers were fired.
    pub(crate) fn note(&self, now: u64, fired: u32) {
        self.at.set(now);
        self.count.set(self.count.get().saturating_add(fired));
    }

    /// Until when a worker that parks now does not wake for timers. Asked once each time.
    pub(crate) fn not_before(&self) -> u64 {
        let at = self.at.get();
        let span = at - self.before.replace(at);
        let is_dense = u64::from(self.count.take()) * APART > span;
        at + if is_dense { APART_DENSE } else { APART }
    }
}

/// For how long a worker parks that will look again.
pub(crate) struct Parking {
    /// How long to park before looking at the next slots of others again.
    patience: Cell<u64>,
    /// How often in a row this worker has napped.
    pub(crate) naps: Cell<u32>,
    /// Whether it has found something since it was woken.
    pub(crate) useful: Cell<bool>,
}

impl Parking {
    /// No next slot is full: the next look at a full one comes soon.
    pub(crate) fn reset_patience(&self) {
        self.patience.set(NEXT_AGE);
    }

    /// How long to park before looking at full next slots again: twice as long each time.
    pub(crate) fn take_patience(&self) -> u64 {
        let patience = self.patience.get();
        self.patience.set((patience * 2).min(NEXT_AGE_MAX));
        patience
    }
}

/// The next slot of another worker, as it was seen.
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

/// What a thread in a seat is there for.
pub(crate) enum Stay<'a> {
    /// To run processes until the scheduler has ended.
    Always,
    /// To run processes until this future is complete.
    Root(&'a Root, &'a mut dyn FnMut() -> bool),
    /// To run processes until none can run.
    Idle,
    /// To run the coroutines that have begun on this thread until they have ended. Holds the bound
    /// processes that were passed over.
    EndCoroutines(Vec<Ready>),
}
