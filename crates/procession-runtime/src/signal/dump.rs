//! Dumps of the flight recorder that a signal asks for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Wake, Waker};

use procession_sync::Mutex;

use super::listener::{SignalKind, signal};
use crate::recorder::dump::{DumpCause, Dumps};
use crate::scheduler::current::{Current, Entered};
use crate::scheduler::owner::Scheduler;
use crate::scheduler::shared::Shared;

/// Available with the crate feature `signal`.
impl Scheduler {
    /// Writes the [flight recorder](crate::recorder::Trace#files) to a file whenever the program
    /// gets this signal, for example [SIGUSR2](SignalKind::user_defined2), from now on. This works
    /// while all workers are stalled. Signals within 60 seconds of the last file write none.
    ///
    /// # Errors
    /// `InvalidInput`, if the scheduler has no [directory](crate::Builder::dump_directory) or no
    /// [recorder](crate::Builder::recorder_events), or the crate feature `look` is off. Otherwise
    /// the errors of
    /// [`signal`](crate::signal::signal()).
    ///
    /// ```
    /// use procession::Scheduler;
    /// use procession::signal::SignalKind;
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let refused = scheduler.dump_on_signal(SignalKind::user_defined2()).unwrap_err();
    /// assert!(refused.to_string().contains("no directory"));
    /// # Ok::<(), procession::scheduler::BuildError>(())
    /// ```
    pub fn dump_on_signal(&self, kind: SignalKind) -> io::Result<()> {
        let shared = self.shared();
        let missing = match (&Dumps::of(shared).target, shared.recorder.is_on()) {
            (None, _) => Some("directory"),
            (_, false) => Some("recorder"),
            _ => None,
        };
        if let Some(missing) = missing {
            let text = format!("cannot dump on {kind}: the scheduler has no {missing}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut listener = signal(kind)?;
        let scheduler = Arc::downgrade(shared);
        let task = Arc::new(SignalTask::new(async move {
            while listener.recv().await.is_some() && dump(&scheduler) {}
        }));
        // The caller may be a process. The first poll must not be charged to its step.
        let _entered = Entered::enter(Current::outside(Arc::clone(shared)));
        task.run();
        Ok(())
    }
}

/// Requests a dump. Returns `false` if the scheduler has ended.
fn dump(scheduler: &Weak<Shared>) -> bool {
    let Some(shared) = scheduler.upgrade() else { return false };
    Dumps::request(&shared, DumpCause::Signal);
    true
}

/// A future that is polled by the thread that wakes it, which is a thread that receives signals.
struct SignalTask(Mutex<TaskState>);

struct TaskState {
    /// `None` while it is polled, and once it has ended.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Set if it was woken while it was polled.
    is_woken: bool,
}

impl SignalTask {
    fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Mutex::new(TaskState { future: Some(Box::pin(future)), is_woken: false }))
    }

    fn run(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        loop {
            let mut state = self.0.lock();
            let Some(mut future) = state.future.take() else {
                state.is_woken = true;
                return;
            };
            state.is_woken = false;
            drop(state);
            if future.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_ready() {
                return;
            }
            let mut state = self.0.lock();
            state.future = Some(future);
            if !state.is_woken {
                return;
            }
        }
    }
}

impl Wake for SignalTask {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}
