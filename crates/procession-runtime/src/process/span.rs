//! Spans for subscribers of the crate `tracing`: one for each process.
//!
//! # Spans
//!
//! The span of a process is called `process`, with the target `procession` and the level `DEBUG`,
//! because a log that shows it repeats it in each line of the process. It is a root span. If it
//! were a child of the span of its spawner, or of the sender of a message, it would keep that span
//! open until the last of its descendants ends. Instead it *follows from* the span in which it was
//! spawned. Its fields are `pid`; `label`, if there is one; and `exit`, once the process has ended.
//! If a subscriber takes events of the level `TRACE` and the target `procession`, the fields
//! `spawned_at`, `kind` and `parent` are added.
//!
//! If the ids of requests travel with messages ([`crate::request`]), the span has the field
//! `request` as well, if the process was spawned on behalf of a request. Each message of a request
//! that the process receives has a separate span `request`, inside the span of the process, with
//! the fields `request`, `pid` and `sender`, and the level `INFO`. A field of the process's span
//! could not be used for these: subscribers keep each value that is recorded, so a server would
//! collect them forever. The span of a request is entered when its message is received, and closed
//! when the process receives the next message, waits for one, or ends.
//!
//! The span is entered for each step and for the `Drop` of what the process holds. It is closed
//! when the process ends, even if its handle is kept. If no subscriber wants the span, the process
//! runs as without this feature, and its spawn costs one more load.
//!
//! A job of [`spawn_blocking`](crate::spawn_blocking()) is not a process and has no span. It runs
//! in the span in which it was submitted, because it does the submitter's work on another thread. A
//! running job cannot be ended, so that span stays open until the job is over, even if the process
//! ends before.
//!
//! Jobs of other pools run in no span, unless the job itself enters a span. The processes of async
//! pools have no spans, because there is one process for each job: only asking whether a subscriber
//! wants a span makes a job 3 to 5 % slower.
//!
//! A subscriber is user code. If it panics in a span or an event of the process, the process
//! panics. A panic of a subscriber in a span of the runtime is dropped.

use std::any::Any;
use std::mem;
use std::task::Context as TaskContext;

use tracing::field::{Empty, display};
use tracing::{Level, Span, debug_span, event_enabled, info_span, span, span_enabled};

use crate::mailbox::header::RequestContext;
use crate::process::body::{Body, Step};
use crate::process::slot::{Extra, Slot};
use crate::process::unwind::{DropGuarded, drop_guarded, guarded};
use crate::{Exit, Pid};

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
            pid = %slot.seen_pid(),
            label = slot.extra().and_then(|extra| extra.label.as_deref()),
            request = slot.extra().and_then(Extra::request).map(|request| display(request.id())),
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
            let has_requests = slot.bound.has_headers() && guarded(wants_requests).unwrap_or(false);
            if has_requests {
                slot.extra_or_default().handling(|handling| handling.is_traced = true);
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
    let span = DropGuarded::new(guarded(Span::current).unwrap_or_else(|_| Span::none()));
    move || {
        let _in_span = InSpan::new(&span);
        job()
    }
}

impl Traced {
    fn note_exit(&self, exit: &Exit) {
        drop(guarded(|| self.span.record("exit", display(exit))));
    }

    fn close(&mut self) {
        drop_guarded(mem::replace(&mut self.span, Span::none()));
    }
}

/// Ends the span of the previous request, and begins the span of the request that the running
/// process works for from now on, if it works for one.
pub(crate) fn begin_request(slot: &Slot, request: Option<RequestContext>, sender: Option<Pid>) {
    end_request(slot);
    if !slot.extra_or_default().handling(|handling| handling.is_traced) {
        return;
    }
    let Some(request) = request else { return };
    let make = || {
        info_span!(
            target: "procession",
            "request",
            request = %request.id(),
            pid = %slot.seen_pid(),
            sender = sender.map(display),
        )
    };
    let Ok(span) = guarded(make) else { return };
    enter(&span);
    slot.extra_or_default().handling(|handling| handling.span = Some(span));
}

/// Ends the span of the request that the running process worked for.
pub(crate) fn end_request(slot: &Slot) {
    if let Some(span) = slot.extra_or_default().handling(|handling| handling.span.take()) {
        exit(&span);
        drop_guarded(span);
    }
}

/// The time in which the thread is in a span. It may end in an unwinding, where a second panic
/// would abort the program.
struct InSpan<'a>(&'a Span);

impl<'a> InSpan<'a> {
    fn new(span: &'a Span) -> Self {
        enter(span);
        Self(span)
    }
}

impl Drop for InSpan<'_> {
    fn drop(&mut self) {
        exit(self.0);
    }
}

fn enter(span: &Span) {
    drop(guarded(|| span.with_subscriber(|(id, dispatch)| dispatch.enter(id))));
}

fn exit(span: &Span) {
    drop(guarded(|| span.with_subscriber(|(id, dispatch)| dispatch.exit(id))));
}

/// The time of a step in the span of a request. The step may replace that span.
struct InRequest<'a>(&'a Slot);

impl<'a> InRequest<'a> {
    /// Enters the span of the request that the process works for, if it has headers.
    fn enter(slot: &'a Slot) -> Option<Self> {
        if !slot.bound.has_headers() {
            return None;
        }
        if let Some(span) = slot.extra_or_default().handling(|handling| handling.span.clone()) {
            enter(&span);
            drop_guarded(span);
        }
        Some(Self(slot))
    }
}

impl Drop for InRequest<'_> {
    fn drop(&mut self) {
        if let Some(span) = self.0.extra_or_default().handling(|handling| handling.span.clone()) {
            exit(&span);
            drop_guarded(span);
        }
    }
}

/// Drops the span of the request of a process that has ended.
fn forget_request(slot: &Slot) {
    if slot.bound.has_headers() {
        drop_guarded(slot.extra_or_default().handling(|handling| handling.span.take()));
    }
}

impl Body for Traced {
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        let step = {
            let _in_span = InSpan::new(&self.span);
            let _request = InRequest::enter(slot);
            self.body.step(slot, task)
        };
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
        let in_span = InSpan::new(&self.span);
        self.body.end(slot, exit);
        drop(in_span);
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

/// Returns `true` if subscribers want the details of processes: places, kinds and figures.
pub(crate) fn wants_details() -> bool {
    event_enabled!(target: "procession", Level::TRACE)
}

/// Returns the id of the span of a process, if it has one.
pub(crate) fn span_of(body: Option<&mut (dyn Body + '_)>) -> Option<span::Id> {
    body.and_then(Body::span).and_then(|span| span.id())
}
