//! Time: sleeps, intervals, timers that run functions or send messages, and the test clock.

mod clock;
mod extremes;
mod functions;
mod model;
mod sleeps;
mod stress;
mod ticks;
mod wakers;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use procession::observe::TimerSnapshot;
use procession::{JoinHandle, Scheduler};

use crate::scene::{TIMEOUT, seconds};

const HOUR: Duration = Duration::from_secs(3600);

fn on_test_clock(width: usize) -> Scheduler {
    let builder =
        Scheduler::builder().worker_threads(width).max_processes(1 << 16).max_timers(1 << 16);
    builder.test_clock().build().expect("the system has threads")
}

fn on_real_clock(width: usize) -> Scheduler {
    let builder =
        Scheduler::builder().worker_threads(width).max_processes(1 << 16).max_timers(1 << 16);
    builder.build().expect("the system has threads")
}

/// Returns the result of a process that must end soon, without a panic.
fn joined<T: Send + 'static>(handle: JoinHandle<T>) -> T {
    handle.join_timeout(TIMEOUT).expect("it does not hang").expect("it does not panic")
}

/// Polls a future once, with the waker of the calling process.
async fn polled<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await
}

/// Returns the counts of the timers, which must balance.
fn timers(scheduler: &Scheduler) -> TimerSnapshot {
    let timers = scheduler.snapshot().timers;
    assert_eq!(timers.armed, timers.fired + timers.cancelled + timers.pending);
    timers
}
