//! Events for subscribers of the crate `tracing`: one for each report and each stall. The spans of
//! processes, which these events are in, are in `process/span.rs`.
//!
//! # Events
//!
//! The event of a process that fails is in its span, which is therefore closed by the worker, and
//! not with the step. If the process has no span, or its report was held until the span was closed,
//! the event has no span, and has the fields `pid` and `label` itself. The event of a supervisor is
//! emitted in a step of the supervisor. A stall belongs to no span, because the watchdog finds it.
//!
//! Each fact is in an event once: as a field, or in the message. `spawned_at` and the figures of
//! the process are there if a subscriber takes events of the level `TRACE` and the target
//! `procession`. A process without label and name always has the field `spawned_at`, because
//! nothing else says what it is.
//!
//! A subscriber is user code. If it panics in a step, the process panics. Any other panic of a
//! subscriber is dropped.

#[cfg(feature = "signal")]
use std::fmt::Display;
#[cfg(feature = "signal")]
use std::time::Duration;

use tracing::dispatcher::get_default;
use tracing::subscriber::NoSubscriber;
use tracing::{Level, Span, event, event_enabled, span};

#[cfg(feature = "signal")]
use crate::observe::unfinished::Unfinished;
use crate::observe::wait_cycle::WaitCycle;
use crate::process::span::wants_details;
use crate::process::unwind::guarded;
use crate::report::exit_report::ExitReport;
use crate::report::supervisor_report::{DEFAULT_LABEL, SupervisorReport};
use crate::report::text::EndedText;
use crate::scheduler::stalls::{Stall, StallKind};

/// Returns `true` if this thread has a subscriber.
fn has_subscriber() -> bool {
    guarded(|| get_default(|dispatch| !dispatch.is::<NoSubscriber>())).unwrap_or(false)
}

/// Emits an event at the level of a report, which is a value. An event of `tracing` has one level
/// for each location in the source.
macro_rules! event_at {
    ($level:expr, $span:expr, $($fields:tt)+) => {{
        use crate::process::reporting::ReportLevel as At;
        let span = $span;
        match $level {
            At::Debug => event!(target: "procession", parent: span, Level::DEBUG, $($fields)+),
            At::Info => event!(target: "procession", parent: span, Level::INFO, $($fields)+),
            At::Warn => event!(target: "procession", parent: span, Level::WARN, $($fields)+),
            At::Error => event!(target: "procession", parent: span, Level::ERROR, $($fields)+),
        }
    }};
}

/// Emits the event of a process that fails, in its span. Returns `false` if there is no subscriber.
pub(crate) fn failed(report: &ExitReport, span: Option<span::Id>) -> bool {
    if !has_subscriber() {
        return false;
    }
    let emit = || {
        // The span, if there is one, has the PID and the label.
        let is_bare = span.is_none();
        let has_label = report.label.is_some();
        let has_details = wants_details();
        let details = has_details.then_some(report);
        let is_nameless = !has_label && report.name.is_none();
        event_at!(
            report.level,
            span,
            pid = is_bare.then_some(display(report.pid)),
            label = report.label.as_deref().filter(|_| is_bare),
            name = report.name.as_deref().filter(|_| has_details || !has_label),
            panicked_at = report.panicked_at.as_deref(),
            spawned_at = (has_details || is_nameless).then_some(display(report.location)),
            kind = details.map(|report| report.kind),
            parent = details.and_then(|report| report.parent).map(display),
            scheduler = details.map(|report| &*report.scheduler),
            steps = details.map(|report| report.steps),
            received = details.map(|report| report.received),
            "{}",
            EndedText(&report.exit, None)
        );
    };
    drop(guarded(emit));
    true
}

/// Emits the event of what the running supervisor does, in its span. Returns `false` if there is no
/// subscriber.
pub(crate) fn supervised(report: &SupervisorReport) -> bool {
    if !has_subscriber() {
        return false;
    }
    let emit = || {
        // The supervisor is running, so the current span is the supervisor's span, if it has one.
        let span = Span::current();
        let is_bare = span.metadata().is_none_or(|span| span.target() != "procession");
        let supervisor = report.label.as_deref().or(report.name.as_deref());
        let child = report.child_label.as_deref().or(report.child.as_deref());
        event_at!(
            report.level,
            span.id(),
            child,
            pid = report.process.map(display),
            panicked_at = report.panicked_at.as_deref(),
            supervisor = is_bare.then_some(display(report.supervisor)),
            label = supervisor.filter(|&label| is_bare && label != DEFAULT_LABEL),
            "{}",
            report.brief()
        );
    };
    drop(guarded(emit));
    true
}

/// Emits the event of a cycle of waits. It belongs to no span, as the event of a stall.
pub(crate) fn wait_cycle(cycle: &WaitCycle) {
    event!(
        target: "procession",
        parent: None,
        Level::WARN,
        processes = cycle.waits.len(),
        at_least_ms = u64::try_from(cycle.at_least().as_millis()).unwrap_or(u64::MAX),
        "{}",
        cycle
    );
}

/// Emits the event of a signal that begins the end of the program, which `processes` have not
/// reached yet. It belongs to no span.
#[cfg(feature = "signal")]
pub(crate) fn end_begun(signal: impl Display, deadline: Duration, delay: Duration, processes: u64) {
    let emit = || {
        event!(
            target: "procession",
            parent: None,
            Level::INFO,
            processes,
            delay = (!delay.is_zero()).then(|| debug(delay)),
            "{signal}: the program ends within {deadline:?}"
        );
    };
    drop(guarded(emit));
}

/// Emits the event of the end of the program, with the counts of what is lost.
#[cfg(feature = "signal")]
pub(crate) fn end_over(signal: impl Display, took: Duration, unfinished: &Unfinished) {
    let count = |number: u64| (number > 0).then_some(number);
    let emit = || {
        event!(
            target: "procession",
            parent: None,
            Level::INFO,
            unended = count(unfinished.processes.len() as u64),
            terminated = count(unfinished.terminated.len() as u64),
            dropped = count(unfinished.dropped.iter().map(|dropped| dropped.count).sum()),
            requests = count(unfinished.requests),
            writes = count(unfinished.writes as u64),
            messages = count(unfinished.messages),
            jobs = count(unfinished.jobs as u64),
            stopped = count(unfinished.stopped),
            "{signal}: the program has ended after {took:?}"
        );
    };
    drop(guarded(emit));
}

/// Returns `true` if a subscriber wants events of stalls or of cycles of waits.
pub(crate) fn wants_stalls() -> bool {
    event_enabled!(target: "procession", Level::WARN)
}

/// Emits the event of a stall. It belongs to no span, because it is the watchdog that reports.
pub(crate) fn stalled(stall: &Stall) {
    let details = wants_details().then_some(stall);
    event!(
        target: "procession",
        parent: None,
        Level::WARN,
        pid = stall.pid.map(display),
        label = stall.label.as_deref(),
        spawned_at = stall.location.map(display),
        kind = match stall.kind {
            StallKind::Blocked => "blocked",
            StallKind::Computing => "computing",
        },
        duration_ms = u64::try_from(stall.duration.as_millis()).unwrap_or(u64::MAX),
        held_up = Some(stall.held_up).filter(|&count| count > 0),
        worker = stall.worker,
        replaced = details.map(|stall| stall.replaced),
        lifo_slot = details.map(|stall| stall.lifo_slot),
        queued = details.map(|stall| stall.queued),
        "a step takes too long"
    );
}
