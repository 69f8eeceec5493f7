//! The hooks of a scheduler that receive its reports.

use std::fmt;
use std::sync::Arc;

use crate::process::reporting::Reporting;
use crate::report::exit_report::ExitReport;
use crate::report::supervisor_report::SupervisorReport;
use crate::report::unseen::UnseenPanics;
use crate::sys::{World, stderr};

/// A function of the program that receives reports.
type ReportHook<R> = Arc<dyn Fn(&R) + Send + Sync>;

/// The hooks of a scheduler that receive its reports, and what reports contain.
#[derive(Clone, Default)]
pub(crate) struct ReportHooks {
    /// If reports keep backtraces of panics. `None` leaves it to the environment.
    #[cfg(feature = "door")]
    pub(crate) panic_backtraces: Option<bool>,
    /// The failures that are worth a report, if the process does not choose.
    pub(crate) reporting: Reporting,
    pub(crate) on_exit: Option<ReportHook<ExitReport>>,
    pub(crate) on_supervisor: Option<ReportHook<SupervisorReport>>,
    /// Set for the scheduler of a test.
    pub(crate) unseen: Option<Arc<UnseenPanics>>,
}

impl ReportHooks {
    /// Prints a report: in a test on the calling thread, and otherwise on the thread of the writer.
    pub(crate) fn print(&self, world: &World, report: &dyn fmt::Display) {
        match &self.unseen {
            Some(_) => print_captured(report),
            None => stderr::write(world, report),
        }
    }
}

/// Prints a line in the way that the harness of tests captures, so that the line is shown with its
/// test. The harness captures the thread of the test, and the threads that this thread has started.
#[expect(clippy::print_stderr, reason = "the harness of tests shows it with the failed test")]
fn print_captured(report: &dyn fmt::Display) {
    eprint!("{}", stderr::line_of(report));
}

impl fmt::Debug for ReportHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportHooks")
            .field("reporting", &self.reporting)
            .field("on_exit", &self.on_exit.is_some())
            .field("on_supervisor", &self.on_supervisor.is_some())
            .finish()
    }
}
