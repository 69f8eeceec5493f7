//! The driver: the one parked worker that waits for the earliest deadline, and for descriptors.
//!
//! # Driver protocol
//!
//! ## Problem
//! The timers of a worker lie in its own heap, and a running worker that sets a timer notifies no
//! other worker. When workers park, one worker must wake for the earliest deadline of all, and all
//! others must not. A lost deadline looks like this: one worker parks until a late deadline.
//! Another worker sets an earlier timer, sees that a worker waits already, and also parks. The
//! timer is then late.
//!
//! The first descriptor of a scheduler raises the same problem. From then on, one of the parked
//! workers must wait in the kernel, even if there is no deadline.
//!
//! ## States
//! Under one lock: the driver, if there is one, which is a seat and the deadline until which it
//! parks; and whether there are descriptors, or have been.
//!
//! ## Steps
//! - Parking worker, after its announcement: `Earliest` read the next deadline of every heap ·
//!   `Keep` under the lock. If no worker is the driver, it becomes the driver until `Earliest`,
//!   unless there is neither a deadline nor a descriptor. If another worker is the driver, but
//!   until a later deadline, it nudges the driver, which wakes and starts again at `Earliest`. Then
//!   it parks: the driver until its deadline, any other worker until it is woken. If the driver
//!   stops parking, no worker is the driver any more.
//! - Driver that wakes and stays parked: `Earliest` · `KeepOn` under the lock. If the deadline is
//!   later than the deadline until which it was the driver, it stops being the driver, and starts
//!   again at `Earliest`.
//! - Driver that wakes for a timer that is due, but gets no permit (`scheduler/idle/permits.rs`):
//!   `Resign` stop being the driver · start again at `Earliest`. A worker in the same situation
//!   that is not the driver parks, because others are awake: they fire the timers of seats without
//!   a permit at their services, and the awake worker that parks becomes the driver.
//! - Worker that blocks in its step, or leaves with its thread, if no worker is awake then:
//!   `Attend` read the next deadline of every heap, and continue as a thread that has set that
//!   timer.
//! - Thread that is not a worker and sets a timer: look at the driver under the lock. If the driver
//!   parks until a later deadline, nudge it. If there is no driver, wake a worker, even if others
//!   search: it parks again and so becomes the driver.
//! - Worker in its step that sets a timer in its own heap: `Set` the heap's deadline · `SetFence`
//!   fence(SeqCst) · look whether its permit was revoked (`scheduler/idle/permits.rs`). If so, go
//!   on as a thread that is not a worker. Otherwise notify no other thread, except for a deadline
//!   within 10 ms if it has not yet woken the next worker (`scheduler/idle/parking.rs`, *Steps*).
//! - Thread that makes the first descriptor known: `Open` note it under the lock, and look at the
//!   driver without releasing the lock · nudge the driver, or wake a worker if there is none. Once
//!   there are descriptors, a parking worker becomes the driver even without a deadline.
//!
//! ## Why it works
//! *A deadline.* Every thread that sets a timer takes the lock afterwards, either as a parking
//! worker or as a thread that is not a worker. Let K be the driver in the end, and assume a pending
//! deadline that is earlier than the deadline until which K parks.
//! - If the setter took the lock after K, it nudged K.
//! - If it took the lock before K, the driver role was free. The setter then became the driver
//!   itself, so K did not find the role free; or it woke a worker to park again, which takes the
//!   lock after K.
//!
//! *A driver that keeps on.* A worker that parks may rely on a driver with a deadline that has
//! passed, because that driver is about to look. If the driver has looked already, it has not seen
//! the timer of that worker. With the later deadline of `KeepOn` it would break the promise. So it
//! first stops being the driver. A worker that took the lock before that has set its timer before,
//! so the second `Earliest` sees it. A worker that takes the lock afterwards finds no driver to
//! rely on.
//!
//! *A worker that blocks* instead of parking does the same by `Attend`, unless another worker is
//! awake, which parks or blocks later. So does a driver that leaves with its thread, because all
//! other parked workers rely on it.
//!
//! *A driver without a permit* at its deadline sleeps on. If it kept the driver role, it would
//! promise to wake at a time that has passed, and all others would rely on it forever. Another
//! worker may have fired the timers that were due, and relied on the driver just before `Resign`.
//! In that case `Earliest` is not due any more, because that worker was awake, and this one becomes
//! the driver again. If `Earliest` is still due, a worker is awake, and parks after `Resign`.
//!
//! *A worker that notifies no other thread* has its permit, and reads its heap before it parks. If
//! its permit is revoked at the same moment, another worker runs and then parks. By the lock of
//! `scheduler/idle.rs`, `Revoke` is before that worker's `ParkFence`, which is ordered with
//! `SetFence`. If `SetFence` is first, `Earliest` sees the deadline. If `ParkFence` is first, the
//! setter sees that its permit is gone.
//!
//! *The first descriptor.* `Open` and `Keep` are ordered by the lock. A worker that becomes the
//! driver after `Open` waits in the kernel. A driver or a parked worker from before is found.
//!
//! ## Allowed
//! - A nudged driver may find nothing due, and parks again.
//! - A driver that has just fired timers may sleep up to 20 us beyond its deadline, or 200 us if
//!   more than one timer fires in 20 us (`APART` in `scheduler/local.rs`).
//! - While all workers run, there is no driver: each looks at its own heap. There is none either
//!   while the last searcher runs what it has found, until its next service or the watchdog's
//!   second look.
//!
//! ## Rejected
//! - Every parked worker waiting for its own heap: as many wake-ups as workers for one deadline
//!   that is put off again and again.
//! - To ask, when a step blocks, only whether there is a driver: a timer that the step had set was
//!   as late as the deadline of the driver, an hour or a year.
//!
//! ## Checked by
//! `models::park_against_an_earlier_timer`, `models::canary_without_nudge`,
//! `models::keep_on_against_park`, `models::canary_keep_on`,
//! `models::park_against_the_first_descriptor`, `models::canary_open_quietly`,
//! `models::resign_against_park`, `models::canary_driving_without_permit`,
//! `models::canary_resign_blindly`, `models::block_against_park`,
//! `models::canary_content_with_any_driver`, `models::set_against_revoke_and_park`,
//! `models::canary_set_without_fence`.

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::fence;

use crate::scheduler::idle::Idle;
use crate::scheduler::seat_id::{NEVER, SeatId};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("driver", SOUND);
    /// A worker that finds a driver parks, whatever deadline the driver waits for.
    pub const WITHOUT_NUDGE: u8 = 1;
    /// The thread that makes the first descriptor known wakes no worker if there is no driver.
    pub const OPEN_QUIETLY: u8 = 2;
    /// A driver without a permit keeps the driver role.
    pub const DRIVING_WITHOUT_PERMIT: u8 = 3;
    /// A driver that has resigned does not look again.
    pub const RESIGN_BLINDLY: u8 = 4;
    /// A worker that blocks relies on any driver.
    pub const CONTENT_WITH_ANY_DRIVER: u8 = 5;
    /// No `SetFence`.
    pub const SET_WITHOUT_FENCE: u8 = 6;
    /// A thread that is not a worker and sets a timer does not look at the driver.
    pub const SET_QUIETLY: u8 = 7;
    /// A driver that finds a later deadline does not look again.
    pub const KEEP_ON: u8 = 8;
}

#[derive(Clone, Copy, Debug)]
struct DriverRole {
    seat: SeatId,
    until: u64,
}

#[derive(Debug, Default)]
struct DriverState {
    role: Option<DriverRole>,
    has_descriptors: bool,
}

/// How a worker parks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Kept {
    /// As the driver, until this deadline, and for descriptors if there are any.
    Until(u64),
    /// Until it is woken: another worker is the driver, or none is needed.
    ByAnother,
    /// Until it is woken, after it has nudged the driver in this seat.
    ByNudged(SeatId),
    /// Not yet. The seat was the driver until an earlier deadline, and no longer is: others may
    /// have relied on it for a timer that it has not seen. It reads the next deadline again.
    Again,
}

/// The duty of a thread that set a timer, or made the first descriptor known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Owed {
    /// Nobody needs to be woken.
    Nothing,
    /// Wake this driver, so that it sees the new deadline.
    Nudge(SeatId),
    /// Wake a worker, which becomes the driver: there is none.
    Wake,
}

/// The one parked worker that waits for the earliest deadline.
#[derive(Debug)]
pub struct Driver<const MUTATION: u8 = { mutation::BUILT }>(Mutex<DriverState>);

impl<const MUTATION: u8> Driver<MUTATION> {
    /// Creates the state without a driver.
    pub fn none() -> Self {
        Self(Mutex::default())
    }

    fn change<R>(&self, change: impl FnOnce(&mut DriverState) -> R) -> R {
        change(&mut self.0.lock())
    }

    /// `Keep`: the worker in `seat` parks, and has found `earliest` to be the next deadline of all.
    pub fn keep(&self, seat: SeatId, earliest: u64) -> Kept {
        self.change(|state| match state.role {
            Some(other) if other.seat != seat => {
                if earliest < other.until && !mutation::is(MUTATION, mutation::WITHOUT_NUDGE) {
                    Kept::ByNudged(other.seat)
                } else {
                    Kept::ByAnother
                }
            }
            Some(own) if own.until < earliest && !mutation::is(MUTATION, mutation::KEEP_ON) => {
                state.role = None;
                Kept::Again
            }
            _ if earliest == NEVER && !state.has_descriptors => {
                state.role = None;
                Kept::ByAnother
            }
            _ => {
                state.role = Some(DriverRole { seat, until: earliest });
                Kept::Until(earliest)
            }
        })
    }

    /// Makes `seat` stop being the driver, and returns whether it was the driver. Called when
    /// `seat` stops parking.
    pub fn leave(&self, seat: SeatId) -> bool {
        self.change(|state| {
            let kept = state.role.is_some_and(|role| role.seat == seat);
            if kept {
                state.role = None;
            }
            kept
        })
    }

    /// `Resign`: a timer is due, and `seat` has no permit to fire it. Returns `true` if the worker
    /// must look again.
    pub fn resign(&self, seat: SeatId) -> bool {
        !mutation::is(MUTATION, mutation::DRIVING_WITHOUT_PERMIT)
            && self.leave(seat)
            && !mutation::is(MUTATION, mutation::RESIGN_BLINDLY)
    }

    /// `Attend`: the last worker that was awake is no longer awake, and `earliest` is the next
    /// deadline of all, or `NEVER`.
    pub fn attend(&self, earliest: u64) -> Owed {
        if mutation::is(MUTATION, mutation::CONTENT_WITH_ANY_DRIVER) && self.is_kept() {
            return Owed::Nothing;
        }
        self.timer_set(earliest)
    }

    /// Returns `true` if there is a driver.
    pub fn is_kept(&self) -> bool {
        self.change(|state| state.role.is_some())
    }

    /// `Open`: the first descriptor can be registered now.
    pub fn descriptors_opened(&self) -> Owed {
        self.change(|state| {
            state.has_descriptors = true;
            match state.role {
                Some(driver) => Owed::Nudge(driver.seat),
                None if mutation::is(MUTATION, mutation::OPEN_QUIETLY) => Owed::Nothing,
                None => Owed::Wake,
            }
        })
    }

    /// `SetFence`, by the worker in `seat`, which has set a timer in its own heap. Returns `true`
    /// if it must go on as a thread that is not a worker.
    pub fn must_nudge(&self, idle: &Idle, seat: SeatId) -> bool {
        if !mutation::is(MUTATION, mutation::SET_WITHOUT_FENCE) {
            fence(SeqCst);
        }
        idle.is_revoked(seat)
    }

    /// Notes that a thread that is not a worker has set a timer for `when`.
    pub fn timer_set(&self, when: u64) -> Owed {
        if mutation::is(MUTATION, mutation::SET_QUIETLY) {
            return Owed::Nothing;
        }
        self.change(|state| match state.role {
            Some(driver) if driver.until <= when => Owed::Nothing,
            Some(driver) => Owed::Nudge(driver.seat),
            None => Owed::Wake,
        })
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicU64;
    use procession_sync::atomic::Ordering::{AcqRel, Relaxed};
    use procession_sync::{Arc, explore, thread};

    use super::{Driver, Idle, Kept, NEVER, Owed, SeatId, mutation};

    /// One worker parks and sees a deadline of 10. Another sets a timer of 5, and parks.
    fn park<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new((Driver::<MUTATION>::none(), AtomicU64::new(10)));
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

    /// One worker parks and sees no deadline, while the first descriptor is made known.
    fn open<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new((Driver::<MUTATION>::none(), AtomicU64::new(0)));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let owed = shared.0.descriptors_opened();
                    // Whether the worker was parked already, so that a wake-up reaches it; the lock
                    // orders it.
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

    /// A driver wakes for 5, while the worker with the only permit fires that timer, sets one of
    /// 20, and parks.
    fn resign<const MUTATION: u8>() {
        explore(|| {
            // The earliest deadline, and the number of permits.
            let shared =
                Arc::new((Driver::<MUTATION>::none(), AtomicU64::new(5), AtomicU64::new(0)));
            assert_eq!(shared.0.keep(SeatId(0), 5), Kept::Until(5));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.store(20, Relaxed);
                    // Ordering: the lock of `scheduler/idle.rs`, under which the worker is parked
                    // and returns its permit.
                    shared.2.fetch_add(1, AcqRel);
                    shared.0.keep(SeatId(1), 20)
                })
            };
            let attends = loop {
                // Ordering: as above.
                let permits = shared.2.fetch_add(0, AcqRel);
                let earliest = shared.1.load(Relaxed);
                match (earliest == 5, permits) {
                    (false, _) => match shared.0.keep(SeatId(0), earliest) {
                        Kept::Again => {}
                        kept => break kept == Kept::Until(20),
                    },
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

    /// A driver wakes after 5, and another worker has fired that timer. Now the other sets a timer
    /// of 20, and parks.
    fn keep_on<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new((Driver::<MUTATION>::none(), AtomicU64::new(5)));
            assert_eq!(shared.0.keep(SeatId(0), 5), Kept::Until(5));
            shared.1.store(NEVER, Relaxed);
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: the lock orders it, as for a heap's `next`.
                    shared.1.store(20, Relaxed);
                    shared.0.keep(SeatId(1), 20)
                })
            };
            let first = loop {
                match shared.0.keep(SeatId(0), shared.1.load(Relaxed)) {
                    Kept::Again => {}
                    kept => break kept,
                }
            };
            let second = other.join().expect("the other does not panic");
            let kept = first == Kept::Until(20)
                || second == Kept::Until(20)
                || second == Kept::ByNudged(SeatId(0));
            assert!(kept, "nobody wakes for the later timer: {first:?}, {second:?}");
        });
    }

    #[test]
    fn keep_on_against_park() {
        keep_on::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "nobody wakes for the later timer")]
    fn canary_keep_on() {
        keep_on::<{ mutation::KEEP_ON }>();
    }

    /// Two workers are awake. One sets a timer of 5, and blocks. The other parks and sees a
    /// deadline of 10.
    fn block<const MUTATION: u8>() {
        explore(|| {
            // The earliest deadline, and the number of workers that are awake.
            let shared =
                Arc::new((Driver::<MUTATION>::none(), AtomicU64::new(10), AtomicU64::new(2)));
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

    /// A worker in a long step sets a timer of 5, while the watchdog moves its permit to another
    /// worker, which finds nothing to do and parks.
    fn set<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new((
                Driver::<MUTATION>::none(),
                Idle::new(2, 1, true),
                AtomicU64::new(NEVER),
            ));
            let (driver, idle, heap) = &*shared;
            assert_eq!(idle.claim_absent(1), Some(SeatId(0)), "the first has the permit");
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (driver, idle, heap) = &*shared;
                    assert!(idle.revoke(SeatId(0)), "it is in its step");
                    if idle.claim_one().is_none() {
                        // The first has woken the second for its timer.
                        return Kept::ByAnother;
                    }
                    assert!(idle.come(SeatId(1)), "it was claimed");
                    idle.announce(SeatId(1), true);
                    driver.keep(SeatId(1), heap.load(Relaxed))
                })
            };
            // Relaxed: as a heap's `next`.
            heap.store(5, Relaxed);
            let owed = if driver.must_nudge(idle, SeatId(0)) {
                driver.timer_set(5)
            } else {
                Owed::Nothing
            };
            // Without a driver, it wakes the worker that it finds.
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
    fn canary_driving_without_permit() {
        resign::<{ mutation::DRIVING_WITHOUT_PERMIT }>();
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
    fn canary_content_with_any_driver() {
        block::<{ mutation::CONTENT_WITH_ANY_DRIVER }>();
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
    use super::{Driver, Kept, NEVER, Owed, SeatId};

    #[test]
    fn one_keeps_the_time_for_all() {
        let driver: Driver = Driver::none();
        assert_eq!(driver.timer_set(7), Owed::Wake);
        assert_eq!(driver.keep(SeatId(0), NEVER), Kept::ByAnother, "there is nothing to keep");
        assert_eq!(driver.keep(SeatId(0), 10), Kept::Until(10));
        assert_eq!(driver.keep(SeatId(1), 10), Kept::ByAnother);
        assert_eq!(driver.keep(SeatId(1), 5), Kept::ByNudged(SeatId(0)));
        assert_eq!(driver.keep(SeatId(0), 5), Kept::Until(5), "the nudged one looks again");
        assert_eq!(driver.timer_set(5), Owed::Nothing);
        assert_eq!(driver.timer_set(4), Owed::Nudge(SeatId(0)));
        assert!(!driver.resign(SeatId(1)));
        assert_eq!(driver.timer_set(4), Owed::Nudge(SeatId(0)), "only the driver leaves the role");
        assert!(driver.resign(SeatId(0)), "it looks again");
        assert!(!driver.resign(SeatId(0)));
        assert_eq!(driver.attend(30), Owed::Wake);
        assert_eq!(driver.keep(SeatId(1), 20), Kept::Until(20));
        assert_eq!((driver.attend(20), driver.attend(NEVER)), (Owed::Nothing, Owed::Nothing));
        assert_eq!(driver.attend(19), Owed::Nudge(SeatId(1)), "it waits for what is later");
        assert_eq!(
            driver.descriptors_opened(),
            Owed::Nudge(SeatId(1)),
            "it waits in the wrong place"
        );
        assert!(driver.leave(SeatId(1)));
        assert_eq!(driver.descriptors_opened(), Owed::Wake);
        assert_eq!(
            driver.keep(SeatId(0), NEVER),
            Kept::Until(NEVER),
            "somebody waits for the descriptors"
        );
        assert_eq!(driver.keep(SeatId(1), NEVER), Kept::ByAnother);
    }
}
