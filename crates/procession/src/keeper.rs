//! Who waits for the earliest deadline, and for descriptors.
//!
//! # Keeper protocol
//!
//! ## Problem
//! Timers lie in heaps of their workers, and setting one on a running worker tells nobody. When workers park, one of them must wake for
//! the earliest deadline of all, and the others must not. One parks until a late deadline; another sets an earlier timer,
//! sees that somebody waits already, and parks too: the timer is late. Likewise for the first descriptor of a scheduler: from then on
//! somebody who is parked must wait in the kernel, also if there is no deadline.
//!
//! ## States
//! Under one lock: nobody, or the seat that keeps the time and until when it parks; and whether there are descriptors, or have been.
//!
//! ## Steps
//! Parking worker, after its announcement: `Earliest` read the next deadline of every heap · `Keep` under the lock: nobody keeps → it
//! does, until `Earliest`; another does, but until later → nudge that one, whose parker wakes, and which starts again at `Earliest`;
//! park until what was agreed, or for ever. A worker that leaves its parking lot leaves the office, too.
//! A thread that is no worker sets a timer, then looks: a keeper until later is nudged; with no keeper, a worker is woken,
//! which parks again, and so keeps.
//! Whoever makes the first descriptor known: `Open` note it under the lock, and in the same hold look who keeps · nudge that one, or, with no
//! keeper, wake a worker. With descriptors, a parking worker keeps also if there is no deadline.
//!
//! ## Why it works
//! Whoever sets a timer takes the lock afterwards, as a parking worker or as such a thread. Take the keeper at the end, K, and a pending
//! deadline earlier than what K parks until. Its setter took the lock after K, or K would have been nudged or would not have found
//! the office empty: then it nudged K. Or it took the lock before K: then the office was empty, and the setter itself kept, or woke
//! somebody to park again, who takes the lock after K.
//! `Open` and `Keep` are ordered by the lock: whoever keeps after `Open` waits in the kernel, and whoever kept, or parked, before is found.
//!
//! ## Allowed
//! A nudged keeper may find nothing due, and parks again. While all workers run, nobody keeps: they look at their heaps themselves.
//!
//! ## Rejected
//! Every parked worker waiting for its own heap: as many wake-ups as workers for one deadline that is put off again and again.
//!
//! ## Checked by
//! `models::park_against_an_earlier_timer`, `models::canary_without_nudge`, `models::park_against_the_first_descriptor`,
//! `models::canary_open_quietly`.

use procession_sync::Mutex;

use crate::idle::SeatId;

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// A worker that finds a keeper parks, whatever that one waits for.
    pub(crate) const WITHOUT_NUDGE: u8 = 1;
    /// Who makes the first descriptor known wakes nobody if nobody keeps.
    pub(crate) const OPEN_QUIETLY: u8 = 2;
}

#[derive(Clone, Copy, Debug)]
struct Office {
    seat: SeatId,
    until: u64,
}

#[derive(Debug, Default)]
struct State {
    office: Option<Office>,
    has_descriptors: bool,
}

/// How a worker is to park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Kept {
    /// Until this deadline, for all, and for descriptors, if there are any.
    Until(u64),
    /// Until it is woken: another keeps the time.
    ByAnother,
    /// Until it is woken, after it has nudged this one.
    ByNudged(SeatId),
}

/// What a thread owes that set a timer, or made the first descriptor known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Owed {
    Nothing,
    Nudge(SeatId),
    /// Nobody keeps the time: wake a worker, which will.
    Wake,
}

#[derive(Debug)]
pub(crate) struct Keeper<const MUTATION: u8 = { mutation::SOUND }>(Mutex<State>);

impl<const MUTATION: u8> Keeper<MUTATION> {
    pub(crate) fn none() -> Self {
        Self(Mutex::default())
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.0.lock().expect("nothing that can panic runs under this lock"))
    }

    /// `Keep`: `seat` parks, and has found `earliest` to be the next deadline of all.
    pub(crate) fn keep(&self, seat: SeatId, earliest: u64) -> Kept {
        self.change(|state| match state.office {
            Some(other) if other.seat != seat => {
                if earliest < other.until && MUTATION != mutation::WITHOUT_NUDGE {
                    Kept::ByNudged(other.seat)
                } else {
                    Kept::ByAnother
                }
            }
            _ if earliest == NEVER && !state.has_descriptors => {
                state.office = None;
                Kept::ByAnother
            }
            _ => {
                state.office = Some(Office { seat, until: earliest });
                Kept::Until(earliest)
            }
        })
    }

    /// `seat` parks no longer.
    pub(crate) fn leave(&self, seat: SeatId) {
        self.change(|state| {
            if state.office.is_some_and(|office| office.seat == seat) {
                state.office = None;
            }
        });
    }

    /// Whether anybody keeps the time.
    pub(crate) fn is_kept(&self) -> bool {
        self.change(|state| state.office.is_some())
    }

    /// `Open`: the first descriptor can be registered now.
    pub(crate) fn descriptors_opened(&self) -> Owed {
        self.change(|state| {
            state.has_descriptors = true;
            match state.office {
                Some(keeper) => Owed::Nudge(keeper.seat),
                None if MUTATION == mutation::OPEN_QUIETLY => Owed::Nothing,
                None => Owed::Wake,
            }
        })
    }

    /// A thread that is no worker has set a timer for `when`.
    pub(crate) fn timer_set(&self, when: u64) -> Owed {
        self.change(|state| match state.office {
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

    use super::{Keeper, Kept, NEVER, Owed, SeatId, mutation};

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

    /// One worker parks without a deadline in sight, while the first descriptor is made known.
    fn open<const MUTATION: u8>() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.check(|| {
            let shared = Arc::new((Keeper::<MUTATION>::none(), AtomicU64::new(0)));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let owed = shared.0.descriptors_opened();
                    // Whether the worker was parked already, for whoever wakes one; the lock orders it.
                    (owed, shared.1.fetch_add(0, Relaxed) == 1)
                })
            };
            shared.1.fetch_add(1, Relaxed);
            let kept = shared.0.keep(SeatId(0), NEVER);
            let (owed, parked) = other.join().expect("the other does not panic");
            let woken = owed == Owed::Nudge(SeatId(0)) || owed == Owed::Wake && parked;
            assert!(woken || kept == Kept::Until(NEVER), "nobody waits for the descriptor");
        });
    }

    #[test]
    fn park_against_the_first_descriptor() {
        open::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "nobody waits for the descriptor")]
    fn canary_open_quietly() {
        open::<{ mutation::OPEN_QUIETLY }>();
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
        assert_eq!(keeper.descriptors_opened(), Owed::Nudge(SeatId(1)), "it waits in the wrong place");
        keeper.leave(SeatId(1));
        assert_eq!(keeper.descriptors_opened(), Owed::Wake);
        assert_eq!(keeper.keep(SeatId(0), NEVER), Kept::Until(NEVER), "somebody waits for the descriptors");
        assert_eq!(keeper.keep(SeatId(1), NEVER), Kept::ByAnother);
    }
}
