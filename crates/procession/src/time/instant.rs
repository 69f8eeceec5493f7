//! Moments on the clocks of schedulers.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::sys::nanoseconds;

/// A moment on the clock of a scheduler.
///
/// All schedulers with the real clock share one time scale, so their instants can be compared. Each
/// test clock has a time scale of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub(super) u64);

impl crate::Outcome for Instant {}

impl Instant {
    /// A moment that no clock reaches: 584 years after the start of the system, or of the scheduler
    /// if it has a test clock.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the current time on the clock of this thread's scheduler. On a thread without a
    /// scheduler, this is the clock of the default scheduler.
    pub fn now() -> Self {
        Self(crate::scheduler::owner::here().world.now())
    }

    pub(crate) fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    #[cfg(any(feature = "hyper", feature = "serde"))]
    pub(crate) fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Returns the moment after `duration`, at most [`Instant::NEVER`].
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(duration)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Returns the time between the two, as
    /// [`saturating_duration_since`](Self::saturating_duration_since) does.
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instant({:?})", Duration::from_nanos(self.0))
    }
}
