//! Claimed seats with a worker that does not run yet.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::fence;

use super::places::{Parking, Place};
use crate::scheduler::idle::word::{IdleWord, SEARCHING_ONE};
use crate::scheduler::idle::{Idle, mutation};
use crate::scheduler::seat_id::SeatId;

/// How long a woken worker may be on its way before other workers stop relying on it. Most workers
/// run within 20 us; one in a hundred takes up to 60.
pub(in super::super) const LATE: u64 = 100_000;

/// Takes a seat out of a list, and returns whether it was there.
#[inline]
fn take_out(list: &mut Vec<SeatId>, seat: SeatId) -> bool {
    let at = list.iter().position(|&other| other == seat);
    at.map(|at| list.swap_remove(at)).is_some()
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// Notes under the lock that a seat was claimed, and counted as searching.
    pub(super) fn note_claimed(&self, parking: &mut Parking, seat: SeatId) {
        debug_assert!(
            !parking.coming.contains(&seat) && !parking.late.contains(&seat),
            "[coming] a claimed seat comes first"
        );
        // Relaxed, as all uses: if a time is seen late, a worker is late later, or one more worker
        // than needed is woken.
        self.since[seat.0 as usize].store(u64::MAX, Relaxed);
        parking.coming.push(seat);
        self.note_coming(parking);
    }

    /// Notes under the lock that the list of coming seats has changed.
    fn note_coming(&self, parking: &Parking) {
        let earliest = parking.coming.iter().map(|&seat| self.is_woken_since(seat)).min();
        // Relaxed, as all uses of both: hints.
        self.coming_since.store(earliest.unwrap_or(u64::MAX), Relaxed);
        self.coming.store(parking.coming.len() as u32, Relaxed);
    }

    /// Returns the time since which a claimed seat is being woken.
    pub(in super::super) fn is_woken_since(&self, seat: SeatId) -> u64 {
        self.since[seat.0 as usize].load(Relaxed)
    }

    /// Notes that the worker of a claimed seat is being woken.
    pub fn note_waking(&self, seat: SeatId, now: u64) {
        self.since[seat.0 as usize].store(now, Relaxed);
        if self.coming_since.load(Relaxed) == u64::MAX {
            self.coming_since.store(now, Relaxed);
        }
    }

    /// `Start`: returns `true` if the caller is to start a thread for a vacant seat that it has
    /// claimed. Returns `false` if the claim is over, or another thread does it.
    pub fn begin_start(&self, seat: SeatId) -> bool {
        if mutation::is(MUTATION, mutation::START_BLINDLY) {
            return true;
        }
        let parking = &mut self.seats.lock().parking;
        let is_claimed = parking.coming.contains(&seat) || parking.late.contains(&seat);
        let starts = is_claimed && !parking.starting.contains(&seat);
        if starts {
            parking.starting.push(seat);
        }
        starts
    }

    /// Notes under the lock that the worker of a claimed seat runs. Returns the change of the
    /// number of searchers.
    pub(super) fn arrive(&self, parking: &mut Parking, seat: SeatId) -> i64 {
        take_out(&mut parking.starting, seat);
        if take_out(&mut parking.coming, seat) {
            self.note_coming(parking);
            return 0;
        }
        i64::from(
            take_out(&mut parking.late, seat) && !mutation::is(MUTATION, mutation::COME_UNCOUNTED),
        )
    }

    /// `Come`, by the worker of a seat that may have been claimed. Returns `true` if it was; the
    /// worker is then counted as searching.
    pub fn come(&self, seat: SeatId) -> bool {
        let parking = &mut self.seats.lock().parking;
        if parking.place(seat) == Place::Parked {
            return false;
        }
        if self.arrive(parking, seat) > 0 {
            self.counts.fetch_add(SEARCHING_ONE, Relaxed);
        }
        true
    }

    /// `WriteOff`: returns how many seats have become late. If there are any, the caller continues
    /// with `Recheck` for what others have queued.
    pub fn write_off(&self, now: u64) -> u32 {
        // Relaxed: a seat that has just been claimed is found in time at the next look.
        if self.coming.load(Relaxed) == 0 {
            return 0;
        }
        let mut seats = self.seats.lock();
        let Parking { coming, late, .. } = &mut seats.parking;
        let before = late.len();
        coming.retain(|&seat| {
            let since = &self.since[seat.0 as usize];
            let is_unknown = since.load(Relaxed) == u64::MAX;
            if is_unknown {
                // Its claimer has not woken it yet.
                since.store(now, Relaxed);
            }
            let is_late = now >= since.load(Relaxed).saturating_add(LATE);
            if is_late {
                late.push(seat);
            }
            !is_late
        });
        let count = (late.len() - before) as u32;
        self.note_coming(&seats.parking);
        self.counts.fetch_sub(u64::from(count) * SEARCHING_ONE, Relaxed);
        drop(seats);
        if !mutation::is(MUTATION, mutation::WRITE_OFF_WITHOUT_FENCE) {
            fence(SeqCst);
        }
        count
    }

    /// `WriteOff` by a publisher that has found a worker searching. Reads the clock only if this
    /// might help.
    pub fn write_off_if_late(&self, now: impl FnOnce() -> u64) -> u32 {
        if self.coming.load(Relaxed) == 0 || IdleWord(self.counts.load(Relaxed)).spare() == 0 {
            return 0;
        }
        let now = now();
        if now < self.coming_since.load(Relaxed).saturating_add(LATE) {
            0
        } else {
            self.write_off(now)
        }
    }
}
