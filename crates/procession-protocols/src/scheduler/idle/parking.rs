//! `Announce` and `TakeBack`: how a worker parks, naps, and leaves.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU32, fence};

use super::seats::{Remaining, SeatState};
use super::{Idle, mutation};
use crate::scheduler::seat_id::SeatId;

/// The result of taking an announcement back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TakenBack {
    /// The announcement is taken back, and the worker searches.
    Yes,
    /// A waker was faster. The worker has executed `Come`, and is counted as searching. A token is
    /// on its way to its parker.
    ByWaker,
    /// There is no permit. Others are awake, and will find what there is.
    NoPermit,
}

/// A nap. Its drop ends it (`EndNap`); the worker then searches, or looks into every queue.
#[derive(Debug)]
pub struct Nap<'a> {
    napping: &'a AtomicU32,
    fenced: bool,
}

impl Drop for Nap<'_> {
    #[inline]
    fn drop(&mut self) {
        self.napping.fetch_sub(1, Relaxed);
        if self.fenced {
            fence(SeqCst);
        }
    }
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// `Announce` and `ParkFence`: returns `true` if every seat is parked now. The caller continues
    /// with `Recheck`.
    pub fn announce(&self, seat: SeatId, searched: bool) -> bool {
        let all = self.change(|seats| {
            let before = seats.lift(seat);
            if mutation::is(MUTATION, mutation::GIVEN_UP_TWICE) && before == SeatState::Out {
                seats.awake = seats.awake.wrapping_sub(1);
            }
            seats.put(seat, SeatState::Parked);
            (seats.are_all_parked(), -i64::from(searched))
        });
        if !mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            fence(SeqCst);
        }
        all
    }

    /// `TakeBack`. With `force`, for work that only this seat can do, takes the permit of another
    /// seat if there is none.
    pub fn take_back(&self, seat: SeatId, force: bool) -> TakenBack {
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

    /// `TakeBack`, only if every seat is parked. Of several workers that find this out, one
    /// succeeds, and gets the number of times that a seat became awake.
    pub fn take_back_if_all_parked(&self, seat: SeatId) -> Option<u64> {
        self.change(|seats| {
            let all = seats.are_all_parked() && *seats.state(seat) == SeatState::Parked;
            if all {
                seats.lift(seat);
                self.awaken(seats, seat);
            }
            (all.then_some(seats.awakenings), i64::from(all))
        })
    }

    /// `Nap`, until the returned value is dropped: this worker parks, but will look again soon.
    pub fn nap(&self) -> Nap<'_> {
        self.napping.fetch_add(1, Relaxed);
        Nap { napping: &self.napping, fenced: !mutation::is(MUTATION, mutation::WITHOUT_FENCE) }
    }

    /// Returns `true` if a worker naps.
    #[cfg(feature = "sim")]
    pub fn is_any_napping(&self) -> bool {
        self.napping.load(Relaxed) > 0
    }

    /// Returns `true` if a worker is parked, and there is a permit for it.
    #[cfg(feature = "sim")]
    pub fn is_any_parked_spare(&self) -> bool {
        self.look(|seats| seats.has_permit() && !seats.stack.is_empty())
    }

    /// `Retire`: takes a parked thread off its seat, so that it can leave. Returns `false` if there
    /// are no more threads than may run at the same time, or if this is the only thread that is not
    /// blocked: the next deadline and descriptors need a driver.
    pub fn retire(&self, seat: SeatId) -> bool {
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

    /// Makes a seat vacant or, with `for_callers`, absent, because its thread leaves. If `only` is
    /// not 0, the absent seat is reserved for that thread. Returns what is left. The caller
    /// continues with `Recheck`.
    pub fn leave(&self, seat: SeatId, for_callers: bool, only: u64) -> Remaining {
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
