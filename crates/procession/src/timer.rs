//! DOC

mod heap;
mod slot;

#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;

use std::fmt;
use std::num::NonZeroU64;

use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicU32, AtomicU64};
use procession_sync::{Mutex, MutexGuard};

use heap::{Heap, Key, NEVER};
use slot::{Begun, Ended, Slot, Table, Tick};

/// The defects that canary models plant, one at a time.
mod mutation {
    pub(super) const SOUND: u8 = 0;
    pub(super) const ARM_RELAXED: u8 = 1;
    pub(super) const DELETE_ANY_GENERATION: u8 = 2;
    pub(super) const TAKING_UNMARKED: u8 = 3;
    pub(super) const FIRE_WITHOUT_CAS: u8 = 4;
    pub(super) const TICK_WITHOUT_SPARE: u8 = 5;
    pub(super) const SPARE_OF_ANY_EDITION: u8 = 6;
    pub(super) const REPLACE_WITHOUT_CAS: u8 = 7;
    pub(super) const RESET_WITHOUT_CLAIM: u8 = 8;
    pub(super) const LEAVE_RELAXED: u8 = 9;
    pub(super) const EARLY_BEFORE_PUSH: u8 = 10;
    pub(super) const EARLY_CLEARED_FIRST: u8 = 11;
    pub(super) const PUSH_WITHOUT_CAS: u8 = 12;
}

/// Firings in one pass of `run`: then the worker looks at its run queues. About 50 us of waking processes; Erlang's bound is 100.
const FIRINGS_MAX: u32 = 128;

/// Entries put right under one hold of the lock: about 5 us, as long as others may have to wait for it.
const PORTION: u32 = 64;

/// An empty inbox; a slot in it is its number plus 1.
const EMPTY: u32 = 0;

/// Names one timer of one `Timers`, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TimerId {
    slot: u32,
    generation: u32,
}

/// A timer that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Armed {
    pub(crate) id: TimerId,
    /// Whether it may be the earliest of all: somebody may have to be woken (module docs, *Dekker*).
    pub(crate) earliest: bool,
}

/// A pending timer whose deadline was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Rearmed {
    /// As in `Armed`.
    pub(crate) earliest: bool,
}

/// A pending timer of which everything was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Modified<A> {
    /// The action that will not run.
    pub(crate) replaced: A,
    /// As in `Armed`.
    pub(crate) earliest: bool,
}

/// An action that was not accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused<A>(pub(crate) A);

impl<A> fmt::Debug for Refused<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refused(..)")
    }
}

/// What a pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Ran {
    /// How often it called `fire`.
    pub(crate) fired: u32,
    /// Whether due timers may be left: the pass was long enough, or another thread was at the heap.
    pub(crate) more: bool,
}

/// What has become of the timers. When nobody is in the middle of an operation, `armed = fired + cancelled + pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) armed: u64,
    /// Timers that ended by firing.
    pub(crate) fired: u64,
    /// Firings of periodic timers, which go on.
    pub(crate) ticks: u64,
    pub(crate) cancelled: u64,
    pub(crate) pending: u64,
}

/// What the lock guards.
#[derive(Debug)]
struct Ledger {
    heap: Heap,
    /// Slots without a timer, the warmest last.
    free: Vec<u32>,
    /// Slots ever used.
    made: u32,
    sequence: u32,
    /// What was taken out of the inbox and is not settled yet.
    backlog: u32,
    /// No later than the deadlines in the backlog.
    floor: u64,
    /// What `Outside::earliest` says.
    published: u64,
    armed: u64,
    fired: u64,
    ticks: u64,
    cancelled: u64,
}

/// What is touched without the lock.
#[derive(Debug)]
struct Outside {
    /// No later than any deadline in the heap and the backlog. Stored under the lock.
    earliest: AtomicU64,
    /// No later than any deadline that was set without the lock and is in the inbox. Lowered by whoever pushes, raised under the lock.
    early: AtomicU64,
    /// The newest of the slots that somebody without the lock was at.
    inbox: AtomicU32,
    /// Timers that were deleted without the lock.
    cancelled: AtomicU64,
}

/// Keeps the words that others read apart from the lock, which its owner writes all the time: two cache lines, because processors
/// prefetch them in pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// The timers of one worker, which any thread may use.
pub(crate) struct Timers<A, const MUTATION: u8 = { mutation::SOUND }> {
    ledger: Apart<Mutex<Ledger>>,
    outside: Apart<Outside>,
    table: Table<A, MUTATION>,
    limit: u32,
}

impl<A> Timers<A> {
    /// No timers, and room for at most `limit`.
    pub(crate) fn new(limit: u32) -> Self {
        Self::starting_at(limit, 0, 0)
    }
}

/// A timer that was taken to be fired.
enum Due<'a, A, const MUTATION: u8> {
    Once(A),
    Tick(Spare<'a, A, MUTATION>),
}

impl<A, const MUTATION: u8> Timers<A, MUTATION> {
    /// As `new`; the first generation of each slot and the first sequence number are given, so that tests reach the ends of both.
    fn starting_at(limit: u32, generation: u32, sequence: u32) -> Self {
        // Positions in the heap and links of the inbox are slot numbers plus a little.
        let limit = limit.min(u32::MAX - PORTION);
        let ledger = Ledger {
            heap: Heap::new(),
            free: Vec::new(),
            made: 0,
            sequence,
            backlog: EMPTY,
            floor: NEVER,
            published: NEVER,
            armed: 0,
            fired: 0,
            ticks: 0,
            cancelled: 0,
        };
        let outside = Outside {
            earliest: AtomicU64::new(NEVER),
            early: AtomicU64::new(NEVER),
            inbox: AtomicU32::new(EMPTY),
            cancelled: AtomicU64::new(0),
        };
        Self { ledger: Apart(Mutex::new(ledger)), outside: Apart(outside), table: Table::new(limit, generation), limit }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.0.lock().expect("nothing that can panic runs under this lock")
    }

    /// The lock, unless another thread has it.
    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, Ledger>> {
        // Nothing that can panic runs under this lock, so the error says that it is held.
        self.ledger.0.try_lock().ok()
    }

    fn slot(&self, number: u32) -> &Slot<A, MUTATION> {
        self.table.get(number).expect("[made] the heap and the lists name slots that were made")
    }

    /// A time before which no timer is due, or `u64::MAX` if there is none (module docs, *Dekker*).
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        // Ordering: Acquire pairs with the Release of `Fetch`; whoever finds `early` raised finds `earliest` lowered.
        let early = self.outside.0.early.load(Acquire);
        // Relaxed: see the module docs, *Dekker*.
        early.min(self.outside.0.earliest.load(Relaxed))
    }

    /// Adds a timer that fires at `when`, and from then on in every `period`, if there is one.
    ///
    /// # Errors
    /// [`Refused`] returns the action if the limit is reached.
    #[inline(always)]
    pub(crate) fn add(&self, when: u64, period: Option<NonZeroU64>, action: A) -> Result<Armed, Refused<A>>
    where
        A: Clone,
    {
        let spare = period.map(|_| action.clone());
        let mut ledger = self.lock();
        self.purge(&mut ledger, PORTION);
        let Some(number) = ledger.free.pop().or_else(|| self.find_free(&mut ledger)) else {
            drop(ledger);
            drop(spare);
            return Err(Refused(action));
        };
        let sequence = ledger.sequence;
        ledger.sequence = sequence.wrapping_add(1);
        ledger.armed += 1;
        // SAFETY: [free]
        let generation = unsafe { self.slot(number).arm(when, sequence, period, action, spare) };
        if when != NEVER {
            ledger.heap.insert(Key { when, sequence, slot: number });
        }
        let earliest = self.publish(&mut ledger);
        Ok(Armed { id: TimerId { slot: number, generation }, earliest })
    }

    /// Deletes a timer. `Some` exactly if it would have fired, and does not any more.
    #[inline]
    pub(crate) fn delete(&self, id: TimerId) -> Option<A> {
        let slot = self.table.get(id.slot)?;
        let Some(mut ledger) = self.try_lock() else {
            return self.delete_apart(id);
        };
        self.purge(&mut ledger, PORTION);
        let ended = slot.cancel(id.generation)?;
        ledger.cancelled += 1;
        self.forget(&mut ledger, id.slot, &ended);
        self.publish(&mut ledger);
        drop(ledger);
        drop(ended.spare);
        Some(ended.action)
    }

    /// The same without the lock.
    #[cold]
    fn delete_apart(&self, id: TimerId) -> Option<A> {
        let slot = self.table.get(id.slot)?;
        let ended = slot.cancel_apart(id.generation)?;
        // Relaxed: a statistic.
        self.outside.0.cancelled.fetch_add(1, Relaxed);
        if slot.leave_taking() {
            self.push(id.slot);
        }
        drop(ended.spare);
        Some(ended.action)
    }

    /// Changes the deadline of a timer. `None` if it is not pending any more.
    #[inline]
    pub(crate) fn reset(&self, id: TimerId, when: u64) -> Option<Rearmed> {
        let slot = self.table.get(id.slot)?;
        let Some(mut ledger) = self.try_lock() else {
            return self.reset_apart(id, when);
        };
        self.purge(&mut ledger, PORTION);
        let word = slot.word();
        if !word.is_pending(id.generation) {
            return None;
        }
        if word.is_resetting() {
            // As if this one had come just before.
            return Some(Rearmed { earliest: false });
        }
        slot.set_when(when);
        Some(Rearmed { earliest: self.place(&mut ledger, id.slot, when) })
    }

    /// The same without the lock.
    #[cold]
    fn reset_apart(&self, id: TimerId, when: u64) -> Option<Rearmed> {
        let slot = self.table.get(id.slot)?;
        match slot.begin_reset(id.generation) {
            Begun::Stale => return None,
            // As if this one had come just before.
            Begun::Overtaken => return Some(Rearmed { earliest: false }),
            Begun::Yes => {}
        }
        let must_push = slot.end_reset(when);
        if MUTATION == mutation::EARLY_BEFORE_PUSH {
            self.outside.0.early.fetch_min(when, Release);
        }
        if must_push {
            self.push(id.slot);
        }
        if MUTATION != mutation::EARLY_BEFORE_PUSH {
            // Ordering: Release pairs with the Acquire of `Fetch`; whoever raises `early` finds the slot in the inbox.
            self.outside.0.early.fetch_min(when, Release);
        }
        // What `earliest` says now, a thread about to park need not have seen.
        Some(Rearmed { earliest: true })
    }

    /// Changes everything about a timer.
    ///
    /// # Errors
    /// [`Refused`] returns the new action if the timer is not pending any more.
    pub(crate) fn modify(
        &self,
        id: TimerId,
        when: u64,
        period: Option<NonZeroU64>,
        action: A,
    ) -> Result<Modified<A>, Refused<A>>
    where
        A: Clone,
    {
        let Some(slot) = self.table.get(id.slot) else {
            return Err(Refused(action));
        };
        let spare = period.map(|_| action.clone());
        let mut ledger = self.lock();
        self.purge(&mut ledger, PORTION);
        let replaced = slot.replace(id.generation, action, spare);
        let mut earliest = false;
        if replaced.action.is_ok() {
            slot.set_period(period);
            if !slot.word().is_resetting() {
                slot.set_when(when);
                earliest = self.place(&mut ledger, id.slot, when);
            }
        }
        drop(ledger);
        drop(replaced.rest);
        match replaced.action {
            Ok(replaced) => Ok(Modified { replaced, earliest }),
            Err(action) => Err(Refused(action)),
        }
    }

    /// Fires what is due at `now`.
    pub(crate) fn run(&self, now: u64, fire: &mut dyn FnMut(A)) -> Ran
    where
        A: Clone,
    {
        let mut fired = 0;
        while fired < FIRINGS_MAX && self.next() <= now {
            let Some(mut ledger) = self.try_lock() else { break };
            let due = self.take_due(&mut ledger, now);
            drop(ledger);
            match due {
                None => break,
                Some(Due::Once(action)) => fire(action),
                Some(Due::Tick(spare)) => {
                    let action = spare.action.clone();
                    drop(spare);
                    action.into_iter().for_each(&mut *fire);
                }
            }
            fired += 1;
        }
        Ran { fired, more: self.next() <= now }
    }

    /// Takes the first timer that is due.
    fn take_due(&self, ledger: &mut Ledger, now: u64) -> Option<Due<'_, A, MUTATION>> {
        self.purge(ledger, PORTION);
        let mut due = None;
        for _ in 0..PORTION {
            let Some(key) = ledger.heap.first().filter(|key| key.when <= now) else { break };
            let slot = self.slot(key.slot);
            let word = slot.word();
            let when = slot.when();
            if !word.is_settled() {
                // Whoever is or was at it without the lock pushes it.
                ledger.heap.remove(key.slot);
            } else if when > key.when {
                raise(&mut ledger.heap, key.slot, when);
            } else if let Some(period) = slot.period() {
                let Ok(taken) = slot.tick(word) else { continue };
                let next = next_tick(when, period, now);
                if slot.advance(when, next) {
                    raise(&mut ledger.heap, key.slot, next);
                }
                if let Some((action, tick)) = taken {
                    ledger.ticks += 1;
                    due = Some(Due::Tick(Spare { timers: self, slot: key.slot, tick, action: Some(action) }));
                    break;
                }
            } else if let Some(ended) = slot.fire(word) {
                ledger.fired += 1;
                self.forget(ledger, key.slot, &ended);
                due = Some(Due::Once(ended.action));
                break;
            }
        }
        self.publish(ledger);
        due
    }

    /// Settles a portion of the inbox, and puts the head of the heap right.
    pub(crate) fn clean(&self) -> u32 {
        let Some(mut ledger) = self.try_lock() else { return 0 };
        let mut cleaned = self.purge(&mut ledger, PORTION);
        while cleaned < PORTION
            && let Some(key) = ledger.heap.first()
        {
            let slot = self.slot(key.slot);
            let when = slot.when();
            if !slot.word().is_settled() {
                ledger.heap.remove(key.slot);
            } else if when > key.when {
                raise(&mut ledger.heap, key.slot, when);
            } else {
                break;
            }
            cleaned += 1;
        }
        self.publish(&mut ledger);
        cleaned
    }

    /// Settles the whole inbox.
    pub(crate) fn adjust(&self) -> u32 {
        let mut settled = 0;
        loop {
            let portion = self.purge(&mut self.lock(), PORTION);
            settled += portion;
            if portion < PORTION || settled >= self.limit {
                return settled;
            }
        }
    }

    /// What has become of the timers.
    pub(crate) fn counts(&self) -> Counts {
        let ledger = self.lock();
        let cancelled = ledger.cancelled + self.outside.0.cancelled.load(Relaxed);
        let Ledger { armed, fired, ticks, .. } = *ledger;
        Counts { armed, fired, ticks, cancelled, pending: armed.saturating_sub(fired + cancelled) }
    }

    /// Sees to it that a pending timer's key is no later than its deadline. Says whether it may be the earliest.
    #[inline]
    fn place(&self, ledger: &mut Ledger, number: u32, when: u64) -> bool {
        match ledger.heap.when_of(number) {
            Some(key) if key <= when => {}
            Some(_) => ledger.heap.change(number, when),
            None if when == NEVER => {}
            None => ledger.heap.insert(Key { when, sequence: self.slot(number).sequence(), slot: number }),
        }
        self.publish(ledger)
    }

    /// Takes an ended timer out of the heap; its slot is free, unless somebody without the lock is at it.
    #[inline]
    fn forget(&self, ledger: &mut Ledger, number: u32, ended: &Ended<A>) {
        ledger.heap.remove(number);
        if ended.word.is_free() && ended.word.is_reusable() {
            ledger.free.push(number);
        }
    }

    /// Tells those without the lock what the earliest deadline is.
    #[inline]
    fn publish(&self, ledger: &mut Ledger) -> bool {
        let before = ledger.published;
        let earliest = ledger.heap.first().map_or(NEVER, |key| key.when).min(ledger.floor);
        if earliest == before {
            return false;
        }
        ledger.published = earliest;
        // Relaxed: see the module docs, *Dekker*; for `Fetch`, what follows releases it.
        self.outside.0.earliest.store(earliest, Relaxed);
        earliest < before
    }

    /// A slot for one more timer when none is free.
    #[cold]
    fn find_free(&self, ledger: &mut Ledger) -> Option<u32> {
        if ledger.made < self.limit {
            let number = ledger.made;
            let slots = self.table.make(number);
            ledger.heap.track(slots);
            let capacity = ledger.free.capacity();
            ledger.free.reserve(slots.saturating_sub(capacity));
            ledger.made += 1;
            return Some(number);
        }
        while ledger.free.is_empty() && self.purge(ledger, PORTION) > 0 {}
        ledger.free.pop()
    }

    fn push(&self, number: u32) {
        let slot = self.slot(number);
        let inbox = &self.outside.0.inbox;
        let mut newest = inbox.load(Relaxed);
        loop {
            slot.next.store(newest, Relaxed);
            if MUTATION == mutation::PUSH_WITHOUT_CAS {
                inbox.store(number + 1, Release);
                return;
            }
            match inbox.compare_exchange_weak(newest, number + 1, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    #[inline]
    fn purge(&self, ledger: &mut Ledger, portion: u32) -> u32 {
        // Relaxed: what is not seen is left for the next.
        let outside = &self.outside.0;
        if ledger.backlog == EMPTY && outside.inbox.load(Relaxed) == EMPTY && outside.early.load(Relaxed) == NEVER {
            return 0;
        }
        self.purge_some(ledger, portion)
    }

    #[cold]
    fn purge_some(&self, ledger: &mut Ledger, portion: u32) -> u32 {
        let mut settled = 0;
        while settled < portion {
            if ledger.backlog == EMPTY {
                self.fetch(ledger);
            }
            let Some(number) = ledger.backlog.checked_sub(1) else { break };
            let slot = self.slot(number);
            ledger.backlog = slot.next.load(Relaxed);
            let (word, visited) = slot.unqueue();
            if visited {
            } else if word.is_settled() {
                self.place(ledger, number, slot.when());
            } else {
                ledger.heap.remove(number);
                if word.is_reusable() {
                    ledger.free.push(number);
                }
            }
            settled += 1;
        }
        if ledger.backlog == EMPTY {
            ledger.floor = NEVER;
        }
        self.publish(ledger);
        settled
    }

    fn fetch(&self, ledger: &mut Ledger) {
        let outside = &self.outside.0;
        ledger.floor = NEVER;
        let mut early = outside.early.load(Relaxed);
        while early != NEVER {
            ledger.floor = early;
            if MUTATION != mutation::EARLY_CLEARED_FIRST {
                self.publish(ledger);
            }
            match outside.early.compare_exchange(early, NEVER, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => early = now,
            }
        }
        ledger.backlog = outside.inbox.swap(EMPTY, Acquire);
    }
}

fn raise(heap: &mut Heap, number: u32, when: u64) {
    if when == NEVER {
        heap.remove(number);
    } else {
        heap.change(number, when);
    }
}

fn next_tick(when: u64, period: NonZeroU64, now: u64) -> u64 {
    let missed = (now - when) / period;
    when.saturating_add(period.get().saturating_mul(missed.saturating_add(1)))
}

struct Spare<'a, A, const MUTATION: u8> {
    timers: &'a Timers<A, MUTATION>,
    slot: u32,
    tick: Tick,
    action: Option<A>,
}

impl<A, const MUTATION: u8> Drop for Spare<'_, A, MUTATION> {
    fn drop(&mut self) {
        let Some(action) = self.action.take() else { return };
        let slot = self.timers.slot(self.slot);
        let ledger = self.timers.lock();
        let refused = slot.put_spare(self.tick, action);
        drop(ledger);
        drop(refused);
    }
}
