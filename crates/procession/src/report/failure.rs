//! The making of reports, and the way that each goes.

use std::fmt;
use std::fmt::Display as _;
use std::sync::Arc;

use crate::observe::snapshot::label;
use crate::process::slot::Slot;
use crate::process::unwind::guarded;
use crate::recorder::dump::DumpCause;
use crate::relations::links;
use crate::report::exit_report::ExitReport;
use crate::report::panics;
use crate::report::supervisor_report::{SupervisorEvent, SupervisorReport};
use crate::report::text::EndedText;
use crate::report::writer;
use crate::scheduler::shared::Shared;
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

/// Reports a process that fails. `trace` emits the event for subscribers, and returns `false` if
/// there is none.
///
/// Called before the process is complete, so that everything that learns of its end finds it
/// reported. User code can run here, as in a `Drop` of what the process holds.
pub(crate) fn tell(shared: &Shared, report: &ExitReport, trace: impl FnOnce() -> bool) {
    if let Some(hook) = &shared.extensions.reports.on_exit {
        return after_hook(shared, "on_exit", guarded(|| hook(report)));
    }
    if !trace() {
        writer::write(&shared.world, report);
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
    if matches!(event, SupervisorEvent::GaveUp { .. }) {
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
        return after_hook(shared, "on_supervisor", guarded(|| hook(&report)));
    }
    #[cfg(feature = "tracing")]
    if crate::observe::trace::supervised(&report) {
        return;
    }
    writer::write(&shared.world, &report);
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
        writer::write(&shared.world, &line);
    }
}
