//! The virtual threads of a run: their start and end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use procession::sim::{Os, ThreadBody, bind_to_one_processor, enter};
use procession_sync::host::atomic::Ordering::Relaxed;
use procession_sync::thread;

use super::turn::Turn;
use super::{ENGINE, Engine, ME, Status, Virtual, Why};

/// What is left of a run when its engine stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leftover {
    /// Virtual threads that can never go on. They stay parked.
    pub(crate) threads: usize,
}

impl Engine {
    /// Starts a virtual thread. It runs when it gets a turn.
    pub(super) fn launch(&self, name: String, body: ThreadBody) -> io::Result<()> {
        let turn = Arc::new(Turn::default());
        let engine = self.me.upgrade().expect("the caller holds it");
        let mut state = self.state();
        let number = state.threads.len() as u32 + 1;
        let own = Arc::clone(&turn);
        let run = move || {
            if number == 1 {
                // One thread runs at a time, and to wake a thread on another processor takes longer
                // than most steps. If the system refuses, the run is only slower.
                let _ = bind_to_one_processor();
            }
            own.take();
            ME.set(number);
            ENGINE.set(Some(Arc::clone(&engine)));
            let entered = enter(Arc::clone(&engine) as Arc<dyn Os>);
            #[cfg(procession_sim)]
            let watched = {
                engine.begin_first_turn();
                engine.watch_operations()
            };
            // Panics end here, as in a detached thread. The hook has noted them.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)));
            #[cfg(procession_sim)]
            {
                // Another thread may run before the last stores are visible.
                procession_sync::simulated::fence();
                drop(watched);
            }
            drop(entered);
            ENGINE.set(None);
            engine.end_thread(number);
        };
        #[expect(clippy::disallowed_methods, reason = "this is the home of virtual threads")]
        let handle = thread::Builder::new().name(name.clone()).spawn(run)?;
        let _ = turn.thread.set(handle.thread().clone());
        state.threads.push(Virtual {
            name,
            status: Status::Ready,
            has_token: false,
            source: None,
            used: 0,
            turn,
            handle: Some(handle),
            ended: None,
            #[cfg(procession_sim)]
            blocked_on: None,
        });
        Ok(())
    }

    /// Runs `main` as the first virtual thread, and waits until all have ended or cannot go on.
    ///
    /// # Errors
    /// The name of the running thread, if no point was passed for `timeout`.
    pub(crate) fn run(&self, main: ThreadBody, timeout: Duration) -> Result<Leftover, String> {
        self.launch("main".into(), main).map_err(|error| format!("main: {error}"))?;
        let turn = Arc::clone(&self.state().threads[0].turn);
        turn.give();
        let mut seen = u64::MAX;
        let mut left = self.left.lock();
        loop {
            if let Some(left) = *left {
                return Ok(left);
            }
            let (again, is_late) = self.stopped.wait_timeout(left, timeout);
            left = again;
            // Relaxed: a number that grows while anything happens.
            let points = self.points.load(Relaxed);
            if is_late && points == seen && left.is_none() {
                return Err(self.running());
            }
            seen = if is_late { points } else { u64::MAX };
        }
    }

    /// Describes the thread that has the turn.
    fn running(&self) -> String {
        let state = self.state();
        let name = state.story.running.and_then(|number| state.threads.get(number));
        name.map_or_else(|| "a thread".into(), |thread| thread.name.clone())
    }

    /// Stops the engine: all threads have ended or cannot go on.
    pub(super) fn stop(&self, threads: usize) {
        *self.left.lock() = Some(Leftover { threads });
        self.stopped.notify_all();
    }

    fn end_thread(&self, number: u32) {
        self.state().threads[number as usize - 1].status = Status::Ended;
        #[cfg(procession_sim)]
        self.unblock_joining();
        self.pass(number, Why::End);
    }
}
