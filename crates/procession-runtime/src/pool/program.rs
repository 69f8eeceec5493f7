//! Pools of the whole program, each for one purpose. A pool is built when it is first used.

use std::convert::identity;
use std::sync::{Arc, OnceLock};

use procession_protocols::pool::state::lane::JobLane;
use procession_protocols::pool::state::outcome::Entered;

use super::builder::Queue;
use super::error::JobError;
use super::job::JobEnds;
use super::job_handle::{AnyPool, JobHandle};
use super::members::pick;
use super::operations::Pool;
use super::source::{Call, ClosureJob};
use crate::scheduler::origin::JobOrigin;
use crate::scheduler::writes::AcceptedJob;

/// A pool of the program: at most 512 threads, which end after 10 s without work, and a queue
/// without a bound. One pool cannot use up the threads of another.
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
    /// If the system refuses to start even one thread, returns a handle that resolves to
    /// [`JobError::Refused`], and drops the closure.
    pub(crate) fn submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, JobHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (ends, cell) = JobEnds::with_handle(JobOrigin::current());
        let (pool, entered) = self.put(ClosureJob(Box::new(Call { content: closure, ends })));
        match entered {
            Ok(ticket) => Ok(JobHandle::new(pool, cell, ticket)),
            Err(refused) => {
                // Before the drop of the job, which cancels it.
                cell.resolve(Err(JobError::Refused));
                drop(refused);
                // No job has the ticket 0.
                Err(JobHandle::new(pool, cell, 0))
            }
        }
    }

    /// Puts a job into the pool. Returns the pool, and the ticket of the job or the job itself.
    // Neither generic nor inlined, because a program that only opens a file or looks a name up
    // would otherwise compile the pools once more.
    #[inline(never)]
    fn put(&self, job: ClosureJob) -> (Arc<dyn AnyPool>, Entered<ClosureJob>) {
        #[cfg(feature = "sim")]
        if let Some(pool) = self.simulated() {
            return Self::put_into(&pool, job);
        }
        Self::put_into(self.pool.get_or_init(|| self.build()), job)
    }

    fn put_into(pool: &Pool, job: ClosureJob) -> (Arc<dyn AnyPool>, Entered<ClosureJob>) {
        let inner = pick(pool.owners());
        // The queue has no bound, so there is nothing to wait for.
        (Arc::clone(inner) as _, inner.enter(None, JobLane::default(), job))
    }

    fn build(&self) -> Pool {
        let builder = Pool::builder().name(self.name).queue(Queue::Unbounded);
        builder.build().expect("the defaults are in range, and nothing is started yet")
    }

    /// Returns the pool of the simulated program that the calling thread runs in, if it runs in
    /// one.
    #[cfg(feature = "sim")]
    fn simulated(&self) -> Option<Arc<Pool>> {
        let pool = crate::sys::os::here()?.local(self.name, &|| Arc::new(self.build()));
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
/// If the system refuses to start even one thread, the closure is dropped, and the handle resolves
/// to [`JobError::Refused`](super::JobError::Refused). A test clock stands still until the closure
/// has returned.
///
/// A [shutdown](crate::Scheduler::shutdown) of the caller's scheduler waits until the closure has
/// returned, even if its handle is dropped, and counts it if it has not returned by the deadline
/// ([`Unfinished::jobs`](crate::snapshot::Unfinished::jobs)). On the test clock it does neither.
/// The end of `main` does not wait. So a closure without end, for example a loop that reads
/// standard input, belongs on a thread of its own (`std::thread::spawn`), because here it would
/// delay each shutdown by the whole deadline.
pub fn spawn_blocking<F, T>(closure: F) -> JobHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    static POOL: ProgramPool = ProgramPool::new("blocking");
    #[cfg(feature = "tracing")]
    let closure = crate::process::span::in_current_span(closure);
    let job = AcceptedJob::begin();
    let closure = move || {
        let _running = job.map(AcceptedJob::run);
        closure()
    };
    POOL.submit(closure).unwrap_or_else(identity)
}
