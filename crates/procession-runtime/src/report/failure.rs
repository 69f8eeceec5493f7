//! The making of reports, and the way that each goes.

use std::fmt;
use std::sync::Arc;

use crate::observe::process_info::label;
use crate::process::reporting::{ReportLevel, Reporting};
use crate::process::slot::Slot;
use crate::process::unwind::guarded_for_report;
use crate::recorder::dump::{DumpCause, Dumps};
use crate::relations::entries::LISTED_MAX;
use crate::relations::links;
use crate::report::crash_report::{CrashReport, PART_MAX, SupervisorAnswer, cut_exit};
use crate::report::exit_report::ExitReport;
use crate::report::kept::Reports;
use crate::report::owed::OwedReport;
use crate::report::panics;
use crate::report::supervisor_report::{SupervisorEvent, SupervisorReport};
use crate::report::text::{EndedText, advice_for};
use crate::scheduler::part::{FailureSpan, Part};
use crate::scheduler::shared::Shared;
use crate::time::Instant;
use crate::util::bounded_text::cut;
use crate::{Exit, Pid};

/// Returns what of the failures of a process is worth a report.
fn reporting(reports: &Reports, slot: &Slot) -> Reporting {
    let own = slot.extra().and_then(|extra| extra.reporting);
    own.unwrap_or(reports.hooks.reporting)
}

impl Part for Reports {
    fn process_failed(&self, slot: &Slot, exit: &Exit, span: &FailureSpan) -> bool {
        report(self, slot, exit, span)
    }

    fn panic_taken(&self, process: Pid) {
        if let Some(unseen) = &self.hooks.unseen {
            unseen.forget(process);
        }
    }

    fn block_on_panicked(&self, shared: &Shared, text: &str) {
        if let Some(advice) = advice_for(text) {
            self.hooks.print(&shared.world, &advice);
        }
    }
}

/// Reports a process that ends itself with this exit, if that is a failure worth a report. It must
/// not be complete yet, so that everything that learns of its end finds it reported. Returns `true`
/// if the report is held instead, because the failure may reach somebody.
fn report(reports: &Reports, slot: &Slot, exit: &Exit, span: &FailureSpan) -> bool {
    if matches!(exit, Exit::Normal | Exit::Shutdown | Exit::Killed) {
        return false;
    }
    let (shared, reporting) = (slot.shared(), reporting(reports, slot));
    let level = reporting.level_of(exit);
    let report = of(slot, exit, level.unwrap_or(ReportLevel::Error));
    note_unseen(reports, slot, &report);
    if exit.is_failure() {
        reports.crashes.keep(kept(slot, &report));
    }
    let is_due = level.is_some();
    if is_due && reporting.is_always() {
        tell(shared, &report, span);
    }
    let is_due = is_due && !reporting.is_always();
    let mut owed = Box::new(OwedReport { report, is_due });
    // Even if nothing is due: the supervisor names the process and its place when it restarts it.
    if let Some(supervisor) = links::supervisor(slot) {
        match reports.owed.leave(supervisor, owed) {
            Ok(()) => return false,
            Err(refused) => owed = refused,
        }
    }
    if !is_due {
        return false;
    }
    let report = owed.report;
    // If the place is known, the panic hook of the runtime has kept std's from printing the panic,
    // because a report would follow.
    let was_silenced = report.panicked_at.is_some();
    if was_silenced || !(slot.state.see().has_handle() || links::is_heard(slot)) {
        tell(shared, &report, span);
        return false;
    }
    let tell_later = move |slot: &Slot| tell(slot.shared(), &report, &FailureSpan::default());
    slot.extra_or_default().held_report.hold(Box::new(tell_later));
    true
}

/// Returns the report of a process that fails. It must not be complete yet.
fn of(slot: &Slot, exit: &Exit, level: ReportLevel) -> ExitReport {
    ExitReport {
        pid: slot.pid(),
        label: label(slot),
        name: links::registered_name(slot),
        kind: slot.kind().name,
        location: slot.location(),
        parent: slot.parent(),
        exit: exit.clone(),
        level,
        panicked_at: if exit.is_panic() { panics::take_place(slot) } else { None },
        scheduler: slot.shared().name().to_owned(),
        steps: slot.steps(),
        received: slot.received(),
    }
}

/// Returns the report that the scheduler keeps.
fn kept(slot: &Slot, report: &ExitReport) -> CrashReport {
    let shared = slot.shared();
    let brief = |text: &str| cut(text, PART_MAX).to_owned();
    let relations = links::overview(slot);
    let mut ancestors = Vec::new();
    let mut parent = slot.parent_in_table();
    while let Some((index, generation)) = parent
        && ancestors.len() < LISTED_MAX
        && let Some(slot) = shared.table().pin(index, generation.get())
    {
        ancestors.push(slot.pid());
        parent = slot.parent_in_table();
    }
    CrashReport {
        number: 0,
        exit: ExitReport {
            label: report.label.as_deref().map(brief),
            name: report.name.as_deref().map(|name| cut(name, PART_MAX).into()),
            exit: cut_exit(&report.exit),
            panicked_at: report.panicked_at.as_deref().map(brief),
            scheduler: brief(&report.scheduler),
            ..report.clone()
        },
        waiting: match slot.bounded() {
            None => slot.mailbox_length(),
            Some((length, ..)) => length,
        },
        message: (slot.kind().message_name)(),
        ancestors,
        links: relations.links,
        monitors: relations.monitors,
        supervisor: relations.supervisor,
        answer: None,
        #[cfg(feature = "door")]
        panic_stack: if report.exit.is_panic() { panics::take_backtrace(slot) } else { Vec::new() },
        at: shared.world.now(),
    }
}

/// Notes the panic of a process for the test that it belongs to, unless another process learns of
/// its end.
fn note_unseen(reports: &Reports, slot: &Slot, report: &ExitReport) {
    let Some(unseen) = &reports.hooks.unseen else { return };
    if !report.exit.is_panic() {
        return;
    }
    let relations = links::overview(slot);
    let is_watched = relations.links.total + relations.monitors.total > 0;
    if !is_watched && relations.supervisor.is_none() {
        unseen.note(report.pid, report.to_string());
    }
}

impl CrashReport {
    /// Returns when it failed, on the clock of the scheduler.
    pub fn at(&self) -> Instant {
        Instant::from_nanoseconds(self.at)
    }
}

/// Hands a report to the hook, to a subscriber, or to standard error. User code can run here, as in
/// a `Drop` of what the process holds. The span is the span of the process, while it is open.
pub(crate) fn tell(shared: &Shared, report: &ExitReport, span: &FailureSpan) {
    if let Some(hook) = &Reports::of(shared).hooks.on_exit {
        return after_hook(shared, "on_exit", guarded_for_report(|| hook(report)));
    }
    #[cfg(feature = "tracing")]
    if crate::observe::trace::failed(report, span.0.clone()) {
        return;
    }
    #[cfg(not(feature = "tracing"))]
    let _ = span;
    print(shared, report.level, report);
}

/// Prints a report, unless its level is `Debug`.
fn print(shared: &Shared, level: ReportLevel, report: &dyn fmt::Display) {
    if level > ReportLevel::Debug {
        Reports::of(shared).hooks.print(&shared.world, report);
    }
}

/// A child of the running supervisor, for its report.
pub(crate) struct ReportedChild<'a> {
    pub(crate) id: Option<Arc<str>>,
    /// The label that its processes are spawned with.
    pub(crate) label: Option<&'a str>,
    pub(crate) reporting: Option<Reporting>,
    pub(crate) process: Option<Pid>,
    /// The report of the process, if the process has failed by itself.
    pub(crate) owed: Option<Box<OwedReport>>,
}

/// Reports what the running supervisor does about a child.
#[cold]
pub(crate) fn tell_supervisor(slot: &Slot, child: ReportedChild<'_>, event: SupervisorEvent) {
    let shared = slot.shared();
    let answer = match &event {
        SupervisorEvent::Restarts { restart, intensity, wait, .. } => {
            Some(SupervisorAnswer::Restarts {
                restart: *restart,
                intensity: *intensity,
                wait: *wait,
            })
        }
        SupervisorEvent::GaveUp { .. } => Some(SupervisorAnswer::GaveUp),
        SupervisorEvent::NotStarted { .. } | SupervisorEvent::StoppedLate { .. } => None,
    };
    if let Some((process, answer)) = child.process.zip(answer) {
        Reports::of(shared).crashes.answer(process, answer);
    }
    let gave_up = matches!(event, SupervisorEvent::GaveUp { .. });
    if gave_up || matches!(event, SupervisorEvent::Restarts { .. }) {
        Reports::of(shared).restarts.count(&label(slot).unwrap_or_default(), gave_up);
    }
    if gave_up {
        Dumps::request(shared, DumpCause::GaveUp);
    }
    let reporting = child.reporting.unwrap_or(Reports::of(shared).hooks.reporting);
    let level = match &event {
        SupervisorEvent::Restarts { failure, .. } => failure.level_of_restart(reporting),
        SupervisorEvent::StoppedLate { .. } => Some(ReportLevel::Warn),
        SupervisorEvent::NotStarted { .. } | SupervisorEvent::GaveUp { .. } => {
            Some(ReportLevel::Error)
        }
    };
    let Some(level) = level else { return };
    let own_label = child.owed.as_ref().and_then(|owed| owed.report.label.clone());
    let report = SupervisorReport {
        supervisor: slot.pid(),
        label: label(slot),
        name: links::registered_name(slot),
        child: child.id,
        child_label: own_label.or_else(|| child.label.map(str::to_owned)),
        process: child.process,
        panicked_at: child.owed.and_then(|owed| owed.report.panicked_at),
        level,
        event,
    };
    if let Some(hook) = &Reports::of(shared).hooks.on_supervisor {
        return after_hook(shared, "on_supervisor", guarded_for_report(|| hook(&report)));
    }
    #[cfg(feature = "tracing")]
    if crate::observe::trace::supervised(&report) {
        return;
    }
    print(shared, level, &report);
}

/// Reports a failure of a child that its supervisor does not restart.
pub(crate) fn tell_owed(slot: &Slot, owed: &OwedReport) {
    if owed.is_due {
        tell(slot.shared(), &owed.report, &FailureSpan::default());
    }
}

/// Reports a panic of a hook.
fn after_hook(shared: &Shared, hook: &str, outcome: Result<(), Exit>) {
    if let Err(exit) = outcome
        && exit.is_panic()
    {
        let (name, ended) = (shared.name(), EndedText(&exit, None));
        Reports::of(shared).hooks.print(
            &shared.world,
            &format_args!("the hook {hook} of the scheduler {name:?} {ended}"),
        );
    }
}
