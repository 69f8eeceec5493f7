//! Pools of coroutines.

use super::builder::Builder;
use super::error::PoolError;
use super::hooks::Hooks;
use super::operations::Pool;
use super::processes::Processes;
use super::source::{ClosureJob, JobStack};
use super::submit::AsyncCalls;

/// A pool of coroutines that run closures, which may [wait](crate::coroutine). At most as many
/// closures run concurrently as its capacity says.
///
/// It behaves like an [`AsyncPool`](super::AsyncPool), with one exception. A worker keeps its
/// process and its stack while it is idle.
///
/// ```
/// use std::time::Duration;
/// use procession::pool::Pool;
/// use procession::{Scheduler, coroutine};
///
/// // SAFETY: no coroutine holds a thread-local pointer scoped to a frame across a suspension.
/// let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
/// let pool = Pool::builder().capacity(100).on(&scheduler).build_coroutines()?;
/// let sum = scheduler.block_on(async {
///     let mut handles = Vec::new();
///     for n in 1..=1000 {
///         let job = move || {
///             coroutine::sleep(Duration::from_micros(10));
///             n
///         };
///         handles.push(pool.submit(job).await?);
///     }
///     let mut sum = 0;
///     for handle in handles {
///         sum += handle.await?;
///     }
///     Ok::<i32, Box<dyn std::error::Error>>(sum)
/// })?;
/// assert_eq!(sum, 500_500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # When the scheduler ends
/// The same happens as for an [`AsyncPool`](super::AsyncPool). The stacks of running jobs are
/// unwound.
pub type CoPool = Pool<AsyncCalls, ClosureJob>;

/// Available with the crate feature `pool`.
impl Builder {
    /// Builds a pool of coroutines. The pool does not keep their scheduler from being dropped.
    ///
    /// # Errors
    /// [`PoolError`]: a value is out of its range, the scheduler was built without
    /// [`enable_coroutines`](crate::Builder::enable_coroutines), or it refused one of the workers
    /// that [start with the pool](Self::prestart).
    pub fn build_coroutines(self) -> Result<CoPool, PoolError> {
        let run = |hooks: &Hooks, job: ClosureJob| job.0.run(hooks, JobStack::Coroutine);
        Pool::open(&self, Processes::coroutines(&self, run)?)
    }
}
