//! The making of reports, and the way that each goes.

use std::fmt;
use std::fmt::Display as _;
use std::sync::Arc;

use crate::observe::snapshot::label;
use crate::process::slot::Slot;
use crate::process::unwind::guarded_for_report;
use crate::recorder::state::DumpCause;
use crate::relations::links;
use crate::relations::pid_list::LISTED_MAX;
use crate::report::crash_report::{CrashReport, PART_MAX, SupervisorAnswer, cut, cut_exit};
use crate::report::exit_report::ExitReport;
use crate::report::panics;
use crate::report::supervisor_report::{SupervisorEvent, SupervisorReport};
use crate::report::text::EndedText;
use crate::scheduler::shared::Shared;
use crate::time::Instant;
use crate::{Exit, Pid};

/// Returns `true` if a process that ends itself with this exit has failed.
pub(crate) fn is_failure(exit: &Exit) -> bool {
    !matches!(exit, Exit::Normal | Exit::Shutdown | Exit::Killed)
}

/// Returns the report of a process that fails. It must not be complete yet.
pub(crate) fn of(slot: &Slot, exit: &Exit) -> ExitReport {
    ExitReport {
        pid: slot.pid(),
        label: label(slot),
        name: links::registered_name(slot),
        kind: slot.kind().name,
        location: slot.location(),
        parent: slot.parent(),
        exit: exit.clone(),
        panicked_at: if exit.is_panic() { panics::take_place(slot) } else { None },
        scheduler: slot.shared().name().to_owned(),
        steps: slot.steps(),
        received: slot.received(),
    }
}

/// Returns the report that the scheduler keeps.
pub(crate) fn kept(slot: &Slot, report: &ExitReport) -> CrashReport {
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
        #[cfg(feature = "observe")]
        panic_stack: if report.exit.is_panic() { panics::take_backtrace(slot) } else { Vec::new() },
        at: shared.world.now(),
    }
}

/// Notes the panic of a process for the test that it belongs to, unless another process learns of
/// its end.
pub(crate) fn note_unseen(slot: &Slot, report: &ExitReport) {
    let Some(unseen) = &slot.shared().extensions.reports.unseen else { return };
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

/// Reports a process that fails. `trace` emits the event for subscribers, and returns `false` if
/// there is none.
///
/// Called before the process is complete, so that everything that learns of its end finds it
/// reported. User code can run here, as in a `Drop` of what the process holds.
pub(crate) fn tell(shared: &Shared, report: &ExitReport, trace: impl FnOnce() -> bool) {
    if let Some(hook) = &shared.extensions.reports.on_exit {
        return after_hook(shared, "on_exit", guarded_for_report(|| hook(report)));
    }
    if !trace() {
        shared.extensions.reports.print(&shared.world, report);
    }
}

/// Reports what the running supervisor does about a child.
#[cold]
pub(crate) fn tell_supervisor(
    slot: &Slot,
    child: Option<Arc<str>>,
    process: Option<Pid>,
    event: SupervisorEvent,
) {
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
    if let Some((process, answer)) = process.zip(answer) {
        shared.extensions.crashes.answer(process, answer);
    }
    let gave_up = matches!(event, SupervisorEvent::GaveUp { .. });
    if gave_up || matches!(event, SupervisorEvent::Restarts { .. }) {
        shared.extensions.restarts.count(&label(slot).unwrap_or_default(), gave_up);
    }
    if gave_up {
        shared.request_dump(DumpCause::GaveUp);
    }
    let report = SupervisorReport {
        supervisor: slot.pid(),
        label: label(slot),
        name: links::registered_name(slot),
        child,
        process,
        event,
    };
    if let Some(hook) = &shared.extensions.reports.on_supervisor {
        return after_hook(shared, "on_supervisor", guarded_for_report(|| hook(&report)));
    }
    #[cfg(feature = "tracing")]
    if crate::observe::trace::supervised(&report) {
        return;
    }
    shared.extensions.reports.print(&shared.world, &report);
}

/// Reports a panic of a hook.
fn after_hook(shared: &Shared, hook: &str, outcome: Result<(), Exit>) {
    if let Err(exit) = outcome
        && exit.is_panic()
    {
        let line = fmt::from_fn(|f| {
            write!(f, "the hook {hook} of the scheduler {:?} ", shared.name())?;
            EndedText(&exit, None).fmt(f)
        });
        shared.extensions.reports.print(&shared.world, &line);
    }
}
