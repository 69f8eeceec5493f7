//! The answers of looks.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::Pid;
use crate::observe::process_state::ProcessState;
use crate::process::wait_reason::Waiting;
use crate::scheduler::stalls::samples::SampleSum;
use crate::time::Instant;

/// The answer to a [`Query`](super::query::Query).
///
/// Each figure is true at some moment during the look, but not all at the same moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct View {
    /// When the look began, on the clock of the scheduler. `None` only in a default view.
    pub at: Option<Instant>,
    /// The time since the earlier view that the figures are differences to, if there is one.
    pub window: Option<Duration>,
    /// Number of processes of the scheduler.
    pub processes: u64,
    /// Number of processes that the query is about.
    pub matched: u64,
    /// Number of times that the watchdog has looked at the workers: since the scheduler was built,
    /// or in the window.
    pub looks: u64,
    /// The processes, in the order of the query's key.
    pub rows: Vec<ProcessRow>,
    /// The groups of all processes that the query is about, the largest first by the query's key.
    pub groups: Vec<ProcessGroup>,
    /// Number of processes in groups that are not in the list, because the list is limited.
    pub left_off: u64,
    pub(crate) baseline: Arc<Baseline>,
}

impl View {
    /// Returns what differences to later views need.
    #[cfg(feature = "door")]
    pub(crate) fn without_rows(self) -> Self {
        Self { rows: Vec::new(), groups: Vec::new(), ..self }
    }
}

/// The figures of a look that differences are made from. Bounded, whatever the number of processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    /// The number of looks of the watchdog.
    pub(crate) looks: u64,
    /// The time of the first look.
    pub(crate) began: Option<u64>,
    /// The samples, by process.
    pub(crate) samples: Figures<SampleSum>,
    /// The longest mailboxes, by process.
    pub(crate) mailboxes: Figures<u64>,
    /// Received messages and steps of the rows, by process.
    pub(crate) rows: Vec<(ProcessKey, (u32, u32))>,
}

/// A process of a known scheduler: its slot and its generation.
pub(crate) type ProcessKey = (u32, u32);

/// A figure of each of some processes, sorted by process.
pub(crate) type Figures<T> = Vec<(ProcessKey, T)>;

/// A process, as a look finds it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessRow {
    /// Its PID.
    pub pid: Pid,
    /// The process that spawned it, if it belongs to the same scheduler.
    pub parent: Option<Pid>,
    /// Its label, if it has one, cut after 120 characters.
    pub label: Option<String>,
    /// Where it was spawned.
    pub place: &'static Location<'static>,
    /// `async`, `local`, `machine` or `coroutine`.
    pub kind: &'static str,
    /// Its state.
    pub state: ProcessState,
    /// `true` if it is [suspended](crate::Scheduler::suspend).
    pub suspended: bool,
    /// What it waits for, if it waits.
    pub wait: Option<ProcessWait>,
    /// Number of messages that wait in its mailbox.
    pub mailbox: u32,
    /// Number of messages by which the mailbox has grown in the window. 0 without a window.
    pub growth: i64,
    /// The greatest length of the mailbox so far.
    pub mailbox_high_water: u32,
    /// Number of messages received since its start, modulo 2^32.
    pub received: u32,
    /// Number of messages received in the window. `None` without a window, or if the earlier view
    /// has no row of the process.
    pub received_in_window: Option<u32>,
    /// Number of dispatches since its start, modulo 2^32.
    pub steps: u32,
    /// Number of dispatches in the window. `None` without a window, or if the earlier view has no
    /// row of the process.
    pub steps_in_window: Option<u32>,
    /// The processor time, since the start of the process or in the window.
    pub samples: Samples,
    /// The memory that it takes, as far as it is known.
    pub memory: MemoryUse,
}

/// The processor time of a process, by samples. If the watchdog finds a worker in a step of the
/// process, the sample counts for the time since the watchdog's previous look.
///
/// Blocking sections do not count. Without a watchdog, there are no samples: on a test clock, and
/// if [`Builder::watchdog`](crate::Builder::watchdog) is off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Samples {
    /// Number of looks that found it running.
    pub count: u64,
    /// The processor time that these looks stand for.
    pub time: Duration,
    /// The share of one processor that it used: a fraction of the window, or of the time since the
    /// first look.
    pub share: f64,
    /// The standard error of the share.
    pub error: f64,
}

/// A wait of a process.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProcessWait {
    /// The reasons, perhaps several.
    pub reasons: Waiting,
    /// Where the program waits: the call that made the future. If it waits for several things, this
    /// is the last call. A handle that is awaited itself shows the place of the spawn, and a
    /// oneshot channel the call that made it. `None` if the future does not belong to the runtime,
    /// and for the handle of a job of a pool.
    pub place: Option<&'static Location<'static>>,
    /// The process that it waits for, if that is known: the callee of a call, the process that is
    /// to end, the holder of a lock, the owner of a full mailbox.
    pub target: Option<Pid>,
    /// The time for which it has waited at least: since the first look of the watchdog, or of the
    /// program, that found it in this wait.
    pub at_least: Duration,
    /// `true` if the process waits, directly or through others, for itself.
    pub in_cycle: bool,
}

/// The memory of a process, in bytes. The heap that its future or its messages own is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The body: the future, the state machine, or the closure of a coroutine.
    pub body: usize,
    /// The messages in the mailbox, without what they own.
    pub mailbox: usize,
    /// The stack, if the process is a coroutine that has begun.
    pub stack: usize,
}

impl MemoryUse {
    /// Returns the sum.
    pub fn total(self) -> usize {
        self.body + self.mailbox + self.stack
    }
}

/// The processes that share a property.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessGroup {
    /// The place of the spawns, or of the waits, if the processes are grouped by that place.
    pub place: Option<&'static Location<'static>>,
    /// Their state, if they are grouped by it.
    pub state: Option<ProcessState>,
    /// What they wait for, if they are grouped by it and wait.
    pub waiting: Option<Waiting>,
    /// Number of processes.
    pub processes: u64,
    /// Sum of the numbers of samples.
    pub samples: u64,
    /// Sum of the processor time, by samples.
    pub time: Duration,
    /// Sum of the steps.
    pub steps: u64,
    /// Sum of the messages that wait.
    pub mailbox: u64,
    /// Sum of the messages by which the mailboxes have grown in the window.
    pub growth: i64,
    /// Sum of the bytes of memory that are known.
    pub memory: u64,
    /// The time for which the process that has waited longest has waited at least.
    pub oldest_wait: Duration,
}
