//! The tokio runtime of a scheduler.

use std::io;
use std::sync::Arc;

use procession_sync::Mutex;
use tokio::runtime::{EnterGuard, Handle, Runtime};

use super::paused::{self, Driven, PausedClock};
use crate::process::unwind::{drop_guarded, guarded};
use crate::scheduler::error::BuildError;
use crate::scheduler::part::Plan;
use crate::sys::os;

/// The choice that a builder makes about tokio.
#[derive(Default)]
pub(crate) enum RuntimeChoice {
    /// A runtime that is as wide as the scheduler, unless the scheduler starts no threads, is on
    /// the test clock, or runs on a simulated system.
    #[default]
    Default,
    /// A runtime with this number of threads, or none.
    Threads(usize),
    Given(Handle),
}

pub(crate) struct Bridge {
    handle: Handle,
    own: Mutex<Own>,
    /// Present if the scheduler is on the test clock.
    paused: Option<PausedClock>,
}

#[derive(Default)]
pub(super) struct Own {
    /// `None` if the runtime belongs to the user, has been stopped, or is lent to a worker.
    runtime: Option<Runtime>,
    /// `true` once the scheduler has no processes and takes none.
    pub(super) ended: bool,
    /// `true` once no owner is left that could block on the scheduler's futures.
    pub(super) unowned: bool,
}

/// Opens the chosen bridge. If it starts a runtime, each thread of the runtime calls `begin` first.
pub(crate) fn open(
    choice: RuntimeChoice,
    plan: &Plan<'_>,
    begin: impl Fn() + Send + Sync + 'static,
) -> Result<Option<Arc<Bridge>>, BuildError> {
    // A test clock with tokio waits for the threads of libraries. Other tests have no runtime,
    // because they make the same dispatches each time.
    let starts_none = os::here().is_some() || plan.callers_drive || plan.test_clock;
    let threads = match choice {
        RuntimeChoice::Given(_) if plan.test_clock => return Err(BuildError::TokioWithTestClock),
        RuntimeChoice::Given(handle) => return Ok(Some(Bridge::new(handle, None, None))),
        RuntimeChoice::Default if starts_none => return Ok(None),
        RuntimeChoice::Default => plan.width,
        RuntimeChoice::Threads(0) => return Ok(None),
        RuntimeChoice::Threads(threads) => threads,
    };
    let (runtime, clock) = if plan.test_clock {
        if plan.max_threads > 1 {
            return Err(BuildError::PausedTokioThreads(plan.max_threads));
        }
        let (runtime, clock) = paused::start(plan.name, begin)?;
        (runtime, Some(clock))
    } else {
        (start(plan.name, threads, begin).map_err(BuildError::Thread)?, None)
    };
    Ok(Some(Bridge::new(runtime.handle().clone(), Some(runtime), clock)))
}

/// Starts a runtime, each thread of which calls `begin` first. The threads serve the sockets and
/// timers of tokio, and run its tasks. The workers of the scheduler do the rest.
pub(crate) fn start(
    name: &str,
    threads: usize,
    begin: impl Fn() + Send + Sync + 'static,
) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(format!("{name}-tokio")).enable_all();
    builder.on_thread_start(begin);
    // The builder panics if the system refuses the thread.
    guarded(|| builder.build()).unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

impl Bridge {
    fn new(handle: Handle, runtime: Option<Runtime>, paused: Option<PausedClock>) -> Arc<Self> {
        let own = Mutex::new(Own { runtime, ..Own::default() });
        Arc::new(Self { handle, own, paused })
    }

    /// Returns the clock of the runtime, if that is paused.
    pub(crate) fn paused(&self) -> Option<&PausedClock> {
        self.paused.as_ref()
    }

    /// Runs the tasks of a paused runtime, with the scheduler's clock at `now`. Returns `None` if
    /// there is no such runtime, or if another thread has it.
    pub(crate) fn drive_tasks(&self, now: u64) -> Option<Driven> {
        let clock = self.paused()?;
        clock.note_drive();
        Some(clock.drive(self.lend()?.runtime.as_ref()?, now))
    }

    /// Moves the clock of a paused runtime towards the scheduler's next deadline. Returns what the
    /// scheduler's clock, which is at `now`, is to show.
    pub(crate) fn advance_clock(&self, now: u64, deadline: u64) -> u64 {
        let Some(lent) = self.lend() else { return deadline };
        match (self.paused(), &lent.runtime) {
            (Some(clock), Some(runtime)) => clock.advance(runtime, now, deadline),
            _ => deadline,
        }
    }

    /// Keeps this thread in the context of the runtime while the result lives.
    pub(super) fn context(&self) -> EnteredRuntime<'_> {
        enter_by(&self.handle)
    }

    /// Takes the paused runtime, unless another thread has it. Its tasks are user code, so no lock
    /// is held while they run.
    fn lend(&self) -> Option<LentRuntime<'_>> {
        self.paused()?;
        let runtime = self.own.lock().runtime.take()?;
        Some(LentRuntime { bridge: self, runtime: Some(runtime) })
    }

    /// Changes the state of the runtime, and stops the runtime if it is not needed any more. That
    /// drops its tasks, which are user code.
    pub(super) fn change(&self, change: impl FnOnce(&mut Own)) {
        let mut own = self.own.lock();
        change(&mut own);
        let over = if own.ended && own.unowned { own.runtime.take() } else { None };
        drop(own);
        stop(over);
    }
}

/// A runtime that is lent to a thread. Dropping this value ends the loan.
struct LentRuntime<'a> {
    bridge: &'a Bridge,
    /// Present until the drop.
    runtime: Option<Runtime>,
}

impl Drop for LentRuntime<'_> {
    fn drop(&mut self) {
        let runtime = self.runtime.take();
        self.bridge.change(|own| own.runtime = runtime);
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        stop(self.own.lock().runtime.take());
    }
}

/// Stops a runtime without waiting for it.
fn stop(runtime: Option<Runtime>) {
    if let Some(runtime) = runtime {
        drop(guarded(|| runtime.shutdown_background()));
    }
}

/// Keeps this thread in the context of the tokio runtime.
pub(crate) struct EnteredRuntime<'a>(Option<EnterGuard<'a>>);

impl Drop for EnteredRuntime<'_> {
    fn drop(&mut self) {
        // Dropping the guard panics if other code has leaked such a guard. Then the thread stays in
        // the context of the leaked guard.
        drop_guarded(self.0.take());
    }
}

pub(crate) fn enter_by(handle: &Handle) -> EnteredRuntime<'_> {
    // Entering panics on a thread with destroyed thread-locals. Such a thread can do without the
    // context.
    EnteredRuntime(guarded(|| handle.enter()).ok())
}
