//! # Hand-over protocol
//!
//! ## Problem
//! Who holds a lock gives it up and wakes the next; a third takes it in between, again and again, and the next starves. Or the next was
//! dropped between being woken and looking: nobody holds the lock, and nobody is woken for it.
//!
//! ## States
//! All under one lock: the permits that are free, and those who wait, each with how many he wants and whether he has them.
//!
//! ## Steps
//! Acquire: `Look` nobody waits and enough is free → take; else `Enlist` in the same critical section. Release: add, then `Grant`: while the first who waits can
//! have what he wants, take it off the free ones for him, and let him out of the list. Cancel: leave the list; what was granted is
//! released; and `Grant`, since he may have stood before somebody who wants less. `Wake` outside the lock.
//!
//! ## Why it works
//! A permit is free, held, or granted: what is granted is its receiver's before he has looked, so nobody comes in between, and his
//! cancel releases it. `Look` and `Enlist` are one critical section, so a release comes before it and is seen, or after it and finds him.
//!
//! ## Allowed
//! Who wants many makes those behind him wait, though there may be enough for them: otherwise he might wait for ever.
//!
//! ## Checked by
//! `models::hand_over_against_cancel`, `models::release_against_acquire` and their canaries.

use crate::sync::wait_list::{Another, Place, Waiters, Who, Woken, look};
use crate::util::biased_lock::Lock;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `Enlist` in a critical section of its own.
    #[cfg(all(test, procession_loom))]
    pub(crate) const ENLIST_WITHOUT_LOOK: u8 = 1;
    /// Cancel forgets what was granted.
    #[cfg(all(test, procession_loom))]
    pub(crate) const CANCEL_KEEPS: u8 = 2;
}

#[derive(Debug)]
struct State {
    free: usize,
    waiters: Waiters<usize>,
    closed: bool,
}

/// Permits, and who waits for them.
#[derive(Debug)]
pub(crate) struct Gate<const MUTATION: u8 = { mutation::SOUND }>(Lock<State>);

/// How an acquire went.
pub(crate) enum Entry {
    Granted,
    Waits(Place),
    Closed,
}

impl State {
    fn take(&mut self, wanted: usize) -> bool {
        let granted = self.waiters.is_empty() && self.free >= wanted;
        if granted {
            self.free -= wanted;
        }
        granted
    }

    /// `Grant`.
    fn grant(&mut self) -> Woken {
        let mut granted = Woken::default();
        while self.waiters.front().is_some_and(|&wanted| wanted <= self.free) {
            if let Some((who, wanted)) = self.waiters.serve(|&mut wanted| wanted) {
                self.free -= wanted;
                granted.push(who);
            }
        }
        granted
    }
}

impl<const MUTATION: u8> Gate<MUTATION> {
    pub(crate) fn new(free: usize) -> Self {
        Self(Lock::new(State { free, waiters: Waiters::new(), closed: false }))
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.0.lock())
    }

    pub(crate) fn try_acquire(&self, wanted: usize) -> bool {
        self.change(|state| !state.closed && state.take(wanted))
    }

    pub(crate) fn acquire_or_wait(&self, wanted: usize, another: &mut Another<'_>) -> Entry {
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
                    Some(Entry::Waits(state.waiters.push(Who::Alone(waker), wanted)))
                }
            });
            if let Some(entry) = entry {
                return entry;
            }
            another.prepare();
        }
    }

    /// Whether what somebody waits for was granted, and if so, frees his place. `None` while it was not; `Some(false)`: the gate was closed.
    pub(crate) fn look(&self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<bool> {
        let left = look(place, another, |place, another| self.change(|state| state.waiters.look(place, another)))?;
        // What is left of the wish is what was not granted: all or nothing.
        Some(left != REFUSED)
    }

    /// Gives permits back; those who have them now are to be woken.
    pub(crate) fn release(&self, permits: usize) -> Woken {
        self.change(|state| {
            state.free = state.free.saturating_add(permits).min(PERMITS_MAX);
            state.grant()
        })
    }

    /// Somebody waits no longer; his own waker is to be dropped outside the lock, the others to be woken.
    pub(crate) fn cancel(&self, place: Place) -> (Option<Who>, Woken) {
        self.change(|state| {
            let was_served = state.waiters.is_served(&place);
            let (wanted, own) = state.waiters.remove(place);
            if was_served && wanted != REFUSED && !(cfg!(procession_loom) && MUTATION == 2) {
                state.free = state.free.saturating_add(wanted).min(PERMITS_MAX);
            }
            (own, state.grant())
        })
    }

    /// Nobody acquires any more: everybody who waits is to be woken.
    pub(crate) fn close(&self) -> Woken {
        self.change(|state| {
            state.closed = true;
            let mut refused = Woken::default();
            while let Some((who, ())) = state.waiters.serve(|wanted| *wanted = REFUSED) {
                refused.push(who);
            }
            refused
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.change(|state| state.closed)
    }

    pub(crate) fn free(&self) -> usize {
        self.change(|state| state.free)
    }
}

/// The most permits that are free at once. Who wants more waits for ever, so that nobody is ever
/// granted `REFUSED`.
pub(crate) const PERMITS_MAX: usize = usize::MAX >> 3;

/// In place of what somebody wants: the gate was closed.
const REFUSED: usize = usize::MAX;

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Waker;

    use procession_sync::{Arc, explore, thread};

    use super::{Entry, Gate, mutation};
    use crate::sync::wait_list::Another;

    fn waker() -> Waker {
        Waker::noop().clone()
    }

    /// The holder gives the lock up while the next who waits goes.
    fn cancel<const MUTATION: u8>() {
        explore(|| {
            let gate = Arc::new(Gate::<MUTATION>::new(1));
            assert!(gate.try_acquire(1));
            let Entry::Waits(place) = gate.acquire_or_wait(1, &mut Another::none()) else { unreachable!("it is held") };
            let holder = {
                let gate = Arc::clone(&gate);
                thread::spawn(move || drop(gate.release(1)))
            };
            drop(gate.cancel(place));
            holder.join().expect("it does not panic");
            assert!(gate.try_acquire(1), "a permit is not lost");
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

    /// The holder gives the lock up while another comes for it.
    fn release<const MUTATION: u8>() {
        explore(|| {
            let gate = Arc::new(Gate::<MUTATION>::new(1));
            assert!(gate.try_acquire(1));
            let holder = {
                let gate = Arc::clone(&gate);
                thread::spawn(move || drop(gate.release(1)))
            };
            let entry = gate.acquire_or_wait(1, &mut Another::none());
            holder.join().expect("it does not panic");
            let granted = match entry {
                Entry::Granted => true,
                Entry::Waits(place) => gate.look(&mut Some(place), &mut Another::none()).is_some(),
                Entry::Closed => false,
            };
            assert!(granted, "nobody waits for a lock that is free");
        });
    }

    #[test]
    fn release_against_acquire() {
        release::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "nobody waits for a lock that is free")]
    fn canary_enlist_without_look() {
        release::<{ mutation::ENLIST_WITHOUT_LOOK }>();
    }
}
