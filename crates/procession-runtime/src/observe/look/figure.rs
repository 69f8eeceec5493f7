//! The figures of one process.

use std::panic::Location;
use std::time::Duration;

use crate::observe::look::query::SortKey;
use crate::observe::process_info::MemoryUse;
use crate::observe::process_state::ProcessState;
use crate::process::wait_reason::Waiting;
use crate::scheduler::stalls::samples::SampleSum;

/// The figures of one process that a look reads in its pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessFigures {
    pub(crate) state: ProcessState,
    /// The reasons of its wait, if it waits.
    pub(crate) waiting: Option<Waiting>,
    /// Where it waits, if that is known.
    pub(crate) waited_at: Option<&'static Location<'static>>,
    pub(crate) mailbox: u32,
    pub(crate) growth: i64,
    pub(crate) steps: u32,
    pub(crate) samples: SampleSum,
    pub(crate) memory: MemoryUse,
    pub(crate) at_least: Duration,
}

impl ProcessFigures {
    /// Returns the figure that rows are sorted by.
    pub(crate) fn rank(&self, key: SortKey) -> i64 {
        let whole = |figure: u64| i64::try_from(figure).unwrap_or(i64::MAX);
        match key {
            SortKey::Samples => whole(self.samples.time),
            SortKey::Steps => self.steps.into(),
            SortKey::Mailbox => self.mailbox.into(),
            SortKey::Growth => self.growth,
            SortKey::WaitAge => i64::try_from(self.at_least.as_nanos()).unwrap_or(i64::MAX),
            SortKey::Memory => whole(self.memory.total() as u64),
        }
    }
}
