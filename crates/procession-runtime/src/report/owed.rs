//! The reports of failed children, until their supervisors learn of the end.

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::Pid;
use crate::report::exit_report::ExitReport;

/// The report of a failed child.
#[derive(Debug)]
pub(crate) struct OwedReport {
    pub(crate) report: ExitReport,
    /// Set if the supervisor reports the failure even if it does not restart the child.
    pub(crate) is_due: bool,
}

/// The reports of failed children that their supervisors have yet to learn of, by supervisor and
/// by child.
#[derive(Debug, Default)]
pub(crate) struct OwedReports(Mutex<SortedMap<Pid, SortedMap<Pid, Box<OwedReport>>>>);

impl OwedReports {
    /// Notes a supervisor that runs.
    pub(crate) fn open(&self, supervisor: Pid) {
        self.0.lock().get_or_default(supervisor);
    }

    /// Leaves a report for a supervisor. Returns the report if the supervisor has ended.
    pub(crate) fn leave(
        &self,
        supervisor: Pid,
        report: Box<OwedReport>,
    ) -> Result<(), Box<OwedReport>> {
        match self.0.lock().get_mut(&supervisor) {
            Some(owed) => {
                owed.insert(report.report.pid, report);
                Ok(())
            }
            None => Err(report),
        }
    }

    /// Takes the report of a child, if it has failed by itself.
    pub(crate) fn take(&self, supervisor: Pid, child: Pid) -> Option<Box<OwedReport>> {
        self.0.lock().get_mut(&supervisor)?.remove(&child)
    }

    /// Notes the end of a supervisor, and returns what it has not taken.
    pub(crate) fn close(&self, supervisor: Pid) -> impl Iterator<Item = Box<OwedReport>> {
        let owed = self.0.lock().remove(&supervisor);
        owed.unwrap_or_default().into_values()
    }
}
