//! A timer's slot: the state word with its transitions, the deadline, the actions; and the pages of
//! slots.
//!
//! The documentation of the parent module describes the protocol, its steps and the invariants in
//! brackets. A function that needs the lock takes the ledger, which no thread has without the lock.

use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::sync::OnceLock;

use procession_sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicU32, AtomicU64};
use procession_sync::cell::UnsafeCell;

use super::heap::NEVER;
use super::{Ledger, mutation};

/// The timer will fire. Set by `Arm`; cleared by `End` and `Fire`.
const PENDING: u64 = 1;
/// The other cell holds the action of the next tick. Never without `PENDING`. Cleared by `Tick`,
/// set again by `Return`.
const SPARE: u64 = 1 << 1;
/// A thread without the lock is storing a deadline. Set by `Begin`, cleared by `Leave` of the same
/// thread.
const RESETTING: u64 = 1 << 2;
/// A thread without the lock is moving the actions out. Never with `PENDING`. Set by `End`, cleared
/// by `Leave` of the same thread.
const TAKING: u64 = 1 << 3;
/// The slot is in the inbox or the backlog, or the thread that set this is about to push it. Set by
/// `Leave`, cleared by `Unqueue`.
const QUEUED: u64 = 1 << 4;

const FLAGS: u64 = 0xff;
const EDITION_ONE: u64 = FLAGS + 1;
const GENERATION_ONE: u64 = 1 << 32;
const EDITION: u64 = GENERATION_ONE - EDITION_ONE;

/// The generation that no timer has. A slot that reaches it is retired.
const EXHAUSTED: u32 = u32::MAX;

/// `generation:32 | edition:24 | flags:8`. Shifting and masking happen here only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    #[inline]
    fn free(generation: u32) -> Self {
        Self(u64::from(generation) << 32)
    }

    #[inline]
    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    #[inline]
    fn with(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    #[inline]
    fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
    }

    /// The cell that holds the action; the other cell is for the spare.
    #[inline]
    fn current(self) -> usize {
        (self.0 & EDITION_ONE != 0).into()
    }

    /// The next edition.
    #[inline]
    fn replaced(self) -> Self {
        Self(self.0 & !EDITION | self.0.wrapping_add(EDITION_ONE) & EDITION)
    }

    /// The next generation, without a timer. `RESETTING` and `QUEUED` are kept.
    #[inline]
    fn ended(self) -> Self {
        let next = (self.0 & !(EDITION | FLAGS)) + GENERATION_ONE;
        Self(next | self.0 & (RESETTING | QUEUED))
    }

    #[inline]
    pub(super) fn has_timer(self) -> bool {
        self.has(PENDING)
    }

    /// Returns `true` if the timer of that generation will fire.
    #[inline]
    pub(super) fn is_pending(self, generation: u32) -> bool {
        self.generation() == generation && self.has(PENDING)
    }

    /// Returns `true` if the timer is pending, and the lock's holder knows all that visitors did.
    #[inline]
    pub(super) fn is_settled(self) -> bool {
        self.0 & (PENDING | RESETTING | QUEUED) == PENDING
    }

    /// Returns `true` if a slot without a timer may go to the free list.
    #[inline]
    fn is_free(self) -> bool {
        !self.has(PENDING | RESETTING | TAKING | QUEUED) && self.generation() != EXHAUSTED
    }
}

/// The content of a timer that has ended.
#[derive(Debug)]
pub(super) struct EndedTimer<A> {
    pub(super) action: A,
    /// The spare, which ends with the timer.
    pub(super) spare: Option<A>,
    /// Set if the slot goes to the free list now.
    pub(super) is_free: bool,
}

/// The result of a replacement.
#[derive(Debug)]
pub(super) struct Replaced<A> {
    /// The old action or, if the timer was no longer pending, the new one.
    pub(super) action: Result<A, A>,
    /// Unused spares, to be dropped after the lock is released.
    pub(super) rest: [Option<A>; 2],
}

/// The result of the attempt to begin a reset without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum ResetBegun {
    Yes,
    /// Another thread is in the middle of a reset. This one counts as the earlier, and is done.
    Overtaken,
    /// The timer is no longer pending.
    Stale,
}

/// The state of a slot that is taken out of the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum SettledSlot {
    /// Its timer is pending, with the deadline `when`.
    Pending,
    /// It has no timer. If it is not free, it is retired, or it has a visitor, which will push it
    /// again.
    Ended { is_free: bool },
}

/// A taken tick: the timer, and the edition of its action.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick(Word);

/// A cell for an action. If each operation of an atomic is a point, it knows whether it is filled:
/// a run that breaks `[cells]` then fails, instead of doing what is undefined.
struct ActionCell<A> {
    action: MaybeUninit<A>,
    #[cfg(procession_sim)]
    is_filled: bool,
}

impl<A> ActionCell<A> {
    fn empty() -> Self {
        Self {
            action: MaybeUninit::uninit(),
            #[cfg(procession_sim)]
            is_filled: false,
        }
    }

    #[inline]
    fn fill(&mut self, action: A) {
        #[cfg(procession_sim)]
        assert!(!std::mem::replace(&mut self.is_filled, true), "[cells] the cell is empty");
        self.action.write(action);
    }

    #[inline]
    fn take(&mut self) -> MaybeUninit<A> {
        #[cfg(procession_sim)]
        assert!(std::mem::replace(&mut self.is_filled, false), "[cells] the cell is filled");
        std::mem::replace(&mut self.action, MaybeUninit::uninit())
    }
}

/// The place of a timer, reused by one timer after another.
#[repr(C)]
pub(super) struct TimerSlot<A, const MUTATION: u8> {
    word: AtomicU64,
    /// Stored under the lock, or by the thread that set `RESETTING`.
    when: AtomicU64,
    /// 0 if the timer fires once. Used under the lock.
    period: AtomicU64,
    /// The order of equal deadlines. Used under the lock.
    sequence: AtomicU32,
    /// The link of the slot that was pushed before this. Stored by the thread that set `QUEUED`.
    pub(super) next: AtomicU32,
    cells: [UnsafeCell<ActionCell<A>>; 2],
}

// With actions of two words, such as wakers, a slot is one cache line.
#[cfg(not(any(procession_loom, procession_sim)))]
const _: () = assert!(size_of::<TimerSlot<[u64; 2], { mutation::SOUND }>>() == 64);

// SAFETY: [cells] lets one thread at a time touch a cell, and the actions only move.
unsafe impl<A: Send, const MUTATION: u8> Sync for TimerSlot<A, MUTATION> {}

impl<A, const MUTATION: u8> TimerSlot<A, MUTATION> {
    fn new(generation: u32) -> Self {
        Self {
            word: AtomicU64::new(Word::free(generation).0),
            when: AtomicU64::new(NEVER),
            period: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            next: AtomicU32::new(0),
            cells: [(); 2].map(|()| UnsafeCell::new(ActionCell::empty())),
        }
    }

    #[inline]
    pub(super) fn word(&self) -> Word {
        // Relaxed: a transition verifies what follows from it, or the lock is held.
        Word(self.word.load(Relaxed))
    }

    /// Under the lock: returns the deadline. For a settled timer, this is the deadline that was set
    /// last.
    #[inline]
    pub(super) fn when(&self) -> u64 {
        // Relaxed: stored under the lock, or acquired by `unqueue`.
        self.when.load(Relaxed)
    }

    /// Under the lock: sets the deadline.
    pub(super) fn set_when(&self, when: u64) {
        // Relaxed: read under the lock.
        self.when.store(when, Relaxed);
    }

    /// Under the lock: advances the deadline, unless another thread sets it at the same time.
    pub(super) fn advance(&self, from: u64, to: u64) -> bool {
        if mutation::is(MUTATION, mutation::ADVANCE_WITHOUT_CAS) {
            self.when.store(to, Relaxed);
            return true;
        }
        // Relaxed: read under the lock.
        self.when.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn period(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.period.load(Relaxed))
    }

    pub(super) fn sequence(&self) -> u32 {
        self.sequence.load(Relaxed)
    }

    /// Changes the word. Relaxed on failure: the value seen is tried next, or given up.
    #[inline]
    fn swap(&self, old: Word, new: Word, success: Ordering) -> Result<(), Word> {
        match self.word.compare_exchange(old.0, new.0, success, Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(Word(now)),
        }
    }

    /// Moves the content of a cell out.
    ///
    /// # Safety
    /// `[cells]`: the cell is filled, and belongs to the caller.
    #[inline]
    unsafe fn take(&self, cell: usize) -> A {
        // SAFETY: [cells], passed on by the caller.
        let content = self.cells[cell].with_mut(|cell| unsafe { (*cell).take() });
        // SAFETY: as above.
        unsafe { content.assume_init() }
    }

    /// Fills a cell.
    ///
    /// # Safety
    /// `[cells]`: the cell is empty, and belongs to the caller.
    #[inline]
    unsafe fn fill(&self, cell: usize, action: A) {
        // SAFETY: [cells], passed on by the caller.
        self.cells[cell].with_mut(|cell| unsafe { (*cell).fill(action) });
    }

    /// Under the lock, `Arm`: fills the slot with a timer. Returns its generation.
    ///
    /// # Safety
    /// `[free]`: the caller took the slot off the free list, or it is new.
    #[inline]
    pub(super) unsafe fn arm(
        &self,
        when: u64,
        sequence: u32,
        period: Option<NonZeroU64>,
        action: A,
        spare: Option<A>,
    ) -> u32 {
        let free = self.word();
        debug_assert!(free.is_free(), "[free] nobody is at the slot");
        let mut armed = free.with(PENDING);
        // Relaxed, all three: used under the lock.
        self.when.store(when, Relaxed);
        self.period.store(period.map_or(0, NonZeroU64::get), Relaxed);
        self.sequence.store(sequence, Relaxed);
        // SAFETY: [free]
        unsafe { self.fill(armed.current(), action) };
        if let Some(spare) = spare {
            // SAFETY: [free]
            unsafe { self.fill(1 - armed.current(), spare) };
            armed = armed.with(SPARE);
        }
        let order = if mutation::is(MUTATION, mutation::ARM_RELAXED) { Relaxed } else { Release };
        // Ordering: Release pairs with the Acquire of `cancel_apart`, which makes the cells
        // visible, and with the Acquire of `begin_reset`, so that its deadline is after this one. A
        // store: no other thread changes the word of a free slot.
        self.word.store(armed.0, order);
        armed.generation()
    }

    /// `End`: ends the timer of that generation, and moves its actions out.
    #[inline]
    fn end(&self, generation: u32, taking: u64, success: Ordering) -> Option<EndedTimer<A>> {
        let mut word = self.word();
        // The number of rounds is bounded by the changes that other threads make to the slot.
        while word.is_pending(generation)
            || mutation::is(MUTATION, mutation::END_ANY_GENERATION) && word.has_timer()
        {
            let mut ended = word.ended().with(taking);
            if mutation::is(MUTATION, mutation::END_FORGETS_RESETTING) {
                ended = ended.without(RESETTING);
            }
            if let Err(now) = self.swap(word, ended, success) {
                word = now;
                continue;
            }
            // SAFETY: [cells] this thread ended the timer.
            let action = unsafe { self.take(word.current()) };
            // SAFETY: as above.
            let spare = word.has(SPARE).then(|| unsafe { self.take(1 - word.current()) });
            return Some(EndedTimer { action, spare, is_free: ended.is_free() });
        }
        None
    }

    /// Under the lock: ends the timer of that generation.
    #[inline]
    pub(super) fn cancel(&self, _lock: &Ledger, generation: u32) -> Option<EndedTimer<A>> {
        // Ordering: Relaxed; cells are filled under the lock.
        self.end(generation, 0, Relaxed)
    }

    /// Without the lock: ends the timer of that generation. If there was one, the caller must call
    /// `end_taking` next.
    pub(super) fn cancel_apart(&self, generation: u32) -> Option<EndedTimer<A>> {
        let taking = if mutation::is(MUTATION, mutation::TAKING_UNMARKED) { 0 } else { TAKING };
        // Ordering: Acquire pairs with the Release of `arm`, `replace` and `return_spare`; makes
        // the cells visible.
        self.end(generation, taking, Acquire)
    }

    /// Under the lock, `Fire`: ends a settled timer that fires once, unless the word has changed.
    #[inline]
    pub(super) fn fire(&self, _lock: &Ledger, word: Word) -> Option<EndedTimer<A>> {
        debug_assert!(!word.has(SPARE), "only a periodic timer has one");
        let ended = word.ended();
        if mutation::is(MUTATION, mutation::FIRE_WITHOUT_CAS) {
            self.word.store(ended.0, Relaxed);
        } else {
            // Ordering: Relaxed; cells are filled under the lock.
            self.swap(word, ended, Relaxed).ok()?;
        }
        // SAFETY: [cells] this thread ended the timer.
        let action = unsafe { self.take(word.current()) };
        Some(EndedTimer { action, spare: None, is_free: ended.is_free() })
    }

    /// Under the lock, `Tick`: takes the spare of a settled timer, unless the word has changed. The
    /// tick is `None` if there is no spare: the thread that took the last one has not returned it.
    pub(super) fn tick(&self, _lock: &Ledger, word: Word) -> Option<Option<(Tick, A)>> {
        if !word.has(SPARE) && !mutation::is(MUTATION, mutation::TICK_WITHOUT_SPARE) {
            return Some(None);
        }
        let ticking = word.without(SPARE);
        // Ordering: Release pairs with the Acquire of `begin_reset`, so that its deadline is not
        // the deadline that was read before this.
        self.swap(word, ticking, Release).ok()?;
        // SAFETY: [cells] this thread cleared SPARE.
        let action = unsafe { self.take(1 - word.current()) };
        Some(Some((Tick(ticking), action)))
    }

    /// Under the lock, `Return`: returns the spare of a tick. Refused if the timer has ended, or
    /// has another action.
    pub(super) fn return_spare(&self, _lock: &Ledger, tick: Tick, spare: A) -> Result<(), A> {
        let is_its = |word: Word| {
            let is_timer = word.is_pending(tick.0.generation())
                || mutation::is(MUTATION, mutation::RETURN_ANY_GENERATION);
            let is_edition = (word.0 ^ tick.0.0) & EDITION == 0
                || mutation::is(MUTATION, mutation::RETURN_ANY_EDITION);
            is_timer && is_edition && !word.has(SPARE)
        };
        let mut word = self.word();
        if !is_its(word) {
            return Err(spare);
        }
        let other = 1 - word.current();
        // SAFETY: [cells], [lock] without SPARE, the other cell is empty, and belongs to this
        // thread.
        unsafe { self.fill(other, spare) };
        let order =
            if mutation::is(MUTATION, mutation::RETURN_RELAXED) { Relaxed } else { Release };
        while is_its(word) {
            // Ordering: Release pairs with the Acquire of `cancel_apart`; makes the cell visible.
            match self.swap(word, word.with(SPARE), order) {
                Ok(()) => return Ok(()),
                Err(now) => word = now,
            }
        }
        // SAFETY: [cells] filled above; the thread that ended the timer saw no SPARE.
        Err(unsafe { self.take(other) })
    }

    /// Under the lock, `Replace`: replaces the action and the period of the timer of that
    /// generation.
    pub(super) fn replace(
        &self,
        _lock: &Ledger,
        generation: u32,
        period: Option<NonZeroU64>,
        action: A,
        spare: Option<A>,
    ) -> Replaced<A> {
        let mut word = self.word();
        // The old spare is moved out to make room.
        let mut old_spare = None;
        while word.has(SPARE) && word.is_pending(generation) {
            // Ordering: Relaxed; cells are filled under the lock.
            match self.swap(word, word.without(SPARE), Relaxed) {
                Err(now) => word = now,
                Ok(()) => {
                    word = word.without(SPARE);
                    // SAFETY: [cells] this thread cleared SPARE.
                    old_spare = Some(unsafe { self.take(1 - word.current()) });
                }
            }
        }
        if !word.is_pending(generation) {
            return Replaced { action: Err(action), rest: [spare, old_spare] };
        }
        let (old, new) = (word.current(), 1 - word.current());
        // SAFETY: [cells], [lock] without SPARE, the other cell is empty, and belongs to this
        // thread.
        unsafe { self.fill(new, action) };
        loop {
            if !word.is_pending(generation) {
                // SAFETY: [cells] filled above; the thread that ended the timer saw no SPARE.
                let action = unsafe { self.take(new) };
                return Replaced { action: Err(action), rest: [spare, old_spare] };
            }
            if mutation::is(MUTATION, mutation::REPLACE_WITHOUT_CAS) {
                self.word.store(word.replaced().0, Release);
                break;
            }
            // Ordering: Release pairs with the Acquire of `cancel_apart`; makes the cell visible.
            match self.swap(word, word.replaced(), Release) {
                Ok(()) => break,
                Err(now) => word = now,
            }
        }
        word = word.replaced();
        // Relaxed: used under the lock.
        self.period.store(period.map_or(0, NonZeroU64::get), Relaxed);
        // SAFETY: [cells] it is the other cell by now, filled, without SPARE.
        let action = Ok(unsafe { self.take(old) });
        let Some(spare) = spare else { return Replaced { action, rest: [None, old_spare] } };
        // SAFETY: [cells], [lock] without SPARE, the other cell is empty, and belongs to this
        // thread.
        unsafe { self.fill(old, spare) };
        while word.is_pending(generation) {
            // Ordering: Release as above.
            match self.swap(word, word.with(SPARE), Release) {
                Ok(()) => return Replaced { action, rest: [None, old_spare] },
                Err(now) => word = now,
            }
        }
        // SAFETY: [cells] filled above; the thread that ended the timer saw no SPARE.
        let spare = unsafe { self.take(old) };
        Replaced { action, rest: [Some(spare), old_spare] }
    }

    /// Without the lock, `Begin`: claims the deadline of the timer of that generation. After
    /// success, the caller must call `end_reset` next.
    pub(super) fn begin_reset(&self, generation: u32) -> ResetBegun {
        let mut word = self.word();
        loop {
            if !word.is_pending(generation) {
                return ResetBegun::Stale;
            }
            if word.has(RESETTING) && !mutation::is(MUTATION, mutation::BEGIN_TWICE) {
                return ResetBegun::Overtaken;
            }
            if mutation::is(MUTATION, mutation::RESET_WITHOUT_BEGIN) {
                return ResetBegun::Yes;
            }
            // Ordering: Acquire pairs with the Release of `arm` and `tick`, as described there.
            match self.swap(word, word.with(RESETTING), Acquire) {
                Ok(()) => return ResetBegun::Yes,
                Err(now) => word = now,
            }
        }
    }

    /// Without the lock: stores the deadline, and leaves. Returns `true` if the caller must push
    /// the slot.
    pub(super) fn end_reset(&self, when: u64) -> bool {
        // Relaxed: released by `leave`. A swap, although the old value is not used: a store cannot
        // come between the halves of `advance`, but loom does not know that.
        self.when.swap(when, Relaxed);
        self.leave(RESETTING)
    }

    /// Without the lock, after `cancel_apart`: leaves. Returns `true` if the caller must push the
    /// slot.
    pub(super) fn end_taking(&self) -> bool {
        self.leave(TAKING)
    }

    /// `Leave`.
    fn leave(&self, flag: u64) -> bool {
        let order = if mutation::is(MUTATION, mutation::LEAVE_RELAXED) { Relaxed } else { Release };
        let mut word = self.word();
        // Ordering: Release pairs with the Acquire of `unqueue`; makes the deadline visible, or the
        // emptied cells available to be filled.
        while let Err(now) = self.swap(word, word.without(flag).with(QUEUED), order) {
            word = now;
        }
        !word.has(QUEUED)
    }

    /// Under the lock, `Unqueue`: takes the slot out of the backlog.
    pub(super) fn unqueue(&self) -> SettledSlot {
        let mut word = self.word();
        // Ordering: Acquire pairs with the Release of `leave`, as described there.
        while let Err(now) = self.swap(word, word.without(QUEUED), Acquire) {
            word = now;
        }
        debug_assert!(word.has(QUEUED), "only such slots are in the backlog");
        let word = word.without(QUEUED);
        if word.has_timer() {
            SettledSlot::Pending
        } else {
            SettledSlot::Ended { is_free: word.is_free() }
        }
    }

    /// Moves out the actions left in a dropped table.
    fn take_rest(&mut self) -> impl Iterator<Item = A> + use<A, MUTATION> {
        let word = self.word();
        // Relaxed: no other thread has the slot.
        self.word.store(word.without(PENDING | SPARE).0, Relaxed);
        // SAFETY: [cells] this thread ended the timer.
        let action = word.has_timer().then(|| unsafe { self.take(word.current()) });
        // SAFETY: as above.
        let spare = word.has(SPARE).then(|| unsafe { self.take(1 - word.current()) });
        action.into_iter().chain(spare)
    }
}

/// The number of adjacent slots: 1 KiB, which can be made on the stack of a coroutine.
const ROW: usize = if cfg!(procession_loom) { 2 } else { 16 };

/// The number of rows that are made together: 64 KiB.
const PAGE: usize = if cfg!(procession_loom) { 2 } else { 64 };

/// Aligned, so that a slot of one cache line does not straddle two.
#[repr(align(64))]
struct Row<A, const MUTATION: u8>([TimerSlot<A, MUTATION>; ROW]);

type Page<A, const MUTATION: u8> = Box<[Row<A, MUTATION>; PAGE]>;

/// All slots. They are made in pages and never move.
pub(super) struct TimerTable<A, const MUTATION: u8> {
    pages: Box<[OnceLock<Page<A, MUTATION>>]>,
    /// The generation of each slot when it is made.
    generation: u32,
}

impl<A, const MUTATION: u8> TimerTable<A, MUTATION> {
    pub(super) fn new(limit: u32, generation: u32) -> Self {
        let pages = (limit as usize).div_ceil(ROW * PAGE);
        Self { pages: (0..pages).map(|_| OnceLock::new()).collect(), generation }
    }

    /// Makes this slot, and all others of its page, unless they exist. Returns the number of slots
    /// that exist then.
    pub(super) fn make(&self, number: u32) -> usize {
        let page = number as usize / (ROW * PAGE);
        self.pages[page].get_or_init(|| {
            let row = |_| Row(std::array::from_fn(|_| TimerSlot::new(self.generation)));
            let rows: Box<[_]> = (0..PAGE).map(row).collect();
            let Ok(rows) = rows.try_into() else { unreachable!("collected from as many") };
            rows
        });
        (page + 1) * ROW * PAGE
    }

    /// Returns the slot with this number, if it was made.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&TimerSlot<A, MUTATION>> {
        let number = number as usize;
        let page = self.pages.get(number / (ROW * PAGE))?.get()?;
        Some(&page[number / ROW % PAGE].0[number % ROW])
    }
}

impl<A, const MUTATION: u8> Drop for TimerTable<A, MUTATION> {
    fn drop(&mut self) {
        let rows =
            self.pages.iter_mut().filter_map(OnceLock::get_mut).flat_map(|page| page.iter_mut());
        RemainingActions(rows.flat_map(|row| &mut row.0).flat_map(TimerSlot::take_rest))
            .drop_each();
    }
}

/// The actions that a dropped table still holds. If the `Drop` of one action panics, the remaining
/// actions are dropped nevertheless.
struct RemainingActions<I: Iterator>(I);

impl<I: Iterator> RemainingActions<I> {
    fn drop_each(&mut self) {
        self.0.by_ref().for_each(drop);
    }
}

impl<I: Iterator> Drop for RemainingActions<I> {
    fn drop(&mut self) {
        self.drop_each();
    }
}
