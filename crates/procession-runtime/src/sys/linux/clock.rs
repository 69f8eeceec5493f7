//! The monotonic clock.

/// Returns the system's monotonic clock in nanoseconds. All real worlds share it, and on Linux std
/// reads the same clock. The number needs no conversion: a reading takes 23.5 ns, and 27 ns with
/// std.
#[inline]
pub(in crate::sys) fn monotonic() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the world is the home of the clock")]
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The clock begins at 0 when the system starts. So neither part is negative, and 500 years fit.
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
