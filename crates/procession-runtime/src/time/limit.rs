//! The error of a timer for which there is no room.

use std::error::Error;
use std::fmt;

use crate::util::exclusive::Exclusive;

/// The error of a timer that was refused because the scheduler has reached its limit of timers, or
/// has ended. It holds the value that was refused.
pub struct TimerLimit<T>(Exclusive<T>);

impl<T> TimerLimit<T> {
    pub(super) fn new(refused: T) -> Self {
        Self(Exclusive::new(refused))
    }

    /// Returns the value that was refused.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> fmt::Debug for TimerLimit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimerLimit(..)")
    }
}

impl<T> fmt::Display for TimerLimit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the scheduler has reached its limit of timers")
    }
}

impl<T> Error for TimerLimit<T> {}
