//! Pools of the whole program, each for one purpose. A pool is built when it is first used.

use std::sync::OnceLock;

use super::builder::Queue;
use super::error::SubmitError;
use super::job_handle::JobHandle;
use super::operations::Pool;

/// A pool of the program: at most 512 threads, which end after 10 s without work, and a queue
/// without a bound. One purpose cannot use up the threads of another.
pub(crate) struct ProgramPool {
    name: &'static str,
    pool: OnceLock<Pool>,
}

impl ProgramPool {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, pool: OnceLock::new() }
    }

    /// Runs a closure on a thread of the pool.
    ///
    /// # Errors
    /// Returns the closure if the system gives no thread at all.
    pub(crate) fn submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        #[cfg(feature = "sim")]
        if let Some(pool) = self.simulated() {
            return pool.submit(closure);
        }
        self.pool.get_or_init(|| self.build()).submit(closure)
    }

    fn build(&self) -> Pool {
        let builder = Pool::builder().name(self.name).queue(Queue::Unbounded);
        builder.build().expect("the defaults are in range, and nothing is started yet")
    }

    /// Returns the pool of the simulated program that the calling thread runs in, if it runs in
    /// one.
    #[cfg(feature = "sim")]
    fn simulated(&self) -> Option<std::sync::Arc<Pool>> {
        let pool = crate::sys::os::here()?.local(self.name, &|| std::sync::Arc::new(self.build()));
        Some(pool.downcast().expect("the value of this name is a pool"))
    }
}

/// Runs a closure that blocks or computes for long on a separate thread, while processes continue.
///
/// The threads belong to one pool of the program. It has at most 512 threads, started as jobs need
/// them, and each ends after 10 s without work. If all are busy, closures wait in a queue without a
/// bound. For other limits, build a [`Pool`].
///
/// ```
/// let read = || std::fs::read_to_string("Cargo.toml");
/// let text = procession::run(async { procession::spawn_blocking(read).await })?;
/// assert!(text?.contains("[package]"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If the system gives no thread at all, the closure is dropped, and the handle resolves to
/// [`JobError::Refused`](super::JobError::Refused). A test clock stands still until the closure has
/// returned.
pub fn spawn_blocking<F, T>(closure: F) -> JobHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    static POOL: ProgramPool = ProgramPool::new("blocking");
    #[cfg(feature = "tracing")]
    let closure = crate::process::span::in_current_span(closure);
    POOL.submit(closure).unwrap_or_else(|_| JobHandle::refused())
}
