//! The runtime of tokio's that stands beside a scheduler.

use std::io;
use std::sync::Arc;

use procession_sync::Mutex;
use tokio::runtime::{EnterGuard, Handle, Runtime};

use crate::BuildError;
use crate::process::unwind::{drop_guarded, guarded};

/// One: it serves sockets and timers, and runs what is given to tokio itself; the work is done by the scheduler's workers.
const THREADS: usize = 1;

/// What a builder says about tokio.
pub(crate) enum Choice {
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
    /// Nothing if it was given, or has been stopped.
    runtime: Option<Runtime>,
    /// Whether the scheduler has no processes any more, and takes none.
    ended: bool,
    /// Whether nobody can block on its futures any more.
    unowned: bool,
}

/// The bridge that was chosen.
pub(crate) fn open(choice: Choice, name: &str, test_clock: bool) -> Result<Option<Arc<Bridge>>, BuildError> {
    if test_clock && !matches!(choice, Choice::None) {
        let text = "tokio goes by the real clock, and the test clock would jump over all that waits for it";
        return Err(BuildError::Invalid(text.into()));
    }
    let (handle, runtime) = match choice {
        Choice::None => return Ok(None),
        Choice::Given(handle) => (handle, None),
        Choice::Own => {
            let runtime = start(name).map_err(BuildError::Thread)?;
            (runtime.handle().clone(), Some(runtime))
        }
    };
    Ok(Some(Arc::new(Bridge { handle, own: Mutex::new(Own { runtime, ..Own::default() }) })))
}

pub(crate) fn start(name: &str) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(THREADS).thread_name(format!("{name}-tokio")).enable_all();
    // It panics if the system refuses its thread.
    guarded(|| builder.build()).unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

impl Bridge {
    /// No process is left, and none comes.
    pub(crate) fn note_ended(&self) {
        self.change(|own| own.ended = true);
    }

    /// Nobody has the scheduler any more.
    pub(crate) fn note_unowned(&self) {
        self.change(|own| own.unowned = true);
    }

    fn change(&self, change: impl FnOnce(&mut Own)) {
        let mut own = self.own.lock().expect("nothing that can panic runs under this lock");
        change(&mut own);
        let over = if own.ended && own.unowned { own.runtime.take() } else { None };
        drop(own);
        stop(over);
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        stop(self.own.lock().expect("nothing that can panic runs under this lock").runtime.take());
    }
}

/// Stops a runtime without waiting for it.
fn stop(runtime: Option<Runtime>) {
    if let Some(runtime) = runtime {
        drop(guarded(|| runtime.shutdown_background()));
    }
}

/// This thread is in the context of tokio's runtime.
pub(crate) struct Context<'a>(Option<EnterGuard<'a>>);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // It panics if somebody has forgotten another such guard. Then the thread stays in that one's context.
        drop_guarded(self.0.take());
    }
}

/// Enters the runtime, if there is one.
pub(crate) fn enter(bridge: Option<&Bridge>) -> Context<'_> {
    bridge.map_or(Context(None), |bridge| enter_by(&bridge.handle))
}

pub(crate) fn enter_by(handle: &Handle) -> Context<'_> {
    // It panics on a thread whose locals are destroyed: that one can do without.
    Context(guarded(|| handle.enter()).ok())
}
