//! Coroutines that may move from worker to worker.

use crate::coroutine::body::Placement;
use crate::coroutine::context::Context;
use crate::spawn::error::SpawnError;
use crate::{Child, SpawnOptions};

impl SpawnOptions {
    /// As [`spawn_coroutine`](Self::spawn_coroutine), but the coroutine stays on no worker:
    /// whichever is free resumes it, as it does async processes.
    ///
    /// # Safety
    /// Nothing that is bound to a thread lives on its stack while it waits, in any function that it
    /// calls: no value that is not `Send`, no lock guard of `std`, no borrow and no address of a
    /// thread-local, also not one that the compiler or a foreign library keeps; nor `errno`.
    /// Compilers do keep addresses of thread-locals across calls, so nothing that uses one may be
    /// inlined around a wait.
    ///
    /// # Errors
    /// As for [`spawn_coroutine`](Self::spawn_coroutine).
    #[track_caller]
    pub unsafe fn spawn_migratable<M, F, T>(self, function: F) -> Result<Child<M, T>, SpawnError<F>>
    where
        M: Send + 'static,
        F: FnOnce(Context<M>) -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: promised by the caller.
        let placement = unsafe { Placement::migratable() };
        self.launch_coroutine(crate::scheduler::owner::caller(), function, placement)
    }
}
