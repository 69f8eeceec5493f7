//! The hooks of a scheduler that receive its reports.

use std::fmt;
use std::sync::Arc;

use crate::report::exit_report::ExitReport;
use crate::report::supervisor_report::SupervisorReport;

/// A function of the program that receives reports.
type Hook<R> = Arc<dyn Fn(&R) + Send + Sync>;

/// The hooks of a scheduler that receive its reports.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) on_exit: Option<Hook<ExitReport>>,
    pub(crate) on_supervisor: Option<Hook<SupervisorReport>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("on_exit", &self.on_exit.is_some())
            .field("on_supervisor", &self.on_supervisor.is_some())
            .finish()
    }
}
