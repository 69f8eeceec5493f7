//! # Notify protocol
//!
//! ## Problem
//! A waiter finds no permit and is about to wait. A notification arrives in between, finds no
//! waiter, and must not get lost. A waiter that was notified alone is dropped before it observes
//! that: the notification must reach another waiter. A notification of all waiters arrives after a
//! waiter was made and before it is first polled: it must also reach that waiter.
//!
//! ## States
//! All under one lock: whether a *permit* is stored; the *round*, which counts the notifications of
//! all waiters; and the waiters in order, each with how it was released. The round can also be read
//! without the lock. A permit is stored only while no waiter is enlisted.
//!
//! ## Steps
//! - Make a waiter: `ReadRound`.
//! - Wait: `Look` for a later round than `ReadRound` has read, or else for a permit, and take it.
//!   If there is neither, `Enlist` in the same critical section. The round is compared first,
//!   because a waiter that it releases must leave the permit to a waiter that was made later.
//! - Notify one: release the first or the last waiter, or store a permit.
//! - Notify all: `Count` the round and release all waiters, in one critical section. No permit is
//!   stored.
//! - Cancel: leave the list. A waiter that was released alone notifies another waiter, in the same
//!   critical section. The same holds for a waiter that has taken a permit, or has left the list
//!   with its notification, and is dropped before it completes.
//!
//! `Wake` happens outside the lock.
//!
//! ## Why it works
//! A notification is before `Look` and is seen as a permit or as a round, or it is after `Look` and
//! finds the waiter in the list. `ReadRound` needs no lock: a notification that happens after the
//! waiter was made counts a later round than the round that was read, and a notification that
//! happens before is part of the round that was read. A notification that is concurrent may be
//! missed or seen.
//!
//! ## Checked by
//! `models::notify_against_wait`, `models::notify_against_cancel`, `models::round_against_wait`,
//! and their canaries.

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::sync::wait_list::{Another, Place, ServedWaiters, WaitList, Waiter, look};
use crate::util::biased_lock::Lock;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Enlist` happens in a separate critical section.
    #[cfg(all(test, procession_loom))]
    pub const ENLIST_WITHOUT_LOOK: u8 = 1;
    /// A cancelled waiter keeps the notification that was for it alone.
    #[cfg(all(test, procession_loom))]
    pub const CANCEL_KEEPS: u8 = 2;
    /// `Count` happens in a critical section after the release.
    #[cfg(all(test, procession_loom))]
    pub const COUNT_LATER: u8 = 3;
}

/// How a waiter was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Not yet.
    Not,
    /// Alone, as the first waiter or as the last one.
    First,
    /// Alone, as the waiter that came last.
    Last,
    /// Together with all others.
    All,
}

#[derive(Debug)]
struct NotifyState {
    has_permit: bool,
    waiters: WaitList<Release>,
}

impl NotifyState {
    /// Releases one waiter, or stores a permit.
    #[inline]
    fn notify(&mut self, which: Release) -> Option<Waiter> {
        let release = |release: &mut Release| *release = which;
        let served = match which {
            Release::Last => self.waiters.serve_last(release),
            _ => self.waiters.serve(release),
        };
        self.has_permit |= served.is_none();
        served.map(|(waiter, ())| waiter)
    }

    /// Notifies another waiter in place of a waiter that was released alone.
    #[inline]
    fn pass_on(&mut self, release: Release) -> Option<Waiter> {
        match release {
            Release::First | Release::Last => self.notify(release),
            Release::Not | Release::All => None,
        }
    }
}

/// The state of a `Notify`, without its public types.
#[derive(Debug)]
pub struct NotifyCore<const MUTATION: u8 = { mutation::SOUND }> {
    state: Lock<NotifyState>,
    round: AtomicU64,
}

impl<const MUTATION: u8> NotifyCore<MUTATION> {
    /// Creates the state without waiters and without a permit.
    pub fn new() -> Self {
        let state = NotifyState { has_permit: false, waiters: WaitList::new() };
        Self { state: Lock::new(state), round: AtomicU64::new(0) }
    }

    fn change<R>(&self, change: impl FnOnce(&mut NotifyState) -> R) -> R {
        change(&mut self.state.lock())
    }

    /// `ReadRound`.
    pub fn round(&self) -> u64 {
        // Relaxed: what the notification publishes is read under the lock. A notification that
        // happens before this read is counted in it, because a later read of one atomic never sees
        // an older value.
        self.round.load(Relaxed)
    }

    /// Notifies the first waiter, or the last one. Returns it, to be woken.
    pub fn notify(&self, which: Release) -> Option<Waiter> {
        self.change(|state| state.notify(which))
    }

    /// Notifies all waiters, and returns them, to be woken.
    pub fn notify_all(&self) -> ServedWaiters {
        // Relaxed: written under the lock only, and compared under it.
        let count = || self.round.store(self.round.load(Relaxed) + 1, Relaxed);
        let is_late = cfg!(procession_loom) && MUTATION == 3;
        let released = self.change(|state| {
            if !is_late {
                count();
            }
            let mut released = ServedWaiters::default();
            while let Some((waiter, ())) = state.waiters.serve(|release| *release = Release::All) {
                released.push(waiter);
            }
            released
        });
        if is_late {
            self.change(|_| count());
        }
        released
    }

    /// Takes a permit if there is one, or sees a later round than `seen`, and returns which of the
    /// two it was. Otherwise enlists the waiter, and stores its place.
    pub fn take_or_wait(
        &self,
        seen: u64,
        place: &mut Option<Place>,
        another: &mut Another<'_>,
    ) -> Option<Release> {
        let notice = |state: &mut NotifyState| {
            // Relaxed: see `notify_all`.
            if self.round.load(Relaxed) != seen {
                return Some(Release::All);
            }
            std::mem::take(&mut state.has_permit).then_some(Release::First)
        };
        loop {
            let looks = !(cfg!(procession_loom) && MUTATION == 1);
            if !looks && let Some(release) = self.change(notice) {
                return Some(release);
            }
            let looked = self.change(|state| {
                if looks && let Some(release) = notice(state) {
                    return Some(Some(release));
                }
                let waker = another.take()?;
                *place = Some(state.waiters.push(Waiter::Alone(waker), Release::Not));
                Some(None)
            });
            if let Some(release) = looked {
                return release;
            }
            another.prepare();
        }
    }

    /// Returns how the waiter was released, and frees its place.
    pub fn look(&self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<Release> {
        look(place, another, |place, another| {
            self.change(|state| state.waiters.look(place, another))
        })
    }

    /// Returns how the waiter was released, and frees its place.
    pub fn try_look(&self, place: &mut Option<Place>) -> Option<Release> {
        let waits = place.take()?;
        self.change(|state| {
            if state.waiters.is_served(&waits) {
                return Some(state.waiters.remove(waits).0);
            }
            *place = Some(waits);
            None
        })
    }

    /// `Cancel` of a waiter that has left the list: passes on the notification that was for it
    /// alone. Returns the waiter that has the notification now, to be woken.
    pub fn pass_on(&self, release: Release) -> Option<Waiter> {
        self.change(|state| state.pass_on(release))
    }

    /// Removes a waiter. Returns its waker, to be dropped, and the waiter that has its notification
    /// now, to be woken.
    pub fn cancel(&self, place: Place) -> (Option<Waiter>, Option<Waiter>) {
        self.change(|state| {
            let (release, own) = state.waiters.remove(place);
            if cfg!(procession_loom) && MUTATION == 2 {
                return (own, None);
            }
            (own, state.pass_on(release))
        })
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::{Arc, explore, thread};

    use super::{NotifyCore, Release, mutation};
    use crate::sync::wait_list::Another;

    /// A waiter begins to wait while it is notified alone.
    fn wait<const MUTATION: u8>() {
        explore(|| {
            let notify = Arc::new(NotifyCore::<MUTATION>::new());
            let notifies = {
                let notify = Arc::clone(&notify);
                thread::spawn(move || drop(notify.notify(Release::First)))
            };
            let mut place = None;
            let first = notify.take_or_wait(notify.round(), &mut place, &mut Another::none());
            notifies.join().expect("it does not panic");
            let notified = first.or_else(|| notify.look(&mut place, &mut Another::none()));
            assert!(notified.is_some(), "the waiter waits forever");
        });
    }

    #[test]
    fn notify_against_wait() {
        wait::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the waiter waits forever")]
    fn canary_enlist_without_look() {
        wait::<{ mutation::ENLIST_WITHOUT_LOOK }>();
    }

    /// The first of two waiters is cancelled while it is notified.
    fn cancel<const MUTATION: u8>() {
        explore(|| {
            let notify = Arc::new(NotifyCore::<MUTATION>::new());
            let (mut first, mut second) = (None, None);
            for place in [&mut first, &mut second] {
                assert!(notify.take_or_wait(0, place, &mut Another::none()).is_none());
            }
            let notifies = {
                let notify = Arc::clone(&notify);
                thread::spawn(move || drop(notify.notify(Release::First)))
            };
            drop(notify.cancel(first.take().expect("it waits")));
            notifies.join().expect("it does not panic");
            let notified = notify.look(&mut second, &mut Another::none());
            assert!(notified.is_some(), "the notification is lost");
        });
    }

    #[test]
    fn notify_against_cancel() {
        cancel::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the notification is lost")]
    fn canary_cancel_keeps() {
        cancel::<{ mutation::CANCEL_KEEPS }>();
    }

    /// All waiters are notified after one was made, and while it begins to wait.
    fn round<const MUTATION: u8>() {
        explore(|| {
            let notify = Arc::new(NotifyCore::<MUTATION>::new());
            let seen = notify.round();
            let notifies = {
                let notify = Arc::clone(&notify);
                thread::spawn(move || drop(notify.notify_all()))
            };
            let mut place = None;
            let first = notify.take_or_wait(seen, &mut place, &mut Another::none());
            notifies.join().expect("it does not panic");
            let notified = first.or_else(|| notify.look(&mut place, &mut Another::none()));
            assert!(notified.is_some(), "the waiter missed the round");
        });
    }

    #[test]
    fn round_against_wait() {
        round::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the waiter missed the round")]
    fn canary_count_later() {
        round::<{ mutation::COUNT_LATER }>();
    }
}
