//! Pools: what they run, refuse and return, and how they grow, shrink and end.

mod async_scope;
mod coroutines;
mod deaths;
mod functions;
mod lanes;
mod model;
mod nested;
mod others;
mod processes;
mod resting;
mod scope;
mod threads;
mod waits;

use crate::home::mpsc::{Receiver, Sender, channel};

use procession::pool::PoolStats;

/// Holds jobs back until it is opened or dropped.
struct Gate {
    opener: Option<Sender<()>>,
    entered: Receiver<()>,
}

/// Returns a closure that reports when it runs, and ends when the gate is opened.
fn gated() -> (Gate, impl FnOnce() + Send + 'static) {
    let (opener, opened) = channel::<()>();
    let (enter, entered) = channel();
    let job = move || {
        // Ignored: the test may not look whether it runs.
        let _ = enter.send(());
        let _ = opened.recv();
    };
    (Gate { opener: Some(opener), entered }, job)
}

impl Gate {
    #[track_caller]
    fn wait_for_job(&self) {
        crate::scene::soon(&self.entered);
    }

    fn open(mut self) {
        self.opener = None;
    }
}

/// Asserts the relations that always hold.
#[track_caller]
fn assert_sums(stats: &PoolStats) {
    assert_eq!(stats.live, stats.busy + stats.idle, "{stats:?}");
    let accounted = stats.completed + stats.panicked + stats.cancelled;
    let pending = (stats.queued + stats.busy + stats.inline) as u64;
    assert_eq!(stats.submitted, accounted + pending, "{stats:?}");
    assert!(stats.workers_started >= stats.workers_retired, "{stats:?}");
    assert_eq!(stats.workers_started - stats.workers_retired, stats.live as u64, "{stats:?}");
}
