//! What subscribers of the crate `tracing` are told: a span for each process, and an event for each
//! stall.
//!
//! # Spans
//!
//! The span of a process, `process` of the target `procession`, at the level `INFO`, is a root:
//! never a child of the span that its spawner or the sender of a message happened to be in, which
//! would stay open as long as all that ever came of it. It *follows from* the span in which it was
//! spawned. Fields: `pid`, `kind`, `spawned_at`; `label` and `parent`, if there are any; `exit`,
//! once it has ended.
//!
//! It is entered for each step, and for the `Drop` of what the process holds, and closed when the
//! process ends, also if its handle is kept. If no subscriber wants it, the process is as it would
//! be without this; then a spawn costs one load more.
//!
//! A job of [`spawn_blocking`](crate::spawn_blocking()) is no process, and has no span of its own:
//! it is the work of whoever submitted it, on another thread, so it runs in the span in which it
//! was submitted. That one stays open until the job is over, also if the process has ended before:
//! a job that runs cannot be ended. Jobs of other pools run in no span but those that they make;
//! the processes of async pools have none, since there is one for each job (a job takes 3 to 5 %
//! longer if it is only asked whether anybody wants one).
//!
//! A subscriber is the user's code: what it panics with in a step is the process's panic, and
//! elsewhere is dropped.

use std::any::Any;
use std::mem;
use std::task::Context as TaskContext;

use tracing::field::{Empty, display};
use tracing::{Level, Span, event, event_enabled, info_span};

use crate::Exit;
use crate::process::body::{Body, Step};
use crate::process::slot::Slot;
use crate::process::unwind::{drop_guarded, guarded};
use crate::watchdog::state::{Stall, StallKind};

/// A process in its span.
struct Traced {
    span: Span,
    body: Box<dyn Body>,
}

/// Gives the new process in `slot` a span, if anybody wants one.
pub(crate) fn traced(slot: &Slot, body: Box<dyn Body>) -> Box<dyn Body> {
    let make = || {
        let span = info_span!(
            target: "procession",
            parent: None,
            "process",
            pid = %slot.pid(),
            label = slot.extra().and_then(|extra| extra.label.as_deref()),
            kind = slot.kind().name,
            spawned_at = %slot.location(),
            parent = slot.parent().map(display),
            exit = Empty,
        );
        if !span.is_disabled() {
            span.follows_from(Span::current());
        }
        span
    };
    match guarded(make) {
        Ok(span) if !span.is_disabled() => Box::new(Traced { span, body }),
        _ => body,
    }
}

/// A job that runs in the span of whoever submits it.
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

impl Body for Traced {
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        let step = self.span.in_scope(|| self.body.step(slot, task));
        if let Step::Ended(exit) = &step {
            self.note_exit(exit.as_deref().unwrap_or(&Exit::Normal));
            self.close();
        }
        step
    }

    fn end(&mut self, slot: &Slot, exit: Exit) {
        // Before, since a `Drop` may panic; the span is closed with the body then.
        self.note_exit(&exit);
        self.span.in_scope(|| self.body.end(slot, exit));
        self.close();
    }

    fn take_result(&mut self, result: &mut dyn Any) {
        self.body.take_result(result);
    }
}

/// Whether a subscriber wants to hear of stalls.
pub(crate) fn wants_stalls() -> bool {
    event_enabled!(target: "procession", Level::WARN)
}

/// Tells of a stall, outside of all spans: it is the watchdog that speaks.
pub(crate) fn stalled(stall: &Stall) {
    event!(
        target: "procession",
        parent: None,
        Level::WARN,
        worker = stall.worker,
        pid = stall.pid.map(display),
        label = stall.label.as_deref(),
        spawned_at = stall.location.map(display),
        duration_ms = u64::try_from(stall.duration.as_millis()).unwrap_or(u64::MAX),
        kind = match stall.kind {
            StallKind::Blocked => "blocked",
            StallKind::Computing => "computing",
        },
        replaced = stall.replaced,
        next_slot = stall.next_slot,
        queued = stall.queued,
        "{stall}"
    );
}
