//! The timers of a worker: an indexed heap that its owner changes directly, and an inbox for all
//! other threads.
//!
//! # Timer protocol
//!
//! ## Problem
//! Timers are added, reset and deleted all the time, mostly by the worker that owns them, and
//! hardly ever fire. Sometimes another thread deletes or resets a timer, or fires the timers of a
//! worker that is stuck. Three things can go wrong:
//!
//! - A delete and a firing meet. Both happen, or the action is used twice.
//! - A reset to later and a firing meet. The timer fires early.
//! - A reset to earlier meets another thread's work on the heap. The reset is lost.
//!
//! Go (1.14 to 1.22) gave each timer ten states. Several belonged to one thread alone, and any
//! other thread that met such a state had to spin until that thread was done. If that thread was
//! preempted, or was the spinning thread itself, the spinning never ended.
//!
//! ## States
//! The *lock* guards the heap and the free list. A timer lives in a *slot*. The word of the slot is
//! `generation:32 | edition:24 | flags:8` and is changed by compare-and-swap, with or without the
//! lock (`process/slot.rs`). A thread that works on a slot without the lock is its *visitor*.
//!
//! | state | flags |
//! |---|---|
//! | settled | `PENDING` |
//! | unsettled | `PENDING` and `RESETTING` or `QUEUED` |
//! | ticking | `PENDING` without `SPARE`, and a period |
//! | ended | not `PENDING` |
//!
//! - *settled*: the timer will fire. Its key in the heap is no later than its deadline. A deadline
//!   of `NEVER` has no key.
//! - *unsettled*: a visitor is setting the deadline or has set it; the heap does not know yet.
//! - *ticking*: settled or unsettled, while the thread that took the tick clones the action.
//! - *ended*: the timer has fired or was deleted. Its generation is over, so its id is stale. With
//!   `TAKING`, a visitor is moving the actions out; with `QUEUED`, the slot waits to be freed.
//!
//! Outside the heap, `early` and `inbox` record what is done without the lock. `next` is the
//! smaller of `earliest` and `early`.
//!
//! ## Operations
//! The effect of each operation, by the state that it finds, and its behaviour when another thread
//! has the lock.
//!
//! - *add* makes a settled timer of a free slot. At the limit it settles the inbox for a free slot,
//!   or else refuses. Lock taken: waits.
//! - *delete*
//!   - settled: `End`; the key goes, the slot is free.
//!   - unsettled: `End`; the key goes; the slot stays queued, or its visitor queues it.
//!   - ticking: as settled; the tick still fires, and its spare is refused.
//!   - ended: returns `None`.
//!   - lock taken: `End` with `TAKING`, `Leave`, `Push`; the key goes when it is settled or first.
//! - *reset*
//!   - settled, unsettled or ticking: to later is one store; to earlier, the key moves up.
//!   - ended: returns `None`.
//!   - lock taken: `Begin`, store, `Leave`, `Push`, `Lower`. If another thread has begun, nothing,
//!     because that reset overrides this one.
//! - *modify*
//!   - settled or unsettled: `Replace`, then as reset.
//!   - ticking: the same; the tick still fires with the old action, and its spare is refused.
//!   - ended: refuses.
//!   - lock taken: waits.
//! - *clean*
//!   - settled or ticking: raises the first key to its deadline, or is done.
//!   - unsettled: removes the first key, which returns when it is settled.
//!   - ended: removes the first key.
//!   - lock taken: does nothing.
//! - *adjust*
//!   - unsettled or ticking: inserts a key no later than its deadline.
//!   - ended: frees the slot, or leaves that to its visitor.
//!   - lock taken: waits.
//! - *run*
//!   - settled: if due, `Fire`, or `Tick` and the next deadline; else raises its key.
//!   - unsettled: removes the key, because no timer fires before it is settled.
//!   - ticking: if due, the tick is missed, and the next deadline is set.
//!   - ended: removes the key.
//!   - lock taken: does nothing.
//!
//! No operation waits for a visitor. No code of an action runs under the lock. The work under the
//! lock is bounded: a few sifts, 64 entries of the inbox (an add at the limit looks for a slot in
//! the whole inbox), a page of new slots. In each tick of a periodic timer, `run` waits for the
//! lock once, to return the spare.
//!
//! ## Steps
//! - `Arm` (lock): fill the cells of a free slot · store the word, `PENDING`. `Publish` (lock):
//!   store `earliest`.
//! - `End`: CAS to the next generation without flags, but `RESETTING` and `QUEUED` stay, and
//!   without the lock `TAKING` is set · move the actions out. `Fire` (lock): the same, from a
//!   settled word only.
//! - `Tick` (lock): CAS `SPARE` away from a settled word · move the spare out · CAS the deadline
//!   from the deadline that was due to the next. Without the lock: clone. `Return` (lock): fill the
//!   cell · CAS `SPARE` back, if generation and edition are still the same.
//! - `Replace` (lock): CAS `SPARE` away, move the old spare out · fill the other cell · CAS the
//!   edition up, which makes the other cell the current one · move the old action out · fill its
//!   cell with the new spare, CAS `SPARE` back.
//! - `Begin`: CAS `RESETTING`, unless it is set. `Leave`: CAS `RESETTING` or `TAKING` away and
//!   `QUEUED` in · if `QUEUED` was not set, `Push`: CAS the slot onto the inbox. `Lower` (after a
//!   reset): `early` becomes at most the deadline.
//! - `Fetch` (lock): store `earliest` at most `early` · `Raise`: CAS `early` from what was read to
//!   never · swap the inbox for an empty one. `Unqueue` (lock): CAS `QUEUED` away · then read flags
//!   and deadline, and settle the slot.
//!
//! ## Why it works
//! - *Either a delete or a firing succeeds, never both.* `End` and `Fire` are successful CASes from
//!   the same generation of one word to the next.
//! - *Never early.* `Fire` and `Tick` start from a settled word. While one thread holds the lock, a
//!   reset without it changes that word for good: `QUEUED` stays until a holder of the lock clears
//!   it. So if the CAS succeeds, the deadline that was read after the word is the valid one.
//!   Generation and flags cannot return to their old values in between, so there is no ABA.
//! - *Exactly once.* The lock lets one thread at a time take from the heap. A tick is taken with
//!   its spare, and there is one spare.
//! - *No reset is lost.* The deadline is stored before `Leave` sets `QUEUED`, and read after
//!   `Unqueue` clears it. Either `Unqueue` sees the deadline, or `Leave` finds the slot not queued
//!   and pushes it again. A key may disappear from the heap because its timer is unsettled; the
//!   visitor pushes the slot, at the latest when it leaves. Of two simultaneous resets without the
//!   lock, the second to begin does nothing: the first has not returned, so the two may count in
//!   either order, and nothing fires between them.
//! - *Each slot is queued once.* The thread that sets `QUEUED` in its `Leave` pushes the slot.
//!   `Unqueue` clears the flag after the slot has left the list.
//! - *No slot is reused while a visitor works on it.* `RESETTING` and `TAKING` outlive the timer. A
//!   slot is free when neither of the two is set, nor `QUEUED`. The thread that clears the last of
//!   the two sets `QUEUED`, so that a holder of the lock frees the slot.
//! - *A pending timer is whole.* A tick and a replacement move the spare and the other cell, never
//!   the current one. So a delete always finds the action immediately. A spare that returns to
//!   another timer, or to another edition, is refused.
//!
//! ## Deadline and sleeper
//! A thread that sets a deadline with the result `earliest` passes a fence(SeqCst), then looks for
//! a sleeper. A thread that goes to sleep announces that, passes a fence(SeqCst), then reads
//! `next`. The two fences are ordered: either the sleeper reads a time no later than the deadline,
//! or the other thread sees the sleeper and wakes it. `driver.rs` has both fences. A worker that
//! sets a timer in its own heap checks whether it still has its permit. If so, it reads `next`
//! itself before it sleeps.
//!
//! The sleeper reads a time no later than the deadline because `earliest` is stored under the lock
//! after the key is in the heap, and `early` is lowered after the slot is in the inbox. So a thread
//! that finds `early` low also finds the slot. It takes over both: first it lowers `earliest`, then
//! it raises `early`. `next` reads them in the other order. `early` is not raised while entries of
//! an earlier fetch are unsettled, and `earliest` stays at most `floor`, the value that `early`
//! had.
//!
//! With the lock, a deadline is not reported as the earliest if the heap has an earlier one. The
//! thread that set the earlier one reported it, unless it was the worker that owns the heap, in a
//! step with a permit. That worker reads `next` before it sleeps. If it loses its permit before,
//! the worker that gets the permit reads `next` before it sleeps. Without the lock, a deadline is
//! always reported: a sleeper may have read a later `earliest` than the thread that sets the
//! deadline would.
//!
//! ## Room
//! At the limit an add is refused, and its caller may want to wait for room. It leaves its waker,
//! passes a fence(SeqCst), and tries once more. After a delete, a reset and a run that has fired,
//! the caller looks for such a waker. With the lock, no fence is needed there: either the second
//! try takes the lock later and finds the slot free, or it took the lock before, and then its waker
//! is seen. A delete and a reset without the lock pass a fence(SeqCst) after the slot is in the
//! inbox. Either the second try finds the slot there, or the caller finds the waker. A reset frees
//! no slot, but it may be the last to leave the slot of a timer that was deleted during the reset,
//! so its caller looks as well.
//!
//! ## Allowed
//! - After a delete without the lock or a reset to later, `next` is earlier than necessary. The
//!   sleeper wakes, runs, finds nothing due, and `next` has become right. Or `clean` makes it right
//!   before.
//! - A timer is not fired while a thread is between `Begin` and `Leave` at it, whatever its
//!   deadline was. If that thread is preempted there, this one timer is late.
//! - If a thread is preempted while it has the lock, a worker that finds a timer due looks again
//!   and again, because `run` does not wait, and the worker does not park while a timer is due.
//! - A tick is missed if the clone for the previous tick takes longer than a period.
//! - If more than 64 slots are in the inbox, the timers of some may fire after others that were due
//!   later.
//! - At the limit, an add may be refused while a deleter still works on the last slot.
//! - A slot that has used up its 2^32 - 1 generations is retired, and lowers the limit. At a
//!   million timers a second, one slot retires each hour.
//! - A clone that takes as long as exactly 2^24 replacements of its timer's action returns as the
//!   spare of the wrong action.
//! - Memory stays at the peak number of timers: a cache line each, and 24 bytes of heap.
//!
//! ## Rejected
//! - Go's ten states (see below). Go's later lock for each timer: two more read-modify-writes for
//!   each operation.
//! - To claim several due timers under one lock: saves about 5 ns a firing. But a claimed timer can
//!   be neither deleted nor fired by others while the first action runs, which may be long.
//! - To run the actions under the lock, so that no code is unsafe: a delete that finds the lock
//!   taken could not return the action.
//! - One cell, from which the runner clones: a delete during the clone finds no action, and does
//!   not know whether it prevented anything.
//! - The deadline as the state word (tokio): a stale id meets the next timer of its slot with the
//!   same deadline, and resets it.
//! - An add through the inbox: slots would have to be allocated without the lock. Adds come from
//!   the owner.
//!
//! ## Go's ten states
//! | Go 1.14 to 1.22 | here |
//! |---|---|
//! | NoStatus, Removed | ended. `add` makes a timer, so none is added twice, where Go panics |
//! | Waiting | settled |
//! | Running | none: `Fire` is one CAS, after which the timer has ended |
//! | Deleted | ended and `QUEUED`, if the lock was taken; else the key goes immediately |
//! | Removing, Moving | none: that happens under the lock |
//! | Modifying | `RESETTING`: a delete succeeds, a reset is overridden, a runner skips the timer |
//! | ModifiedEarlier | unsettled: settled one by one from the inbox |
//! | ModifiedLater | settled, with a deadline later than its key |
//!
//! In Go, other threads spin while a timer is in the states Running, Removing, Moving or Modifying,
//! and a sweep over all timers finds the timers in ModifiedEarlier.
//!
//! The cases on which Go panics or throws cannot be expressed here: a deadline is unsigned, and a
//! deadline of 0 is due immediately; a period is not 0.
//!
//! ## Invariants
//! - `[free]` a slot in the free list, or not yet used, has no timer and no visitor, and is not
//!   queued: only the lock's holder uses it.
//! - `[lock]` a caller that has a reference to the ledger holds the lock of its timers, and uses it
//!   for their slots only.
//! - `[cells]` the current cell is filled while `PENDING`, the other cell while `SPARE`. The thread
//!   that clears such a flag owns the cell until it is empty; without the lock, `TAKING` keeps the
//!   slot from being freed that long. While a timer is pending without `SPARE`, the other cell is
//!   empty, and belongs to the lock's holder.
//!
//! ## Checked by
//! `models::*`, each with canaries: the table is in `models.rs`.
//! `tests::any_operations_do_as_on_a_list` for sequences of operations, with and without the lock;
//! `tests::four_threads_lose_and_double_nothing`.

mod firing;
mod heap;
mod inbox;
#[cfg(all(test, procession_loom))]
mod models;
mod slot;
#[cfg(all(test, not(procession_loom)))]
mod tests;

use std::fmt;
use std::num::NonZeroU64;

use procession_sync::atomic::Ordering::{Acquire, Relaxed};
use procession_sync::atomic::{AtomicU32, AtomicU64};

use heap::{Heap, Key, NEVER};
use slot::{TimerSlot, TimerTable};

use crate::util::biased_lock::{Guard, Lock};
use crate::util::histogram::LatenessHistogram;
use crate::util::prefetch::prefetch;

/// The defects that canary models plant, one at a time. The shipped code is
/// [`SOUND`](mutation::SOUND).
mod mutation {
    pub(super) use crate::util::mutant::is;

    /// No defect.
    pub(super) const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub(super) const BUILT: u8 = crate::util::mutant::planted("timers", SOUND);
    /// `Arm` does not release the cells.
    pub(super) const ARM_RELAXED: u8 = 1;
    /// `End` does not compare generations.
    pub(super) const END_ANY_GENERATION: u8 = 2;
    /// `End` does not keep `RESETTING`.
    pub(super) const END_FORGETS_RESETTING: u8 = 3;
    /// `End` without the lock does not set `TAKING`.
    pub(super) const TAKING_UNMARKED: u8 = 4;
    /// `Fire` is a plain store.
    pub(super) const FIRE_WITHOUT_CAS: u8 = 5;
    /// `Fire` starts from any word that is pending.
    pub(super) const FIRE_UNSETTLED: u8 = 6;
    /// `Tick` does not ask whether there is a spare.
    pub(super) const TICK_WITHOUT_SPARE: u8 = 7;
    /// `Tick` stores the next deadline, whatever the deadline has become.
    pub(super) const ADVANCE_WITHOUT_CAS: u8 = 8;
    /// `Return` does not release the cell.
    pub(super) const RETURN_RELAXED: u8 = 9;
    /// `Return` does not compare editions.
    pub(super) const RETURN_ANY_EDITION: u8 = 10;
    /// `Replace` is a plain store.
    pub(super) const REPLACE_WITHOUT_CAS: u8 = 11;
    /// A reset without the lock goes without `Begin`.
    pub(super) const RESET_WITHOUT_BEGIN: u8 = 12;
    /// `Begin` ignores that another thread has begun.
    pub(super) const BEGIN_TWICE: u8 = 13;
    /// `Leave` does not release.
    pub(super) const LEAVE_RELAXED: u8 = 14;
    /// `Push` is a plain store.
    pub(super) const PUSH_WITHOUT_CAS: u8 = 15;
    /// `Lower` is before `Push`.
    pub(super) const LOWER_BEFORE_PUSH: u8 = 16;
    /// `Raise` happens without `earliest` having been lowered.
    pub(super) const RAISE_WITHOUT_LOWERING: u8 = 17;
    /// The deadline is read before `Unqueue`.
    pub(super) const READ_BEFORE_UNQUEUE: u8 = 18;
    /// `Return` does not compare generations.
    pub(super) const RETURN_ANY_GENERATION: u8 = 19;
    /// A delete without the lock passes no fence.
    pub(super) const DELETE_WITHOUT_FENCE: u8 = 20;
    /// A reset without the lock passes no fence.
    pub(super) const RESET_WITHOUT_FENCE: u8 = 21;
}

/// The maximum number of entries settled under one hold of the lock. This takes about 5 us, for
/// which another thread may have to wait.
const PORTION: u32 = 64;

/// The link that ends the inbox. A slot's link is its number plus 1.
const EMPTY: u32 = 0;

/// Names one timer of one [`Timers`]. An id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    slot: u32,
    generation: u32,
}

/// A timer that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Added {
    /// The timer.
    pub id: TimerId,
    /// Set if the timer may be the earliest of all. A thread that sleeps until the earliest
    /// deadline must then be woken.
    pub earliest: bool,
}

/// A pending timer with a changed deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rearmed {
    /// As in [`Added`].
    pub earliest: bool,
}

/// A pending timer of which deadline, period and action were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Modified<A> {
    /// The action before the change.
    pub replaced: A,
    /// As in [`Added`].
    pub earliest: bool,
}

/// The error of an operation that did not take over an action. It holds the action.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TimerRefused<A>(pub A);

impl<A> fmt::Debug for TimerRefused<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimerRefused(..)")
    }
}

/// The counters of the timers. While no operation is under way, `armed = fired + cancelled +
/// pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerCounts {
    /// The number of timers that were armed.
    pub armed: u64,
    /// Timers that ended by firing.
    pub fired: u64,
    /// Firings of periodic timers, which do not end by it.
    pub ticks: u64,
    /// The number of timers that were cancelled.
    pub cancelled: u64,
    /// The number of timers that are armed now.
    pub pending: u64,
}

/// The state that the lock guards.
#[derive(Debug)]
struct Ledger {
    heap: Heap,
    /// Free slots, the most recently used last. Its capacity covers all slots, so that nothing is
    /// allocated when a timer ends.
    free: Vec<u32>,
    /// The number of slots ever used. The slots behind are new.
    made: u32,
    /// The link of the next entry that was fetched from the inbox and is to be settled.
    backlog: u32,
    /// No later than any deadline that is in the backlog only.
    floor: u64,
    /// The last value stored in `Outside::earliest`.
    published: u64,
    armed: u64,
    fired: u64,
    ticks: u64,
    cancelled: u64,
    /// The times between deadlines and the firings.
    lateness: LatenessHistogram,
}

/// The state that is used without the lock.
#[derive(Debug)]
struct Outside {
    /// No later than any deadline in the heap and the backlog. Stored under the lock.
    earliest: AtomicU64,
    /// No later than any deadline that was set without the lock and has not been fetched. Lowered
    /// by the threads that set them, raised under the lock.
    early: AtomicU64,
    /// The link of the slot that was pushed last.
    inbox: AtomicU32,
    /// Timers deleted without the lock.
    cancelled: AtomicU64,
}

/// Keeps the words that other threads read away from the lock, which the owner writes at each
/// operation. Two cache lines, because processors prefetch them in pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// The timers of one worker. Any thread may use them; the owner is the fastest.
///
/// `A` is the action of a timer. None of its code (`Clone`, `Drop`) runs under the lock, so it may
/// use the same timers.
pub struct Timers<A, const MUTATION: u8 = { mutation::BUILT }> {
    ledger: Apart<Lock<Ledger>>,
    outside: Apart<Outside>,
    table: TimerTable<A, MUTATION>,
    limit: u32,
}

impl<A> Timers<A> {
    /// Returns an empty set of at most `limit` timers. It initially takes 16 bytes for each 1024 of
    /// these.
    pub fn new(limit: u32) -> Self {
        Self::starting_at(limit, 0, 0)
    }
}

impl<A, const MUTATION: u8> Timers<A, MUTATION> {
    /// Returns timers as if each slot had already had `generation` timers, and all together
    /// `sequence`, so that tests reach the ends of the counters.
    fn starting_at(limit: u32, generation: u32, sequence: u32) -> Self {
        // Links and positions are slot numbers plus a small constant, in 32 bits.
        let limit = limit.min(u32::MAX - 8);
        let ledger = Ledger {
            heap: Heap::new(sequence),
            free: Vec::new(),
            made: 0,
            backlog: EMPTY,
            floor: NEVER,
            published: NEVER,
            armed: 0,
            fired: 0,
            ticks: 0,
            cancelled: 0,
            lateness: LatenessHistogram::default(),
        };
        let outside = Outside {
            earliest: AtomicU64::new(NEVER),
            early: AtomicU64::new(NEVER),
            inbox: AtomicU32::new(EMPTY),
            cancelled: AtomicU64::new(0),
        };
        Self {
            ledger: Apart(Lock::new(ledger)),
            outside: Apart(outside),
            table: TimerTable::new(limit, generation),
            limit,
        }
    }

    fn lock(&self) -> Guard<'_, Ledger> {
        self.ledger.0.lock()
    }

    /// Returns the lock, or `None` if another thread has it.
    #[inline]
    fn try_lock(&self) -> Option<Guard<'_, Ledger>> {
        self.ledger.0.try_lock()
    }

    fn slot(&self, number: u32) -> &TimerSlot<A, MUTATION> {
        self.table.get(number).expect("heap and lists hold slots that were made")
    }

    /// Returns a time before which no timer is due, or `u64::MAX` if none will ever be due.
    ///
    /// The time may be earlier than the next deadline (*Allowed*), but it is never later than a
    /// deadline that was set before (*Deadline and sleeper*).
    #[inline]
    pub fn next(&self) -> u64 {
        // Ordering: Acquire pairs with the Release of `Raise`; a thread that sees `early` raised
        // sees `earliest` lowered.
        let early = self.outside.0.early.load(Acquire);
        // Relaxed: the caller's fence orders it (*Deadline and sleeper*), and a thread that acts on
        // it takes the lock.
        early.min(self.outside.0.earliest.load(Relaxed))
    }

    /// Adds a timer that fires at `when`, and then every `period` if there is one. The action of a
    /// periodic timer is cloned here, and again for each tick.
    ///
    /// # Errors
    /// [`TimerRefused`] returns the action if the limit is reached.
    ///
    /// # Blocking
    /// Waits for the lock.
    // Always inlined, because the result does not fit into registers and would pass through memory
    // (2 of 33 ns for add and delete).
    #[inline(always)]
    pub fn add(
        &self,
        when: u64,
        period: Option<NonZeroU64>,
        action: A,
    ) -> Result<Added, TimerRefused<A>>
    where
        A: Clone,
    {
        let spare = period.map(|_| action.clone());
        let mut ledger = self.lock();
        self.settle_some(&mut ledger);
        let Some(number) = ledger.free.pop().or_else(|| self.find_free(&mut ledger)) else {
            drop(ledger);
            drop(spare);
            return Err(TimerRefused(action));
        };
        if let Some(&next) = ledger.free.last() {
            // One of a million slots that were used once is in no cache by now.
            prefetch(self.slot(next));
        }
        let sequence = ledger.heap.create();
        ledger.armed += 1;
        // SAFETY: [free] the number is from the free list, or was never used.
        let generation = unsafe { self.slot(number).arm(when, sequence, period, action, spare) };
        if when != NEVER {
            ledger.heap.insert(when, sequence, number);
        }
        let earliest = self.publish(&mut ledger);
        Ok(Added { id: TimerId { slot: number, generation }, earliest })
    }

    /// Deletes a timer. Returns its action if and only if this call prevented the next firing.
    #[inline]
    pub fn delete(&self, id: TimerId) -> Option<A> {
        let slot = self.table.get(id.slot)?;
        if !slot.word().is_pending(id.generation) {
            return None;
        }
        let Some(mut ledger) = self.try_lock() else {
            return self.delete_apart(id);
        };
        self.settle_some(&mut ledger);
        let ended = slot.cancel(&ledger, id.generation)?;
        ledger.cancelled += 1;
        ledger.heap.remove(id.slot);
        if ended.is_free {
            ledger.free.push(id.slot);
        }
        self.publish(&mut ledger);
        drop(ledger);
        drop(ended.spare);
        Some(ended.action)
    }

    /// Changes the deadline of a timer. Returns `None`, and changes nothing, if the timer is no
    /// longer pending.
    #[inline]
    pub fn reset(&self, id: TimerId, when: u64) -> Option<Rearmed> {
        let slot = self.table.get(id.slot)?;
        if !slot.word().is_pending(id.generation) {
            return None;
        }
        let Some(mut ledger) = self.try_lock() else {
            return self.reset_apart(id, when);
        };
        self.settle_some(&mut ledger);
        if !slot.word().is_pending(id.generation) {
            return None;
        }
        Some(Rearmed { earliest: self.set_when(&mut ledger, id.slot, slot, when) })
    }

    /// Changes deadline, period and action of a timer. A tick that a thread has already taken still
    /// uses the old action.
    ///
    /// # Errors
    /// [`TimerRefused`] returns the new action if the timer is no longer pending. Nothing is
    /// changed then.
    ///
    /// # Blocking
    /// Waits for the lock.
    pub fn modify(
        &self,
        id: TimerId,
        when: u64,
        period: Option<NonZeroU64>,
        action: A,
    ) -> Result<Modified<A>, TimerRefused<A>>
    where
        A: Clone,
    {
        let Some(slot) = self.table.get(id.slot) else { return Err(TimerRefused(action)) };
        let spare = period.map(|_| action.clone());
        let mut ledger = self.lock();
        self.settle_some(&mut ledger);
        let replaced = slot.replace(&ledger, id.generation, period, action, spare);
        let earliest = replaced.action.is_ok() && self.set_when(&mut ledger, id.slot, slot, when);
        drop(ledger);
        drop(replaced.rest);
        match replaced.action {
            Ok(replaced) => Ok(Modified { replaced, earliest }),
            Err(action) => Err(TimerRefused(action)),
        }
    }

    /// Settles entries of the inbox, then corrects the head of the heap, at most 64 of both.
    /// Returns the number. If that is below 64, `next` is exact. Does nothing if another thread has
    /// the lock.
    pub fn clean(&self) -> u32 {
        let Some(mut ledger) = self.try_lock() else { return 0 };
        let mut cleaned = self.settle_some(&mut ledger);
        while cleaned < PORTION
            && let Some(key) = ledger.heap.first()
        {
            let slot = self.slot(key.slot());
            let (word, when) = (slot.word(), slot.when());
            if put_right(&mut ledger, key, word.is_settled(), when) {
                break;
            }
            cleaned += 1;
        }
        self.publish(&mut ledger);
        cleaned
    }

    /// Returns `true` if this timer will still fire, as far as this thread can see.
    #[inline]
    pub fn is_pending(&self, id: TimerId) -> bool {
        self.table.get(id.slot).is_some_and(|slot| slot.word().is_pending(id.generation))
    }

    /// Deletes all timers, and passes their actions to `take`. A timer that is added during this
    /// call may stay.
    pub fn clear(&self, take: &mut dyn FnMut(A)) {
        let made = self.lock().made;
        for number in 0..made {
            let generation = self.slot(number).word().generation();
            if let Some(action) = self.delete(TimerId { slot: number, generation }) {
                take(action);
            }
        }
    }

    /// Returns the counters.
    ///
    /// # Blocking
    /// Waits for the lock.
    pub fn counts(&self) -> TimerCounts {
        let ledger = self.lock();
        let cancelled = ledger.cancelled + self.outside.0.cancelled.load(Relaxed);
        let Ledger { armed, fired, ticks, .. } = *ledger;
        TimerCounts { armed, fired, ticks, cancelled, pending: armed - fired - cancelled }
    }

    /// Returns the times between deadlines and the firings.
    ///
    /// # Blocking
    /// Waits for the lock.
    pub fn lateness(&self) -> LatenessHistogram {
        self.lock().lateness
    }

    /// Under the lock: changes the deadline of a pending timer. Returns `true` if the timer may be
    /// the earliest.
    fn set_when(
        &self,
        ledger: &mut Ledger,
        number: u32,
        slot: &TimerSlot<A, MUTATION>,
        when: u64,
    ) -> bool {
        // If a visitor is resetting the timer, either reset may count as the last: the visitor has
        // not returned.
        slot.set_when(when);
        self.place(ledger, number, slot, when)
    }

    /// Makes a timer's key no later than its deadline. Returns `true` if the timer may be the
    /// earliest.
    fn place(
        &self,
        ledger: &mut Ledger,
        number: u32,
        slot: &TimerSlot<A, MUTATION>,
        when: u64,
    ) -> bool {
        match ledger.heap.when_of(number) {
            Some(bound) if bound <= when => {}
            Some(_) => ledger.heap.change(number, when),
            None if when == NEVER => {}
            None => ledger.heap.insert(when, slot.sequence(), number),
        }
        self.publish(ledger)
    }

    /// `Publish`. Returns `true` if the earliest deadline became earlier.
    #[inline]
    fn publish(&self, ledger: &mut Ledger) -> bool {
        let before = ledger.published;
        let earliest = ledger.heap.first().map_or(NEVER, |key| key.when()).min(ledger.floor);
        if earliest == before {
            return false;
        }
        ledger.published = earliest;
        // Relaxed: the fence of the caller, or `Raise`, orders the store before everything that
        // must follow it.
        self.outside.0.earliest.store(earliest, Relaxed);
        earliest < before
    }

    /// Finds a slot when the free list is empty: a new slot or, at the limit, a slot that a visitor
    /// has left.
    #[cold]
    fn find_free(&self, ledger: &mut Ledger) -> Option<u32> {
        if ledger.made == self.limit {
            // Bounded, even if other threads fill the inbox as fast: by then every slot was there
            // once.
            for _ in 0..=self.limit / PORTION {
                if !ledger.free.is_empty() || self.settle_some(ledger) == 0 {
                    break;
                }
            }
            return ledger.free.pop();
        }
        let number = ledger.made;
        let slots = self.table.make(number);
        ledger.heap.track(slots);
        ledger.free.reserve(slots);
        ledger.made += 1;
        Some(number)
    }
}

impl<A, const MUTATION: u8> fmt::Debug for Timers<A, MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("next", &self.next())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Corrects the first key. Returns `true` if it was right: its timer is settled, and due at the
/// time of the key.
#[inline]
fn put_right(ledger: &mut Ledger, key: Key, is_settled: bool, when: u64) -> bool {
    if !is_settled || when == NEVER {
        // If the timer is still pending, its past or present visitor pushes it.
        ledger.heap.remove(key.slot());
        false
    } else if when > key.when() {
        ledger.heap.change(key.slot(), when);
        false
    } else {
        true
    }
}
