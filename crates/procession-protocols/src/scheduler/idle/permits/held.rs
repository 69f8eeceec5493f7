//! Which seats have a permit, as it is under the lock.

use std::sync::Arc;

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::batch::BatchPermits;
use crate::scheduler::seat_id::SeatId;

/// Which seats have a permit, as it is under the lock.
#[derive(Debug)]
pub(in super::super) struct Permits {
    /// For each seat, whether it has a permit. Written under the lock; a hint without it. Relaxed,
    /// as the word.
    held: Arc<[AtomicBool]>,
    /// The number of seats that have a permit.
    taken: u32,
    pub(in super::super) width: u32,
    /// How often a seat got a permit.
    pub(in super::super) awakenings: u64,
    pub(in super::super) batch: BatchPermits,
    /// Where the search for a seat to take a permit from begins.
    turn: u32,
}

impl Permits {
    pub(in super::super) fn new(held: Arc<[AtomicBool]>, width: u32) -> Self {
        let batch = BatchPermits::new(held.len());
        Self { held, taken: 0, width, awakenings: 0, batch, turn: 0 }
    }

    #[inline]
    pub(in super::super) fn has(&self, seat: SeatId) -> bool {
        self.held[seat.0 as usize].load(Relaxed)
    }

    /// Returns the number of seats that have a permit.
    #[inline]
    pub(in super::super) fn taken(&self) -> u32 {
        self.taken
    }

    /// Returns the number of permits that no seat has.
    #[inline]
    pub(in super::super) fn free(&self) -> u32 {
        self.width.saturating_sub(self.taken)
    }

    /// Sets whether a seat has a permit. Returns `true` if that changed anything.
    #[inline]
    fn set(&mut self, seat: SeatId, held: bool) -> bool {
        let changes = self.has(seat) != held;
        if changes {
            self.held[seat.0 as usize].store(held, Relaxed);
            self.taken = if held { self.taken + 1 } else { self.taken - 1 };
            self.awakenings += u64::from(held);
            if !held {
                self.batch.release(seat);
            }
        }
        changes
    }

    /// Takes the permit of a seat. Returns `true` if it had one.
    #[inline]
    pub(in super::super) fn release(&mut self, seat: SeatId) -> bool {
        self.set(seat, false)
    }

    /// Takes the permit of a seat whose step may last. It waits for no permit for batch processes
    /// until then, because others would wait behind it. Returns `true` if it had a permit.
    pub(super) fn take_away(&mut self, seat: SeatId) -> bool {
        self.batch.stop_waiting(seat);
        self.release(seat)
    }

    /// Grants a permit to a seat. If no permit is free, takes the permit of another seat.
    #[inline]
    pub(in super::super) fn grant(&mut self, seat: SeatId) {
        if self.free() == 0 {
            self.release_any();
        }
        self.set(seat, true);
    }

    /// Takes the permit of some seat, if any has one. Seats beyond the width come first, because
    /// processes may be bound to the seats below it.
    pub(in super::super) fn release_any(&mut self) -> bool {
        let count = self.held.len() as u32;
        self.turn = self.turn.wrapping_add(1) % count;
        let turn = self.turn;
        let has = |seat: &SeatId| self.has(*seat);
        let extra = (self.width..count).rev().map(SeatId).find(has);
        let any = || (0..count).map(|at| SeatId((turn + at) % count)).find(has);
        extra.or_else(any).is_some_and(|victim| self.release(victim))
    }

    /// Takes the permit of some seat that runs batch processes, as [`release_any`] does.
    ///
    /// [`release_any`]: Self::release_any
    pub(super) fn release_batch(&mut self) -> bool {
        let mut seats = (0..self.held.len() as u32).rev().map(SeatId);
        let victim = seats.find(|&seat| self.batch.counts(seat));
        victim.is_some_and(|victim| self.release(victim))
    }

    /// Loses count of a permit, as a defect.
    pub(in super::super) fn miscount(&mut self) {
        self.taken = self.taken.wrapping_sub(1);
    }
}
