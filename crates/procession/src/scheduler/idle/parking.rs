//! `Announce` and `TakeBack`: how a worker parks, naps, and leaves.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU32, fence};

use super::seats::{Remaining, SeatState};
use super::{Idle, mutation};
use crate::scheduler::seat_id::SeatId;

/// What became of an announcement that was to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum TakenBack {
    /// It is taken back: the worker searches.
    Yes,
    /// A waker was faster: the worker has come (`Come`), and is counted as searching. A token is on
    /// its way to its parker.
    ByWaker,
    /// There is no permit: others are awake, who will find what there is.
    NoPermit,
}

/// A nap, which its drop ends (`EndNap`): the worker searches then, or looks into every queue.
#[derive(Debug)]
pub(crate) struct Nap<'a> {
    napping: &'a AtomicU32,
    fenced: bool,
}

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        self.napping.fetch_sub(1, Relaxed);
        if self.fenced {
            fence(SeqCst);
        }
    }
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// `Announce` and `ParkFence`; the caller goes on with `Recheck`. Says whether every seat is
    /// parked now.
    pub(crate) fn announce(&self, seat: SeatId, searched: bool) -> bool {
        let all = self.change(|seats| {
            let before = seats.lift(seat);
            if MUTATION == mutation::GIVEN_UP_TWICE && before == SeatState::Out {
                seats.awake = seats.awake.wrapping_sub(1);
            }
            seats.put(seat, SeatState::Parked);
            (seats.are_all_parked(), -i64::from(searched))
        });
        if MUTATION != mutation::WITHOUT_FENCE {
            fence(SeqCst);
        }
        all
    }

    /// `TakeBack`; with `force`, for what only this seat can do, at the cost of another.
    pub(crate) fn take_back(&self, seat: SeatId, force: bool) -> TakenBack {
        self.change(|seats| {
            if *seats.state(seat) != SeatState::Parked {
                return (TakenBack::ByWaker, self.arrive(seats, seat));
            }
            if !seats.has_permit() && !force {
                return (TakenBack::NoPermit, 0);
            }
            seats.lift(seat);
            self.grant(seats, seat);
            (TakenBack::Yes, 1)
        })
    }

    /// As `take_back`, if every seat is parked: of several that find that out, one succeeds, and is
    /// told how often a seat has become awake.
    pub(crate) fn take_back_if_all_parked(&self, seat: SeatId) -> Option<u64> {
        self.change(|seats| {
            let all = seats.are_all_parked() && *seats.state(seat) == SeatState::Parked;
            if all {
                seats.lift(seat);
                self.awaken(seats, seat);
            }
            (all.then_some(seats.awakenings), i64::from(all))
        })
    }

    /// `Nap`, until what is returned is dropped: this worker will look again soon, though it parks.
    pub(crate) fn nap(&self) -> Nap<'_> {
        self.napping.fetch_add(1, Relaxed);
        Nap { napping: &self.napping, fenced: MUTATION != mutation::WITHOUT_FENCE }
    }

    /// Takes a parked thread off, so that it can leave its seat, if there are more than may run at
    /// once, and another is left that can keep the time: while all others block, the next deadline
    /// and descriptors need a thread.
    pub(crate) fn retire(&self, seat: SeatId) -> bool {
        self.change(|seats| {
            let is_last = seats.awake == 0 && seats.stack.len() == 1;
            let retires = *seats.state(seat) == SeatState::Parked
                && seats.threads() > seats.width
                && !is_last;
            if retires {
                seats.shift(seat, SeatState::Leaving);
            }
            (retires, 0)
        })
    }

    /// A thread leaves its seat, for callers (and among those for one thread only, unless that is
    /// 0) or for another thread; says who is left. The caller goes on with `Recheck`.
    pub(crate) fn leave(&self, seat: SeatId, for_callers: bool, only: u64) -> Remaining {
        let left = self.change(|seats| {
            if for_callers {
                seats.absent_for = only;
            }
            seats.shift(seat, if for_callers { SeatState::Absent } else { SeatState::Vacant });
            self.revoked[seat.0 as usize].store(false, Relaxed);
            (Remaining { all_parked: seats.are_all_parked(), nobody_awake: seats.awake == 0 }, 0)
        });
        fence(SeqCst);
        left
    }
}
