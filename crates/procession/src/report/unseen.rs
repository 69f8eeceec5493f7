//! The panics of a test that nobody has seen.

use procession_sync::Mutex;

use crate::Pid;
use crate::process::slot::Slot;
use crate::relations::links;
use crate::report::exit_report::ExitReport;

/// The panics of processes for which no monitor, link or supervisor exists, and whose results were
/// not taken.
#[derive(Debug, Default)]
pub(crate) struct UnseenPanics(Mutex<Vec<(Pid, String)>>);

impl UnseenPanics {
    /// Notes a process that panics, unless another process learns of its end.
    pub(crate) fn note(&self, slot: &Slot, report: &ExitReport) {
        let relations = links::overview(slot);
        let is_watched = relations.links.total + relations.monitors.total > 0;
        if !is_watched && relations.supervisor.is_none() {
            self.0.lock().push((slot.pid(), report.to_string()));
        }
    }

    /// Forgets the panic of a process whose result was taken.
    pub(crate) fn forget(&self, pid: Pid) {
        self.0.lock().retain(|(unseen, _)| *unseen != pid);
    }

    /// Takes the reports of the panics, in their order.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).into_iter().map(|(_, report)| report).collect()
    }
}
