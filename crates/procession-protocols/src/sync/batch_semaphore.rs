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
//! ## Why it works
//! A permit is free, held, or granted. A granted permit belongs to its waiter before that waiter
//! runs, so no other caller can take it, and a cancel releases it. `Look` and `Enlist` are one
//! critical section. A release is therefore before this section and is seen, or after it and finds
//! the waiter.
//!
//! ## Allowed
//! A waiter that wants many permits makes the waiters behind it wait, although there may be enough
//! permits for them. Otherwise it might wait forever.
//!
//! ## Checked by
//! `models::hand_over_against_cancel`, `models::release_against_acquire` and their canaries.

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
}

#[derive(Debug)]
struct SemaphoreState {
    free: usize,
    waiters: WaitList<usize>,
    closed: bool,
}

/// A number of permits, and the waiters for them.
#[derive(Debug)]
pub struct BatchSemaphore<const MUTATION: u8 = { mutation::SOUND }>(Lock<SemaphoreState>);

/// The result of an acquisition.
#[derive(Debug)]
pub enum Entry {
    /// The permits are taken.
    Granted,
    /// The caller waits at this place.
    Waits(Place),
    /// The semaphore is closed.
    Closed,
}

impl SemaphoreState {
    #[inline]
    fn take(&mut self, wanted: usize) -> bool {
        let granted = self.waiters.is_empty() && self.free >= wanted;
        if granted {
            self.free -= wanted;
        }
        granted
    }

    /// `Grant`.
    #[inline]
    fn grant(&mut self) -> ServedWaiters {
        let mut granted = ServedWaiters::default();
        while self.waiters.front().is_some_and(|&wanted| wanted <= self.free) {
            if let Some((waiter, wanted)) = self.waiters.serve(|&mut wanted| wanted) {
                self.free -= wanted;
                granted.push(waiter);
            }
        }
        granted
    }
}

impl<const MUTATION: u8> BatchSemaphore<MUTATION> {
    /// Creates a semaphore with free permits.
    pub fn new(free: usize) -> Self {
        Self(Lock::new(SemaphoreState { free, waiters: WaitList::new(), closed: false }))
    }

    fn change<R>(&self, change: impl FnOnce(&mut SemaphoreState) -> R) -> R {
        change(&mut self.0.lock())
    }

    /// Takes permits, unless fewer permits are free or somebody waits.
    pub fn try_acquire(&self, wanted: usize) -> bool {
        self.change(|state| !state.closed && state.take(wanted))
    }

    /// Takes permits, or enlists the caller.
    pub fn acquire_or_wait(&self, wanted: usize, another: &mut Another<'_>) -> Entry {
        loop {
            let looks = !(cfg!(procession_loom) && MUTATION == 1);
            if !looks && self.try_acquire(wanted) {
                return Entry::Granted;
            }
            let entry = self.change(|state| {
                if looks && state.closed {
                    Some(Entry::Closed)
                } else if looks && state.take(wanted) {
                    Some(Entry::Granted)
                } else {
                    let waker = another.take()?;
                    Some(Entry::Waits(state.waiters.push(Waiter::Alone(waker), wanted)))
                }
            });
            if let Some(entry) = entry {
                return entry;
            }
            another.prepare();
        }
    }

    /// Observes the result of a waiter. Returns `Some(true)` if its permits were granted,
    /// `Some(false)` if the semaphore was closed, and `None` while it waits. A result frees the
    /// waiter's place.
    pub fn look(&self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<bool> {
        let left = look(place, another, |place, another| {
            self.change(|state| state.waiters.look(place, another))
        })?;
        // A waiter is granted all or nothing, so only a close changes the number that it wants.
        Some(left != REFUSED)
    }

    /// Frees permits, and returns the waiters that they were granted to.
    pub fn release(&self, permits: usize) -> ServedWaiters {
        self.change(|state| {
            state.free = state.free.saturating_add(permits).min(PERMITS_MAX);
            state.grant()
        })
    }

    /// Removes a waiter. Returns its waker, to be dropped outside the lock, and the waiters to
    /// wake.
    pub fn cancel(&self, place: Place) -> (Option<Waiter>, ServedWaiters) {
        self.change(|state| {
            let was_served = state.waiters.is_served(&place);
            let (wanted, own) = state.waiters.remove(place);
            if was_served && wanted != REFUSED && !(cfg!(procession_loom) && MUTATION == 2) {
                state.free = state.free.saturating_add(wanted).min(PERMITS_MAX);
            }
            (own, state.grant())
        })
    }

    /// Closes the semaphore, and returns all waiters.
    pub fn close(&self) -> ServedWaiters {
        self.change(|state| {
            state.closed = true;
            let mut refused = ServedWaiters::default();
            while let Some((waiter, ())) = state.waiters.serve(|wanted| *wanted = REFUSED) {
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

    use super::{BatchSemaphore, Entry, mutation};
    use crate::sync::wait_list::Another;

    /// The holder releases the lock while the first waiter is cancelled.
    fn cancel<const MUTATION: u8>() {
        explore(|| {
            let semaphore = Arc::new(BatchSemaphore::<MUTATION>::new(1));
            assert!(semaphore.try_acquire(1));
            let Entry::Waits(place) = semaphore.acquire_or_wait(1, &mut Another::none()) else {
                unreachable!("it is held")
            };
            let holder = {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || drop(semaphore.release(1)))
            };
            drop(semaphore.cancel(place));
            holder.join().expect("it does not panic");
            assert!(semaphore.try_acquire(1), "a permit is not lost");
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
            assert!(semaphore.try_acquire(1));
            let holder = {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || drop(semaphore.release(1)))
            };
            let entry = semaphore.acquire_or_wait(1, &mut Another::none());
            holder.join().expect("it does not panic");
            let granted = match entry {
                Entry::Granted => true,
                Entry::Waits(place) => {
                    semaphore.look(&mut Some(place), &mut Another::none()).is_some()
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
}
