//! Busy workers, as those are known that wait in their jobs.

use procession_sync::Arc;

use super::seat::Seat;

/// A busy worker. Of those that park, a later one may have the same, when this one has left: what its jobs left waiting elsewhere then counts as
/// if that one's waited, as it did for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Busy(u64);

impl Busy {
    /// Of the workers that park, the one in this seat.
    pub(crate) fn in_seat<J>(seat: &Arc<Seat<J>>) -> Self {
        Self(Arc::as_ptr(seat).addr() as u64)
    }

    /// Of those that rest, the one that has this job.
    pub(crate) fn with_job(ticket: u64) -> Self {
        Self(ticket)
    }
}
