//! The number of a seat, and the deadline that never comes.

/// The number of a worker's seat in its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatId(pub(crate) u32);

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;
