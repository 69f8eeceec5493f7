//! What the watchdog finds.

pub(crate) mod samples;

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use procession_sync::atomic::Ordering::Relaxed;

use crate::Pid;
use crate::scheduler::workforce::Watchdog;

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

impl Watchdog {
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
}
