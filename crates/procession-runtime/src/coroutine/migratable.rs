//! Coroutines that may move from worker to worker.

use crate::coroutine::body::Placement;
use crate::coroutine::context::Context;
use crate::process::exit::Returns;
use crate::scheduler::spawn_error::SpawnError;
use crate::{Child, SpawnOptions};

impl SpawnOptions {
    /// Starts a coroutine that stays on no worker: any free worker resumes it, as for async
    /// processes.
    ///
    /// # Safety
    /// While the coroutine waits, nothing that is bound to a thread may live on its stack, in any
    /// function that it calls: no value that is not `Send`, no lock guard of `std`, no `errno`, and
    /// no borrow or address of a thread-local, not even if only the compiler or a foreign library
    /// keeps it. Compilers do keep addresses of thread-locals across calls, so no code that uses a
    /// thread-local may be inlined around a wait.
    ///
    /// # Errors
    /// Like [`try_start_coroutine`](Self::try_start_coroutine).
    #[track_caller]
    pub unsafe fn try_start_migratable<M, F, T>(
        self,
        function: F,
    ) -> Result<Child<M, T>, SpawnError<F>>
    where
        M: Send + 'static,
        F: FnOnce(Context<M>) -> T + Send + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        // SAFETY: promised by the caller.
        let placement = unsafe { Placement::migratable() };
        let location = crate::scheduler::owner::caller();
        self.launch_coroutine(location, function, |cx, function| function(cx), placement)
    }
}
