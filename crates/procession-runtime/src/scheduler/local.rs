//! The state of a thread in a seat, and what its worker keeps from one dispatch to the next.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

use procession_protocols::recorder::ring::EventRing;
use procession_protocols::scheduler::seat_id::SeatId;

use crate::machine::value::CommandResult;
use crate::mailbox::message_log::MessageLog;
use crate::process::slot::{Ready, Slot};
use crate::scheduler::core::Core;
use crate::scheduler::log::word::WordKind;
use crate::scheduler::poller::Batch;
use crate::scheduler::root::BlockOnFuture;
use crate::scheduler::shared::Shared;

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

/// The state of a thread in a seat.
pub(crate) struct LocalWorker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seat: SeatId,
    pub(crate) core: Core,
    /// The seat's ring of events, which this thread writes.
    pub(crate) ring: Arc<EventRing>,
    pub(crate) step: CurrentStep,
    pub(crate) bound: BoundTurns,
    pub(crate) search: Search,
    pub(crate) firing: Firing,
    pub(crate) parking: Parking,
    /// Set if a ring has received something for which no worker was woken.
    pub(crate) unannounced: Cell<bool>,
    /// The time of this worker's last comparison of its rings with those of others.
    pub(crate) balanced_at: Cell<u64>,
    /// The number of nested blocking sections that the thread is in.
    pub(crate) sections: Cell<u32>,
    /// The buffer into which this worker polls.
    pub(crate) batch: RefCell<Batch>,
}

impl LocalWorker {
    pub(crate) fn new(shared: Arc<Shared>, seat: SeatId, core: Core, searching: bool) -> Self {
        let is_extra = seat.0 >= shared.seats.first();
        let place = &shared.seat(seat).ring;
        let ring = shared.recorder.ring(place, is_extra, || shared.world.now());
        let step = CurrentStep::none(&shared);
        Self {
            shared,
            seat,
            core,
            ring,
            step,
            bound: BoundTurns::default(),
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
                useful: Cell::new(false),
                rested: Cell::new(0),
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
    /// The process that runs its step.
    pub(crate) process: Cell<Option<NonNull<Slot>>>,
    /// The rest of the step's budget. A process that is run from the LIFO slot continues with the
    /// rest of its waker.
    pub(crate) budget: Cell<u32>,
    /// Set if the step asked for its turn to end.
    pub(crate) yields: Cell<bool>,
    /// Set if an operation of the step has acted although the budget was spent.
    pub(crate) is_overdrawn: Cell<bool>,
    /// The length of the chain of wake-ups that led to the running step: 0 unless a step of this
    /// worker woke the process and it ran next, otherwise one more than that of the waking step.
    pub(crate) chain: Cell<u32>,
    /// Set if the process to run came from the LIFO slot and continues with the budget of its
    /// waker.
    pub(crate) inherits: Cell<bool>,
    /// The kind of event that the step is: `Step`, or `NextStep` if the process came from the LIFO
    /// slot, into which the step before has put it.
    pub(crate) kind: Cell<WordKind>,
    /// The process for which commands are being served.
    pub(crate) serving: Cell<Option<NonNull<Slot>>>,
    /// The scheduler whose counters of this worker the step counts on. It is null in a step whose
    /// messages are traced, so that each message that it sends takes the slow path.
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
            chain: Cell::new(0),
            inherits: Cell::new(false),
            kind: Cell::new(WordKind::Step),
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

    /// Returns `true` if the running step is that of the process in `slot`.
    #[inline]
    pub(crate) fn is_of(&self, slot: &Slot) -> bool {
        self.process.get() == Some(NonNull::from(slot))
    }

    pub(crate) fn spend(&self) {
        self.budget.set(self.budget.get().saturating_sub(1));
    }

    /// Returns the chain of a process that is woken now and runs next.
    #[inline]
    pub(crate) fn next_chain(&self) -> u32 {
        if self.is_any() { self.chain.get().saturating_add(1) } else { 0 }
    }
}

/// The turns of the processes bound to this worker, among themselves and relative to others.
#[derive(Default)]
pub(crate) struct BoundTurns {
    /// Set if the last process taken here was a bound one.
    pub(crate) ran_last: Cell<bool>,
    /// Set if bound processes that others have queued are next.
    pub(crate) of_others: Cell<bool>,
    /// Set if a bound process has run since this worker last found nothing.
    pub(crate) had_any: Cell<bool>,
    /// The number of times in a row that it has then looked for another and found none.
    pub(crate) fruitless_looks: Cell<u32>,
}

/// The state of the search in the queues of other workers.
pub(crate) struct Search {
    /// Set if this worker is counted as searching.
    pub(crate) is_on: Cell<bool>,
    /// Set if this worker has left the search as the last one, and has woken no other yet.
    pub(crate) owes_next: Cell<bool>,
    /// The number of rounds of the next search.
    pub(crate) rounds: Cell<u32>,
    /// The LIFO slots of the others at the last look.
    pub(crate) seen_next: RefCell<Vec<SeenNext>>,
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
    pub(crate) naps: Cell<u32>,
    /// Set if it has found something since it was woken.
    pub(crate) useful: Cell<bool>,
    /// The number of times that it may find something without waking the next worker at once, since
    /// it has rested for long.
    pub(crate) rested: Cell<u32>,
}

impl Parking {
    /// Makes the next look at a full LIFO slot come soon. Called when none is full.
    pub(crate) fn reset_timeout(&self) {
        self.timeout.set(NEXT_AGE);
    }

    /// Returns the time to park before looking at full LIFO slots again: twice as long each time.
    pub(crate) fn take_timeout(&self) -> u64 {
        let timeout = self.timeout.get();
        self.timeout.set((timeout * 2).min(NEXT_AGE_MAX));
        timeout
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
