//! A timer's slot: the state word with its transitions, the deadline, the actions; and the pages that slots live in.
//!
//! The protocol, and the invariants that are named in brackets here, are in the documentation of the parent module.

use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::sync::OnceLock;

use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicU32, AtomicU64};
use procession_sync::cell::UnsafeCell;

use super::heap::NEVER;
use super::mutation;

/// The state word, `generation:32 | edition:24 | flags:8`. Shifting and masking happen here only.
///
/// The *generation* counts the timers that the slot has held; an id names one. The *edition* counts the replacements of this
/// timer's action, and its lowest bit says which of the two cells holds the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

/// The timer will fire, and the current cell holds its action. Set by `arm`; cleared by whoever takes the action for good.
const PENDING: u64 = 1;
/// The other cell holds the action of a periodic timer's next tick. Never without `PENDING`. Cleared by the thread that takes the
/// tick, set again when it has made another clone.
const SPARE: u64 = 1 << 1;
/// A thread without the lock is about to store a deadline. Set and cleared by that thread.
const RESETTING: u64 = 1 << 2;
/// A thread without the lock is moving the actions out. Never with `PENDING`. Set and cleared by that thread.
const TAKING: u64 = 1 << 3;
/// The slot is in the inbox or in the backlog, or the thread that set this is about to push it. Cleared by `settle`.
const QUEUED: u64 = 1 << 4;

const FLAGS: u64 = 0xff;
const EDITION_ONE: u64 = FLAGS + 1;
const EDITION: u64 = (1 << 32) - EDITION_ONE;
const GENERATION_ONE: u64 = 1 << 32;

/// The generation that no timer has: a slot that reaches it is used up.
const EXHAUSTED: u32 = u32::MAX;

impl Word {
    fn free(generation: u32) -> Self {
        Self(u64::from(generation) << 32)
    }

    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Which cell holds the current action.
    fn current(self) -> usize {
        (self.0 & EDITION_ONE != 0).into()
    }

    /// Whether this is still the timer of that generation.
    pub(super) fn is_pending(self, generation: u32) -> bool {
        self.generation() == generation && self.0 & PENDING != 0
    }

    /// Pending, and nobody without the lock changes or has changed its deadline since it was settled.
    pub(super) fn is_settled(self) -> bool {
        self.0 & (PENDING | RESETTING | QUEUED) == PENDING
    }

    pub(super) fn is_resetting(self) -> bool {
        self.0 & RESETTING != 0
    }

    /// Nothing is left of the slot's last timer: nobody is at it, and no list holds it.
    pub(super) fn is_free(self) -> bool {
        self.0 & (PENDING | RESETTING | TAKING | QUEUED) == 0
    }

    fn has_spare(self) -> bool {
        self.0 & SPARE != 0
    }

    fn with(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
    }

    /// The next generation, with no timer. Who is at the slot, and whether it is queued, stays.
    fn ended(self) -> Self {
        Self((self.0 & !(FLAGS | EDITION)).wrapping_add(GENERATION_ONE) | self.0 & (RESETTING | QUEUED))
    }

    /// The next edition.
    fn replaced(self) -> Self {
        Self(self.0 & !EDITION | self.0.wrapping_add(EDITION_ONE) & EDITION)
    }

    /// Whether the slot can hold another timer.
    pub(super) fn is_reusable(self) -> bool {
        self.generation() != EXHAUSTED
    }
}

/// What a timer held when it ended.
#[derive(Debug)]
pub(super) struct Ended<A> {
    pub(super) action: A,
    /// The clone for the next tick, which goes with it.
    pub(super) spare: Option<A>,
    /// The word that the end left.
    pub(super) word: Word,
}

/// What came of a replacement.
#[derive(Debug)]
pub(super) struct Replaced<A> {
    /// The action that was replaced; the new one if the timer was pending no more.
    pub(super) action: Result<A, A>,
    /// Clones that are of no use any more, to be dropped when the lock is released.
    pub(super) rest: [Option<A>; 2],
}

/// A place for one timer after another.
#[repr(C)]
pub(super) struct Slot<A, const MUTATION: u8> {
    word: AtomicU64,
    /// The deadline. Stored under the lock, or by the thread that set `RESETTING`.
    when: AtomicU64,
    /// 0 if it fires once. Read and stored under the lock.
    period: AtomicU64,
    /// Which timer of this heap it is, for the order of equal deadlines. Read and stored under the lock.
    sequence: AtomicU32,
    /// The slot queued before this one, plus 1. Stored by the thread that set `QUEUED`.
    pub(super) next: AtomicU32,
    cells: [UnsafeCell<MaybeUninit<A>>; 2],
}

// The fields beside the actions take half a line, so that a slot with actions of two words is one line.
#[cfg(not(procession_loom))]
const _: () = assert!(size_of::<Slot<[usize; 2], { mutation::SOUND }>>() == 64);

// SAFETY: [cells] one thread at a time touches a cell, and actions only move between threads.
unsafe impl<A: Send, const MUTATION: u8> Send for Slot<A, MUTATION> {}
// SAFETY: as above; no reference to an action is shared.
unsafe impl<A: Send, const MUTATION: u8> Sync for Slot<A, MUTATION> {}

impl<A, const MUTATION: u8> Slot<A, MUTATION> {
    fn new(generation: u32) -> Self {
        Self {
            word: AtomicU64::new(Word::free(generation).0),
            when: AtomicU64::new(NEVER),
            period: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            next: AtomicU32::new(0),
            cells: [const { MaybeUninit::uninit() }; 2].map(UnsafeCell::new),
        }
    }

    /// The word, to be verified by the transition that is made of it.
    #[inline]
    pub(super) fn word(&self) -> Word {
        // Relaxed: whoever acts on it does so by a compare-and-swap, or under the lock.
        Word(self.word.load(Relaxed))
    }

    /// The deadline; under the lock, that of a settled timer is the last that was set.
    #[inline]
    pub(super) fn when(&self) -> u64 {
        // Relaxed: stored under the lock, or acquired by `unqueue`.
        self.when.load(Relaxed)
    }

    /// Under the lock: changes the deadline.
    pub(super) fn set_when(&self, when: u64) {
        // Relaxed: read under the lock.
        self.when.store(when, Relaxed);
    }

    /// Under the lock: moves the deadline of a periodic timer, unless it has been reset meanwhile.
    pub(super) fn advance(&self, from: u64, to: u64) -> bool {
        // Relaxed: read under the lock.
        self.when.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
    }

    pub(super) fn sequence(&self) -> u32 {
        self.sequence.load(Relaxed)
    }

    pub(super) fn period(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.period.load(Relaxed))
    }

    pub(super) fn set_period(&self, period: Option<NonZeroU64>) {
        self.period.store(period.map_or(0, NonZeroU64::get), Relaxed);
    }

    /// Makes the one change from `old` to `new`. Relaxed on failure: what was seen is only tried again.
    #[inline]
    fn swap(&self, old: Word, new: Word, order: procession_sync::atomic::Ordering) -> Result<Word, Word> {
        match self.word.compare_exchange(old.0, new.0, order, Relaxed) {
            Ok(_) => Ok(new),
            Err(now) => Err(Word(now)),
        }
    }

    /// Moves the content of a cell out.
    ///
    /// # Safety
    /// `[cells]`: the caller's transition made the cell its own, filled.
    #[inline]
    unsafe fn take(&self, cell: usize) -> A {
        // SAFETY: [cells], passed on by the caller.
        let content = self.cells[cell].with_mut(|cell| unsafe { cell.read() });
        // SAFETY: [cells] it is filled.
        unsafe { content.assume_init() }
    }

    /// Fills a cell.
    ///
    /// # Safety
    /// `[cells]`: the cell is the caller's, and empty.
    #[inline]
    unsafe fn fill(&self, cell: usize, action: A) {
        // SAFETY: [cells], passed on by the caller.
        self.cells[cell].with_mut(|cell| unsafe { cell.write(MaybeUninit::new(action)) });
    }

    /// Under the lock: puts a timer into a free slot. Returns its generation.
    ///
    /// # Safety
    /// `[free]`: the caller took the slot off the free list.
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
        debug_assert!(free.is_free() && free.is_reusable(), "[free] only such slots are in the list");
        self.set_when(when);
        self.set_period(period);
        self.sequence.store(sequence, Relaxed);
        let mut armed = Word::free(free.generation()).with(PENDING);
        // SAFETY: [free]
        unsafe { self.fill(armed.current(), action) };
        if let Some(spare) = spare {
            // SAFETY: [free]
            unsafe { self.fill(1 - armed.current(), spare) };
            armed = armed.with(SPARE);
        }
        let order = if MUTATION == mutation::ARM_RELAXED { Relaxed } else { Release };
        // Ordering: Release pairs with the Acquire of `cancel_apart` and `begin_reset`; makes the cells and the deadline visible
        // to a thread that comes without the lock. A store: while the slot is free, no transition of another thread can succeed.
        self.word.store(armed.0, order);
        armed.generation()
    }

    /// Ends the timer and moves its actions out, if it is still the one of that generation. With `flag` they are moved by a
    /// thread without the lock.
    #[inline]
    fn end(&self, generation: u32, flag: u64, order: procession_sync::atomic::Ordering) -> Option<Ended<A>> {
        let mut word = self.word();
        loop {
            if !word.is_pending(generation) && MUTATION != mutation::DELETE_ANY_GENERATION || word.0 & PENDING == 0 {
                return None;
            }
            match self.swap(word, word.ended().with(flag), order) {
                Err(now) => word = now,
                Ok(left) => {
                    // SAFETY: [cells] the swap above ended the timer, so both cells are this thread's.
                    let action = unsafe { self.take(word.current()) };
                    // SAFETY: [cells] as above; SPARE says that it is filled.
                    let spare = word.has_spare().then(|| unsafe { self.take(1 - word.current()) });
                    return Some(Ended { action, spare, word: left });
                }
            }
        }
    }

    /// Under the lock: ends the timer, if it is still the one of that generation.
    #[inline]
    pub(super) fn cancel(&self, generation: u32) -> Option<Ended<A>> {
        // Ordering: Relaxed; the cells were filled under the lock.
        self.end(generation, 0, Relaxed)
    }

    /// Without the lock: ends the timer, if it is still the one of that generation. The caller must `leave_taking` next.
    pub(super) fn cancel_apart(&self, generation: u32) -> Option<Ended<A>> {
        let flag = if MUTATION == mutation::TAKING_UNMARKED { 0 } else { TAKING };
        // Ordering: Acquire pairs with the Release of `arm`, `replace` and `put_spare`; makes the cells visible.
        self.end(generation, flag, Acquire)
    }

    /// Under the lock: ends a settled timer that fires once; fails if the word has changed since it was read.
    #[inline]
    pub(super) fn fire(&self, word: Word) -> Option<Ended<A>> {
        if MUTATION == mutation::FIRE_WITHOUT_CAS {
            self.word.store(word.ended().0, Relaxed);
        } else {
            // Ordering: Relaxed; the cells were filled under the lock.
            self.swap(word, word.ended(), Relaxed).ok()?;
        }
        // SAFETY: [cells] the swap above ended the timer, so both cells are this thread's.
        let action = unsafe { self.take(word.current()) };
        Some(Ended { action, spare: None, word: word.ended() })
    }

    /// Under the lock: takes the tick of a settled periodic timer. Fails if the word has changed since it was read; the tick is
    /// `None` if the thread that took the one before is still making a clone.
    pub(super) fn tick(&self, word: Word) -> Result<Option<(A, Tick)>, Word> {
        if !word.has_spare() && MUTATION != mutation::TICK_WITHOUT_SPARE {
            return Ok(None);
        }
        // Ordering: Relaxed; the cells were filled under the lock.
        let left = self.swap(word, word.without(SPARE), Relaxed)?;
        // SAFETY: [cells] the swap above made the spare's cell this thread's.
        let action = unsafe { self.take(1 - word.current()) };
        Ok(Some((action, Tick { generation: left.generation(), edition: left.0 & EDITION })))
    }

    /// Under the lock: gives the spare of a tick back. Returns it if the timer ended or got another action meanwhile.
    pub(super) fn put_spare(&self, tick: Tick, spare: A) -> Result<(), A> {
        let mut word = self.word();
        let is_its = |word: Word| {
            let same_edition = word.0 & EDITION == tick.edition || MUTATION == mutation::SPARE_OF_ANY_EDITION;
            word.is_pending(tick.generation) && same_edition && !word.has_spare()
        };
        if !is_its(word) {
            return Err(spare);
        }
        let other = 1 - word.current();
        // SAFETY: [cells] without SPARE, the other cell is empty and belongs to whoever holds the lock.
        unsafe { self.fill(other, spare) };
        while is_its(word) {
            // Ordering: Release pairs with the Acquire of `cancel_apart`; makes the cell visible.
            match self.swap(word, word.with(SPARE), Release) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
        // SAFETY: [cells] filled above; whoever ended the timer took no spare, since SPARE was not set.
        Err(unsafe { self.take(other) })
    }

    /// Under the lock: replaces action and spare, if the timer is still the one of that generation.
    pub(super) fn replace(&self, generation: u32, action: A, spare: Option<A>) -> Replaced<A> {
        let mut word = self.word();
        // The other cell has to be empty before the new action can be put there.
        let old_spare = loop {
            if !word.is_pending(generation) {
                return Replaced { action: Err(action), rest: [spare, None] };
            }
            if !word.has_spare() {
                break None;
            }
            // Ordering: Relaxed; the cells were filled under the lock.
            match self.swap(word, word.without(SPARE), Relaxed) {
                Err(now) => word = now,
                Ok(left) => {
                    word = left;
                    // SAFETY: [cells] the swap made the spare's cell this thread's.
                    break Some(unsafe { self.take(1 - left.current()) });
                }
            }
        };
        let (old, new) = (word.current(), 1 - word.current());
        // SAFETY: [cells] without SPARE, the other cell is empty and belongs to whoever holds the lock.
        unsafe { self.fill(new, action) };
        loop {
            if !word.is_pending(generation) {
                // SAFETY: [cells] filled above; whoever ended the timer took the other one.
                let action = unsafe { self.take(new) };
                return Replaced { action: Err(action), rest: [spare, old_spare] };
            }
            if MUTATION == mutation::REPLACE_WITHOUT_CAS {
                self.word.store(word.replaced().0, Release);
                word = word.replaced();
                break;
            }
            // Ordering: Release pairs with the Acquire of `cancel_apart`; makes the cell visible.
            match self.swap(word, word.replaced(), Release) {
                Err(now) => word = now,
                Ok(left) => {
                    word = left;
                    break;
                }
            }
        }
        // SAFETY: [cells] since the swap above, this is the other cell, filled, without SPARE.
        let action = unsafe { self.take(old) };
        let Some(spare) = spare else {
            return Replaced { action: Ok(action), rest: [old_spare, None] };
        };
        // SAFETY: [cells] as above, and empty.
        unsafe { self.fill(old, spare) };
        while word.is_pending(generation) {
            // Ordering: Release as above.
            match self.swap(word, word.with(SPARE), Release) {
                Ok(_) => return Replaced { action: Ok(action), rest: [old_spare, None] },
                Err(now) => word = now,
            }
        }
        // SAFETY: [cells] filled above; whoever ended the timer took no spare, since SPARE was not set.
        let spare = unsafe { self.take(old) };
        Replaced { action: Ok(action), rest: [old_spare, Some(spare)] }
    }

    /// Without the lock: begins a change of the deadline, if the timer is still the one of that generation.
    pub(super) fn begin_reset(&self, generation: u32) -> Begun {
        let mut word = self.word();
        loop {
            if !word.is_pending(generation) {
                return Begun::Stale;
            }
            if word.is_resetting() {
                return Begun::Overtaken;
            }
            if MUTATION == mutation::RESET_WITHOUT_CLAIM {
                return Begun::Yes;
            }
            // Ordering: Acquire pairs with the Release of `arm`; the deadline that this thread stores comes after that one.
            match self.swap(word, word.with(RESETTING), Acquire) {
                Ok(_) => return Begun::Yes,
                Err(now) => word = now,
            }
        }
    }

    /// Ends what `begin_reset` began: `leave` with the deadline stored.
    pub(super) fn end_reset(&self, when: u64) -> bool {
        // Relaxed: released by the swap that follows.
        self.when.store(when, Relaxed);
        self.leave(RESETTING)
    }

    /// Ends what `cancel_apart` began.
    pub(super) fn leave_taking(&self) -> bool {
        self.leave(TAKING)
    }

    /// Clears the flag of a thread without the lock. Says whether the caller must push the slot into the inbox.
    fn leave(&self, flag: u64) -> bool {
        let mut word = self.word();
        loop {
            let order = if MUTATION == mutation::LEAVE_RELAXED { Relaxed } else { Release };
            // Ordering: Release pairs with the Acquire of `unqueue`; what this thread did at the slot is done.
            match self.swap(word, word.without(flag).with(QUEUED), order) {
                Ok(_) => return word.0 & QUEUED == 0,
                Err(now) => word = now,
            }
        }
    }

    /// Under the lock: takes the slot out of the backlog. Returns the word as it is then, and whether somebody without the lock is
    /// at the slot, who will push it again.
    pub(super) fn unqueue(&self) -> (Word, bool) {
        let mut word = self.word();
        loop {
            debug_assert!(word.0 & QUEUED != 0, "the backlog holds slots that are queued");
            // Ordering: Acquire pairs with the Release of `leave`; makes the deadline visible, or the cells empty.
            match self.swap(word, word.without(QUEUED), Acquire) {
                Ok(left) => return (left, left.0 & (RESETTING | TAKING) != 0),
                Err(now) => word = now,
            }
        }
    }

    /// Moves out what a dropped table still holds.
    fn take_rest(&mut self) -> impl Iterator<Item = A> + use<A, MUTATION> {
        let word = self.word();
        self.word.store(word.ended().0, Relaxed);
        // SAFETY: [cells] the slot is exclusively ours, and PENDING says that the cell is filled.
        let action = (word.0 & PENDING != 0).then(|| unsafe { self.take(word.current()) });
        // SAFETY: [cells] as above, with SPARE.
        let spare = word.has_spare().then(|| unsafe { self.take(1 - word.current()) });
        action.into_iter().chain(spare)
    }
}

/// The tick that a thread took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    generation: u32,
    edition: u64,
}

/// What came of an attempt to begin a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    Yes,
    /// Another thread is in the middle of a reset.
    Overtaken,
    Stale,
}

/// Slots that lie together; 16, so that a row is small enough to be made on the stack of a coroutine.
const ROW: usize = if cfg!(procession_loom) { 2 } else { 16 };

/// Rows made at once. With actions of two words, 64 KiB.
const PAGE: usize = if cfg!(procession_loom) { 1 } else { 64 };

/// Its alignment makes a slot of one line lie in one.
#[repr(align(64))]
struct Row<A, const MUTATION: u8>([Slot<A, MUTATION>; ROW]);

type Page<A, const MUTATION: u8> = Box<[Row<A, MUTATION>; PAGE]>;

/// The slots of one heap. They are made in pages and never move.
pub(super) struct Table<A, const MUTATION: u8> {
    pages: Box<[OnceLock<Page<A, MUTATION>>]>,
    /// The generation of a slot's first timer.
    first: u32,
}

impl<A, const MUTATION: u8> Table<A, MUTATION> {
    /// A table for at most `limit` slots, none of which is made.
    pub(super) fn new(limit: u32, first: u32) -> Self {
        let pages = (limit as usize).div_ceil(ROW * PAGE);
        Self { pages: (0..pages).map(|_| OnceLock::new()).collect(), first }
    }

    /// Makes the page of this slot, if it is not there. Returns how many slots there are up to its end.
    pub(super) fn make(&self, slot: u32) -> usize {
        let page = slot as usize / (ROW * PAGE);
        self.pages[page].get_or_init(|| {
            let row = |_| Row(std::array::from_fn(|_| Slot::new(self.first)));
            let rows: Box<[_]> = (0..PAGE).map(row).collect();
            let Ok(rows) = rows.try_into() else { unreachable!("collected from as many") };
            rows
        });
        (page + 1) * ROW * PAGE
    }

    /// The slot of this number, if it has been made.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Slot<A, MUTATION>> {
        let slot = slot as usize;
        let page = self.pages.get(slot / (ROW * PAGE))?.get()?;
        Some(&page[slot / ROW % PAGE].0[slot % ROW])
    }
}

impl<A, const MUTATION: u8> Drop for Table<A, MUTATION> {
    fn drop(&mut self) {
        let rows = self.pages.iter_mut().filter_map(OnceLock::get_mut).flat_map(|page| page.iter_mut());
        Rest(rows.flat_map(|row| &mut row.0).flat_map(Slot::take_rest)).drop_each();
    }
}

/// The actions in a dropped table. If the `Drop` of one panics, the others are dropped all the same.
struct Rest<I: Iterator>(I);

impl<I: Iterator> Rest<I> {
    fn drop_each(&mut self) {
        for action in self.0.by_ref() {
            drop(action);
        }
    }
}

impl<I: Iterator> Drop for Rest<I> {
    fn drop(&mut self) {
        self.drop_each();
    }
}
