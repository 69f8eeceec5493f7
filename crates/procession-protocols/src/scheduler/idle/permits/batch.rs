//! Which seats run batch processes, as it is under the lock.

use std::collections::VecDeque;

use crate::scheduler::levels::mutation;
use crate::scheduler::seat_id::SeatId;

/// What a seat has to do with batch processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BatchSeat {
    /// Its worker runs batch processes.
    is_in_batch: bool,
    /// It does so with a permit, which counts. Only set if the seat has a permit.
    counts: bool,
}

/// Which permits are held for batch processes.
#[derive(Debug)]
pub(in super::super) struct BatchPermits {
    /// The maximum number of such permits, or `None` for the default: all but one.
    pub(super) limit: Option<u32>,
    /// The number of such permits.
    taken: u32,
    seats: Box<[BatchSeat]>,
    /// The seats with a batch process that only they can run, and that found no permit for it,
    /// in the order in which they get one.
    waiting: VecDeque<SeatId>,
}

impl BatchPermits {
    pub(super) fn new(seats: usize) -> Self {
        Self {
            limit: None,
            taken: 0,
            seats: vec![BatchSeat::default(); seats].into(),
            waiting: VecDeque::new(),
        }
    }

    /// Returns the maximum number of permits for batch processes.
    fn most(&self, width: u32) -> u32 {
        if mutation::is(mutation::BUILT, mutation::BATCH_WITHOUT_LIMIT) {
            return u32::MAX;
        }
        self.limit.unwrap_or(width.saturating_sub(1)).max(1)
    }

    /// Returns the number of permits that are left for batch processes.
    fn free(&self, width: u32) -> u32 {
        self.most(width).saturating_sub(self.taken)
    }

    /// Returns `true` if more permits are held for batch processes than may be, because the width
    /// has become smaller.
    pub(super) fn is_exceeded(&self, width: u32) -> bool {
        self.taken > self.most(width)
    }

    /// Returns how many permits are left that no seat waits for.
    pub(in super::super) fn spare(&self, width: u32) -> u32 {
        self.free(width).saturating_sub(self.waiting.len() as u32)
    }

    /// Returns `true` if a seat with a permit may use it for batch processes: there is one left
    /// after those for which others have waited longer.
    pub(super) fn may_begin(&self, seat: SeatId, width: u32) -> bool {
        let before = self.waiting.iter().position(|&other| other == seat);
        let before = before.unwrap_or(self.waiting.len());
        self.counts(seat) || (before as u32) < self.free(width)
    }

    /// Counts the permit of a seat.
    pub(super) fn begin(&mut self, seat: SeatId) {
        self.stop_waiting(seat);
        self.seats[seat.0 as usize].is_in_batch = true;
        self.count(seat);
    }

    fn count(&mut self, seat: SeatId) {
        let seat = &mut self.seats[seat.0 as usize];
        self.taken += u32::from(!seat.counts);
        seat.counts = true;
    }

    /// Notes that a seat waits for a permit, behind all others.
    pub(super) fn wait(&mut self, seat: SeatId) {
        if !self.waits(seat) {
            self.waiting.push_back(seat);
        }
    }

    /// Notes that a seat waits for no permit.
    pub(super) fn stop_waiting(&mut self, seat: SeatId) {
        self.waiting.retain(|&other| other != seat);
    }

    /// Notes that the worker of a seat runs no batch process.
    pub(super) fn end(&mut self, seat: SeatId) {
        self.release(seat);
        self.seats[seat.0 as usize].is_in_batch = false;
    }

    /// Notes that a seat has lost its permit, perhaps within a step of a batch process.
    pub(super) fn release(&mut self, seat: SeatId) {
        let seat = &mut self.seats[seat.0 as usize];
        self.taken -= u32::from(seat.counts);
        seat.counts = false;
    }

    /// Returns `true` if the worker of a seat may get a permit again, within its step.
    pub(super) fn may_resume(&self, seat: SeatId, width: u32) -> bool {
        !self.seats[seat.0 as usize].is_in_batch
            || mutation::is(mutation::BUILT, mutation::RESUME_WITHOUT_LIMIT)
            || self.spare(width) > 0
    }

    /// Notes that a seat has a permit again.
    pub(super) fn resume(&mut self, seat: SeatId) {
        if self.seats[seat.0 as usize].is_in_batch {
            self.count(seat);
        }
    }

    /// Returns `true` if a seat waits for a permit.
    pub(super) fn waits(&self, seat: SeatId) -> bool {
        self.waiting.contains(&seat)
    }

    /// Returns `true` if a seat holds a permit for batch processes.
    pub(super) fn counts(&self, seat: SeatId) -> bool {
        self.seats[seat.0 as usize].counts
    }

    /// Returns `true` if some seat waits for a permit.
    pub(in super::super) fn is_wanted(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the first seat that waits, if there is a permit for it.
    pub(super) fn next(&self, width: u32) -> Option<SeatId> {
        self.waiting.front().copied().filter(|_| self.free(width) > 0)
    }

    /// Returns the number of permits that are held for batch processes.
    pub(in super::super) fn taken(&self) -> u32 {
        self.taken
    }
}
