//! The number of a worker, and the deadline that never comes.

/// A worker's place: its number in the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatId(pub(crate) u32);

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;
