//! The reasons why a process waits, as its slot has them, and the process that it waits for.

use std::num::NonZeroU32;

use procession_protocols::process::state::WaitPhase;
use procession_sync::atomic::AtomicU16;
use procession_sync::atomic::Ordering::Relaxed;

/// The reasons for which the process in a slot waits. Written by the process only, and by the
/// thread that occupies the slot.
#[derive(Debug, Default)]
pub(crate) struct WaitWord(AtomicU16);

impl WaitWord {
    /// Clears the reasons of the last step.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Adds reasons of this step.
    #[inline]
    pub(crate) fn note(&self, waiting: Waiting) {
        self.0.store(self.0.load(Relaxed) | waiting.bits(), Relaxed);
    }

    /// Removes reasons of this step.
    pub(crate) fn forget(&self, waiting: Waiting) {
        self.0.store(self.0.load(Relaxed) & !waiting.bits(), Relaxed);
    }

    /// Replaces the reasons.
    pub(crate) fn set(&self, waiting: Waiting) {
        self.0.store(waiting.bits(), Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> Waiting {
        Waiting::from_bits(self.0.load(Relaxed))
    }
}

/// The reasons for which a process waits. A process may wait for several reasons at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Waiting(u16);

impl Waiting {
    pub(crate) const MESSAGE: Self = Self(1);
    pub(crate) const TIMER: Self = Self(1 << 1);
    pub(crate) const PROCESS: Self = Self(1 << 2);
    pub(crate) const REPLY: Self = Self(1 << 3);
    pub(crate) const COMPLETION: Self = Self(1 << 4);
    pub(crate) const CANCEL: Self = Self(1 << 5);
    /// Not shown: the `Drop` of the result runs.
    pub(crate) const DROP: Self = Self(1 << 6);
    /// Not shown: a waker was left to be woken before the next step.
    pub(crate) const FOREIGN: Self = Self(1 << 7);
    pub(crate) const CHANNEL: Self = Self(1 << 8);
    pub(crate) const LOCK: Self = Self(1 << 9);
    pub(crate) const TOKEN: Self = Self(1 << 10);
    pub(crate) const ROOM: Self = Self(1 << 11);
    pub(crate) const READABLE: Self = Self(1 << 12);
    pub(crate) const WRITABLE: Self = Self(1 << 13);
    pub(crate) const JOB: Self = Self(1 << 14);
    pub(crate) const STACK: Self = Self(1 << 15);

    /// The reasons for which a process waits for another process that may be known.
    pub(crate) const FOR_ANOTHER: Self =
        Self(Self::PROCESS.0 | Self::REPLY.0 | Self::LOCK.0 | Self::ROOM.0);

    /// The reasons for which a process lends its priority.
    pub(crate) const LENDING: Self = Self(Self::REPLY.0 | Self::LOCK.0);

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the reasons, and adds the reasons that end a wait without its event.
    pub(crate) fn or_end(self) -> Self {
        Self(self.0 | Self::TIMER.0 | Self::CANCEL.0)
    }

    /// Returns `true` if there is exactly one reason.
    pub(crate) fn is_one(self) -> bool {
        self.0.is_power_of_two()
    }

    /// Returns `true` if all reasons are among these.
    pub(crate) fn only(self, these: Self) -> bool {
        self.0 & !these.0 == 0
    }

    pub(crate) fn wait_phase(self) -> WaitPhase {
        if self.has(Self::MESSAGE) { WaitPhase::Idle } else { WaitPhase::Blocked }
    }

    /// Returns only the flags that are not shown.
    pub(crate) fn flags(self) -> Self {
        Self(self.0 & (Self::DROP.0 | Self::FOREIGN.0))
    }

    /// Returns the reasons without the flags that are not shown.
    pub(crate) fn shown(self) -> Self {
        Self(self.0 & !(Self::DROP.0 | Self::FOREIGN.0))
    }
}

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
