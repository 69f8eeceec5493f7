//! `GiveBack`, `Revoke` and `Regain`: which seats have permits.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::fence;

use super::seats::{SeatState, Seats};
use super::{Idle, mutation};
use crate::scheduler::seat_id::SeatId;

impl<const MUTATION: u8> Idle<MUTATION> {
    /// Makes a lifted seat awake.
    pub(super) fn awaken(&self, seats: &mut Seats, seat: SeatId) {
        seats.put(seat, SeatState::Awake);
        seats.awakenings += 1;
        // Relaxed, as the word. A seat is within reach before anything is queued in it, and leaves
        // the reach when it is empty.
        self.reach.fetch_max(seat.0 + 1, Relaxed);
        self.revoked[seat.0 as usize].store(false, Relaxed);
    }

    /// Takes the permit of a seat that is awake.
    pub(super) fn send_out(&self, seats: &mut Seats, seat: SeatId) {
        seats.shift(seat, SeatState::Out);
        // Relaxed: a hint. The state itself is under the lock.
        self.revoked[seat.0 as usize].store(true, Relaxed);
    }

    /// Makes a lifted seat awake. If there is no permit, takes the permit of another seat.
    pub(super) fn grant(&self, seats: &mut Seats, seat: SeatId) {
        if !seats.has_permit()
            && let Some(victim) = seats.victim()
        {
            self.send_out(seats, victim);
        }
        self.awaken(seats, seat);
    }

    /// `GiveBack`: returns `true` if no worker is awake now. The caller continues with `Recheck`.
    pub fn give_back(&self, seat: SeatId) -> bool {
        let nobody = self.change(|seats| {
            if *seats.state(seat) == SeatState::Awake {
                self.send_out(seats, seat);
            }
            (seats.awake == 0, 0)
        });
        if !mutation::is(MUTATION, mutation::GIVE_BACK_WITHOUT_FENCE) {
            fence(SeqCst);
        }
        nobody
    }

    /// `Revoke`: returns `true` if the seat had a permit. The caller then wakes others.
    pub fn revoke(&self, seat: SeatId) -> bool {
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

    /// Returns `true` if the permit of a seat was revoked, as far as can be seen.
    #[inline]
    pub fn is_revoked(&self, seat: SeatId) -> bool {
        self.revoked[seat.0 as usize].load(Relaxed)
    }

    /// `Regain`: returns `true` if the seat has a permit now. With `force`, takes the permit of
    /// another seat if there is none.
    pub fn regain(&self, seat: SeatId, force: bool) -> bool {
        self.change(|seats| {
            let back = *seats.state(seat) == SeatState::Out && (force || seats.has_permit());
            if back {
                seats.lift(seat);
                self.grant(seats, seat);
            }
            (*seats.state(seat) == SeatState::Awake, 0)
        })
    }

    /// Changes how many workers may run at the same time. Excess workers go out, and park after
    /// their steps.
    pub fn set_worker_threads(&self, width: u32) {
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
        // As after `Announce`: the caller then looks whether there is work for workers that may run
        // now.
        fence(SeqCst);
    }
}
