//! The state that the watchdog and its scheduler share.

use std::time::Duration;

use procession_protocols::watchdog::park::WatchdogPark;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64};

use crate::sys::alarm::Alarm;
use crate::sys::nanoseconds;

/// Nanoseconds between two looks while a worker runs: a quarter of the default `stall_after`, so
/// that a stall is noticed at most a quarter late.
pub(crate) const LOOK_EVERY: u64 = 2_500_000;

/// Returns the builder's `stall_after` in nanoseconds, but at least two looks: a shorter stall
/// cannot be seen.
pub(crate) fn stall_after(duration: Duration) -> u64 {
    nanoseconds(duration).max(2 * LOOK_EVERY)
}

/// The builder's options for the watchdog.
pub(crate) struct WatchdogOptions {
    pub(crate) is_on: bool,
    pub(crate) stall_after: u64,
    /// Maximum number of computing workers that may be replaced at the same time.
    pub(crate) max_computing: usize,
}

/// The state that the scheduler and its watchdog share.
pub(crate) struct Watchdog {
    pub(crate) options: WatchdogOptions,
    pub(crate) alarm: Alarm,
    pub(crate) park: WatchdogPark,
    pub(crate) is_started: AtomicBool,
    pub(crate) counts: StallCounts,
}

#[derive(Default)]
pub(crate) struct StallCounts {
    pub(crate) blocked: AtomicU64,
    pub(crate) computing: AtomicU64,
    pub(crate) replaced: AtomicU64,
    pub(crate) lifo_slots: AtomicU64,
    pub(crate) unreported: AtomicU64,
    pub(crate) looks: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) guessed: AtomicU64,
    pub(crate) files: AtomicU64,
}

impl Watchdog {
    pub(crate) fn new(options: WatchdogOptions) -> Self {
        let is_started = AtomicBool::new(!options.is_on);
        Self {
            alarm: Alarm::new(options.is_on),
            options,
            park: WatchdogPark::default(),
            is_started,
            counts: StallCounts::default(),
        }
    }

    /// Returns `true` if the thread was started, and so writes the beacon while any worker runs.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        // Relaxed: before the thread has started, and if it was refused, workers read the clock
        // more often.
        self.options.is_on && self.is_started.load(Relaxed)
    }

    /// Adds to the number of workers that were woken and did not come.
    pub(crate) fn count_late(&self, count: u32) {
        // Relaxed: statistics.
        self.counts.late.fetch_add(count.into(), Relaxed);
    }

    /// Returns `true` if the watchdog is to look only after `until`, although no sleep has begun.
    #[cfg(feature = "sim")]
    pub(crate) fn pauses_beyond(&self, until: u64) -> bool {
        !self.park.is_sleeping() && self.alarm.is_after(until)
    }

    /// Wakes the watchdog, since the scheduler has ended.
    pub(crate) fn dismiss(&self) {
        self.park.dismiss(|when| self.alarm.set(when));
    }
}
