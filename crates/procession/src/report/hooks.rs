//! The hooks of a scheduler that receive its reports.

use std::fmt;
use std::sync::Arc;

use crate::report::exit_report::ExitReport;
use crate::report::supervisor_report::SupervisorReport;

/// A function of the program that receives reports.
type ReportHook<R> = Arc<dyn Fn(&R) + Send + Sync>;

/// The hooks of a scheduler that receive its reports, and what reports contain.
#[derive(Clone, Default)]
pub(crate) struct ReportHooks {
    /// If reports keep backtraces of panics. `None` leaves it to the environment.
    #[cfg(feature = "observe")]
    pub(crate) panic_backtraces: Option<bool>,
    pub(crate) on_exit: Option<ReportHook<ExitReport>>,
    pub(crate) on_supervisor: Option<ReportHook<SupervisorReport>>,
}

impl fmt::Debug for ReportHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportHooks")
            .field("on_exit", &self.on_exit.is_some())
            .field("on_supervisor", &self.on_supervisor.is_some())
            .finish()
    }
}
