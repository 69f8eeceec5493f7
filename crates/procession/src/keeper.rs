//! Who waits for the earliest deadline.
//!
//! # Keeper protocol
//!
//! ## Problem
//! Timers lie in heaps of their workers, and setting one on a running worker tells nobody. When workers park, one of them must wake for
//! the earliest deadline of all, and the others must not. One parks until a late deadline; another sets an earlier timer,
//! sees that somebody waits already, and parks too: the timer is late.
//!
//! ## States
//! Under one lock: nobody, or the seat that keeps the time and until when it parks.
//!
//! ## Steps
//! Parking worker, after its announcement: `Earliest` read the next deadline of every heap · `Keep` under the lock: nobody keeps → it
//! does, until `Earliest`; another does, but until later → nudge that one, whose parker wakes, and which starts again at `Earliest`;
//! park until what was agreed, or for ever. A worker that leaves its parking lot leaves the office, too.
//! A thread that is no worker sets a timer, then looks: a keeper until later is nudged; with no keeper, a worker is woken,
//! which parks again, and so keeps.
//!
//! ## Why it works
//! Whoever sets a timer takes the lock afterwards, as a parking worker or as such a thread. Take the keeper at the end, K, and a pending
//! deadline earlier than what K parks until. Its setter took the lock after K, or K would have been nudged or would not have found
//! the office empty: then it nudged K. Or it took the lock before K: then the office was empty, and the setter itself kept, or woke
//! somebody to park again, who takes the lock after K.
//!
//! ## Allowed
//! A nudged keeper may find nothing due, and parks again. While all workers run, nobody keeps: they look at their heaps themselves.
//!
//! ## Rejected
//! Every parked worker waiting for its own heap: as many wake-ups as workers for one deadline that is put off again and again.
//!
//! ## Checked by
//! `models::park_against_an_earlier_timer`, `models::canary_without_nudge`.

use procession_sync::Mutex;

use crate::idle::SeatId;

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// A worker that finds a keeper parks, whatever that one waits for.
    pub(crate) const WITHOUT_NUDGE: u8 = 1;
}

#[derive(Clone, Copy, Debug)]
struct Office {
    seat: SeatId,
    until: u64,
}

/// How a worker is to park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Kept {
    /// Until this deadline, for all.
    Until(u64),
    /// Until it is woken: another keeps the time.
    ByAnother,
    /// Until it is woken, after it has nudged this one.
    ByNudged(SeatId),
}

/// What a thread that set a timer owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Owed {
    Nothing,
    Nudge(SeatId),
    /// Nobody keeps the time: wake a worker, which will.
    Wake,
}

#[derive(Debug)]
pub(crate) struct Keeper<const MUTATION: u8 = { mutation::SOUND }>(Mutex<Option<Office>>);

impl<const MUTATION: u8> Keeper<MUTATION> {
    pub(crate) fn none() -> Self {
        Self(Mutex::new(None))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Option<Office>) -> R) -> R {
        change(&mut self.0.lock().expect("nothing that can panic runs under this lock"))
    }

    /// `Keep`: `seat` parks, and has found `earliest` to be the next deadline of all.
    pub(crate) fn keep(&self, seat: SeatId, earliest: u64) -> Kept {
        self.change(|office| match *office {
            Some(other) if other.seat != seat => {
                if earliest < other.until && MUTATION != mutation::WITHOUT_NUDGE {
                    Kept::ByNudged(other.seat)
                } else {
                    Kept::ByAnother
                }
            }
            _ if earliest == NEVER => {
                *office = None;
                Kept::ByAnother
            }
            _ => {
                *office = Some(Office { seat, until: earliest });
                Kept::Until(earliest)
            }
        })
    }

    /// `seat` parks no longer.
    pub(crate) fn leave(&self, seat: SeatId) {
        self.change(|office| {
            if office.is_some_and(|office| office.seat == seat) {
                *office = None;
            }
        });
    }

    /// A thread that is no worker has set a timer for `when`.
    pub(crate) fn timer_set(&self, when: u64) -> Owed {
        self.change(|office| match *office {
            Some(keeper) if keeper.until <= when => Owed::Nothing,
            Some(keeper) => Owed::Nudge(keeper.seat),
            None => Owed::Wake,
        })
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicU64;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, thread};

    use super::{Keeper, Kept, SeatId, mutation};

    /// One worker parks with a deadline of 10 in sight; another sets one of 5, and parks.
    fn park<const MUTATION: u8>() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.check(|| {
            let shared = Arc::new((Keeper::<MUTATION>::none(), AtomicU64::new(10)));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: the lock orders it, as for a heap's `next`.
                    shared.1.store(5, Relaxed);
                    shared.0.keep(SeatId(1), 5)
                })
            };
            let first = shared.0.keep(SeatId(0), shared.1.load(Relaxed));
            let second = other.join().expect("the other does not panic");
            let kept = first == Kept::Until(5) || second == Kept::Until(5) || second == Kept::ByNudged(SeatId(0));
            assert!(kept, "nobody wakes for the earlier timer: {first:?}, {second:?}");
        });
    }

    #[test]
    fn park_against_an_earlier_timer() {
        park::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "nobody wakes for the earlier timer")]
    fn canary_without_nudge() {
        park::<{ mutation::WITHOUT_NUDGE }>();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::{Keeper, Kept, NEVER, Owed, SeatId};

    #[test]
    fn one_keeps_the_time_for_all() {
        let keeper: Keeper = Keeper::none();
        assert_eq!(keeper.timer_set(7), Owed::Wake);
        assert_eq!(keeper.keep(SeatId(0), NEVER), Kept::ByAnother, "there is nothing to keep");
        assert_eq!(keeper.keep(SeatId(0), 10), Kept::Until(10));
        assert_eq!(keeper.keep(SeatId(1), 10), Kept::ByAnother);
        assert_eq!(keeper.keep(SeatId(1), 5), Kept::ByNudged(SeatId(0)));
        assert_eq!(keeper.keep(SeatId(0), 5), Kept::Until(5), "the nudged one looks again");
        assert_eq!(keeper.timer_set(5), Owed::Nothing);
        assert_eq!(keeper.timer_set(4), Owed::Nudge(SeatId(0)));
        keeper.leave(SeatId(1));
        assert_eq!(keeper.timer_set(4), Owed::Nudge(SeatId(0)), "only the keeper leaves the office");
        keeper.leave(SeatId(0));
        assert_eq!(keeper.keep(SeatId(1), 20), Kept::Until(20));
    }
}
