//! The scheduler and the process that the calling thread works for, and what the thread does for
//! them.
//!
//! ## Invariants
//! - `[seated]` `LOCAL` points at the seat that `CURRENT` holds. The seat exists until `Entered`
//!   puts another value into both.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::Location;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use procession_protocols::process::priority::Priority;
use procession_protocols::sync::batch_semaphore::{Holder, LockName};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::Pid;
use crate::process::handling::Inherited;
use crate::process::slot::{Extra, Parent, Ready, Slot, SlotRef};
use crate::process::wait_edge::{WaitProof, mutation};
use crate::process::wait_reason::{WaitTarget, Waiting};
use crate::scheduler::entries::EntriesTurn;
use crate::scheduler::local::{CurrentStep, LocalWorker};
use crate::scheduler::log::WordKind;
use crate::scheduler::seat::{Count, Stats};
use crate::scheduler::shared::Shared;
use crate::scheduler::{blocking_step, entries};

/// The scheduler that the calling thread belongs to.
pub(crate) enum Current {
    /// The thread is a worker.
    Seat(Rc<LocalWorker>),
    /// The thread is a worker, and the user has entered schedulers on it since it is one
    /// (`entries`). This is a separate variant, so that other workers need not look for entries.
    SeatWithEntries(Rc<LocalWorker>),
    /// The thread is in `block_on`, or works for the scheduler without being one of its workers.
    Outside {
        shared: Arc<Shared>,
        /// The process for which the thread works.
        on_behalf_of: Option<Pid>,
        /// `true` if the thread fires the timers of threads that are not workers.
        fires: bool,
    },
}

impl Current {
    pub(crate) fn outside(shared: Arc<Shared>) -> Self {
        Self::Outside { shared, on_behalf_of: None, fires: false }
    }

    fn local(&self) -> Option<&Rc<LocalWorker>> {
        match self {
            Self::Seat(local) | Self::SeatWithEntries(local) => Some(local),
            Self::Outside { .. } => None,
        }
    }
}

thread_local! {
    /// The scheduler of this thread. It has no destructor, so that it can be used while the other
    /// locals of the thread are destroyed: such a local may own a scheduler, or block on a future.
    /// `Entered` empties it before the thread ends.
    static CURRENT: RefCell<ManuallyDrop<Option<Current>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
    /// The seat in `CURRENT`, for code that only looks: a message passes here seven times
    /// (`pingpong` 138 and 121 ns).
    static LOCAL: Cell<Option<NonNull<LocalWorker>>> = const { Cell::new(None) };
    /// The number of schedulers that the thread drives, one inside the other.
    static DRIVE_DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Returns how many schedulers the thread drives, one inside the other. State that is kept for a
/// thread during a poll belongs to one of these schedulers. Not inlined, because a coroutine that
/// migrates must read the word of its present thread.
#[inline(never)]
pub(crate) fn drive_depth() -> u32 {
    DRIVE_DEPTH.get()
}

/// Notes how many schedulers the thread drives. Not inlined, like `drive_depth`.
#[inline(never)]
pub(crate) fn set_drive_depth(depth: u32) {
    DRIVE_DEPTH.set(depth);
}

/// Calls `with` with the worker that this thread is, if it is one. `with` must neither take nor
/// leave a seat.
#[inline]
pub(crate) fn with_local<R>(with: impl FnOnce(Option<&LocalWorker>) -> R) -> R {
    // SAFETY: [seated], and `with` leaves the seat where it is.
    with(LOCAL.get().map(|local| unsafe { local.as_ref() }))
}

/// A scheduler that this thread holds. A worker holds its own scheduler without counting, because
/// all workers would share the counter.
pub(crate) enum Hold {
    Seat(Rc<LocalWorker>),
    Shared(Arc<Shared>),
}

impl Hold {
    /// Returns the worker that this thread is, if it is known to be one of the scheduler's workers.
    /// The worker can then be used without looking it up again.
    #[inline]
    pub(crate) fn local(&self) -> Option<&LocalWorker> {
        match self {
            Self::Seat(local) => Some(local),
            Self::Shared(_) => None,
        }
    }
}

impl Deref for Hold {
    type Target = Arc<Shared>;

    #[inline]
    fn deref(&self) -> &Arc<Shared> {
        match self {
            Self::Seat(local) => &local.shared,
            Self::Shared(shared) => shared,
        }
    }
}

/// Returns the scheduler of the worker that this thread is, unless the user has entered schedulers
/// on it.
#[inline]
pub(crate) fn seat() -> Option<Hold> {
    CURRENT.with(|here| match &**here.borrow() {
        Some(Current::Seat(local)) => Some(Hold::Seat(Rc::clone(local))),
        _ => None,
    })
}

/// Returns the scheduler that this thread has entered, or works for, or waits in.
#[inline]
pub(crate) fn here() -> Option<Hold> {
    seat().or_else(entered)
}

#[cold]
#[inline(never)]
fn entered() -> Option<Hold> {
    CURRENT.with(|here| {
        let here = here.borrow();
        let step = here.as_ref().and_then(Current::local).map_or(0, |local| step_of(local));
        if let Some(shared) = entries::latest(step) {
            return Some(Hold::Shared(shared));
        }
        Some(match here.as_ref()? {
            Current::Seat(local) | Current::SeatWithEntries(local) => Hold::Seat(Rc::clone(local)),
            Current::Outside { shared, .. } => Hold::Shared(Arc::clone(shared)),
        })
    })
}

fn step_of(local: &LocalWorker) -> u64 {
    // Relaxed: this thread writes it.
    local.shared.workforce.seat(local.seat).step.load(Relaxed)
}

/// Makes `shared` the scheduler of this thread until the entry with the returned number is removed.
pub(crate) fn add_entry(shared: Arc<Shared>) -> u64 {
    let step = CURRENT.with(|here| {
        let mut here = here.borrow_mut();
        match here.take() {
            Some(Current::Seat(local) | Current::SeatWithEntries(local)) => {
                let step = step_of(&local);
                **here = Some(Current::SeatWithEntries(local));
                step
            }
            other => {
                **here = other;
                0
            }
        }
    });
    entries::add(shared, step)
}

/// Removes an entry, if its turn has not done so.
pub(crate) fn remove_entry(number: u64) {
    entries::remove_number(number);
    CURRENT.with(|here| {
        let mut here = here.borrow_mut();
        match here.take() {
            Some(Current::SeatWithEntries(local)) if !entries::has_any() => {
                **here = Some(Current::Seat(local));
            }
            other => **here = other,
        }
    });
}

/// Returns the process that this thread works for without running it.
pub(crate) fn on_behalf_of() -> Option<Pid> {
    CURRENT.with(|here| match &**here.borrow() {
        Some(Current::Outside { on_behalf_of, .. }) => *on_behalf_of,
        _ => None,
    })
}

/// Returns `true` if this thread itself fires the timers of `shared` that threads which are not
/// workers have set.
pub(crate) fn fires_timers_of(shared: &Shared) -> bool {
    CURRENT.with(|here| match &**here.borrow() {
        Some(Current::Outside { shared: here, fires: true, .. }) => std::ptr::eq(&**here, shared),
        _ => false,
    })
}

/// Returns this scheduler, held without counting if possible.
pub(crate) fn hold(shared: &Arc<Shared>) -> Hold {
    here()
        .filter(|here| Arc::ptr_eq(here, shared))
        .unwrap_or_else(|| Hold::Shared(Arc::clone(shared)))
}

/// Makes a thread belong to a scheduler until the guard is dropped.
pub(crate) struct Entered {
    before: Option<Current>,
    #[expect(dead_code, reason = "held for its drop")]
    turn: EntriesTurn,
}

impl Entered {
    pub(crate) fn enter(here: Current) -> Self {
        Self { before: put(Some(here)), turn: EntriesTurn::begin() }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(put(self.before.take()));
    }
}

/// Calls `act` as if this thread belonged to no scheduler.
#[cfg(feature = "sim")]
pub(crate) fn as_outsider<R>(act: impl FnOnce() -> R) -> R {
    let _entered = Entered { before: put(None), turn: EntriesTurn::begin() };
    act()
}

/// Makes this thread belong to `here`, and returns what it belonged to before.
fn put(here: Option<Current>) -> Option<Current> {
    let local = here.as_ref().and_then(Current::local).map(|local| NonNull::from(&**local));
    let before = CURRENT.with(|place| place.replace(ManuallyDrop::new(here)));
    LOCAL.set(local);
    ManuallyDrop::into_inner(before)
}

/// Returns the worker that this thread is.
pub(crate) fn worker() -> Option<Rc<LocalWorker>> {
    CURRENT.with(|here| here.borrow().as_ref().and_then(Current::local).cloned())
}

/// Returns the process that this thread runs.
pub(crate) fn current() -> Option<SlotRef> {
    with_local(|local| {
        let slot = local?.step.process.get()?;
        // SAFETY: [running] a process in its step has its life pin.
        Some(SlotRef::again(unsafe { slot.as_ref() }))
    })
}

/// Returns the id of the scheduler of the process that this thread runs.
#[inline]
pub(crate) fn scheduler_of_process() -> Option<u32> {
    with_local(|local| local.filter(|local| local.step.is_any()).map(|local| local.shared.id()))
}

/// Returns `true` if this thread is one of the scheduler's workers.
pub(crate) fn is_worker_of(shared: &Shared) -> bool {
    with_local(|local| local.is_some_and(|local| std::ptr::eq(&*local.shared, shared)))
}

/// Returns `true` if this thread is a worker of any scheduler.
pub(crate) fn is_worker() -> bool {
    with_local(|local| local.is_some())
}

/// Returns `true` if `slot` holds the process that this thread runs.
#[inline]
pub(crate) fn is_current(slot: &Slot) -> bool {
    with_local(|local| local.is_some_and(|local| local.step.is_of(slot)))
}

/// The counters on which this thread counts for a scheduler.
#[derive(Clone, Copy)]
pub(crate) struct Counter<'a> {
    stats: &'a Stats,
    /// `true` if only this thread writes these counters.
    own: bool,
}

impl<'a> Counter<'a> {
    #[inline]
    fn own(stats: &'a Stats) -> Self {
        Self { stats, own: true }
    }

    /// The counters of the worker that this thread is.
    #[inline]
    pub(crate) fn of(local: &'a LocalWorker) -> Self {
        Self::own(&local.shared.workforce.seat(local.seat).stats)
    }

    /// Returns `true` if only this thread writes these counters.
    #[inline]
    pub(crate) fn is_own(self) -> bool {
        self.own
    }

    #[inline]
    pub(crate) fn add(self, which: impl Fn(&Stats) -> &Count, more: u64) {
        if self.own { which(self.stats).add(more) } else { which(self.stats).add_shared(more) }
    }
}

/// Returns the counters on which this thread counts for `shared`. If the thread is a worker of
/// `shared`, these are the worker's own counters.
#[inline]
pub(crate) fn counter(shared: &Shared) -> Counter<'_> {
    with_local(|local| counter_at(local, shared))
}

#[inline]
pub(crate) fn counter_at<'a>(local: Option<&LocalWorker>, shared: &'a Shared) -> Counter<'a> {
    match local.filter(|local| std::ptr::eq(local.step.counts_for.get(), shared)) {
        Some(local) => Counter::own(&shared.workforce.seat(local.seat).stats),
        None => Counter { stats: &shared.stats.outside, own: false },
    }
}

/// Adds to one of the counters of `shared`.
#[inline]
pub(crate) fn count(shared: &Shared, which: impl Fn(&Stats) -> &Count, more: u64) {
    counter(shared).add(which, more);
}

/// Wakes the process in `slot` without a read-modify-write, if its step runs on this thread: the
/// process then continues after the step. Returns `false` otherwise.
#[inline]
pub(crate) fn yield_if_current(slot: &Slot) -> bool {
    with_local(|local| {
        let local = local.filter(|local| local.step.is_of(slot));
        local.inspect(|local| local.step.yields.set(true)).is_some()
    })
}

/// Keeps a free slot for this worker's next spawn. If the worker has enough free slots, half are
/// returned to the table. Returns `false` if this thread is not a worker of the slot's scheduler,
/// or its free slots are in use.
pub(crate) fn cache_slot(slot: NonNull<Slot>) -> bool {
    with_local(|local| {
        // SAFETY: [type-stable]
        let shared = unsafe { slot.as_ref() }.shared();
        let Some(local) = local.filter(|local| std::ptr::eq(&*local.shared, shared)) else {
            return false;
        };
        let Ok(mut slots) = local.stores.slots.try_borrow_mut() else {
            return false;
        };
        let cache = shared.table().cache();
        if slots.len() >= cache {
            let mut half = slots.split_off(cache / 2);
            half.push(slot);
            // The worker itself keeps the scheduler alive.
            drop(shared.table().return_free(&mut half, true));
            return true;
        }
        slots.push(slot);
        true
    })
}

/// Returns a free slot for a new process of `shared`.
pub(crate) fn free_slot(shared: &Hold) -> Option<NonNull<Slot>> {
    if let Some(local) = shared.local() {
        return local.stores.free_slot(shared.table(), shared);
    }
    with_local(|local| match local.filter(|local| Arc::ptr_eq(&local.shared, shared)) {
        Some(local) => local.stores.free_slot(shared.table(), shared),
        None => {
            let mut slots = Vec::with_capacity(1);
            shared.table().take_free(shared, 1, &mut slots);
            slots.pop()
        }
    })
}

/// Records that the running process calls another one.
pub(crate) fn record_call(callee: Pid) {
    with_local(|local| {
        if let Some(local) = local.filter(|local| local.step.is_any()) {
            local.log.call(callee);
        }
    });
}

/// Calls `with` with the process whose step this thread runs, or whose step blocks on the future
/// that this thread polls, if there is one.
pub(super) fn with_current(with: impl FnOnce(&Slot)) {
    with_local(|local| match local.map(|local| local.step.process.get()) {
        // SAFETY: [running] a process in its step has its life pin.
        Some(Some(slot)) => with(unsafe { slot.as_ref() }),
        Some(None) => {}
        None => blocking_step::with_process(with),
    });
}

/// Adds to the reasons for which the running process waits.
pub(crate) fn note_waiting(waiting: Waiting) {
    with_current(|slot| {
        if slot.waiting.get() == Waiting::default() {
            // The place belongs to an earlier step.
            slot.waited_at.forget();
        }
        slot.waiting.note(waiting);
    });
}

/// Adds to the reasons for which the running process waits, and sets the place where it does.
pub(crate) fn note_waiting_at(waiting: Waiting, place: &'static Location<'static>) {
    with_current(|slot| {
        slot.waiting.note(waiting);
        slot.waited_at.set(place);
    });
}

/// Adds one of [`Waiting::FOR_ANOTHER`] to the reasons for which the running process waits, and
/// sets the process that it waits for, with the proof, if both are known. `lender` is the process
/// whose own waker the future was polled with. This is `Note` of `process/wait_edge.rs`. Returns
/// `true` if the running process has lent its priority.
pub(crate) fn note_waiting_for(
    lender: Option<*const Slot>,
    waiting: Waiting,
    target: WaitTarget,
    proof: WaitProof,
) -> bool {
    with_current(|slot| {
        let is_first = slot.waiting.get() == Waiting::default()
            || mutation::is(mutation::BUILT, mutation::LAST_OF_SEVERAL);
        let is_only = is_first && lender == Some(std::ptr::from_ref(slot));
        let shared = slot.shared();
        let proof = if is_only { proof } else { WaitProof::None };
        shared.processes.edges.note(slot.index(), shared.table().limit(), target, proof);
    });
    note_waiting(waiting);
    let mut lends = false;
    // A loan ends when the process is queued, so a step that blocks lends nothing.
    if is_worker() {
        with_current(|slot| lends = slot.shared().lend(slot, waiting, target));
    }
    lends
}

/// Adds one of [`Waiting::FOR_ANOTHER`] to the reasons for which the running process waits, if it
/// is not known for which process.
pub(crate) fn note_waiting_for_some(waiting: Waiting) {
    note_waiting_for(None, waiting, WaitTarget::UNKNOWN, WaitProof::None);
}

/// Returns a process as the process that the running process waits for. It is unknown if it belongs
/// to another scheduler.
pub(crate) fn target_of(slot: &Slot) -> WaitTarget {
    let mut is_near = false;
    with_current(|own| is_near = std::ptr::eq(own.shared(), slot.shared()));
    let target = WaitTarget::new(slot.index(), slot.pins.generation());
    if is_near { target } else { WaitTarget::UNKNOWN }
}

/// Sets the place where the running process waits.
pub(crate) fn note_place(place: &'static Location<'static>) {
    with_current(|slot| slot.waited_at.set(place));
}

/// Returns the running process, or the code outside of processes, as the holder of a lock.
pub(crate) fn as_holder() -> Holder {
    let mut own = Holder { slot: WaitTarget::OUTSIDE.slot_bits(), ..Holder::UNKNOWN };
    with_current(|slot| {
        let generation = slot.pins.generation();
        own =
            Holder { scheduler: slot.shared().id(), slot: slot.index(), generation, moves: false };
    });
    own
}

/// Returns the running process as the holder of a lock with a guard that may move to another
/// process.
pub(crate) fn as_mover() -> Holder {
    Holder { moves: true, ..as_holder() }
}

/// Returns `true` if a process waits for the reply to a call of the running process. `shared` is
/// the scheduler of `callee`.
pub(crate) fn is_called_back(shared: &Shared, callee: &Slot) -> bool {
    let mut is_called_back = false;
    with_current(|slot| {
        is_called_back = std::ptr::eq(slot.shared(), shared) && shared.calls_lead_to(callee, slot);
    });
    is_called_back
}

/// Names a lock that the running process waits for.
pub(crate) fn name_lock() -> Option<Arc<LockName>> {
    let mut name = None;
    with_current(|slot| {
        let shared = slot.shared();
        name = Some(shared.processes.edges.name_lock(shared.id()));
    });
    name
}

/// Returns the number of this thread. No other thread ever has the same number.
pub(crate) fn thread_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Relaxed) + 1);
        }
        number.get()
    })
}

/// The origin of an entry, which decides into which queue it goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A wake-up.
    Woken,
    /// A spawn.
    Spawned,
}

/// Returns the kind of event of a bound process that is made ready, perhaps by a step of this
/// worker.
#[cold]
fn word_of(origin: Origin, in_step: bool) -> WordKind {
    match origin {
        Origin::Spawned => WordKind::Spawn,
        Origin::Woken if in_step => WordKind::Wake,
        Origin::Woken => WordKind::Rouse,
    }
}

/// Queues a new process.
#[inline]
pub(crate) fn enqueue_newborn(shared: &Hold, ready: Ready) {
    match shared.local().filter(|_| ready.slot().bound.is_plain()) {
        Some(local) => {
            local.log.spawn(ready.slot());
            local.queues.push_newborn(ready);
        }
        None => enqueue(ready, Origin::Spawned),
    }
}

/// Queues a process that became ready, and wakes a worker for it if needed.
#[inline]
pub(crate) fn enqueue(ready: Ready, origin: Origin) {
    if ready.slot().bound.is_plain() {
        enqueue_plain(ready, origin);
    } else {
        enqueue_placed(ready, origin);
    }
}

/// Queues a process that has a level word, or is bound to a worker.
#[cold]
fn enqueue_placed(ready: Ready, origin: Origin) {
    let slot = ready.slot();
    let shared = slot.shared();
    let bound = slot.bound.worker();
    let is_of = |local: &&LocalWorker| std::ptr::eq(&*local.shared, shared);
    with_local(|local| {
        let local = local.filter(is_of);
        let in_step = local.is_some_and(|local| local.step.is_any());
        if bound.is_some() || shared.priority(slot) != Priority::Normal {
            match local {
                Some(local) => {
                    local.queues.sample(slot);
                    local.log.ready(word_of(origin, in_step), slot);
                }
                None => shared.processes.waits.begin_outside(slot, || shared.world.now()),
            }
        }
        let ready = if slot.bound.is_leveled() {
            match shared.push_level(ready) {
                Ok(()) => return shared.announce_level(bound, local),
                Err(ready) => ready,
            }
        } else {
            ready
        };
        match (bound, local) {
            (Some(seat), Some(local)) => local.queues.push_bound(seat, ready, in_step),
            (Some(seat), None) => shared.workforce.enqueue_bound(seat, ready),
            (None, _) => enqueue_plain(ready, origin),
        }
    });
}

/// Queues a normal process that any worker may run.
#[inline]
fn enqueue_plain(ready: Ready, origin: Origin) {
    let slot = ready.slot();
    let shared = slot.shared();
    let is_of = |local: &&LocalWorker| std::ptr::eq(&*local.shared, shared);
    with_local(|local| match local.filter(is_of) {
        Some(local) if origin == Origin::Spawned => {
            local.log.spawn(slot);
            local.queues.push_newborn(ready);
        }
        Some(local) if local.step.is_any() => local.queues.set_next(ready),
        // Woken between two steps of this worker, by timers, in the order of their deadlines. The
        // worker is about to look for work, and announces then if there is more than it runs
        // itself. There may be many such processes, and they have not run for long, so their slots
        // are prefetched.
        //
        // A process that is woken by another process runs next and is most often in a cache.
        // Rejected: to prefetch these processes as well (`step` and `skynet` took 4 % more), and to
        // prefetch only processes that are displaced from the LIFO slot (`population_1k` took 3.4
        // times as long, because half of these processes run on the other processor).
        Some(local) => {
            local.queues.sample(slot);
            local.log.ready(WordKind::Rouse, slot);
            ready.prefetch();
            local.queues.push_woken(ready);
        }
        None => {
            shared.processes.waits.begin_outside(slot, || shared.world.now());
            shared.workforce.queues.global.push(ready);
            shared.workforce.announce_from_outside();
        }
    });
}

impl CurrentStep {
    /// Returns the running process, as the parent of a new one, and `false` if the new process
    /// certainly inherits no values.
    #[inline]
    pub(crate) fn as_spawner(&self) -> (Option<Parent>, bool) {
        // SAFETY: [running] a process in its step has its life pin.
        match self.process.get().map(|slot| unsafe { slot.as_ref() }) {
            Some(slot) => (slot.as_parent(), slot.extra().is_some_and(Extra::may_bequeath)),
            None => (None, true),
        }
    }

    /// Returns `true` if the running process is asked to end, or is terminated after this step.
    pub(crate) fn is_ending(&self) -> bool {
        self.process.get().is_some_and(|slot| {
            // SAFETY: [running] a process in its step has its life pin.
            let seen = unsafe { slot.as_ref() }.state.see();
            seen.is_terminated() || seen.is_cancelled()
        })
    }

    /// Returns the values that are inherited from the running process, or `None` if none runs.
    pub(crate) fn inherited(&self) -> Option<Option<Inherited>> {
        // SAFETY: [running] a process in its step has its life pin.
        let slot = unsafe { self.process.get()?.as_ref() };
        Some(slot.extra().and_then(Extra::inherited))
    }
}
