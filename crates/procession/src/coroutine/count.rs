//! The counts of begun coroutines.

use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::seat_id::SeatId;
use crate::scheduler::shared::Shared;

impl Shared {
    /// Counts a coroutine that has begun: on its seat, if it stays on one.
    pub(crate) fn count_coroutine(&self, seat: Option<SeatId>) {
        let count = seat.map_or(&self.coroutines.migrating, |seat| &self.seat(seat).coroutines);
        count.fetch_add(1, Relaxed);
    }

    /// Uncounts a coroutine that has ended.
    pub(crate) fn uncount_coroutine(&self, seat: Option<SeatId>) {
        let count = seat.map_or(&self.coroutines.migrating, |seat| &self.seat(seat).coroutines);
        count.fetch_sub(1, Relaxed);
    }

    /// Returns `true` if any coroutine has begun and not ended.
    pub(crate) fn has_coroutines(&self) -> bool {
        self.coroutines.migrating.load(Relaxed) > 0
            || self.all_seats().any(|seat| seat.coroutines.load(Relaxed) > 0)
    }
}

#[cfg(test)]
mod tests;
