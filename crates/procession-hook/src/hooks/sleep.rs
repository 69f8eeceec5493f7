//! Sleeps.

use std::ffi::{c_int, c_uint};
use std::time::Duration;

use libc::{CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, TIMER_ABSTIME, timespec, useconds_t};
use procession::time::Instant;

use super::{deadline_in, duration_of, to_timespec};
use crate::wait::{self, Refused, block, is_possible, may_wait};
use crate::{errno, real};

/// After so long at the latest, a sleep sees that its clock was set.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Sleeps until `deadline`. If the coroutine is cancelled or terminated, returns the time that is
/// left.
fn until(deadline: Option<Instant>) -> Result<(), Duration> {
    let entry = errno::get();
    let slept = wait::sleep_until(deadline);
    errno::set(entry);
    slept.map_err(|Refused| match deadline {
        Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        None => Duration::MAX,
    })
}

/// Sleeps for the time of `nanosleep` and its kin. Returns an error number, or 0.
///
/// # Safety
/// `rest` is null, or there is room for a time.
unsafe fn relative(duration: Duration, rest: *mut timespec) -> c_int {
    match until(deadline_in(duration)) {
        Ok(()) => 0,
        Err(left) => {
            // SAFETY: by the caller.
            if let Some(rest) = unsafe { rest.as_mut() } {
                *rest = to_timespec(left);
            }
            libc::ECANCELED
        }
    }
}

/// # Safety
/// The contract of `nanosleep(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(duration: *const timespec, rest: *mut timespec) -> c_int {
    // SAFETY: by the caller.
    let plain = || unsafe { real::nanosleep(duration, rest) };
    if !is_possible() {
        return plain();
    }
    // SAFETY: by the caller.
    let Some(length) = unsafe { duration.as_ref() }.and_then(duration_of) else { return plain() };
    if !may_wait() {
        return block(plain);
    }
    // SAFETY: by the caller.
    match unsafe { relative(length, rest) } {
        0 => 0,
        number => errno::fail(number),
    }
}

/// # Safety
/// The contract of `clock_nanosleep(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    duration: *const timespec,
    rest: *mut timespec,
) -> c_int {
    // SAFETY: by the caller.
    let plain = || unsafe { real::clock_nanosleep(clock, flags, duration, rest) };
    let is_known = matches!(clock, CLOCK_MONOTONIC | CLOCK_REALTIME | CLOCK_BOOTTIME);
    if !is_known || !is_possible() {
        return plain();
    }
    // SAFETY: by the caller.
    let Some(time) = unsafe { duration.as_ref() }.and_then(duration_of) else { return plain() };
    if !may_wait() {
        return block(plain);
    }
    if flags & TIMER_ABSTIME == 0 {
        // SAFETY: by the caller.
        return unsafe { relative(time, rest) };
    }
    // Computed again after each sleep, because the clock may have been set during the sleep, or the
    // system may have been suspended.
    while let Some(left) = time_until(clock, time) {
        let part = if clock == CLOCK_MONOTONIC { left } else { left.min(LOOK_AGAIN) };
        let begun = time_of(CLOCK_MONOTONIC);
        if until(deadline_in(part)).is_err() {
            return libc::ECANCELED;
        }
        // A test clock does not wait for the system's clocks, so these have no say.
        if time_of(CLOCK_MONOTONIC).saturating_sub(begun) < part {
            return until(deadline_in(left - part)).map_or(libc::ECANCELED, |()| 0);
        }
    }
    0
}

/// Returns what a clock of the system shows.
fn time_of(clock: c_int) -> Duration {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    // A clock may have been set to a time before its zero.
    duration_of(&now).unwrap_or_default()
}

/// Returns how long it takes until a clock shows `time`, or `None` if it has shown it.
fn time_until(clock: c_int, time: Duration) -> Option<Duration> {
    time.checked_sub(time_of(clock)).filter(|left| !left.is_zero())
}

/// # Safety
/// None.
#[unsafe(no_mangle)]
unsafe extern "C" fn usleep(duration: useconds_t) -> c_int {
    if !is_possible() || !may_wait() {
        // SAFETY: it has no preconditions.
        return unsafe { real::usleep(duration) };
    }
    match until(deadline_in(Duration::from_micros(duration.into()))) {
        Ok(()) => 0,
        Err(_) => errno::fail(libc::ECANCELED),
    }
}

/// # Safety
/// None.
#[unsafe(no_mangle)]
unsafe extern "C" fn sleep(duration: c_uint) -> c_uint {
    if !is_possible() || !may_wait() {
        // SAFETY: it has no preconditions.
        return unsafe { real::sleep(duration) };
    }
    match until(deadline_in(Duration::from_secs(duration.into()))) {
        Ok(()) => 0,
        Err(left) => {
            errno::set(libc::ECANCELED);
            // A part of a second counts as one, so that what is left is not taken for nothing.
            (left.as_secs() + u64::from(left.subsec_nanos() > 0)).min(duration.into()) as c_uint
        }
    }
}

/// # Safety
/// The contract of `nanosleep(2)`. An alias that the C library exports.
#[unsafe(no_mangle)]
unsafe extern "C" fn __nanosleep(duration: *const timespec, rest: *mut timespec) -> c_int {
    // SAFETY: by the caller.
    unsafe { nanosleep(duration, rest) }
}
