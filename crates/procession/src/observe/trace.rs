//! Spans and events for subscribers of the crate `tracing`: one span for each process, and one
//! event for each report and each stall.
//!
//! # Spans
//!
//! The span of a process is called `process`, with the target `procession` and the level `DEBUG`,
//! because a log that shows it repeats it in each line of the process. It is a root span. As a
//! child of the span of its spawner, or of the sender of a message, it would keep that span open
//! for as long as anything that came of it lasts. Instead it *follows from* the span in which it
//! was spawned. Its fields are `pid`; `label`, if there is one; and `exit`, once the process has
//! ended. If a subscriber takes events of the level `TRACE` and the target `procession`, the fields
//! `spawned_at`, `kind` and `parent` are added.
//!
//! If the ids of requests travel with messages ([`crate::request`]), the span has the field
//! `request` as well, if the process was spawned on behalf of a request. Each message of a request
//! that the process receives has a span `request` of its own, inside the span of the process, with
//! the fields `request`, `pid` and `sender`, and the level `INFO`. A field of the process's span
//! could not be used for these: subscribers keep each value that is recorded, so a server would
//! collect them forever. The span of a request is entered when its message is received, and closed
//! when the process receives the next message, waits for one, or ends.
//!
//! The span is entered for each step and for the `Drop` of what the process holds. It is closed
//! when the process ends, even if its handle is kept. If no subscriber wants the span, the process
//! runs as without this feature, and its spawn costs one more load.
//!
//! A job of [`spawn_blocking`](crate::spawn_blocking()) is not a process and has no span of its
//! own. It runs in the span in which it was submitted, because it does the submitter's work on
//! another thread. A running job cannot be ended, so that span stays open until the job is over,
//! even if the process ends before.
//!
//! Jobs of other pools run in no span except those that they make themselves. The processes of
//! async pools have no spans, because there is one process for each job: only asking whether a
//! subscriber wants a span makes a job 3 to 5 % slower.
//!
//! # Events
//!
//! The event of a process that fails is in its span, which is therefore closed by the worker, and
//! not with the step. If the process has no span, or its report was held until the span was closed,
//! the event has none, and has the fields `pid` and `label` itself. The event of a supervisor is
//! emitted in a step of it. A stall belongs to no span, because the watchdog finds it.
//!
//! Each fact is in an event once: as a field, or in the message. `spawned_at` and the figures of
//! the process are there if a subscriber takes events of the level `TRACE` and the target
//! `procession`. A process without label and name always has the field `spawned_at`, because
//! nothing else says what it is.
//!
//! A subscriber is user code. If it panics in a step, the process panics. Any other panic of a
//! subscriber is dropped.

use std::any::Any;
use std::mem;
use std::task::Context as TaskContext;

use tracing::dispatcher::get_default;
use tracing::field::{Empty, display};
use tracing::subscriber::NoSubscriber;
use tracing::{Level, Span, debug_span, event, event_enabled, info_span, span, span_enabled};

use crate::Exit;
use crate::mailbox::header::Header;
use crate::process::body::{Body, Step};
use crate::process::slot::Slot;
use crate::process::unwind::{drop_guarded, guarded};
use crate::report::exit_report::ExitReport;
use crate::report::supervisor_report::SupervisorReport;
use crate::report::text::EndedText;
use crate::watchdog::state::{Stall, StallKind};

/// A process in its span.
struct Traced {
    span: Span,
    body: Box<dyn Body>,
}

/// Wraps the body of the new process in `slot` in a span, if a subscriber wants one.
pub(crate) fn traced(slot: &Slot, body: Box<dyn Body>) -> Box<dyn Body> {
    let make = || {
        let details = wants_details().then_some(slot);
        let span = debug_span!(
            target: "procession",
            parent: None,
            "process",
            pid = %slot.pid(),
            label = slot.extra().and_then(|extra| extra.label.as_deref()),
            request = slot.request().map(display),
            spawned_at = details.map(|slot| display(slot.location())),
            kind = details.map(|slot| slot.kind().name),
            parent = details.and_then(Slot::parent).map(display),
            exit = Empty,
        );
        if !span.is_disabled() {
            span.follows_from(Span::current());
        }
        span
    };
    match guarded(make) {
        Ok(span) => {
            let has_requests = slot.has_headers() && wants_requests();
            if has_requests {
                slot.handling(|handling| handling.is_traced = true);
            }
            if has_requests || !span.is_disabled() { Box::new(Traced { span, body }) } else { body }
        }
        Err(_) => body,
    }
}

/// Returns `true` if subscribers want the spans of requests.
fn wants_requests() -> bool {
    span_enabled!(target: "procession", Level::INFO)
}

/// Returns a job that runs in the span in which it is submitted.
pub(crate) fn in_current_span<T>(job: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let span = guarded(Span::current).unwrap_or_else(|_| Span::none());
    move || span.in_scope(job)
}

impl Traced {
    fn note_exit(&self, exit: &Exit) {
        drop(guarded(|| self.span.record("exit", display(exit))));
    }

    fn close(&mut self) {
        drop_guarded(mem::replace(&mut self.span, Span::none()));
    }
}

/// Begins the span of the request that the running process works for from now on, if it works for
/// one. Ends that of the request before.
pub(crate) fn begin_request(slot: &Slot, header: Header) {
    end_request(slot);
    if !slot.handling(|handling| handling.is_traced) {
        return;
    }
    let Some(request) = header.request else { return };
    let make = || {
        info_span!(
            target: "procession",
            "request",
            request = %request,
            pid = %slot.pid(),
            sender = header.sender.map(display),
        )
    };
    let Ok(span) = guarded(make) else { return };
    enter(&span);
    slot.handling(|handling| handling.span = Some(span));
}

/// Ends the span of the request that the running process worked for.
pub(crate) fn end_request(slot: &Slot) {
    if let Some(span) = slot.handling(|handling| handling.span.take()) {
        exit(&span);
        drop_guarded(span);
    }
}

fn enter(span: &Span) {
    drop(guarded(|| span.with_subscriber(|(id, dispatch)| dispatch.enter(id))));
}

fn exit(span: &Span) {
    drop(guarded(|| span.with_subscriber(|(id, dispatch)| dispatch.exit(id))));
}

/// The time of a step in the span of a request. The span may change meanwhile.
struct InRequest<'a>(&'a Slot);

impl<'a> InRequest<'a> {
    /// Enters the span of the request that the process works for, if it has headers.
    fn enter(slot: &'a Slot) -> Option<Self> {
        if !slot.has_headers() {
            return None;
        }
        if let Some(span) = slot.handling(|handling| handling.span.clone()) {
            enter(&span);
            drop_guarded(span);
        }
        Some(Self(slot))
    }
}

impl Drop for InRequest<'_> {
    fn drop(&mut self) {
        if let Some(span) = self.0.handling(|handling| handling.span.clone()) {
            exit(&span);
            drop_guarded(span);
        }
    }
}

/// Drops the span of the request of a process that has ended.
fn forget_request(slot: &Slot) {
    if slot.has_headers() {
        drop_guarded(slot.handling(|handling| handling.span.take()));
    }
}

impl Body for Traced {
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        let step = self.span.in_scope(|| {
            let _request = InRequest::enter(slot);
            self.body.step(slot, task)
        });
        if matches!(step, Step::Ended(_)) {
            forget_request(slot);
        }
        match &step {
            Step::Ended(None) => {
                self.note_exit(&Exit::Normal);
                self.close();
            }
            // The worker closes the span, once it has reported the end.
            Step::Ended(Some(exit)) => self.note_exit(exit),
            Step::Waits(_) | Step::GoesOn => {}
        }
        step
    }

    fn end(&mut self, slot: &Slot, exit: Exit) {
        // Before the body ends, since a `Drop` may panic. The span is then closed with the body.
        self.note_exit(&exit);
        self.span.in_scope(|| self.body.end(slot, exit));
        forget_request(slot);
        self.close();
    }

    fn take_result(&mut self, result: &mut dyn Any) {
        self.body.take_result(result);
    }

    fn span(&mut self) -> Option<&mut Span> {
        Some(&mut self.span)
    }
}

/// Closes the span of a process that has ended.
pub(crate) fn close(body: Option<&mut (dyn Body + '_)>) {
    if let Some(span) = body.and_then(Body::span) {
        drop_guarded(mem::replace(span, Span::none()));
    }
}

/// Returns `true` if this thread has a subscriber.
fn has_subscriber() -> bool {
    guarded(|| get_default(|dispatch| !dispatch.is::<NoSubscriber>())).unwrap_or(false)
}

/// Emits an event at the level of a report, which is a value. An event of `tracing` has one level
/// for each place in the source.
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

/// Returns `true` if subscribers want the details of processes: places, kinds and figures.
fn wants_details() -> bool {
    event_enabled!(target: "procession", Level::TRACE)
}

/// Returns the id of the span of a process, if it has one.
pub(crate) fn span_of(body: Option<&mut (dyn Body + '_)>) -> Option<span::Id> {
    body.and_then(Body::span).and_then(|span| span.id())
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
        // The supervisor runs, so its span, if it has one, is the current one.
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
            label = supervisor.filter(|_| is_bare),
            "{}",
            report.brief()
        );
    };
    drop(guarded(emit));
    true
}

/// Returns `true` if a subscriber wants events of stalls.
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
