//! Reports of failures: what a process or a supervisor reports to people about an end.
//!
//! [`Reporting`] has the rules.

pub(crate) mod crash_report;
pub(crate) mod exit_report;
pub(crate) mod failure;
pub(crate) mod hooks;
pub(crate) mod kept;
pub(crate) mod owed;
pub(crate) mod panics;
pub(crate) mod supervision;
pub(crate) mod supervisor_report;
pub(crate) mod text;
pub(crate) mod unseen;

pub use self::crash_report::{CrashReport, SupervisorAnswer};
pub use self::exit_report::ExitReport;
pub use self::panics::install_panic_hook;
pub use self::supervision::ChildExit;
pub use self::supervisor_report::{ChildFailure, SupervisorEvent, SupervisorReport};
pub use crate::process::reporting::{ReportLevel, Reporting};
pub use crate::process::unwind::catch_panic;
