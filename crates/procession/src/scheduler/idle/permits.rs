//! `GiveBack`, `Revoke` and `Regain`: which seats have permits.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::fence;

use super::seats::{SeatState, Seats};
use super::{Idle, mutation};
use crate::scheduler::seat_id::SeatId;

impl<const MUTATION: u8> Idle<MUTATION> {
    /// Makes a seat awake that was lifted.
    pub(super) fn awaken(&self, seats: &mut Seats, seat: SeatId) {
        seats.put(seat, SeatState::Awake);
        seats.awakenings += 1;
        // Relaxed, as the word; a seat is in reach before anything is queued in it, and leaves
        // reach when it is empty.
        self.reach.fetch_max(seat.0 + 1, Relaxed);
        self.revoked[seat.0 as usize].store(false, Relaxed);
    }

    /// Takes the permit of a seat that is awake.
    pub(super) fn send_out(&self, seats: &mut Seats, seat: SeatId) {
        seats.shift(seat, SeatState::Out);
        // Relaxed: a hint. What it is about is under the lock.
        self.revoked[seat.0 as usize].store(true, Relaxed);
    }

    /// Makes a seat awake that was lifted, at the cost of another if need be.
    pub(super) fn grant(&self, seats: &mut Seats, seat: SeatId) {
        if !seats.has_permit()
            && let Some(victim) = seats.victim()
        {
            self.send_out(seats, victim);
        }
        self.awaken(seats, seat);
    }

    /// `GiveBack`; says whether nobody is awake now. The caller goes on with `Recheck`.
    pub(crate) fn give_back(&self, seat: SeatId) -> bool {
        let nobody = self.change(|seats| {
            if *seats.state(seat) == SeatState::Awake {
                self.send_out(seats, seat);
            }
            (seats.awake == 0, 0)
        });
        if MUTATION != mutation::GIVE_BACK_WITHOUT_FENCE {
            fence(SeqCst);
        }
        nobody
    }

    /// `Revoke`: says whether the seat had a permit. The caller goes on with waking others.
    pub(crate) fn revoke(&self, seat: SeatId) -> bool {
        let had = self.change(|seats| {
            let had = *seats.state(seat) == SeatState::Awake;
            if had {
                self.send_out(seats, seat);
            }
            (had, 0)
        });
        fence(SeqCst);
        had
    }

    /// Whether the permit of a seat was taken away, as far as can be seen.
    #[inline]
    pub(crate) fn is_revoked(&self, seat: SeatId) -> bool {
        self.revoked[seat.0 as usize].load(Relaxed)
    }

    /// `Regain`: says whether the seat has a permit now; with `force`, at the cost of another.
    pub(crate) fn regain(&self, seat: SeatId, force: bool) -> bool {
        self.change(|seats| {
            let back = *seats.state(seat) == SeatState::Out && (force || seats.has_permit());
            if back {
                seats.lift(seat);
                self.grant(seats, seat);
            }
            (*seats.state(seat) == SeatState::Awake, 0)
        })
    }

    /// Changes how many may run at once. Those who are too many go out, and park after their steps.
    pub(crate) fn set_worker_threads(&self, width: u32) {
        self.change(|seats| {
            seats.width = width;
            self.width.store(width, Relaxed);
            while seats.awake > width
                && let Some(victim) = seats.victim()
            {
                self.send_out(seats, victim);
            }
            ((), 0)
        });
        // As after `Announce`: the caller looks whether there is something for those who may run
        // now.
        fence(SeqCst);
    }
}
