//! A thread's seat.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::io::poller::Batch;
use crate::machine::value::CommandResult;
use crate::process::slot::Slot;
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
pub(crate) const NEXT_AGE_MAX: u64 = 10_000_000;

/// A thread's seat.
pub(crate) struct Local {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seat: SeatId,
    pub(crate) core: Core,
    /// The process whose step runs.
    pub(crate) current: Cell<Option<NonNull<Slot>>>,
    /// What its step may still spend; a process run out of the next slot goes on with what its
    /// waker left.
    pub(crate) budget: Cell<u32>,
    /// Whether the step asked for its turn to end.
    pub(crate) gives_way: Cell<bool>,
    /// The process whose commands are being served.
    pub(crate) serving: Cell<Option<NonNull<Slot>>>,
    /// What has come of one of them; nothing, if none are.
    pub(crate) served: RefCell<Option<(u64, CommandResult)>>,
    /// How long the chain of wake-ups is that led to the running step: 0 unless a step of this
    /// worker woke the process and it ran next, and then one more than that of the step.
    pub(crate) chain: Cell<u32>,
    /// When this worker last compared its rings with those of others.
    pub(crate) balanced_at: Cell<u64>,
    /// Whether the process to run came out of the next slot.
    pub(crate) inherits: Cell<bool>,
    /// Whether the last process from here was a bound one.
    pub(crate) ran_bound: Cell<bool>,
    /// Whether bound processes that others have queued are next.
    pub(crate) bound_turn: Cell<bool>,
    /// Whether a bound process has run since this worker has last found nothing.
    pub(crate) had_bound: Cell<bool>,
    /// How often in a row it has then looked for another in vain.
    pub(crate) looked_in_vain: Cell<u32>,
    /// Whether a ring has received something for which nobody was woken.
    pub(crate) unannounced: Cell<bool>,
    /// Whether this worker is counted as searching.
    pub(crate) searching: Cell<bool>,
    /// How many rounds the next search makes.
    pub(crate) rounds: Cell<u32>,
    /// The next slots of the others, as they were at the last look.
    pub(crate) seen_next: RefCell<Vec<Seen>>,
    /// How long to park before looking at them again.
    pub(crate) patience: Cell<u64>,
    /// When this worker has last fired timers.
    pub(crate) fired_at: Cell<u64>,
    /// How many it has fired since it parked.
    pub(crate) fired: Cell<u32>,
    /// What `fired_at` was when it parked.
    pub(crate) fired_before: Cell<u64>,
    /// How often in a row this worker has napped.
    pub(crate) naps: Cell<u32>,
    /// Whether it has found something since it was woken.
    pub(crate) useful: Cell<bool>,
    /// How many blocking sections the thread is in, one in the other.
    pub(crate) sections: Cell<u32>,
    /// What this worker polls into.
    pub(crate) batch: RefCell<Batch>,
}

/// The next slot of another worker, as it was seen.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) entry: *mut Slot,
    pub(crate) step: u64,
    pub(crate) since: u64,
}

impl Default for Seen {
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
    /// To end the coroutines that have begun on this thread.
    EndCoroutines,
}
