//! The answers of looks.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::observe::process_info::ProcessInfo;
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
    pub rows: Vec<ProcessInfo>,
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

/// The processes that share a property.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessGroup {
    /// The location of the spawns, or of the waits, if the processes are grouped by that location.
    pub location: Option<&'static Location<'static>>,
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
