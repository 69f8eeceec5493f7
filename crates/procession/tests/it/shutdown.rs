//! The end of a scheduler: in order, by a deadline, or by a drop.

mod after;
mod by_default;
mod deadline;
mod dropped;
mod empty;
mod load;
mod orderly;

use crate::home::mpsc;
use std::time::Duration;

use procession::Scheduler;
use procession::machine::{CommandId, Completion, Value};
use procession::observe::Unfinished;
use procession::scheduler::Builder;

/// A deadline that passes only if something hangs.
const AMPLE: Duration = Duration::from_secs(60);

/// Creates a builder with the real clock and that many workers or, for 0, with the test clock and
/// the calling thread.
fn builder(width: usize) -> Builder {
    let builder = Scheduler::builder()
        .worker_threads(width.max(1))
        .max_processes(1 << 17)
        .max_timers(1 << 17);
    if width == 0 { builder.test_clock() } else { builder }
}

fn scheduler(width: usize) -> Scheduler {
    builder(width).build().expect("the system has threads")
}

/// Creates a scheduler, and a receiver that is disconnected once nothing of it is left.
fn mortal(width: usize) -> (Scheduler, mpsc::Receiver<()>) {
    mortal_of(builder(width))
}

fn mortal_of(builder: Builder) -> (Scheduler, mpsc::Receiver<()>) {
    let (alive, freed) = mpsc::channel();
    let handler = move |_: Value, _: Completion| alive.send(()).expect("the test listens");
    let scheduler = builder.handler(CommandId::FIRST_FREE, handler).build();
    (scheduler.expect("the system has threads"), freed)
}

/// Shuts down from this thread, with enough time.
fn shut_down(scheduler: &Scheduler) -> Unfinished {
    scheduler.block_on(scheduler.shutdown(AMPLE))
}
