//! The number of a seat, and the deadline of a wait without a deadline.

/// The number of a worker's seat in its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatId(pub u32);

/// A deadline that is never reached.
pub const NEVER: u64 = u64::MAX;
