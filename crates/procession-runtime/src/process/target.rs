//! The process that another process waits for.

use std::num::NonZeroU32;

/// The process that another process waits for: its slot and generation, in the same scheduler. It
/// keeps nothing alive, and is only shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitTarget(u64);

impl WaitTarget {
    /// It is not known, or belongs to another scheduler.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// Code that is no process: a future in `block_on`, such as the body of a test, or a thread.
    pub(crate) const OUTSIDE: Self = Self(1 << 32);

    pub(crate) fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(slot) << 32 | u64::from(generation))
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Returns the slot, or what stands in its place.
    pub(crate) fn slot_bits(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the slot and the generation, if they are known.
    pub(crate) fn slot(self) -> Option<(u32, NonZeroU32)> {
        Some(((self.0 >> 32) as u32, NonZeroU32::new(self.0 as u32)?))
    }
}
