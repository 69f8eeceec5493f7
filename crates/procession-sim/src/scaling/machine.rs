//! The machine of a model, and the costs of the runtime's operations on it.

use std::time::Duration;

/// A machine with as many processors as there are workers: the time that a cache line needs from
/// one processor to another, and that a thread needs to wake.
///
/// Processors are numbered as the workers are. Neighbours form groups that share a cache, and
/// groups form sockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Processors in a group.
    pub group: u32,
    /// Processors in a socket.
    pub socket: u32,
    /// The time in nanoseconds in which a line moves between two processors of a group.
    pub near: f64,
    /// The same between two groups of a socket.
    pub far: f64,
    /// The same between two sockets.
    pub remote: f64,
    /// The time in nanoseconds for which a thread is busy when it wakes another.
    pub unpark: f64,
    /// The time in nanoseconds from then on, or from a deadline, until the woken thread runs.
    pub wake: f64,
    /// The time in nanoseconds for which a lock of the runtime is held.
    pub hold: f64,
    /// The time in nanoseconds that one read of the clock takes.
    pub clock: f64,
}

impl Machine {
    /// A processor with one cache for all cores: every line needs 51 ns, as between two cores of an
    /// Intel Xeon Platinum 8375C with 32 cores. A second socket, from worker 32 on, is 108 ns away.
    pub const ONE_CACHE: Self =
        Self { group: 32, socket: 32, near: 51.0, far: 51.0, remote: 108.0, ..Self::EIGHT_A_CACHE };

    /// A processor with a cache for each eight cores: a line needs 23 ns within such a group, and
    /// 107 ns between two groups, as on an AMD EPYC 7R13. All 64 workers are on one socket.
    pub const EIGHT_A_CACHE: Self = Self {
        group: 8,
        socket: 64,
        near: 23.0,
        far: 107.0,
        remote: 197.0,
        unpark: 1500.0,
        wake: 5000.0,
        hold: 20.0,
        clock: 20.0,
    };

    /// Returns the time in nanoseconds that a line needs between two processors.
    pub(super) fn transfer(&self, from: u32, to: u32) -> f64 {
        if from == to {
            0.0
        } else if from / self.group == to / self.group && from / self.socket == to / self.socket {
            self.near
        } else if from / self.socket == to / self.socket {
            self.far
        } else {
            self.remote
        }
    }
}

/// The time in nanoseconds that the runtime's operations take on a thread that shares nothing with
/// others, and that no other thread delays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// A dispatch, with a step that does nothing.
    pub step: f64,
    /// The start and the end of a process, without its steps.
    pub spawn: f64,
    /// A wake-up of a process by another.
    pub wake: f64,
    /// A message, on the side of its sender, without a wake-up.
    pub send: f64,
    /// A message, on the side of its receiver.
    pub receive: f64,
    /// A poll of a join handle.
    pub join: f64,
    /// A timer that is set and deleted.
    pub timer: f64,
}

/// Nanoseconds in the unit of the engine's clocks, a picosecond.
pub(super) fn picoseconds(nanoseconds: f64) -> u64 {
    (nanoseconds * 1000.0) as u64
}

/// A duration in the unit of the engine's clocks.
pub(super) fn picoseconds_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000)
}
