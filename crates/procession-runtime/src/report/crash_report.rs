//! The reports of failed processes that a scheduler keeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use procession_sync::Mutex;

use crate::relations::entries::PidList;
use crate::report::exit_report::ExitReport;
use crate::util::bounded_text::cut;
use crate::{Exit, Pid};

/// The number of reports that a scheduler keeps.
pub(crate) const CRASHES_KEPT: usize = 64;
/// The maximum length in bytes of a text of a panic or an error in a kept report.
pub(crate) const TEXT_MAX: usize = 1024;
/// The maximum length in bytes of any other text in a kept report.
pub(crate) const PART_MAX: usize = 256;

/// The maximum number of return addresses of a backtrace in a kept report.
#[cfg(feature = "door")]
pub(crate) const BACKTRACE_MAX: usize = 128;

/// The report of a failed process, as its scheduler keeps it. [`Reporting`](super::Reporting) has
/// the rules.
///
/// It never contains messages or the state of the process, only their number and type, and has at
/// most 8 KiB, whatever the process had.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CrashReport {
    /// The number of the report: the first failure of the scheduler is 1.
    pub number: u64,
    /// The report of the end. Its texts are cut: the text of the failure after 1024 bytes, all
    /// other texts after 256.
    pub exit: ExitReport,
    /// Number of messages that waited in its mailbox.
    pub waiting: u32,
    /// The type of its messages.
    pub message: &'static str,
    /// The processes that it was spawned by, the nearest first, as far as they still existed.
    pub ancestors: Vec<Pid>,
    /// The processes that it was linked with.
    pub links: PidList,
    /// The processes that monitored it.
    pub monitors: PidList,
    /// The process that supervises it, if there is one.
    pub supervisor: Option<Pid>,
    /// The answer of the supervisor. `None` until it has answered, and without a supervisor.
    pub answer: Option<SupervisorAnswer>,
    /// The return addresses of the stack of the panic, the innermost first.
    #[cfg(feature = "door")]
    pub(crate) panic_stack: Vec<usize>,
    /// When it failed, on the clock of the scheduler.
    pub(crate) at: u64,
}

/// What a supervisor did about a failed child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SupervisorAnswer {
    /// It restarts the child.
    #[non_exhaustive]
    Restarts {
        /// Number of restarts within the period, including this restart.
        restart: u32,
        /// The restarts that are tolerated within any period.
        intensity: u32,
        /// The time for which it waits before the restart.
        wait: Duration,
    },
    /// It ends, because its restart limit is exceeded.
    GaveUp,
}

/// Returns the exit with a text that fits into a kept report.
pub(crate) fn cut_exit(exit: &Exit) -> Exit {
    match exit {
        Exit::Panicked(text) if text.len() > TEXT_MAX => Exit::Panicked(cut(text, TEXT_MAX).into()),
        Exit::Failed(text) if text.len() > TEXT_MAX => Exit::Failed(cut(text, TEXT_MAX).into()),
        Exit::Disconnected(text) if text.len() > TEXT_MAX => {
            Exit::disconnected(cut(text, TEXT_MAX))
        }
        Exit::GaveUp(text) if text.len() > TEXT_MAX => Exit::GaveUp(cut(text, TEXT_MAX).into()),
        Exit::NameLost(text) if text.len() > TEXT_MAX => Exit::NameLost(cut(text, TEXT_MAX).into()),
        exit => exit.clone(),
    }
}

/// The last reports of a scheduler.
#[derive(Debug, Default)]
pub(crate) struct CrashLog(Mutex<KeptCrashes>);

#[derive(Debug, Default)]
struct KeptCrashes {
    last: VecDeque<Arc<CrashReport>>,
    count: u64,
}

impl CrashLog {
    /// Keeps a report, and assigns a number to it. If the maximum is exceeded, forgets the oldest
    /// report.
    pub(crate) fn keep(&self, report: CrashReport) {
        let mut report = Arc::new(report);
        let mut kept = self.0.lock();
        kept.count += 1;
        Arc::make_mut(&mut report).number = kept.count;
        let oldest = if kept.last.len() == CRASHES_KEPT { kept.last.pop_front() } else { None };
        kept.last.push_back(report);
        drop(kept);
        drop(oldest);
    }

    /// Adds the answer of the supervisor to the report of a process, if it is kept.
    pub(crate) fn answer(&self, process: Pid, answer: SupervisorAnswer) {
        let mut kept = self.0.lock();
        if let Some(report) = kept.last.iter_mut().rev().find(|report| report.exit.pid == process) {
            Arc::make_mut(report).answer = Some(answer);
        }
    }

    /// Returns the kept reports, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<CrashReport>> {
        self.0.lock().last.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
