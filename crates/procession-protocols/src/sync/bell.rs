//! # Bell protocol
//!
//! ## Problem
//! A bell releases the waiters that are listening, and keeps nothing for later waiters. A released
//! waiter can be dropped before it observes its release. If a notice was meant for a single waiter,
//! it must then reach another waiter, or a wake-up is lost. If it was meant for all waiters, it
//! must reach no other: a waiter that came later belongs to the next round, and would be released
//! although nothing has happened. The same goes wrong if a bell rings after the critical section
//! that decided to ring it: a waiter that begins to listen in between hears the old round.
//!
//! ## States
//! All under one lock: what the bell is *about* (jobs that are left, visitors that have arrived),
//! the waiters in the order in which they came, and a count of all that ever came. Each waiter has
//! a number from that count.
//!
//! ## Steps
//! - Listen: change what the bell is about, and `Enlist` in the same critical section.
//! - Ring: change what it is about, and serve one waiter or all waiters in the same critical
//!   section. A waiter that is served alone gets a notice with the present count. A waiter that is
//!   served with all others gets a notice that goes to no other.
//! - Leave: if the waiter was served alone, `PassOn` its notice to the first waiter with a number
//!   not above the notice's.
//!
//! Waking happens outside the lock.
//!
//! ## Why it works
//! Rounds are separated by critical sections: a waiter enlists before a ring and is served by it,
//! or enlists after it and waits for the next. A notice for one waiter was observed, or it is with
//! a waiter that has not observed it and passes it on when it leaves. The notice is dropped only if
//! all waiters that listened when it was given have left. The queue is in the order of numbers, so
//! looking at its first waiter is enough.
//!
//! ## Rejected
//! A semaphore that takes its permits back after each ring. A released waiter that is dropped
//! returns its permit, which releases a waiter of the next round without waking it. If the ring
//! takes two critical sections, the permits are there for a waiter that leaves in between.
//!
//! ## Checked by
//! `models::a_ring_against_the_next_round`, `models::a_notice_against_a_leave`, and their canaries;
//! `tests`.

use std::task::{Poll, Waker};

use crate::sync::wait_list::{Another, Place, ServedWaiters, WaitList, Waiter, look};
use crate::util::biased_lock::Lock;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// Ring in a critical section after the change.
    #[cfg(all(test, procession_loom))]
    pub const RING_LATER: u8 = 1;
    /// Leave forgets the notice.
    #[cfg(all(test, procession_loom))]
    pub const LEAVE_KEEPS: u8 = 2;
}

/// Before a waiter is served, its number. Afterwards, the highest number that its notice may be
/// passed on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Notice(u64);

impl Notice {
    /// A notice that all listening waiters have. Numbers begin at 1.
    const FOR_ALL: Self = Self(0);
}

/// The state that the lock of a bell guards.
#[derive(Debug)]
pub struct Ringing<S> {
    /// The state that the bell is about.
    pub about: S,
    waiters: WaitList<Notice>,
    came: u64,
}

impl<S> Ringing<S> {
    /// `Enlist`.
    pub fn enlist(&mut self, waker: Waker) -> Place {
        self.came += 1;
        self.waiters.push(Waiter::Alone(waker), Notice(self.came))
    }

    /// Serves the waiter that has waited longest.
    pub fn ring_one(&mut self) -> Option<Waiter> {
        self.pass_on(Notice(self.came))
    }

    /// Serves all waiters.
    pub fn ring_all(&mut self) -> ServedWaiters {
        // A single waiter needs no room, and `used` also counts waiters that were served before.
        let room = if self.waiters.has_several() { self.waiters.used() } else { 0 };
        let mut rung = ServedWaiters::with_capacity(room);
        while let Some((waiter, ())) = self.waiters.serve(|notice| *notice = Notice::FOR_ALL) {
            rung.push(waiter);
        }
        rung
    }

    /// Removes a waiter. Returns its notice if it was served, or else its waker, to be dropped
    /// outside the lock.
    pub fn leave(&mut self, place: Place) -> Result<Notice, Option<Waiter>> {
        let was_served = self.waiters.is_served(&place);
        let (notice, own) = self.waiters.remove(place);
        if was_served { Ok(notice) } else { Err(own) }
    }

    /// Looks for what a waiter waits for. If `look` finds nothing, the waiter is enlisted, or stays
    /// enlisted. If it finds something, the waiter leaves. For bells that ring for all only, so
    /// that no notice is to be passed on.
    ///
    /// Returns `None` if the waker must be prepared first, after which the caller looks again.
    pub fn look_or_enlist<R>(
        &mut self,
        place: &mut Option<Place>,
        another: &mut Another<'_>,
        mut look: impl FnMut(&mut S) -> Option<R>,
    ) -> Option<Poll<(R, Option<Waiter>)>> {
        if let Some(found) = look(&mut self.about) {
            let own = place.take().and_then(|place| self.waiters.remove(place).1);
            return Some(Poll::Ready((found, own)));
        }
        match place.take() {
            Some(waits) if !self.waiters.is_served(&waits) => {
                let is_renewed = self.waiters.renew(&waits, another);
                *place = Some(waits);
                return is_renewed.then_some(Poll::Pending);
            }
            // The bell rang, and what it rang for is gone again.
            Some(served) => drop(self.waiters.remove(served)),
            None => {}
        }
        *place = Some(self.enlist(another.take()?));
        Some(Poll::Pending)
    }

    /// `PassOn`.
    fn pass_on(&mut self, given: Notice) -> Option<Waiter> {
        self.waiters.front().filter(|first| first.0 <= given.0)?;
        self.waiters.serve(|notice| *notice = given).map(|(waiter, ())| waiter)
    }
}

/// Releases the waiters that are listening.
#[derive(Debug)]
pub struct Bell<S = (), const MUTATION: u8 = { mutation::SOUND }>(Lock<Ringing<S>>);

impl<S, const MUTATION: u8> Bell<S, MUTATION> {
    /// Creates a bell without waiters.
    pub fn new(about: S) -> Self {
        Self(Lock::new(Ringing { about, waiters: WaitList::new(), came: 0 }))
    }

    /// Runs `change` as one critical section.
    pub fn change<R>(&self, change: impl FnOnce(&mut Ringing<S>) -> R) -> R {
        change(&mut self.0.lock())
    }

    /// Changes what the bell is about, and serves all waiters if `change` returns `true`.
    pub fn ring_all_if(&self, change: impl FnOnce(&mut S) -> bool) -> ServedWaiters {
        if cfg!(procession_loom) && MUTATION == 1 {
            let rings = self.change(|ringing| change(&mut ringing.about));
            return if rings { self.change(Ringing::ring_all) } else { ServedWaiters::default() };
        }
        self.change(|ringing| {
            if change(&mut ringing.about) { ringing.ring_all() } else { ServedWaiters::default() }
        })
    }

    /// Returns the notice of a waiter that was served, and frees its place.
    pub fn look(&self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<Notice> {
        look(place, another, |place, another| {
            self.change(|ringing| ringing.waiters.look(place, another))
        })
    }

    /// Removes a waiter; see [`Ringing::leave`].
    pub fn leave(&self, place: Place) -> Result<Notice, Option<Waiter>> {
        self.change(|ringing| ringing.leave(place))
    }

    /// Passes on a notice that was not acted on. Returns the waiter that has it now, to be woken.
    pub fn pass_on(&self, notice: Notice) -> Option<Waiter> {
        if notice == Notice::FOR_ALL || cfg!(procession_loom) && MUTATION == 2 {
            return None;
        }
        self.change(|ringing| ringing.pass_on(notice))
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Waker;

    use procession_sync::{Arc, explore, thread};

    use super::{Bell, mutation};
    use crate::sync::wait_list::Another;

    fn waker() -> Waker {
        Waker::noop().clone()
    }

    /// The last job of a group is done, while another job begins and is waited for.
    fn next_round<const MUTATION: u8>() {
        explore(|| {
            let jobs = Arc::new(Bell::<usize, MUTATION>::new(1));
            let last = {
                let jobs = Arc::clone(&jobs);
                thread::spawn(move || {
                    let woken = jobs.ring_all_if(|jobs| {
                        *jobs -= 1;
                        *jobs == 0
                    });
                    drop(woken);
                })
            };
            jobs.change(|ringing| ringing.about += 1);
            let mut place = Some(jobs.change(|ringing| ringing.enlist(waker())));
            last.join().expect("it does not panic");
            let rung = jobs.look(&mut place, &mut Another::none());
            assert!(rung.is_none(), "a job is left");
        });
    }

    #[test]
    fn a_ring_against_the_next_round() {
        next_round::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a job is left")]
    fn canary_ring_later() {
        next_round::<{ mutation::RING_LATER }>();
    }

    /// A notice is given to one of two waiters, of which the first leaves.
    fn leave<const MUTATION: u8>() {
        explore(|| {
            let bell = Arc::new(Bell::<(), MUTATION>::new(()));
            let first = bell.change(|ringing| ringing.enlist(waker()));
            let mut second = Some(bell.change(|ringing| ringing.enlist(waker())));
            let rings = {
                let bell = Arc::clone(&bell);
                thread::spawn(move || drop(bell.change(super::Ringing::ring_one)))
            };
            if let Ok(notice) = bell.leave(first) {
                drop(bell.pass_on(notice));
            }
            rings.join().expect("it does not panic");
            assert!(bell.look(&mut second, &mut Another::none()).is_some(), "a notice is not lost");
        });
    }

    #[test]
    fn a_notice_against_a_leave() {
        leave::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a notice is not lost")]
    fn canary_leave_keeps() {
        leave::<{ mutation::LEAVE_KEEPS }>();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::task::Waker;

    use super::{Bell, Ringing};
    use crate::sync::wait_list::{Another, Place};

    fn listen(bell: &Bell) -> Place {
        bell.change(|ringing| ringing.enlist(Waker::noop().clone()))
    }

    fn has_heard(bell: &Bell, place: Place) -> bool {
        bell.look(&mut Some(place), &mut Another::none()).is_some()
    }

    #[test]
    fn a_notice_is_passed_on_to_waiters_that_listened_when_it_was_given() {
        let bell = Bell::new(());
        let (first, second) = (listen(&bell), listen(&bell));
        drop(bell.change(Ringing::ring_one));
        let later = listen(&bell);
        let notice = bell.leave(first).expect("it was served");
        assert!(bell.pass_on(notice).is_some());
        let notice = bell.leave(second).expect("it was passed on");
        assert!(bell.pass_on(notice).is_none(), "all waiter listened then have left");
        assert!(!has_heard(&bell, later));
    }

    #[test]
    fn a_notice_for_all_is_not_passed_on() {
        let bell = Bell::new(());
        let first = listen(&bell);
        drop(bell.change(Ringing::ring_all));
        let later = listen(&bell);
        let notice = bell.leave(first).expect("it was served");
        assert!(bell.pass_on(notice).is_none());
        assert!(bell.leave(later).is_err());
    }

    #[test]
    fn waiters_that_were_served_before_cost_a_ring_no_memory() {
        let bell = Bell::new(());
        let places: Vec<_> = (0..10).map(|_| listen(&bell)).collect();
        assert!(bell.change(Ringing::ring_all).capacity() >= 10);
        assert_eq!(bell.change(Ringing::ring_all).capacity(), 1, "nobody waits");
        let alone = listen(&bell);
        assert_eq!(bell.change(Ringing::ring_all).capacity(), 1, "one waits");
        assert!(places.into_iter().chain([alone]).all(|place| has_heard(&bell, place)));
    }
}
