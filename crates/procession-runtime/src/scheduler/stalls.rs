//! The state that the watchdog and its scheduler share.

pub(crate) mod samples;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::watchdog::park::WatchdogPark;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64};

use crate::Pid;
use crate::scheduler::stalls::samples::SampleTable;
use crate::sys::alarm::Alarm;
use crate::sys::nanoseconds;

/// Nanoseconds between two looks while a worker runs: a quarter of the default `stall_after`, so
/// that a stall is noticed at most a quarter late.
pub(crate) const LOOK_EVERY: u64 = 2_500_000;

/// What the thread of a stalled worker did during the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallKind {
    /// It waited in the kernel: for a lock, for input, for a time to pass.
    Blocked,
    /// It used the processor.
    Computing,
}

/// A step that exceeds its time. See [`Builder::on_stall`](crate::Builder::on_stall).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The number of its worker.
    pub worker: u32,
    /// The process in its step. `None` if the step ended while this was written, and so are the
    /// next two.
    pub pid: Option<Pid>,
    /// The label of the process, if it has one.
    pub label: Option<String>,
    /// Where the process was spawned.
    pub location: Option<&'static Location<'static>>,
    /// The least time that the step has lasted.
    pub duration: Duration,
    /// What the thread did.
    pub kind: StallKind,
    /// `true` if the worker's permit was given to another worker, because work was waiting.
    pub replaced: bool,
    /// `true` if a process was taken out of its LIFO slot.
    pub lifo_slot: bool,
    /// Number of processes queued behind it, for other workers to take.
    pub queued: usize,
    /// Number of other coroutines and local processes that only this worker can run, because they
    /// have begun on it. If the step waits for a lock that such a process [holds while it is
    /// suspended](crate::coroutine#locks), no such process ever continues.
    pub held_up: usize,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            StallKind::Blocked => "is blocked",
            StallKind::Computing => "computes",
        };
        write!(f, "worker {} {what} since {} ms", self.worker, self.duration.as_millis())?;
        if let Some(pid) = self.pid {
            write!(f, " in process {pid}")?;
        }
        if let Some(label) = &self.label {
            write!(f, " ({label})")?;
        }
        if let Some(location) = self.location {
            write!(f, ", spawned at {location}")?;
        }
        if self.held_up > 0 {
            let count = self.held_up;
            write!(f, ", and holds up {count} others that only this worker can run")?;
        }
        Ok(())
    }
}

/// The findings of the watchdog of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallSnapshot {
    /// Number of stalled steps in which the thread waited.
    pub blocked: u64,
    /// Number of stalled steps in which the thread computed.
    pub computing: u64,
    /// Number of times a stalled worker's permit was given to another worker.
    pub replaced: u64,
    /// Number of processes taken out of the LIFO slots of stalled workers.
    pub lifo_slots: u64,
    /// Number of stalls that were not reported, because more stalls happened at the same time than
    /// are reported.
    pub unreported: u64,
    /// Number of looks of the watchdog.
    pub looks: u64,
    /// Number of times a woken worker was not there after 100 us, because the system let its thread
    /// wait, or start, for so long. The scheduler then stopped relying on it.
    pub late: u64,
    /// Number of stalls in which the system did not report the state of the thread, because no
    /// descriptors were left or there is no `/proc`. The processor time alone decided whether such
    /// a thread blocks or computes.
    pub guessed: u64,
    /// Number of threads that the watchdog can ask about, whatever becomes of `/proc` and of the
    /// limit on descriptors. Each takes one descriptor; at most 16 threads have one.
    pub watched_threads: u64,
}

/// Returns the builder's `stall_after` in nanoseconds, but at least two looks: a shorter stall
/// cannot be seen.
pub(crate) fn stall_after(duration: Duration) -> u64 {
    nanoseconds(duration).max(2 * LOOK_EVERY)
}

pub(crate) type StallObserver = Arc<dyn Fn(&Stall) + Send + Sync>;

/// The builder's options for the watchdog.
pub(crate) struct WatchdogOptions {
    pub(crate) is_on: bool,
    pub(crate) stall_after: u64,
    /// Maximum number of computing workers that may be replaced at the same time.
    pub(crate) max_computing: usize,
    pub(crate) on_stall: Option<StallObserver>,
}

/// The state that the scheduler and its watchdog share.
pub(crate) struct Watchdog {
    pub(crate) options: WatchdogOptions,
    pub(crate) alarm: Alarm,
    pub(crate) park: WatchdogPark,
    pub(crate) is_started: AtomicBool,
    pub(crate) counts: StallCounts,
    pub(crate) samples: SampleTable,
}

#[derive(Default)]
pub(crate) struct StallCounts {
    pub(crate) blocked: AtomicU64,
    pub(crate) computing: AtomicU64,
    pub(crate) replaced: AtomicU64,
    pub(crate) lifo_slots: AtomicU64,
    pub(crate) unreported: AtomicU64,
    pub(crate) looks: AtomicU64,
    late: AtomicU64,
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
            samples: SampleTable::default(),
        }
    }

    /// Takes the observer, to be dropped.
    pub(crate) fn take_observer(&mut self) -> Option<StallObserver> {
        self.options.on_stall.take()
    }

    pub(crate) fn counts(&self) -> StallSnapshot {
        let counts = &self.counts;
        StallSnapshot {
            blocked: counts.blocked.load(Relaxed),
            computing: counts.computing.load(Relaxed),
            replaced: counts.replaced.load(Relaxed),
            lifo_slots: counts.lifo_slots.load(Relaxed),
            unreported: counts.unreported.load(Relaxed),
            looks: counts.looks.load(Relaxed),
            late: counts.late.load(Relaxed),
            guessed: counts.guessed.load(Relaxed),
            watched_threads: counts.files.load(Relaxed),
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
