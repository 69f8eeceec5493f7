//! # Hand-over protocol
//!
//! ## Problem
//! The holder of a lock releases it and wakes the next waiter. A third caller takes the lock in
//! between, again and again, and the waiter starves. Or the waiter is dropped after it was woken
//! and before it takes the lock: the lock is free, and the waiters behind it are never woken.
//!
//! ## States
//! All under one lock: the number of free permits, and the waiters. Each waiter has the number of
//! permits that it wants, and a mark whether they were granted.
//!
//! ## Steps
//! - Acquire: `Look` whether there is no waiter and enough permits are free. If so, take them; else
//!   `Enlist` in the same critical section.
//! - Release: add the permits to the free permits, then `Grant`: while the first waiter can have
//!   what it wants, subtract that from the free permits and unlink the waiter.
//! - Cancel: leave the list, and release what was granted. Then `Grant`, because the waiter may
//!   have stood before a waiter that wants less.
//!
//! `Wake` happens outside the lock.
//!
//! `Call`: where processes have priorities, a waiter notes in its place at which one it runs, and
//! whether it has lent that to the holder (`scheduler/levels.rs`). When permits are freed, each
//! waiter that has lent is woken, although it still waits, because it must lend to the next holder.
//! So is each waiter above the priority that the next holder has noted, because the holder before
//! it may have needed no loan. A waiter that finds another holder when it notes this looks again.
//!
//! `Hold`: each step that moves permits of a lock also notes their holder, in the same critical
//! section: the process that has all permits that are taken, or nobody known. This is the process
//! that acquires or is granted if all permits were free before, and it stays the holder if it
//! acquires more. If a waiter has named the lock (`Name`), two words outside of the lock have the
//! holder, and the process that a reader waits for: the holder while no permit is free, or else the
//! first waiter, because a reader that finds permits waits only for its turn. The search for cycles
//! of waits reads these words.
//!
//! ## Why it works
//! A permit is free, held, or granted. A granted permit belongs to its waiter before that waiter
//! runs, so no other caller can take it, and a cancel releases it. `Look` and `Enlist` are one
//! critical section. A release is therefore before this section and is seen, or after it and finds
//! the waiter.
//!
//! Nobody but the holder has permits, so a waiter that wants all permits waits for the holder
//! alone. A waiter that reads the holder in the critical section in which it finds that it waits
//! knows that the holder is not itself by this wait: its own grant would have ended the wait.
//!
//! ## Allowed
//! A waiter that wants many permits makes the waiters behind it wait, although there may be enough
//! permits for them. Otherwise it might wait forever.
//!
//! ## Checked by
//! `models::hand_over_against_cancel`, `models::release_against_acquire`,
//! `models::the_holder_is_noted_with_the_grant`, `models::a_reader_waits_for_the_first_in_line`,
//! `models::lend_against_release` and their canaries.

use std::sync::Arc;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{Acquire, Release};

use crate::process::priority::Priority;
use crate::sync::wait_list::{Another, Place, ServedWaiters, WaitList, Waiter, look};
use crate::util::biased_lock::Lock;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Enlist` happens in a separate critical section.
    #[cfg(all(test, procession_loom))]
    pub const ENLIST_WITHOUT_LOOK: u8 = 1;
    /// Cancel forgets what was granted.
    #[cfg(all(test, procession_loom))]
    pub const CANCEL_KEEPS: u8 = 2;
    /// `Hold` of a grant happens in a separate critical section.
    #[cfg(all(test, procession_loom))]
    pub const HOLD_AFTER_GRANT: u8 = 3;
    /// A release does not `Call`.
    #[cfg(all(test, procession_loom))]
    pub const RELEASE_KEEPS_LENDERS: u8 = 4;
}

/// The process that has all permits of a lock that are taken: its scheduler, slot and generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The number of the scheduler.
    pub scheduler: u32,
    /// The slot in the table of the scheduler.
    pub slot: u32,
    /// The generation of the slot, or 0.
    pub generation: u32,
    /// `true` if the guard may be moved to another process, so that this process only took it.
    pub moves: bool,
}

impl Holder {
    /// Nobody, or nobody known.
    pub const UNKNOWN: Self = Self { scheduler: 0, slot: 0, generation: 0, moves: false };
}

/// A lock as its waiters name it: a number, and words for readers outside of the lock.
#[derive(Debug)]
pub struct LockName {
    /// The scheduler of the waiter that has named the lock. Holders of other schedulers are not
    /// stored.
    pub scheduler: u32,
    /// The number of the lock among the named locks of the scheduler.
    pub number: u32,
    /// The holder.
    holder: AtomicU64,
    /// The process that a reader of the lock waits for.
    ahead: AtomicU64,
    /// What the waiters have noted of their priorities. Only used within the critical sections of
    /// the lock.
    noted: Mutex<NotedPriorities>,
}

/// An upper bound of what the waiters of a lock have noted.
#[derive(Debug)]
struct NotedPriorities {
    /// The highest priority, from `Batch` on.
    highest: Priority,
    /// A waiter has lent its priority to the holder.
    lent: bool,
}

impl NotedPriorities {
    const NONE: Self = Self { highest: Priority::Batch, lent: false };

    fn add(&mut self, wanted: &Wanted) {
        self.highest = self.highest.max(wanted.priority);
        self.lent |= wanted.lent;
    }
}

impl LockName {
    /// Creates the name of a lock without a holder.
    pub fn new(scheduler: u32, number: u32) -> Self {
        let (holder, ahead) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { scheduler, number, holder, ahead, noted: Mutex::new(NotedPriorities::NONE) }
    }

    /// Returns the slot and the generation of the holder, or 0 if it is not known.
    pub fn holder(&self) -> (u32, u32) {
        Self::read(&self.holder)
    }

    /// Returns the slot and the generation of the process that a reader of the lock waits for, or 0
    /// if it is not known.
    pub fn ahead(&self) -> (u32, u32) {
        Self::read(&self.ahead)
    }

    fn read(word: &AtomicU64) -> (u32, u32) {
        // Ordering: Acquire pairs with the Release of `write`. A reader that has seen a process
        // wait also sees the locks that the process released before.
        let word = word.load(Acquire);
        ((word >> 32) as u32, word as u32)
    }

    fn write(&self, word: &AtomicU64, process: Holder) {
        let is_known = process.scheduler == self.scheduler && !process.moves;
        let bits = u64::from(process.slot) << 32 | u64::from(process.generation);
        // Ordering: Release pairs with the Acquire of `read`.
        word.store(if is_known { bits } else { 0 }, Release);
    }
}

/// What a waiter finds in the critical section in which it waits.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// The holder of the permits.
    pub by: Holder,
    /// `true` if no permit is free.
    pub is_whole: bool,
    /// The scheduler and the number of the name of the lock, if it has one.
    pub name: Option<(u32, u32)>,
}

/// What a waiter wants, and what it has noted.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    permits: usize,
    by: Holder,
    /// The priority at which it runs, or the lowest one while it has noted none.
    priority: Priority,
    /// It has lent that priority to the holder.
    lent: bool,
}

impl Wanted {
    fn new(permits: usize, by: Holder) -> Self {
        Self { permits, by, priority: Priority::Batch, lent: false }
    }
}

#[derive(Debug)]
struct SemaphoreState {
    free: usize,
    /// The number of permits of a lock.
    all: usize,
    waiters: WaitList<Wanted>,
    holder: Holder,
    closed: bool,
    name: Option<Arc<LockName>>,
}

/// A number of permits, and the waiters for them.
#[derive(Debug)]
pub struct BatchSemaphore<const MUTATION: u8 = { mutation::SOUND }>(Lock<SemaphoreState>);

/// The result of an acquisition.
#[derive(Debug)]
pub enum Entry {
    /// The permits are taken.
    Granted,
    /// The caller waits at this place, for permits that are held like this.
    Waits(Place, Held),
    /// The semaphore is closed.
    Closed,
}

impl SemaphoreState {
    #[inline]
    fn take(&mut self, wanted: Wanted) -> bool {
        let granted = self.waiters.is_empty() && self.free >= wanted.permits;
        if granted {
            self.hand_out(wanted, true);
            self.publish();
        }
        granted
    }

    /// Takes permits out of the free permits. `Hold`, if `holds`.
    #[inline]
    fn hand_out(&mut self, wanted: Wanted, holds: bool) {
        let is_first = self.free == self.all;
        self.free -= wanted.permits;
        if holds && self.holder != wanted.by {
            self.holder = if is_first { wanted.by } else { Holder::UNKNOWN };
        }
    }

    /// Stores what readers outside of the lock see, if the lock is named.
    #[inline]
    fn publish(&self) {
        let Some(name) = &self.name else { return };
        let first = self.waiters.front().map_or(Holder::UNKNOWN, |wanted| wanted.by);
        name.write(&name.holder, self.holder);
        name.write(&name.ahead, if self.free == 0 { self.holder } else { first });
    }

    fn held(&self) -> Held {
        let name = self.name.as_ref().map(|name| (name.scheduler, name.number));
        Held { by: self.holder, is_whole: self.free == 0, name }
    }

    fn free(&mut self, permits: usize) {
        self.free = self.free.saturating_add(permits).min(PERMITS_MAX);
        if self.free == self.all {
            self.holder = Holder::UNKNOWN;
        }
    }

    /// `Call`, after permits were freed, and granted to waiters of this lowest priority, if any.
    fn call_lenders(&mut self, next: Option<Priority>, woken: &mut ServedWaiters) {
        let Some(name) = &self.name else { return };
        let mut noted = name.noted.lock();
        let next = next.unwrap_or(Priority::High);
        if !noted.lent && noted.highest <= next {
            return;
        }
        *noted = NotedPriorities::NONE;
        let called = |wanted: &mut Wanted| {
            let is_called = wanted.lent || wanted.priority > next;
            if is_called {
                // It notes them anew.
                (wanted.priority, wanted.lent) = (Priority::Batch, false);
            }
            noted.add(wanted);
            is_called
        };
        self.waiters.call_where(called, woken);
    }

    /// `Grant`. If `frees`, the caller has freed permits, and `Call` follows.
    #[inline]
    fn grant(&mut self, holds: bool, frees: bool) -> ServedWaiters {
        let mut granted = ServedWaiters::default();
        let mut lowest = None;
        while self.waiters.front().is_some_and(|wanted| wanted.permits <= self.free) {
            if let Some((waiter, wanted)) = self.waiters.serve(|&mut wanted| wanted) {
                self.hand_out(wanted, holds);
                granted.push(waiter);
                lowest = lowest.into_iter().chain([wanted.priority]).min();
            }
        }
        self.publish();
        if frees {
            self.call_lenders(lowest, &mut granted);
        }
        granted
    }
}

impl<const MUTATION: u8> BatchSemaphore<MUTATION> {
    /// Creates a semaphore with free permits. A lock has no others.
    pub fn new(free: usize) -> Self {
        let (all, holder, waiters) = (free, Holder::UNKNOWN, WaitList::new());
        Self(Lock::new(SemaphoreState { free, all, waiters, holder, closed: false, name: None }))
    }

    fn change<R>(&self, change: impl FnOnce(&mut SemaphoreState) -> R) -> R {
        change(&mut self.0.lock())
    }

    /// Takes permits, unless fewer permits are free or somebody waits. `by` is the caller if this
    /// is a lock, or else `UNKNOWN`.
    pub fn try_acquire(&self, permits: usize, by: Holder) -> bool {
        self.change(|state| !state.closed && state.take(Wanted::new(permits, by)))
    }

    /// Takes permits, or enlists the caller. `by` is as for [`try_acquire`](Self::try_acquire).
    pub fn acquire_or_wait(&self, permits: usize, by: Holder, another: &mut Another<'_>) -> Entry {
        let wanted = Wanted::new(permits, by);
        loop {
            let looks = !(cfg!(procession_loom) && MUTATION == 1);
            if !looks && self.try_acquire(permits, by) {
                return Entry::Granted;
            }
            let entry = self.change(|state| {
                if looks && state.closed {
                    Some(Entry::Closed)
                } else if looks && state.take(wanted) {
                    Some(Entry::Granted)
                } else {
                    let waker = another.take()?;
                    let place = state.waiters.push(Waiter::Alone(waker), wanted);
                    state.publish();
                    Some(Entry::Waits(place, state.held()))
                }
            });
            if let Some(entry) = entry {
                return entry;
            }
            another.prepare();
        }
    }

    /// Observes the result of a waiter. Returns `Ok(true)` if its permits were granted, `Ok(false)`
    /// if the semaphore was closed, and how the permits are held while it waits. A result frees the
    /// waiter's place.
    pub fn look(&self, place: &mut Option<Place>, another: &mut Another<'_>) -> Result<bool, Held> {
        let mut held = Held::default();
        let left = look(place, another, |place, another| {
            self.change(|state| {
                held = state.held();
                state.waiters.look(place, another)
            })
        });
        // A waiter is granted all or nothing, so only a close changes the number that it wants.
        left.map(|left| left.permits != REFUSED).ok_or(held)
    }

    /// `Name`. Names the lock, unless it has a name. Returns the scheduler and the number of the
    /// name that it has.
    pub fn name(&self, name: Arc<LockName>) -> (u32, u32) {
        self.change(|state| {
            let name = state.name.get_or_insert(name);
            let named = (name.scheduler, name.number);
            state.publish();
            named
        })
    }

    /// Notes at which priority a waiter runs, and whether it has lent that to `holder`, so that it
    /// is woken when it must lend to the next holder. Returns `false` if there is another holder
    /// already, and the waiter must look again.
    pub fn note_priority(
        &self,
        place: &Place,
        holder: Holder,
        priority: Priority,
        lent: bool,
    ) -> bool {
        self.change(|state| {
            if state.holder != holder || lent && state.free > 0 {
                return false;
            }
            if let (Some(name), Some(wanted)) = (&state.name, state.waiters.content_mut(place)) {
                (wanted.priority, wanted.lent) = (priority, lent);
                name.noted.lock().add(wanted);
            }
            true
        })
    }

    /// Frees permits, and returns the waiters that they were granted to.
    pub fn release(&self, permits: usize) -> ServedWaiters {
        let holds = !(cfg!(procession_loom) && MUTATION == 3);
        let granted = self.change(|state| {
            state.free(permits);
            state.grant(holds, !(cfg!(procession_loom) && MUTATION == 4))
        });
        if !holds && granted.len() > 0 {
            self.change(|state| {
                state.holder = Holder { generation: 2, ..Holder::UNKNOWN };
                state.publish();
            });
        }
        granted
    }

    /// Removes a waiter. Returns its waker, to be dropped outside the lock, the waiters to wake,
    /// and the holder until then.
    pub fn cancel(&self, place: Place) -> (Option<Waiter>, ServedWaiters, Holder) {
        self.change(|state| {
            let holder = state.holder;
            let was_served = state.waiters.is_served(&place);
            let (wanted, own) = state.waiters.remove(place);
            let was_granted = was_served && wanted.permits != REFUSED;
            if was_granted && !(cfg!(procession_loom) && MUTATION == 2) {
                state.free(wanted.permits);
            }
            (own, state.grant(true, was_granted), holder)
        })
    }

    /// Closes the semaphore, and returns all waiters.
    pub fn close(&self) -> ServedWaiters {
        self.change(|state| {
            state.closed = true;
            let mut refused = ServedWaiters::default();
            while let Some((waiter, ())) = state.waiters.serve(|wanted| wanted.permits = REFUSED) {
                refused.push(waiter);
            }
            refused
        })
    }

    /// Returns `true` if the semaphore is closed.
    pub fn is_closed(&self) -> bool {
        self.change(|state| state.closed)
    }

    /// Returns the number of free permits.
    pub fn free(&self) -> usize {
        self.change(|state| state.free)
    }
}

/// The most permits that are free at a time. A waiter that wants more waits forever, so no waiter
/// is ever granted `REFUSED`.
pub const PERMITS_MAX: usize = usize::MAX >> 3;

/// Replaces the number that a waiter wants when the semaphore is closed.
const REFUSED: usize = usize::MAX;

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::{Arc, explore, thread};

    use super::{BatchSemaphore, Entry, Holder, LockName, mutation};
    use crate::process::priority::Priority;
    use crate::sync::wait_list::Another;

    /// The holder releases the lock while the first waiter is cancelled.
    fn cancel<const MUTATION: u8>() {
        explore(|| {
            let semaphore = Arc::new(BatchSemaphore::<MUTATION>::new(1));
            assert!(semaphore.try_acquire(1, Holder::UNKNOWN));
            let Entry::Waits(place, _) =
                semaphore.acquire_or_wait(1, Holder::UNKNOWN, &mut Another::none())
            else {
                unreachable!("it is held")
            };
            let holder = {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || drop(semaphore.release(1)))
            };
            drop(semaphore.cancel(place));
            holder.join().expect("it does not panic");
            assert!(semaphore.try_acquire(1, Holder::UNKNOWN), "a permit is not lost");
        });
    }

    #[test]
    fn hand_over_against_cancel() {
        cancel::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a permit is not lost")]
    fn canary_cancel_keeps() {
        cancel::<{ mutation::CANCEL_KEEPS }>();
    }

    /// The holder releases the lock while another thread acquires it.
    fn release<const MUTATION: u8>() {
        explore(|| {
            let semaphore = Arc::new(BatchSemaphore::<MUTATION>::new(1));
            assert!(semaphore.try_acquire(1, Holder::UNKNOWN));
            let holder = {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || drop(semaphore.release(1)))
            };
            let entry = semaphore.acquire_or_wait(1, Holder::UNKNOWN, &mut Another::none());
            holder.join().expect("it does not panic");
            let granted = match entry {
                Entry::Granted => true,
                Entry::Waits(place, _) => {
                    semaphore.look(&mut Some(place), &mut Another::none()).is_ok()
                }
                Entry::Closed => false,
            };
            assert!(granted, "a free lock has no waiter");
        });
    }

    #[test]
    fn release_against_acquire() {
        release::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a free lock has no waiter")]
    fn canary_enlist_without_look() {
        release::<{ mutation::ENLIST_WITHOUT_LOOK }>();
    }

    /// Returns a process of scheduler 0.
    fn process(generation: u32) -> Holder {
        Holder { generation, ..Holder::UNKNOWN }
    }

    /// The first holder releases the lock to the second process, which releases it in turn.
    fn hold<const MUTATION: u8>() {
        explore(|| {
            let semaphore = Arc::new(BatchSemaphore::<MUTATION>::new(1));
            let name = std::sync::Arc::new(LockName::new(0, 0));
            let _ = semaphore.name(std::sync::Arc::clone(&name));
            assert!(semaphore.try_acquire(1, process(1)));
            let entry = semaphore.acquire_or_wait(1, process(2), &mut Another::none());
            let Entry::Waits(place, held) = entry else { unreachable!("it is held") };
            assert_eq!(held.by, process(1));
            let holder = {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || drop(semaphore.release(1)))
            };
            let mut place = Some(place);
            if semaphore.look(&mut place, &mut Another::none()).is_ok() {
                assert_eq!(name.holder(), (0, 2), "whoever has the permit is noted");
                drop(semaphore.release(1));
            }
            holder.join().expect("it does not panic");
            let noted = if place.is_none() { 0 } else { 2 };
            assert_eq!(name.holder(), (0, noted), "whoever has the permit is noted");
        });
    }

    #[test]
    fn the_holder_is_noted_with_the_grant() {
        hold::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "whoever has the permit is noted")]
    fn canary_hold_after_grant() {
        hold::<{ mutation::HOLD_AFTER_GRANT }>();
    }

    /// A reader stands in line behind a writer, while the only process that reads leaves.
    fn turn<const MUTATION: u8>() {
        explore(|| {
            let semaphore = Arc::new(BatchSemaphore::<MUTATION>::new(2));
            let name = std::sync::Arc::new(LockName::new(0, 0));
            let _ = semaphore.name(std::sync::Arc::clone(&name));
            assert!(semaphore.try_acquire(1, process(1)));
            let in_line =
                |wanted, by| match semaphore.acquire_or_wait(wanted, by, &mut Another::none()) {
                    Entry::Waits(place, _) => Some(place),
                    other => unreachable!("somebody reads: {other:?}"),
                };
            let (mut writer, mut reader) = (in_line(2, process(2)), in_line(1, process(3)));
            assert_eq!(name.ahead(), (0, 2), "a reader waits for the first in line");
            let leaves = {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || drop(semaphore.release(1)))
            };
            if semaphore.look(&mut writer, &mut Another::none()).is_ok() {
                assert_eq!(name.ahead(), (0, 2), "the words name the writer, and then the reader");
                drop(semaphore.release(2));
                assert!(semaphore.look(&mut reader, &mut Another::none()).is_ok());
                assert_eq!(name.holder(), (0, 3), "the words name the writer, and then the reader");
            }
            leaves.join().expect("it does not panic");
        });
    }

    #[test]
    fn a_reader_waits_for_the_first_in_line() {
        turn::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the words name the writer, and then the reader")]
    fn canary_reader_without_holder() {
        turn::<{ mutation::HOLD_AFTER_GRANT }>();
    }

    /// A waiter lends to the holder, which releases the lock to another waiter.
    fn lend<const MUTATION: u8>() {
        explore(|| {
            let semaphore = Arc::new(BatchSemaphore::<MUTATION>::new(1));
            let _ = semaphore.name(std::sync::Arc::new(LockName::new(0, 0)));
            assert!(semaphore.try_acquire(1, process(1)));
            let places = [2, 3].map(|waiter| {
                match semaphore.acquire_or_wait(1, process(waiter), &mut Another::none()) {
                    Entry::Waits(place, _) => place,
                    other => unreachable!("it is held: {other:?}"),
                }
            });
            let holder = {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || semaphore.release(1).len())
            };
            let lends = semaphore.note_priority(&places[1], process(1), Priority::High, true);
            let woken = holder.join().expect("it does not panic");
            assert_eq!(woken, 1 + usize::from(lends), "a lender is not told of the next holder");
        });
    }

    #[test]
    fn lend_against_release() {
        lend::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a lender is not told of the next holder")]
    fn canary_release_keeps_lenders() {
        lend::<{ mutation::RELEASE_KEEPS_LENDERS }>();
    }
}
