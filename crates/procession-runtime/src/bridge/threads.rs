//! The threads of a scheduler's tokio runtime, which belong to that scheduler.

use std::cell::Cell;
use std::sync::{Arc, OnceLock, Weak};

use crate::scheduler::current::{Current, Entered};
use crate::scheduler::shared::Shared;

/// The scheduler that the threads of a runtime belong to. The runtime is started first, and its
/// threads wait for the scheduler to be built. If it is not built, dropping this lets them go on.
///
/// A thread of the runtime holds the scheduler as long as it lives, and the scheduler holds the
/// runtime. This circle ends when the scheduler has ended and has no owner, because the runtime is
/// stopped then.
#[derive(Default)]
pub(crate) struct RuntimeThreads(Arc<OnceLock<Option<Weak<Shared>>>>);

impl RuntimeThreads {
    /// Returns the function that each thread calls first.
    pub(crate) fn begin(&self) -> impl Fn() + Send + Sync + 'static {
        let scheduler = Arc::clone(&self.0);
        move || {
            if let Some(shared) = scheduler.wait().as_ref().and_then(Weak::upgrade) {
                belong_to(shared);
            }
        }
    }

    /// Makes the threads belong to `shared`.
    pub(crate) fn connect(&self, shared: &Arc<Shared>) {
        self.settle(Some(Arc::downgrade(shared)));
    }

    fn settle(&self, shared: Option<Weak<Shared>>) {
        // Ignored: it is set already, and stays as it is.
        let _ = self.0.set(shared);
    }
}

impl Drop for RuntimeThreads {
    fn drop(&mut self) {
        self.settle(None);
    }
}

/// Makes this thread belong to a scheduler for as long as it lives.
fn belong_to(shared: Arc<Shared>) {
    thread_local! {
        /// Leaves the scheduler when the thread ends.
        static ENTERED: Cell<Option<Entered>> = const { Cell::new(None) };
    }
    ENTERED.set(Some(Entered::enter(Current::outside(shared))));
}
