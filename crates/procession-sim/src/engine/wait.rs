//! Waits of the program's own threads for other threads of the program.

use std::time::Duration;

use procession::sim::Os;

use crate::engine::threads::current;
use crate::engine::{Engine, ME, State};
use crate::time::NEVER;

/// Makes what the calling thread has stored visible to others, as a call of the system does.
pub(crate) fn publish() {
    #[cfg(procession_sim)]
    procession_sync::simulated::enter_kernel();
}

/// Waits until `is_over` returns `true`, or until the time is over. It is asked each time that a
/// thread of the program calls [`notify`]. Outside of a simulation, it is asked once.
pub(crate) fn wait_until(timeout: Option<Duration>, mut is_over: impl FnMut() -> bool) {
    let Some(engine) = current() else {
        is_over();
        return;
    };
    let now = engine.now();
    let deadline =
        timeout.map_or(NEVER, |timeout| now.saturating_add(crate::time::nanoseconds(timeout)));
    while !is_over() && engine.now() < deadline {
        engine.state().begin_wait(ME.get());
        engine.park(deadline);
        engine.state().threads[ME.get() as usize - 1].waits = false;
    }
    #[cfg(procession_sim)]
    engine.order_threads();
}

/// Lets all threads that wait ask again.
pub(crate) fn notify() {
    if let Some(engine) = current() {
        engine.notify_waiting();
    }
}

impl State {
    /// Notes that a thread waits for others. If it is a worker, its step stalls, for as long as it
    /// takes.
    fn begin_wait(&mut self, thread: u32) {
        self.waiting.push(thread);
        let thread = &mut self.threads[thread as usize - 1];
        thread.waits = thread.worker.is_some();
        if thread.waits {
            self.bounds.note_stall();
        }
    }
}

impl Engine {
    /// Lets all threads of the program that wait for others ask again.
    pub(crate) fn notify_waiting(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        for thread in waiting {
            self.unpark(thread);
        }
    }
}
