//! Workers that have no job.

use std::collections::VecDeque;

use procession_sync::Arc;

use super::seat::Seat;
use crate::scheduler::seat_id::NEVER;

/// A worker that has no job.
#[derive(Debug)]
pub(crate) enum Idle<J> {
    /// It waits for an order.
    Parked(Arc<Seat<J>>),
    /// It has no process, and leaves at that time.
    Rests { until: u64, has_begun: bool },
}

impl<J> Idle<J> {
    /// One that rests, and has not begun.
    pub(crate) fn new_resting() -> Self {
        Self::Rests { until: NEVER, has_begun: false }
    }

    pub(super) fn until(&self) -> u64 {
        match self {
            Self::Parked(_) => NEVER,
            Self::Rests { until, .. } => *until,
        }
    }

    fn is(&self, seat: &Arc<Seat<J>>) -> bool {
        matches!(self, Self::Parked(own) if Arc::ptr_eq(own, seat))
    }
}

/// The workers that have no job.
#[derive(Debug)]
pub(super) struct IdleStack<J> {
    /// The worker that became idle last is at the back.
    pub(super) workers: VecDeque<Idle<J>>,
    /// Some that rest may leave before others that began to rest before them, since the keep-alive was changed.
    pub(super) uneven: bool,
}

impl<J> IdleStack<J> {
    pub(super) fn new() -> Self {
        Self { workers: VecDeque::new(), uneven: false }
    }

    pub(super) fn push(&mut self, mut idle: Idle<J>) {
        self.uneven &= !self.workers.is_empty();
        if let Idle::Rests { until, .. } = &mut idle
            && let Some(last) = self.workers.back().filter(|_| !self.uneven)
        {
            // Two that end their jobs at once have not read the clock in the order in which they come here.
            *until = last.until().max(*until);
        }
        self.workers.push_back(idle);
    }

    /// Takes out the worker that parks in this seat, if it is there.
    pub(super) fn remove(&mut self, seat: &Arc<Seat<J>>) {
        if let Some(place) = self.position(seat) {
            self.workers.remove(place);
        }
    }

    /// Where the worker is that parks in this seat, from the bottom.
    pub(super) fn position(&self, seat: &Arc<Seat<J>>) -> Option<usize> {
        self.workers.iter().position(|idle| idle.is(seat))
    }
}
