//! The tokio runtime beside a scheduler.

use std::io;
use std::sync::Arc;

use procession_sync::Mutex;
use tokio::runtime::{EnterGuard, Handle, Runtime};

use crate::process::unwind::{drop_guarded, guarded};
use crate::scheduler::error::BuildError;

/// One thread serves the sockets and timers, and runs what is given to tokio itself. The
/// scheduler's workers do the rest.
const THREADS: usize = 1;

/// The choice that a builder makes about tokio.
pub(crate) enum RuntimeChoice {
    None,
    Own,
    Given(Handle),
}

pub(crate) struct Bridge {
    handle: Handle,
    own: Mutex<Own>,
}

#[derive(Default)]
struct Own {
    /// `None` if the runtime belongs to the user or has been stopped.
    runtime: Option<Runtime>,
    /// `true` once the scheduler has no processes and takes none.
    ended: bool,
    /// `true` once no owner is left that could block on the scheduler's futures.
    unowned: bool,
}

/// Opens the chosen bridge. If it starts a runtime, each thread of the runtime calls `begin` first.
pub(crate) fn open(
    choice: RuntimeChoice,
    name: &str,
    test_clock: bool,
    begin: impl Fn() + Send + Sync + 'static,
) -> Result<Option<Arc<Bridge>>, BuildError> {
    if test_clock && !matches!(choice, RuntimeChoice::None) {
        return Err(BuildError::TokioWithTestClock);
    }
    let (handle, runtime) = match choice {
        RuntimeChoice::None => return Ok(None),
        RuntimeChoice::Given(handle) => (handle, None),
        RuntimeChoice::Own => {
            let runtime = start(name, begin).map_err(BuildError::Thread)?;
            (runtime.handle().clone(), Some(runtime))
        }
    };
    let own = Mutex::new(Own { runtime, ..Own::default() });
    Ok(Some(Arc::new(Bridge { handle, own })))
}

/// Starts a runtime, each thread of which calls `begin` first.
pub(crate) fn start(name: &str, begin: impl Fn() + Send + Sync + 'static) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(THREADS).thread_name(format!("{name}-tokio")).enable_all();
    builder.on_thread_start(begin);
    // The builder panics if the system refuses the thread.
    guarded(|| builder.build()).unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

impl Bridge {
    /// Notes that no process is left and none will come.
    pub(crate) fn note_ended(&self) {
        self.change(|own| own.ended = true);
    }

    /// Notes that the scheduler has no owner any more.
    pub(crate) fn note_unowned(&self) {
        self.change(|own| own.unowned = true);
    }

    fn change(&self, change: impl FnOnce(&mut Own)) {
        let mut own = self.own.lock();
        change(&mut own);
        let over = if own.ended && own.unowned { own.runtime.take() } else { None };
        drop(own);
        stop(over);
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
        // the context of that other one.
        drop_guarded(self.0.take());
    }
}

/// Enters the runtime, if there is one.
pub(crate) fn enter(bridge: Option<&Bridge>) -> EnteredRuntime<'_> {
    bridge.map_or(EnteredRuntime(None), |bridge| enter_by(&bridge.handle))
}

pub(crate) fn enter_by(handle: &Handle) -> EnteredRuntime<'_> {
    // Entering panics on a thread with destroyed thread-locals. Such a thread can do without the
    // context.
    EnteredRuntime(guarded(|| handle.enter()).ok())
}
