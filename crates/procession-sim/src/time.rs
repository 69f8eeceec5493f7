//! Virtual time, in nanoseconds.

use std::time::Duration;

pub(crate) const NEVER: u64 = u64::MAX;
pub(crate) const US: u64 = 1000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// The clock at the start of a run. It is not 0, because the machine has run for a while.
pub(crate) const START: u64 = 1000 * SECOND;

/// Returns a duration in its largest unit.
pub(crate) fn duration(nanoseconds: u64) -> String {
    format!("{:?}", Duration::from_nanos(nanoseconds))
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
