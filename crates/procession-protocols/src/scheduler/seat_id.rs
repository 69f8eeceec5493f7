//! The number of a seat, and the deadline that never comes.

/// The number of a worker's seat in its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatId(pub u32);

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;
