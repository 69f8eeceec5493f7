//! Moments on the clocks of schedulers.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::{Duration, Instant as StdInstant};

use crate::sys::{World, nanoseconds};

/// A moment on the clock of a scheduler.
///
/// All schedulers with the real clock share one time scale, so their instants can be compared. Each
/// test clock has a separate time scale.
///
/// ```
/// use std::time::Duration;
/// use procession::time::Instant;
/// use procession::{Scheduler, sleep};
///
/// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     let begin = Instant::now();
///     sleep(Duration::from_secs(90)).await;
///     assert_eq!(begin.elapsed(), Duration::from_secs(90));
///     assert_eq!(Instant::now() - begin, Duration::from_secs(90));
/// });
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
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

    #[cfg(any(feature = "hyper", feature = "serde", feature = "signal"))]
    pub(crate) fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Returns the time since this moment, or zero if this moment is in the future. Reads the same
    /// clock as [`now`](Self::now).
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later. It never
    /// panics.
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The same as [`duration_since`](Self::duration_since), under the name that std has for it.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }

    /// Returns the moment of std's clock that is the same, or `None` if std's type cannot represent
    /// it, or the scheduler of this thread has no real clock. A test clock moves independently of
    /// std's clock, so their moments cannot be compared.
    ///
    /// The two clocks are the same clock of the system. They are compared once in a program, so
    /// the result is off by the time between two readings, usually less than 1 us, and always by
    /// the same time.
    ///
    /// ```
    /// use procession::time::Instant;
    ///
    /// let deadline = Instant::now() + std::time::Duration::from_secs(5);
    /// let for_std = deadline.into_std().expect("the default scheduler has the real clock");
    /// assert!(for_std > std::time::Instant::now());
    /// assert_eq!(Instant::from_std(for_std), Some(deadline));
    /// ```
    pub fn into_std(self) -> Option<StdInstant> {
        if crate::scheduler::owner::here().world.is_real() { World::to_std(self.0) } else { None }
    }

    /// Returns the moment that is the same as `moment` of std's clock, or `None` if the scheduler
    /// of this thread has no real clock. See [`into_std`](Self::into_std).
    ///
    /// A moment before the start of the system becomes the start of the system.
    pub fn from_std(moment: StdInstant) -> Option<Self> {
        let is_real = crate::scheduler::owner::here().world.is_real();
        is_real.then(|| Self(World::from_std(moment)))
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

    /// Returns the time between the two, as [`duration_since`](Self::duration_since) does.
    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Returns the moment before `duration`, but no moment before the start of the clock: of the
    /// system, or of the scheduler if it has a test clock. (std panics there.)
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instant({:?})", Duration::from_nanos(self.0))
    }
}
