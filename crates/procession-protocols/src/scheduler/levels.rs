//! The levels of the run queues: ready processes of high and of batch priority.
//!
//! # Level protocol
//!
//! ## Problem
//! A process of another priority than `Normal` must not wait in the rings and deques of a worker,
//! which know one order only. Its priority may change at any moment, also while it is queued: for
//! example, a report becomes urgent. If the thread that changes the priority and the worker that
//! takes the process out do not agree, the process is in two queues, or in none.
//!
//! ## States
//! The rings, the deques and the queues behind them hold what is queued at the level `Normal`. Here
//! is one map for the two other levels, under one lock. Its key is the place (any worker, or the
//! only worker that may run the process), the level, and a ticket that is never used again. So each
//! place and level is a FIFO queue, and any entry can be taken out of the middle.
//!
//! Each process that ever had another priority has a *level word*: its own priority, the priority
//! at which it runs, whether it lends that to another process, and place and ticket of its latest
//! entry here. It changes only under the lock. A process that never had another priority has no
//! word, and its queueing does not come here (`process/binding.rs`).
//!
//! A *loan* is the priority of a process that waits for another one. Under the lock, there are the
//! borrower of each lender, and the number of loans to each borrower, by priority
//! (`levels/loans.rs`). A process runs at the highest of its own priority and the priorities that
//! are lent to it.
//!
//! Beside the lock there are numbers of entries, for each place and level, and in all. They change
//! under the lock, and are read without it.
//!
//! ## Steps
//! - Thread that queues a process with a word, `Push`: lock · read the priority · insert, and note
//!   place and ticket in the word; or return the entry, which then goes to the rings, if the
//!   priority is `Normal` · unlock. If the queue was empty, the caller changes the beacon.
//! - Worker, `Pop`: return if the number is 0 · lock · take the first entry of the place and level.
//! - Thread that changes a priority, `Change`: lock · take out the entry that the word names, if it
//!   is there · write the priority · insert the entry at the new level, or return it if that is
//!   `Normal` · unlock. The caller queues a returned entry.
//! - Process that must wait for the reply or the lock of another one, `Lend`: lock · note the loan,
//!   unless it has lent already · unlock. Then `Change` of the borrower. If the borrower itself
//!   waits and has lent nothing, it is woken, and lends (`scheduler/lending.rs`).
//! - Thread that queues the lender, ends it, or ends its wait, `TakeBack`: lock · forget the loan ·
//!   unlock. Then `Change` of the borrower.
//!
//! ## Why it works
//! *One entry.* `Push`, `Pop` and `Change` are critical sections of one lock. The entry is in the
//! map exactly if the key in its word is there, because tickets are unique and every insertion
//! writes the word. `Change` either finds the entry, and moves it within its section; or does not
//! find it, because a worker took it, it is not queued here, or it is not queued yet. In the last
//! case the `Push` comes later and reads the new priority.
//!
//! *No loan outlives its cause.* A process has lent only while it waits, because the thread that
//! queues it takes the loan back first. A process that ends is queued no more, so the worker that
//! ends it takes back what its last step has lent. `Change` computes the priority from what is
//! noted, so it does not matter in which order the changes of several lenders come.
//!
//! *No level is forgotten.* A worker that runs others must notice what arrives here, without a look
//! at each dispatch. It compares the beacon before each dispatch anyway (`scheduler/pace.rs`). The
//! thread that makes a queue non-empty changes the beacon after the insertion, with Release. The
//! worker sees the change, executes an Acquire fence, and reads the numbers. It then stops at each
//! dispatch until it reads that nothing is here. The watchdog may write the time between the two.
//! It does so by a read-modify-write, which continues the release sequence of the change.
//!
//! ## Allowed
//! - A process that is queued in a ring stays there when its priority changes. It runs at the level
//!   at which it was queued, and is queued at the new one next time. Its wait has the bound of any
//!   `Normal` process.
//! - The numbers may be old. A worker that parks excludes that with the fences of
//!   `scheduler/idle/parking.rs`, as for any queue.
//!
//! ## Rejected
//! - Rings for each level: an entry cannot be taken out of the middle of a ring. An entry that
//!   stays behind as a hole, with a count in the slot, needs room in the slot and a
//!   read-modify-write at each start of a step.
//! - A look at these queues before each dispatch: three instructions of each, also in programs that
//!   use no priorities.
//! - The level word in the slot: there is no room, and few processes have one.
//!
//! ## Checked by
//! `models::change_against_pop`, `models::change_against_push`, `models::two_changes`,
//! `models::beacon_against_look`, `models::take_back_against_lend` and their canaries
//! `models::canary_change_in_two`, `models::canary_push_reads_early`,
//! `models::canary_change_copies`, `models::canary_change_forgets`,
//! `models::canary_beacon_relaxed`, `models::canary_change_keeps_loans`; `tests::*`, which compare
//! with a list.

mod loans;
#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;
pub mod turns;

use std::collections::BTreeMap;

use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicU64, AtomicUsize, fence};
use procession_sync::{Mutex, lock_with_backoff};

use self::loans::Loans;
pub use self::loans::{CHAIN_MAX, ProcessKey};
use crate::process::priority::Priority;
use crate::scheduler::pace::Beacon;
use crate::scheduler::seat_id::SeatId;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::{is, or_relaxed};

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("levels", SOUND);
    /// `Change` looks for the entry and moves it in two sections.
    pub const CHANGE_IN_TWO: u8 = 1;
    /// `Push` reads the priority before it takes the lock.
    pub const PUSH_READS_EARLY: u8 = 2;
    /// `Change` inserts the entry at the new level and leaves it at the old one.
    pub const CHANGE_COPIES: u8 = 3;
    /// `Change` to `Normal` drops the entry that it has taken out.
    pub const CHANGE_FORGETS: u8 = 4;
    /// The beacon is changed without Release. A weak processor is needed to see it.
    pub const BEACON_RELAXED: u8 = 5;
    /// A worker never takes another process than a high one while there is one.
    pub const HIGH_WITHOUT_END: u8 = 6;
    /// A worker runs a batch process only if it finds nothing else.
    pub const BATCH_WITHOUT_TURN: u8 = 7;
    /// Batch processes may have every permit.
    pub const BATCH_WITHOUT_LIMIT: u8 = 8;
    /// A worker that resumes its step after a blocking section takes a permit beyond the limit.
    pub const RESUME_WITHOUT_LIMIT: u8 = 9;
    /// A push into an empty queue does not change the beacon.
    pub const WITHOUT_BEACON: u8 = 10;
    /// `Change` of a borrower keeps what was lent before.
    pub const CHANGE_KEEPS_LOANS: u8 = 11;
    /// A worker that runs something else wakes no other one for what is queued at the levels.
    pub const PASS_WITHOUT_WAKE: u8 = 12;
}

/// The two levels beside the normal one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Of processes with the priority `High`.
    High,
    /// Of processes with the priority `Batch`.
    Batch,
}

impl Level {
    /// Returns the level of a priority, or `None` if that is the rings.
    pub fn of(priority: Priority) -> Option<Self> {
        match priority {
            Priority::High => Some(Self::High),
            Priority::Normal => None,
            Priority::Batch => Some(Self::Batch),
        }
    }
}

/// The place, the level and the ticket of an entry. Any worker may take entries of the place 0;
/// otherwise only the worker in the seat with this number, counted from 1.
type Key = (u32, Level, u64);

/// The bits of a level word: `own:2 | priority:2 | lends:1 | place:12 | ticket:47`. At a million
/// entries in a second, tickets last for four years.
const TICKET: u64 = (1 << 47) - 1;
const PLACE_SHIFT: u32 = 47;
const PLACE: u64 = (1 << 12) - 1;
const LENDS: u64 = 1 << 59;
const PRIORITY_SHIFT: u32 = 60;
const OWN_SHIFT: u32 = 62;

fn from_bits(bits: u64) -> Priority {
    match bits & 3 {
        1 => Priority::High,
        2 => Priority::Batch,
        _ => Priority::Normal,
    }
}

fn to_bits(priority: Priority) -> u64 {
    match priority {
        Priority::Normal => 0,
        Priority::High => 1,
        Priority::Batch => 2,
    }
}

/// Returns the priority at which a process runs, by its level word.
pub fn priority_in(word: u64) -> Priority {
    from_bits(word >> PRIORITY_SHIFT)
}

/// Returns the priority of a process itself, by its level word.
pub fn own_in(word: u64) -> Priority {
    from_bits(word >> OWN_SHIFT)
}

/// Returns `true` if the process has lent its priority, by its level word.
pub fn lends_in(word: u64) -> bool {
    word & LENDS != 0
}

/// Returns a level word without an entry.
fn word_of(own: Priority, priority: Priority, lends: bool) -> u64 {
    to_bits(own) << OWN_SHIFT | to_bits(priority) << PRIORITY_SHIFT | if lends { LENDS } else { 0 }
}

/// Returns the key of the latest entry, if the priority has a level here.
fn key_in(word: u64) -> Option<Key> {
    let level = Level::of(priority_in(word))?;
    Some(((word >> PLACE_SHIFT & PLACE) as u32, level, word & TICKET))
}

fn place_of(seat: Option<SeatId>) -> u32 {
    seat.map_or(0, |seat| seat.0 + 1)
}

/// What a change of the priority has done to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Changed<T> {
    /// It is not queued here. The next `Push` sees the new priority.
    Later,
    /// It was queued, and is queued at the new level.
    Moved,
    /// It was queued, and the caller queues it at the level `Normal`.
    Released(T),
}

/// What lies under the lock.
#[derive(Debug)]
struct LevelEntries<T> {
    map: BTreeMap<Key, T>,
    /// The ticket of the next entry.
    next: u64,
    loans: Loans,
}

/// The ready processes of high and of batch priority.
#[derive(Debug)]
pub struct Levels<T, const MUTATION: u8 = { mutation::BUILT }> {
    entries: Mutex<LevelEntries<T>>,
    /// The number of entries in all.
    all: AtomicUsize,
    /// The numbers of entries, by place and level.
    counts: Box<[[AtomicUsize; 2]]>,
}

impl<T: Copy, const MUTATION: u8> Levels<T, MUTATION> {
    /// Creates empty queues for workers in this many seats.
    pub fn new(seats: usize) -> Self {
        Self {
            entries: Mutex::new(LevelEntries {
                map: BTreeMap::new(),
                next: 1,
                loans: Loans::default(),
            }),
            all: AtomicUsize::new(0),
            counts: (0..=seats).map(|_| [const { 0 }; 2].map(AtomicUsize::new)).collect(),
        }
    }

    /// Notes that the number of entries of a key's queue has changed. Returns the number before.
    fn count(&self, (place, level, _): Key, entries: &LevelEntries<T>, change: isize) -> usize {
        let count = &self.counts[place as usize][level as usize];
        // Relaxed, as all uses of the numbers: they are hints, and the lock orders the writers.
        let before = count.load(Relaxed);
        count.store(before.wrapping_add_signed(change), Relaxed);
        self.all.store(entries.map.len(), Relaxed);
        before
    }

    /// Inserts an entry at the level of the word. Returns `true` if it is alone in its queue.
    fn insert(
        &self,
        entries: &mut LevelEntries<T>,
        word: &AtomicU64,
        (place, level): (u32, Level),
        entry: T,
    ) -> bool {
        let ticket = entries.next & TICKET;
        entries.next = ticket + 1;
        let before = word.load(Relaxed) & !(PLACE << PLACE_SHIFT | TICKET);
        // Relaxed: it changes only under the lock, and others read only the upper bits.
        word.store(before | u64::from(place) << PLACE_SHIFT | ticket, Relaxed);
        entries.map.insert((place, level, ticket), entry);
        self.count((place, level, ticket), entries, 1) == 0
    }

    /// `Push`: queues a process for any worker, or for the worker in `seat`. Returns whether the
    /// process is alone in its queue, so that the caller changes the beacon.
    ///
    /// # Errors
    /// Returns the entry if the priority of the process is `Normal`. If that is its own
    /// priority, and it has lent nothing, it needs no word: `forget` is called under the lock.
    pub fn push(
        &self,
        word: &AtomicU64,
        seat: Option<SeatId>,
        entry: T,
        forget: impl FnOnce(),
    ) -> Result<bool, T> {
        let early = priority_in(word.load(Relaxed));
        let entries = &mut *lock_with_backoff(&self.entries);
        let late = word.load(Relaxed);
        let is_early = mutation::is(MUTATION, mutation::PUSH_READS_EARLY);
        let priority = if is_early { early } else { priority_in(late) };
        match Level::of(priority) {
            Some(level) => Ok(self.insert(entries, word, (place_of(seat), level), entry)),
            None => {
                if own_in(late) == Priority::Normal && !lends_in(late) {
                    forget();
                }
                Err(entry)
            }
        }
    }

    /// `Pop`: takes the oldest process of a level, for any worker or for the worker in `seat`.
    pub fn pop(&self, seat: Option<SeatId>, level: Level) -> Option<T> {
        if self.len(seat, level) == 0 {
            return None;
        }
        let place = place_of(seat);
        let entries = &mut *lock_with_backoff(&self.entries);
        let (&key, _) = entries.map.range((place, level, 0)..=(place, level, TICKET)).next()?;
        let entry = entries.map.remove(&key);
        self.count(key, entries, -1);
        entry
    }

    /// `Change`: gives a process another priority of its own, if `own` is set, and computes the
    /// priority at which it runs. `word` returns its word, under the lock. Also returns the process
    /// to which it has lent, if that must change now, too.
    pub fn change<'a>(
        &self,
        process: ProcessKey,
        own: Option<Priority>,
        word: impl FnOnce() -> &'a AtomicU64,
    ) -> (Changed<T>, Option<ProcessKey>) {
        let mut entries = lock_with_backoff(&self.entries);
        let word = word();
        let before = word.load(Relaxed);
        let own = own.unwrap_or(own_in(before));
        let mut priority = entries.loans.priority_of(process, own);
        if mutation::is(MUTATION, mutation::CHANGE_KEEPS_LOANS) {
            priority = priority.max(priority_in(before));
        }
        let after = word_of(own, priority, lends_in(before));
        if priority_in(before) == priority {
            // The entry keeps its place.
            word.store(after | before & (PLACE << PLACE_SHIFT | TICKET), Relaxed);
            return (Changed::Later, None);
        }
        let mut found = None;
        if mutation::is(MUTATION, mutation::CHANGE_IN_TWO) {
            let key = key_in(before);
            found = key.and_then(|key| entries.map.get(&key).map(|entry| (key.0, *entry)));
            drop(entries);
            entries = lock_with_backoff(&self.entries);
        }
        found = self.take_out(&mut entries, before).or(found);
        let borrower = entries.loans.lend_again(process, priority);
        word.store(after, Relaxed);
        let changed = match (found, Level::of(priority)) {
            (None, _) => Changed::Later,
            (Some(_), None) if mutation::is(MUTATION, mutation::CHANGE_FORGETS) => Changed::Later,
            (Some((_, entry)), None) => Changed::Released(entry),
            (Some((place, entry)), Some(level)) => {
                let _ = self.insert(&mut entries, word, (place, level), entry);
                Changed::Moved
            }
        };
        (changed, borrower)
    }

    /// Takes out the entry that a level word names, if it is there.
    fn take_out(&self, entries: &mut LevelEntries<T>, word: u64) -> Option<(u32, T)> {
        let key = key_in(word)?;
        let entry = *entries.map.get(&key)?;
        if !mutation::is(MUTATION, mutation::CHANGE_COPIES) {
            entries.map.remove(&key);
            self.count(key, entries, -1);
        }
        Some((key.0, entry))
    }

    /// `Lend`: notes that a process, which has a word from then on, waits for another one. Returns
    /// `false` if it has lent already, or is the last of a chain. The caller continues with
    /// `change` of the borrower.
    pub fn lend<'a>(
        &self,
        lender: ProcessKey,
        borrower: ProcessKey,
        word: impl FnOnce() -> &'a AtomicU64,
    ) -> bool {
        let entries = &mut *lock_with_backoff(&self.entries);
        let word = word();
        let before = word.load(Relaxed);
        let lends = !lends_in(before) && entries.loans.lend(lender, borrower, priority_in(before));
        if lends {
            word.store(before | LENDS, Relaxed);
        }
        lends
    }

    /// `TakeBack`: forgets what a process has lent, to `from` only if that is set. Returns the
    /// borrower, for which the caller continues with `change`.
    pub fn take_back(
        &self,
        lender: ProcessKey,
        word: &AtomicU64,
        from: Option<ProcessKey>,
    ) -> Option<ProcessKey> {
        let entries = &mut *lock_with_backoff(&self.entries);
        if from.is_some() && entries.loans.borrower_of(lender) != from {
            return None;
        }
        word.store(word.load(Relaxed) & !LENDS, Relaxed);
        entries.loans.take_back(lender)
    }

    /// Returns the highest of a process's own priority and the priorities that are lent to it.
    pub fn priority_of(&self, process: ProcessKey, own: Priority) -> Priority {
        lock_with_backoff(&self.entries).loans.priority_of(process, own)
    }

    /// Returns `true` if the entry that a level word names is queued.
    pub fn has_entry(&self, word: u64) -> bool {
        let entries = lock_with_backoff(&self.entries);
        key_in(word).is_some_and(|key| entries.map.contains_key(&key))
    }

    /// Returns the number of entries of a level, for any worker or for the worker in `seat`, as far
    /// as this thread can see.
    #[inline]
    pub fn len(&self, seat: Option<SeatId>, level: Level) -> usize {
        self.counts[place_of(seat) as usize][level as usize].load(Relaxed)
    }

    /// Returns `true` if nothing is queued, as far as this thread can see.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.load(Relaxed) == 0
    }

    /// Returns `true` if one entry is queued, as far as this thread can see.
    pub fn is_alone(&self) -> bool {
        self.all.load(Relaxed) == 1
    }

    /// Changes the beacon, after an entry was inserted into an empty queue.
    pub fn light(&self, beacon: &Beacon) {
        if !mutation::is(MUTATION, mutation::WITHOUT_BEACON) {
            // Ordering: Release pairs with the fence of `is_any_lit`, which then reads the number.
            beacon.nudge(mutation::or_relaxed(MUTATION, mutation::BEACON_RELAXED, Release));
        }
    }

    /// Returns `true` if anything is queued, for a worker that may have seen the beacon change.
    #[inline]
    pub fn is_any_lit(&self) -> bool {
        // Ordering: pairs with the Release of `light`.
        fence(Acquire);
        !self.is_empty()
    }

    /// Returns the number of entries of a level at all places, as far as this thread can see.
    pub fn len_everywhere(&self, level: Level) -> usize {
        self.counts.iter().map(|counts| counts[level as usize].load(Relaxed)).sum()
    }
}
