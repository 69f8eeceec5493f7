//! Workers that run and workers that wait: two protocols under one lock.
//!
//! A scheduler has more seats than it is wide. `idle/permits.rs` says which seats may run.
//! `idle/parking.rs` says which seats sleep, and which seat a publisher wakes. A worker that parks
//! returns its permit, and a worker that is woken gets a permit. So one lock guards the states of
//! both protocols, and this file has what they share.
//!
//! One word, `searching:24 | awake:20 | spare:20`, is changed only by read-modify-writes. *Awake*
//! is the number of permits that seats have. *Spare* is the number of seats that can be woken:
//! parked or vacant seats, as far as there are permits for them. Both change under the lock. They
//! are in one word because a publisher reads them after one fence.
//!
//! `Recheck` joins the two protocols: a worker that returns its permit looks again for what was
//! queued, as a worker that parks does.

pub mod parking;
mod permits;
#[cfg(all(test, not(procession_loom)))]
mod tests;
mod word;

use std::sync::Arc;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

pub use self::parking::places::Presence;
use self::parking::places::{Parking, Place};
use self::permits::held::Permits;
use self::word::{AWAKE_ONE, IdleWord, SEARCHING_ONE};
use crate::scheduler::seat_id::SeatId;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("idle", SOUND);
    /// No `PublishFence`, no `ParkFence`, no `LeaveFence`.
    pub const WITHOUT_FENCE: u8 = 1;
    /// `Survey` looks into the queues after it has released the lock.
    pub const SURVEY_IN_TWO: u8 = 2;
    /// No fence after `GiveBack`.
    pub const GIVE_BACK_WITHOUT_FENCE: u8 = 3;
    /// `Announce` returns a permit even if the seat has no permit.
    pub const GIVEN_UP_TWICE: u8 = 4;
    /// No `WriteOffFence`.
    pub const WRITE_OFF_WITHOUT_FENCE: u8 = 5;
    /// A late worker that executes `Come` is not counted again.
    pub const COME_UNCOUNTED: u8 = 6;
    /// `Recheck` of a worker that parks does not look into the queues. The models plant this and
    /// the next three in their own code.
    pub const PARK_WITHOUT_RECHECK: u8 = 7;
    /// No `Recheck` after `GiveBack`.
    pub const GIVE_BACK_WITHOUT_RECHECK: u8 = 8;
    /// The watchdog does not look into the queues after `WriteOff`.
    pub const WRITE_OFF_WITHOUT_RECHECK: u8 = 9;
    /// `Recheck` of a worker that parks does not look for processes that are bound to it.
    pub const BOUND_WITHOUT_RECHECK: u8 = 10;
    /// A seat for which no thread can be started stays counted as searching.
    pub const DECLINE_COUNTED: u8 = 11;
    /// A thread that could not start another wakes no parked worker in its place.
    pub const DECLINE_ALONE: u8 = 12;
    /// A thread that wants to start another does not look whether its claim is over.
    pub const START_BLINDLY: u8 = 13;
    /// No fence after `End`.
    pub const END_WITHOUT_FENCE: u8 = 14;
    /// A worker parks with a batch process of its own, and does not wait for a permit.
    pub const PARK_WITHOUT_WAITING: u8 = 15;
}

/// What lies under the lock: the states of the two protocols.
#[derive(Debug)]
struct Seats {
    permits: Permits,
    parking: Parking,
}

impl Seats {
    /// Moves a seat to a place where it needs no permit. Returns `true` if it had a permit.
    #[inline]
    fn settle(&mut self, seat: SeatId, place: Place) -> bool {
        self.parking.shift(seat, place);
        self.permits.release(seat)
    }

    /// Returns `true` if a thread is there that has no permit.
    fn is_out(&self, seat: SeatId) -> bool {
        self.parking.place(seat) == Place::Present && !self.permits.has(seat)
    }

    /// Returns the word, without the searching workers.
    #[inline]
    fn summary(&self) -> u64 {
        let spare = self.parking.waiting().min(self.permits.free());
        u64::from(self.permits.taken()) * AWAKE_ONE + u64::from(spare)
    }
}

/// The permits and the seats of a scheduler: the word, and what lies under the lock.
#[derive(Debug)]
pub struct Idle<const MUTATION: u8 = { mutation::BUILT }> {
    counts: AtomicU64,
    seats: Mutex<Seats>,
    /// For each seat, whether it has a permit. It is a part of `Permits`, and here a hint.
    held: Arc<[AtomicBool]>,
    /// An upper bound of the seats that are not vacant, or not empty. Written under the lock.
    reach: AtomicU32,
    /// The number of permits. Written under the lock.
    width: AtomicU32,
    /// The number of seats with a thread. Written under the lock.
    threads: AtomicU32,
    /// The number of permits that are left for batch processes. Written under the lock; a hint.
    batch_spare: AtomicU32,
    /// Set if a seat waits for such a permit. Written under the lock; a hint.
    batch_wanted: AtomicBool,
    /// The number of parked workers that will look again soon. Changed without the lock.
    napping: AtomicU32,
    /// For each claimed seat, the time since which it is being woken, or `u64::MAX` before.
    since: Box<[AtomicU64]>,
    /// The number of seats that are coming. Written under the lock.
    coming: AtomicU32,
    /// The earliest of their times in `since`, or `u64::MAX` if it is not known. A hint.
    coming_since: AtomicU64,
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// Creates vacant seats. If callers drive, the first one is absent.
    pub fn new(seats: u32, width: u32, callers_drive: bool) -> Self {
        let held: Arc<[_]> = (0..seats).map(|_| AtomicBool::new(false)).collect();
        let permits = Permits::new(Arc::clone(&held), width);
        let all = Seats { permits, parking: Parking::new(seats, callers_drive) };
        Self {
            counts: AtomicU64::new(all.summary()),
            batch_spare: AtomicU32::new(all.permits.batch.spare(width)),
            batch_wanted: AtomicBool::new(false),
            seats: Mutex::new(all),
            held,
            reach: AtomicU32::new(width.min(seats)),
            width: AtomicU32::new(width),
            threads: AtomicU32::new(0),
            napping: AtomicU32::new(0),
            since: (0..seats).map(|_| AtomicU64::new(u64::MAX)).collect(),
            coming: AtomicU32::new(0),
            coming_since: AtomicU64::new(u64::MAX),
        }
    }

    /// Makes a seat awake. If no permit is free, takes the permit of another seat.
    #[inline]
    fn awaken(&self, seats: &mut Seats, seat: SeatId) {
        seats.permits.grant(seat);
        seats.parking.shift(seat, Place::Present);
        // Relaxed, as the word. A seat is within reach before anything is queued in it, and leaves
        // the reach when it is empty.
        self.reach.fetch_max(seat.0 + 1, Relaxed);
    }

    /// Changes the seats and the word. `change` also returns the change of the number of searchers.
    fn change<R>(&self, change: impl FnOnce(&mut Seats) -> (R, i64)) -> R {
        let mut seats = self.seats.lock();
        let before = seats.summary();
        let (result, searching) = change(&mut seats);
        let searching = (searching as u64).wrapping_mul(SEARCHING_ONE);
        // Relaxed, as all changes of the word: only their order matters, and the fences give it.
        self.counts
            .fetch_add(seats.summary().wrapping_sub(before).wrapping_add(searching), Relaxed);
        // Relaxed: its readers tolerate an old value.
        self.threads.store(seats.parking.threads(), Relaxed);
        self.batch_spare.store(seats.permits.batch.spare(seats.permits.width), Relaxed);
        self.batch_wanted.store(seats.permits.batch.is_wanted(), Relaxed);
        result
    }

    fn look<R>(&self, look: impl FnOnce(&Seats) -> R) -> R {
        look(&self.seats.lock())
    }

    /// Lowers the reach, to `least` at the lowest, by the last seats that are vacant and empty.
    pub fn lower_reach(&self, least: u32, is_empty: impl Fn(SeatId) -> bool) {
        self.look(|seats| {
            let mut reach = self.reach.load(Relaxed);
            while reach > least
                && seats.parking.place(SeatId(reach - 1)) == Place::Vacant
                && is_empty(SeatId(reach - 1))
            {
                reach -= 1;
            }
            self.reach.store(reach, Relaxed);
        });
    }

    /// Returns how many seats, from the first on, may have anything in them.
    #[inline]
    pub fn reach(&self) -> u32 {
        self.reach.load(Relaxed)
    }

    /// Returns `true` if there are more threads than may run at the same time.
    #[inline]
    pub fn has_surplus(&self) -> bool {
        self.threads.load(Relaxed) > self.width()
    }

    /// Returns which seats and threads are left, at one moment.
    pub fn rest(&self) -> Presence {
        self.look(|seats| Presence {
            has_thread: seats.permits.taken() > 0 || !seats.parking.stack.is_empty(),
            has_vacant: !seats.parking.vacant.is_empty(),
            is_leaving: seats.parking.leaving > 0,
            has_absent: seats.parking.place(SeatId(0)) == Place::Absent,
            out: (0..self.held.len() as u32)
                .map(SeatId)
                .filter(|&seat| seats.is_out(seat))
                .collect(),
        })
    }

    /// `Survey`: returns `true` if no worker runs and nothing is queued, both at one moment.
    pub fn all_parked_and(&self, nothing_queued: impl Fn() -> bool) -> bool {
        if mutation::is(MUTATION, mutation::SURVEY_IN_TWO) {
            return self.look(|seats| seats.parking.are_all_parked()) && nothing_queued();
        }
        self.look(|seats| seats.parking.are_all_parked() && nothing_queued())
    }

    /// Returns `true` if no seat is awake. What their workers did before is visible then.
    pub fn is_none_awake(&self) -> bool {
        // Most calls need no lock. The word changes under the lock, which the worker has released
        // once this thread gets it.
        self.counts().1 == 0 && self.look(|_| self.counts().1 == 0)
    }

    /// Returns how many seats are searching, awake and spare.
    #[inline]
    pub fn counts(&self) -> (u32, u32, u32) {
        let counts = IdleWord(self.counts.load(Relaxed));
        (counts.searching(), counts.awake(), counts.spare())
    }
}
