//! Workers that have no job.

use procession_sync::Arc;

use super::seat::Seat;
use crate::scheduler::driver::NEVER;

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

    pub(super) fn is(&self, seat: &Arc<Seat<J>>) -> bool {
        matches!(self, Self::Parked(own) if Arc::ptr_eq(own, seat))
    }
}
