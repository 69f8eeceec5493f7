//! The hooks: functions with the names and contracts of the C library's.

mod connect;
mod names;
mod options;
mod poll;
mod read;
mod select;
mod sleep;
mod write;

use std::time::Duration;

use libc::timespec;
use procession::time::Instant;

/// Returns a duration, or `None` if it is not a valid one.
fn duration_of(time: &timespec) -> Option<Duration> {
    let is_valid = time.tv_sec >= 0 && (0..1_000_000_000).contains(&time.tv_nsec);
    is_valid.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Returns the end of a duration that begins now.
fn deadline_in(duration: Duration) -> Option<Instant> {
    Some(Instant::now() + duration)
}

/// Returns the end of a duration that begins now, or `None` if the duration is not valid.
fn deadline_of(time: &timespec) -> Option<Instant> {
    duration_of(time).and_then(deadline_in)
}

fn to_timespec(duration: Duration) -> timespec {
    timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
