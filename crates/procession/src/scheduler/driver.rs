//! Who waits for the earliest deadline, and for descriptors.
//!
//! # Keeper protocol
//!
//! ## Problem
//! Timers lie in heaps of their workers, and setting one on a running worker tells nobody. When
//! workers park, one of them must wake for the earliest deadline of all, and the others must not.
//! One parks until a late deadline; another sets an earlier timer, sees that somebody waits
//! already, and parks too: the timer is late. Likewise for the first descriptor of a scheduler:
//! from then on somebody who is parked must wait in the kernel, also if there is no deadline.
//!
//! ## States
//! Under one lock: nobody, or the seat that keeps the time and until when it parks; and whether
//! there are descriptors, or have been.
//!
//! ## Steps
//! Parking worker, after its announcement: `Earliest` read the next deadline of every heap · `Keep`
//! under the lock: nobody keeps → it does, until `Earliest`; another does, but until later → nudge
//! that one, whose parker wakes, and which starts again at `Earliest`; park until what was agreed,
//! or for ever. A worker that leaves its parking lot leaves the office, too. `Resign`, a keeper
//! that wakes for what is due, and gets no permit (`scheduler/idle.rs`): leave the office · start
//! again at `Earliest`. One that is not in office parks, since others are awake: they fire the
//! timers of seats without a permit at their services, and whoever of them parks keeps. Worker
//! whose step blocks, or whose thread leaves, if nobody is awake then: `Attend` read the next
//! deadline of every heap, and do as a thread that has set it. A thread that is no worker sets a
//! timer, then looks: a keeper until later is nudged; with no keeper, a worker is woken, which
//! parks again, and so keeps. A worker in its step sets a timer of its own: `Set` the heap's
//! deadline · `SetFence` fence(SeqCst) · look whether its permit was taken away
//! (`scheduler/idle.rs`). If so, it goes on as a thread that is no worker. Else it tells nobody.
//! Whoever makes the first descriptor known: `Open` note it under the lock, and in the same hold
//! look who keeps · nudge that one, or, with no keeper, wake a worker. With descriptors, a parking
//! worker keeps also if there is no deadline.
//!
//! ## Why it works
//! Whoever sets a timer takes the lock afterwards, as a parking worker or as such a thread. Take
//! the keeper at the end, K, and a pending deadline earlier than what K parks until. Its setter
//! took the lock after K, or K would have been nudged or would not have found the office empty:
//! then it nudged K. Or it took the lock before K: then the office was empty, and the setter itself
//! kept, or woke somebody to park again, who takes the lock after K. A worker that blocks instead
//! of parking does the same by `Attend`, unless another is awake, which parks later, or blocks. So
//! does one whose thread leaves out of the office; all others that are parked rely on it. A keeper
//! that has no permit at its time sleeps on. In office, it would promise to wake at a time that has
//! passed, and all others would rely on it for ever. Another may have relied on it just before
//! `Resign`, when it had fired what was due; but then `Earliest` is not due any more, since that
//! one was awake, and this one keeps again. If it is still due, one is awake, and parks after
//! `Resign`. A worker that tells nobody has its permit, and reads its heap before it parks. Its
//! permit may be taken at the same moment, for another that runs, and then parks: `Revoke`, by way
//! of the lock of `scheduler/idle.rs`, comes before that one's `ParkFence`. This fence and
//! `SetFence` are ordered. If `SetFence` is first, `Earliest` sees the deadline. If `ParkFence` is
//! first, the worker sees that its permit is gone. `Open` and `Keep` are ordered by the lock:
//! whoever keeps after `Open` waits in the kernel, and whoever kept, or parked, before is found.
//!
//! ## Allowed
//! A nudged keeper may find nothing due, and parks again. One that has just fired timers may sleep
//! up to 20 us longer than its office says, 200 us where more than one comes in 20 (`APART` in
//! `scheduler/worker.rs`). While all workers run, nobody keeps: they look at their heaps
//! themselves.
//!
//! ## Rejected
//! - Every parked worker waiting for its own heap: as many wake-ups as workers for one deadline
//!   that is put off again and again.
//! - To ask, when a step blocks, only whether anybody keeps the time: a timer that the step had set
//!   was as late as the deadline that another kept, an hour or a year.
//!
//! ## Checked by
//! `models::park_against_an_earlier_timer`, `models::canary_without_nudge`,
//! `models::park_against_the_first_descriptor`, `models::canary_open_quietly`,
//! `models::resign_against_park`, `models::canary_in_office_without_permit`,
//! `models::canary_resign_blindly`, `models::block_against_park`,
//! `models::canary_content_with_any_keeper`, `models::set_against_revoke_and_park`,
//! `models::canary_set_without_fence`.

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::fence;

use crate::scheduler::idle::Idle;
use crate::scheduler::seat_id::{NEVER, SeatId};

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// A worker that finds a keeper parks, whatever that one waits for.
    pub(crate) const WITHOUT_NUDGE: u8 = 1;
    /// Who makes the first descriptor known wakes nobody if nobody keeps.
    pub(crate) const OPEN_QUIETLY: u8 = 2;
    /// A keeper without a permit stays in office.
    pub(crate) const IN_OFFICE_WITHOUT_PERMIT: u8 = 3;
    /// A keeper that has resigned does not look again.
    pub(crate) const RESIGN_BLINDLY: u8 = 4;
    /// Who blocks relies on any keeper.
    pub(crate) const CONTENT_WITH_ANY_KEEPER: u8 = 5;
    /// No `SetFence`.
    pub(crate) const SET_WITHOUT_FENCE: u8 = 6;
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
        change(&mut self.0.lock())
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

    /// `seat` parks no longer; says whether it kept the time.
    pub(crate) fn leave(&self, seat: SeatId) -> bool {
        self.change(|state| {
            let kept = state.office.is_some_and(|office| office.seat == seat);
            if kept {
                state.office = None;
            }
            kept
        })
    }

    /// `Resign`: something is due, and `seat` has no permit to fire it; says whether it is to look
    /// again.
    pub(crate) fn resign(&self, seat: SeatId) -> bool {
        MUTATION != mutation::IN_OFFICE_WITHOUT_PERMIT
            && self.leave(seat)
            && MUTATION != mutation::RESIGN_BLINDLY
    }

    /// `Attend`: the last that was awake is not any more, and `earliest` is the next deadline of
    /// all, if any.
    pub(crate) fn attend(&self, earliest: u64) -> Owed {
        if MUTATION == mutation::CONTENT_WITH_ANY_KEEPER && self.is_kept() {
            return Owed::Nothing;
        }
        self.timer_set(earliest)
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

    /// `SetFence`, by the worker in `seat`, which has set a timer of its own. Returns `true` if it
    /// must tell others, as a thread that is no worker.
    pub(crate) fn must_tell(&self, idle: &Idle, seat: SeatId) -> bool {
        if MUTATION != mutation::SET_WITHOUT_FENCE {
            fence(SeqCst);
        }
        idle.is_revoked(seat)
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
    use procession_sync::atomic::Ordering::{AcqRel, Relaxed};
    use procession_sync::{Arc, explore, thread};

    use super::{Idle, Keeper, Kept, NEVER, Owed, SeatId, mutation};

    /// One worker parks with a deadline of 10 in sight; another sets one of 5, and parks.
    fn park<const MUTATION: u8>() {
        explore(|| {
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
            let kept = first == Kept::Until(5)
                || second == Kept::Until(5)
                || second == Kept::ByNudged(SeatId(0));
            assert!(kept, "nobody wakes for the earlier timer: {first:?}, {second:?}");
        });
    }

    /// One worker parks without a deadline in sight, while the first descriptor is made known.
    fn open<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new((Keeper::<MUTATION>::none(), AtomicU64::new(0)));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let owed = shared.0.descriptors_opened();
                    // Whether the worker was parked already, for whoever wakes one; the lock orders
                    // it.
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

    /// A keeper wakes for 5, while the one that has the only permit fires that, sets a timer of 20,
    /// and parks.
    fn resign<const MUTATION: u8>() {
        explore(|| {
            // The earliest deadline, and how many permits there are.
            let shared =
                Arc::new((Keeper::<MUTATION>::none(), AtomicU64::new(5), AtomicU64::new(0)));
            assert_eq!(shared.0.keep(SeatId(0), 5), Kept::Until(5));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.store(20, Relaxed);
                    // Ordering: the lock of `scheduler/idle.rs`, under which a worker is parked and
                    // has no permit any more.
                    shared.2.fetch_add(1, AcqRel);
                    shared.0.keep(SeatId(1), 20)
                })
            };
            let attends = loop {
                // Ordering: as above.
                let permits = shared.2.fetch_add(0, AcqRel);
                let earliest = shared.1.load(Relaxed);
                match (earliest == 5, permits) {
                    (false, _) => break shared.0.keep(SeatId(0), earliest) == Kept::Until(20),
                    (true, 1) => break true,
                    (true, _) if shared.0.resign(SeatId(0)) => {}
                    (true, _) => break false,
                }
            };
            let second = other.join().expect("the other does not panic");
            let kept = attends || second == Kept::Until(20);
            assert!(kept, "nobody wakes for the timer that was set last: {second:?}");
        });
    }

    /// Of two that are awake one sets a timer of 5, and blocks; the other parks with one of 10 in
    /// sight.
    fn block<const MUTATION: u8>() {
        explore(|| {
            // The earliest deadline, and how many are awake.
            let shared =
                Arc::new((Keeper::<MUTATION>::none(), AtomicU64::new(10), AtomicU64::new(2)));
            let blocks = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.store(5, Relaxed);
                    // Ordering: the lock of `scheduler/idle.rs`, and the fence behind it.
                    if shared.2.fetch_sub(1, AcqRel) == 1 {
                        shared.0.attend(5)
                    } else {
                        Owed::Nothing
                    }
                })
            };
            // Ordering: as above.
            shared.2.fetch_sub(1, AcqRel);
            let kept = shared.0.keep(SeatId(0), shared.1.load(Relaxed));
            let owed = blocks.join().expect("it does not panic");
            assert!(
                kept == Kept::Until(5) || owed != Owed::Nothing,
                "its timer waits for the other: {kept:?}"
            );
        });
    }

    /// A worker in a long step sets a timer of 5 while the watchdog gives its permit to another,
    /// which finds nothing to do and parks.
    fn set<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new((
                Keeper::<MUTATION>::none(),
                Idle::new(2, 1, true),
                AtomicU64::new(NEVER),
            ));
            let (keeper, idle, heap) = &*shared;
            assert_eq!(idle.claim_absent(1), Some(SeatId(0)), "the first has the permit");
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (keeper, idle, heap) = &*shared;
                    assert!(idle.revoke(SeatId(0)), "it is in its step");
                    if idle.claim_one().is_none() {
                        // The first has woken the second for its timer.
                        return Kept::ByAnother;
                    }
                    assert!(idle.come(SeatId(1)), "it was claimed");
                    idle.announce(SeatId(1), true);
                    keeper.keep(SeatId(1), heap.load(Relaxed))
                })
            };
            // Relaxed: as a heap's `next`.
            heap.store(5, Relaxed);
            let owed =
                if keeper.must_tell(idle, SeatId(0)) { keeper.timer_set(5) } else { Owed::Nothing };
            // Without a keeper it wakes whom it finds.
            let woken = owed == Owed::Wake && idle.claim_one() == Some(SeatId(1));
            let kept = other.join().expect("the other does not panic");
            let told = woken || owed == Owed::Nudge(SeatId(1));
            assert!(
                kept == Kept::Until(5) || told,
                "nobody wakes for its timer: {kept:?}, {owed:?}"
            );
        });
    }

    #[test]
    fn set_against_revoke_and_park() {
        set::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "nobody wakes for its timer")]
    fn canary_set_without_fence() {
        set::<{ mutation::SET_WITHOUT_FENCE }>();
    }

    #[test]
    fn resign_against_park() {
        resign::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "nobody wakes for the timer that was set last")]
    fn canary_in_office_without_permit() {
        resign::<{ mutation::IN_OFFICE_WITHOUT_PERMIT }>();
    }

    #[test]
    #[should_panic(expected = "nobody wakes for the timer that was set last")]
    fn canary_resign_blindly() {
        resign::<{ mutation::RESIGN_BLINDLY }>();
    }

    #[test]
    fn block_against_park() {
        block::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "its timer waits for the other")]
    fn canary_content_with_any_keeper() {
        block::<{ mutation::CONTENT_WITH_ANY_KEEPER }>();
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
        assert!(!keeper.resign(SeatId(1)));
        assert_eq!(
            keeper.timer_set(4),
            Owed::Nudge(SeatId(0)),
            "only the keeper leaves the office"
        );
        assert!(keeper.resign(SeatId(0)), "it looks again");
        assert!(!keeper.resign(SeatId(0)));
        assert_eq!(keeper.attend(30), Owed::Wake);
        assert_eq!(keeper.keep(SeatId(1), 20), Kept::Until(20));
        assert_eq!((keeper.attend(20), keeper.attend(NEVER)), (Owed::Nothing, Owed::Nothing));
        assert_eq!(keeper.attend(19), Owed::Nudge(SeatId(1)), "it waits for what is later");
        assert_eq!(
            keeper.descriptors_opened(),
            Owed::Nudge(SeatId(1)),
            "it waits in the wrong place"
        );
        assert!(keeper.leave(SeatId(1)));
        assert_eq!(keeper.descriptors_opened(), Owed::Wake);
        assert_eq!(
            keeper.keep(SeatId(0), NEVER),
            Kept::Until(NEVER),
            "somebody waits for the descriptors"
        );
        assert_eq!(keeper.keep(SeatId(1), NEVER), Kept::ByAnother);
    }
}
