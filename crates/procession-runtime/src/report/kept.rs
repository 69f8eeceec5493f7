//! The reports of a scheduler: their receivers, and the reports that are kept.

use std::sync::Arc;

use crate::process::reporting::Reporting;
use crate::process::unwind::drop_guarded;
use crate::report::crash_report::{CrashLog, CrashReport};
use crate::report::exit_report::ExitReport;
use crate::report::hooks::ReportHooks;
use crate::report::owed::OwedReports;
use crate::report::supervision::{RestartTotals, SupervisionLog};
use crate::report::supervisor_report::SupervisorReport;
use crate::scheduler::builder::Builder;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::shared::Shared;

/// The reports of a scheduler.
#[derive(Default)]
pub(crate) struct Reports {
    pub(crate) hooks: ReportHooks,
    /// The last reports of failed processes.
    pub(crate) crashes: CrashLog,
    /// The last exits of supervised children.
    pub(crate) supervision: SupervisionLog,
    /// The reports of failed children that their supervisors have yet to learn of.
    pub(crate) owed: OwedReports,
    /// The restarts by supervisors.
    pub(crate) restarts: RestartTotals,
}

impl Reports {
    /// Returns the reports of a scheduler.
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        // Each of the two is the user's, and may panic.
        drop_guarded(self.hooks.on_exit.take());
        drop_guarded(self.hooks.on_supervisor.take());
    }
}

impl Builder {
    /// Returns what the builder has decided about reports.
    pub(crate) fn report_hooks(&mut self) -> &mut ReportHooks {
        let reports = self.parts.get_mut::<Reports>();
        &mut reports.expect("`assembly.rs` gives each builder this part").hooks
    }

    /// Sets which failures of processes are worth a [report](crate::report::Reporting), and at
    /// which level. A process may choose otherwise
    /// ([`SpawnOptions::reporting`](crate::SpawnOptions::reporting)). Default: [`Reporting::new`].
    pub fn reporting(mut self, reporting: Reporting) -> Self {
        self.report_hooks().reporting = reporting;
        self
    }

    /// Sets a hook that receives the reports of processes that fail.
    /// [`report`](crate::report::Reporting) says which failures are reported. Default: an event for
    /// subscribers of `tracing` if there is one, or else a line on standard error. With a hook
    /// there is neither.
    ///
    /// The hook usually runs on the worker, as the last code of the process and before anybody
    /// learns of the end. If the process had a handle that is dropped without its result, the hook
    /// runs where the handle is dropped. If a supervisor does not restart the process, the hook
    /// runs in a step of the supervisor.
    ///
    /// The hook runs outside of all locks, and may do what the `Drop` of a value in a process may
    /// do, such as send messages and spawn processes. It must not block, because it may hold up a
    /// worker. A panic of the hook is caught, and printed.
    pub fn on_exit(mut self, hook: impl Fn(&ExitReport) + Send + Sync + 'static) -> Self {
        self.report_hooks().on_exit = Some(Arc::new(hook));
        self
    }

    /// Sets whether [crash reports](crate::report::CrashReport::backtrace) keep the backtrace of a
    /// panic. Default: `true` if the environment variable `RUST_BACKTRACE` is set and not `0`.
    ///
    /// Only a program that has called [`install_panic_hook`](crate::report::install_panic_hook)
    /// has backtraces. To take one costs about as much as the panic itself.
    #[cfg(feature = "door")]
    pub fn panic_backtraces(mut self, keep: bool) -> Self {
        self.report_hooks().panic_backtraces = Some(keep);
        self
    }

    /// Sets a hook that is called for each restart, give-up, failed start and late stop of a
    /// supervisor. Default: as for [`on_exit`](Self::on_exit).
    ///
    /// The hook runs in a step of the supervisor, so it must not block. A panic of the hook is
    /// caught, and printed.
    pub fn on_supervisor(
        mut self,
        hook: impl Fn(&SupervisorReport) + Send + Sync + 'static,
    ) -> Self {
        self.report_hooks().on_supervisor = Some(Arc::new(hook));
        self
    }
}

impl Scheduler {
    /// Returns the reports of the last 64 processes that failed, the oldest first.
    ///
    /// ```
    /// use procession::{Exit, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let _ = scheduler.spawn(async { panic!("no disk") }).join();
    /// let crashes = scheduler.crashes();
    /// assert_eq!(crashes[0].exit.exit, Exit::Panicked("no disk".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn crashes(&self) -> Vec<Arc<CrashReport>> {
        Reports::of(self.shared()).crashes.all()
    }
}
