//! The monotonic clock.

use std::sync::OnceLock;
use std::time::Instant;

/// Returns the nanoseconds since the first call. std's clock is the only one that its deadlines can
/// be compared with: on macOS, other clocks continue while the machine sleeps.
#[expect(clippy::disallowed_methods, reason = "the world is the home of the clock")]
pub(in crate::sys) fn monotonic() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    crate::sys::nanoseconds(Instant::now().saturating_duration_since(*start))
}
