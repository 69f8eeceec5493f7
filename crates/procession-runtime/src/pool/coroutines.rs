//! Pools of coroutines.

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::Order;
use procession_protocols::pool::state::outcome::{Ended, Expired};
use procession_protocols::scheduler::seat_id::NEVER;

use super::builder::Builder;
use super::engine::{ParkingWorker, Workers};
use super::error::PoolError;
use super::hooks::Hooks;
use super::operations::Pool;
use super::source::ClosureJob;
use super::submit::AsyncCalls;
use crate::SpawnOptions;
use crate::coroutine;
use crate::coroutine::body::Placement;
use crate::scheduler::inherit::within::Within;
use crate::scheduler::shared::Shared;
use crate::spawn::reservation::Reservation;
use crate::time::{Instant, Sleep, sleep_on};

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

impl<J: Send + 'static> ParkingWorker<J> {
    /// Runs the worker in a coroutine.
    fn run_as_coroutine(self, shared: &Arc<Shared>) {
        // A cancel of the worker leaves its jobs alone, as for async processes. The pool ends only
        // when it is closed.
        coroutine::shield(|| {
            let mark = self.inner.coroutine_mark();
            let mut idle = None;
            let begin = |ticket| mark.set(Busy::with_job(ticket));
            self.work((), begin, |worker| coroutine::wait(worker.await_order(shared, &mut idle)));
        });
    }

    async fn await_order(&self, shared: &Arc<Shared>, idle: &mut Option<Sleep>) -> Order<J> {
        let mut deadline = None;
        poll_fn(|task| {
            loop {
                if let Some(order) = self.seat.take_order(task.waker()) {
                    return Poll::Ready(order);
                }
                // Set only if the worker has to wait. A sleep that is moved to a later time does
                // not set a new timer.
                let until = *deadline.get_or_insert_with(|| {
                    let until = shared.world.now().saturating_add(self.inner.keep_alive());
                    match idle {
                        Some(sleep) => Pin::new(sleep).reset(Instant::from_nanoseconds(until)),
                        None => *idle = Some(sleep_on(Arc::clone(shared), until)),
                    }
                    until
                });
                let Some(sleep) = idle.as_mut().filter(|_| until != NEVER) else {
                    return Poll::Pending;
                };
                if Pin::new(sleep).poll(task).is_pending() {
                    return Poll::Pending;
                }
                match self.inner.woken(self.inner.core.expire(&self.seat)) {
                    Expired::Leave => return Poll::Ready(Order::Leave),
                    Expired::Kept => {
                        deadline = Some(NEVER);
                        *idle = None;
                    }
                    // The order has been written.
                    Expired::Claimed => {}
                }
            }
        })
        .await
    }
}

/// Available with the crate feature `pool`.
impl Builder {
    /// Builds a pool of coroutines that run jobs by `run`.
    pub(super) fn open_coroutines<J: Send + 'static>(
        &self,
        run: impl Fn(&Hooks, J) -> Ended + Send + Sync + 'static,
    ) -> Result<Pool<AsyncCalls, J>, PoolError> {
        let shared = self.shared();
        if shared.coroutines.stacks.is_none() {
            return Err(PoolError::NoCoroutines { scheduler: shared.name().to_owned() });
        }
        let (stack_size, priority, on) = (self.stack_size, self.priority, Arc::clone(&shared));
        let launch = move |worker: ParkingWorker<J>, reservation: Reservation<'_>| {
            let options = SpawnOptions::new().priority(priority);
            let options = match stack_size {
                Some(bytes) => options.stack_size(bytes),
                None => options,
            };
            let shared = Arc::clone(&on);
            // The worker outlives the job for which it starts.
            let _within = Within::enter_any(None);
            let runs = move |_: coroutine::Context<()>, worker: ParkingWorker<J>| {
                worker.run_as_coroutine(&shared);
            };
            let (location, placement) = (Location::caller(), Placement::PINNED);
            let child = options.launch_coroutine_in(reservation, location, worker, runs, placement);
            // If it is refused, the drop of the worker tells the pool.
            drop(child);
        };
        let workers = Workers::Coroutines { launch: Box::new(launch), run: Box::new(run) };
        Pool::open(self, Some(&shared), workers)
    }

    /// Builds a pool of coroutines. The pool does not keep their scheduler from being dropped.
    ///
    /// # Errors
    /// [`PoolError`]: a value is out of its range, the scheduler was built without
    /// [`enable_coroutines`](crate::Builder::enable_coroutines), or it refused one of the workers
    /// that [start with the pool](Self::prestart).
    pub fn build_coroutines(self) -> Result<CoPool, PoolError> {
        self.open_coroutines(ClosureJob::run)
    }
}
