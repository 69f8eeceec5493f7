//! Pools of coroutines.

use std::io;
use std::sync::Arc;

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::outcome::{Ended, Next};
use procession_protocols::pool::state::seat::Order;

use super::builder::Builder;
use super::error::PoolError;
use super::hooks::Hooks;
use super::job_builder::AsyncCalls;
use super::operations::Pool;
use super::processes::{Processes, Worker};
use super::source::{ClosureJob, JobStack};
use crate::coroutine;
use crate::scheduler::shared::Shared;
use crate::{Scheduler, SpawnOptions};

/// Returns an engine of coroutines that run their jobs by `run`.
pub(super) fn coroutines<J, R>(
    builder: &Builder,
    shared: Arc<Shared>,
    run: R,
) -> Result<Processes<J>, PoolError>
where
    J: Send + 'static,
    R: Fn(&Hooks, J) -> Ended + Clone + Send + Sync + 'static,
{
    if shared.coroutines.stacks.is_none() {
        return Err(PoolError::NoCoroutines { scheduler: shared.name().to_owned() });
    }
    Ok(Processes::parking(builder, shared, move |options, worker, shared| {
        start(options, worker, shared, run.clone())
    }))
}

fn start<J, R>(
    options: SpawnOptions,
    worker: Worker<J>,
    shared: Arc<Shared>,
    run: R,
) -> io::Result<()>
where
    J: Send + 'static,
    R: Fn(&Hooks, J) -> Ended + Send + 'static,
{
    // A cancel of the worker leaves its jobs alone, as for async processes. The pool ends only when
    // it is closed.
    let runs = move |_: coroutine::Context<()>| coroutine::shield(|| work(worker, &shared, run));
    options.spawn_coroutine(runs).map(drop).map_err(|refused| io::Error::other(refused.to_string()))
}

/// The main function of a worker. A closure runs outside of polls, so that it can be suspended.
fn work<J: Send + 'static>(
    mut worker: Worker<J>,
    shared: &Arc<Shared>,
    run: impl Fn(&Hooks, J) -> Ended,
) {
    worker.inner.hooks.run_start();
    let mark = worker.inner.coroutine_mark();
    let mut idle = None;
    let mut order = coroutine::wait(worker.await_order(shared, &mut idle));
    while let Order::Run(ticket, job) = order {
        worker.runs = Some(ticket);
        mark.set(Busy::with_job(ticket));
        let ended = run(&worker.inner.hooks, job);
        order = match worker.finish(ticket, ended) {
            Next::Run(ticket, job) => Order::Run(ticket, job),
            Next::Park => coroutine::wait(worker.await_order(shared, &mut idle)),
            Next::Leave => Order::Leave,
            Next::Rest(_) => unreachable!("a coroutine parks"),
        };
    }
    worker.leave();
}

/// A pool of coroutines that run closures, which may [wait](crate::coroutine). It runs at most as
/// many at once as its capacity.
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
/// let pool = Pool::builder().capacity(100).build_coroutines_on(&scheduler)?;
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

impl Builder {
    /// Builds a pool of coroutines, of the scheduler that the calling process or thread belongs to.
    /// Any other caller gets the default scheduler.
    ///
    /// # Errors
    /// [`PoolError`]: a value is out of its range, the scheduler was built without
    /// [`enable_coroutines`](crate::Builder::enable_coroutines), or it refused one of the workers
    /// that [start with the pool](Self::prestart).
    pub fn build_coroutines(self) -> Result<CoPool, PoolError> {
        self.build_coroutines_in(Arc::clone(&crate::scheduler::owner::here()))
    }

    /// Builds a pool of coroutines of this scheduler. The pool does not keep the scheduler from
    /// being dropped.
    ///
    /// # Errors
    /// Like [`build_coroutines`](Self::build_coroutines).
    pub fn build_coroutines_on(self, scheduler: &Scheduler) -> Result<CoPool, PoolError> {
        self.build_coroutines_in(Arc::clone(scheduler.shared()))
    }

    fn build_coroutines_in(self, shared: Arc<Shared>) -> Result<CoPool, PoolError> {
        let run = |hooks: &Hooks, job: ClosureJob| job.0.run(hooks, JobStack::Coroutine);
        Pool::open(&self, coroutines(&self, shared, run)?)
    }
}
