//! Pools whose workers are processes: async ones, or coroutines (`coroutines.rs`).

use std::any::Any;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession_sync::atomic::AtomicU8;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::builder::Builder;
use super::core::{Ended, Expired, Next, Order, Seat};
use super::error::Why;
use super::inner::{Engine, Inner, Mark, Patience};
use super::operations::{Entrance, Pooling, operations};
use super::task::{Cell, JobHandle, Panic, Promise, caught, settled};
use super::{Permit, PoolError, SubmitError};
use crate::body::guarded;
use crate::keeper::NEVER;
use crate::scheduler;
use crate::shared::Shared;
use crate::time::{Instant, Sleep, sleep_on, timeout};
use crate::{Scheduler, SpawnOptions, here};

/// What a worker runs. Dropped before its end, it is cancelled.
type Job = Pin<Box<dyn Future<Output = Result<(), Panic>> + Send>>;

/// How a worker is started as a process.
type Start<J> = Box<dyn Fn(SpawnOptions, Worker<J>, Arc<Shared>) -> io::Result<()> + Send + Sync>;

/// Workers that are processes.
pub(super) struct Processes<J: Send + 'static> {
    shared: Arc<Shared>,
    start: Start<J>,
    stack_size: Option<usize>,
}

impl<J: Send + 'static> Processes<J> {
    pub(super) fn new(
        builder: &Builder,
        shared: Arc<Shared>,
        start: impl Fn(SpawnOptions, Worker<J>, Arc<Shared>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { shared, start: Box::new(start), stack_size: builder.stack_size }
    }

    /// Async processes, in which a job is the future that `run` makes of it.
    pub(super) fn polling<R, F>(builder: &Builder, shared: Arc<Shared>, run: R) -> Self
    where
        R: Fn(J) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<(), Panic>> + Send + 'static,
    {
        Self::new(builder, shared, move |options, worker, shared| {
            let work = worker.work(shared, run.clone());
            options.try_spawn(work).map(drop).map_err(|refused| io::Error::other(refused.to_string()))
        })
    }
}

/// How far the start of a worker has come.
mod launch {
    pub(super) const STARTING: u8 = 0;
    /// The pool counts on it.
    pub(super) const STARTED: u8 = 1;
    /// It was ended before that: the pool is told that it was refused.
    pub(super) const ENDED: u8 = 2;
}

impl<J: Send + 'static> Engine<J> for Processes<J> {
    fn start(&self, inner: &Arc<Inner<J>>, seat: Arc<Seat<J>>) -> io::Result<()> {
        let launch = Arc::new(AtomicU8::new(launch::STARTING));
        let worker = Worker { inner: Arc::clone(inner), seat, runs: None, launch: Arc::clone(&launch) };
        let mut options = SpawnOptions::new().on_shared(Arc::clone(&self.shared));
        if let Some(bytes) = self.stack_size {
            options = options.stack_size(bytes);
        }
        let refused = (self.start)(options, worker, Arc::clone(&self.shared)).err();
        // Ordering: AcqRel pairs with the exchange in the worker's `Drop`: one of the two is first.
        match launch.swap(launch::STARTED, AcqRel) {
            launch::ENDED => Err(refused.unwrap_or_else(|| io::Error::other("the scheduler is shutting down"))),
            _ => Ok(()),
        }
    }

    fn run(&self, _: &Inner<J>, _: J) -> Ended {
        unreachable!("the jobs of processes are polled by them, and submitters wait")
    }

    fn scheduler(&self) -> Option<&Arc<Shared>> {
        Some(&self.shared)
    }
}

/// A worker, from its first step until it has left; dropped before that, it was killed.
pub(super) struct Worker<J: Send + 'static> {
    pub(super) inner: Arc<Inner<J>>,
    seat: Arc<Seat<J>>,
    /// The job that runs.
    pub(super) runs: Option<u64>,
    launch: Arc<AtomicU8>,
}

impl<J: Send + 'static> Drop for Worker<J> {
    fn drop(&mut self) {
        // While it is being started, its pool is locked, and does not count on it yet.
        // Ordering: AcqRel, as in `start`.
        if self.launch.compare_exchange(launch::STARTING, launch::ENDED, AcqRel, Acquire).is_err() {
            self.inner.died(&self.seat, self.runs);
        }
    }
}

impl<J: Send + 'static> Worker<J> {
    async fn work<F>(mut self, shared: Arc<Shared>, run: impl Fn(J) -> F)
    where
        F: Future<Output = Result<(), Panic>>,
    {
        self.inner.hooks.run_start();
        let mut mark = Mark::new(&self.inner, &self.seat);
        let mut idle = None;
        let mut order = self.await_order(&shared, &mut idle).await;
        while let Order::Run(ticket, job) = order {
            self.runs = Some(ticket);
            let mut future = pin!(Some(run(job)));
            let outcome = poll_fn(|task| {
                let _marked = mark.put();
                let future = future.as_mut().as_pin_mut().expect("it is dropped after its end");
                caught(|| future.poll(task)).unwrap_or_else(|payload| Poll::Ready(Err(Some(payload))))
            })
            .await;
            // Ignored: what a drop panics with was printed.
            drop(guarded(|| future.set(None)));
            order = match self.finish(ticket, outcome) {
                Some(order) => order,
                None => self.await_order(&shared, &mut idle).await,
            };
        }
        self.leave();
    }

    /// Tells the pool that a job has ended; says what comes next, if that is known.
    pub(super) fn finish(&mut self, ticket: u64, outcome: Result<(), Panic>) -> Option<Order<J>> {
        let ended = self.inner.hooks.ended(outcome);
        self.runs = None;
        match self.inner.finish(&self.seat, ticket, ended) {
            Next::Run(ticket, job) => Some(Order::Run(ticket, job)),
            Next::Park => None,
            Next::Leave => Some(Order::Leave),
        }
    }

    pub(super) fn leave(self) {
        self.inner.hooks.run_stop();
        self.inner.left();
        // Nothing is left to be told when this is dropped.
        self.launch.store(launch::STARTING, Relaxed);
    }

    pub(super) async fn await_order(&self, shared: &Arc<Shared>, idle: &mut Option<Sleep>) -> Order<J> {
        let mut deadline = None;
        poll_fn(|task| {
            loop {
                if let Ok(order) = self.seat.take_order(task.waker().clone()) {
                    return Poll::Ready(order);
                }
                // Set by those only that have to wait. A sleep that is put off is not set anew.
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
                match self.inner.expire(&self.seat) {
                    Expired::Leave => return Poll::Ready(Order::Leave),
                    Expired::Kept => {
                        deadline = Some(NEVER);
                        *idle = None;
                    }
                    // The order is there.
                    Expired::Claimed => {}
                }
            }
        })
        .await
    }
}

/// Polls a future of the user's; a panic is its result.
pub(super) async fn guarded_future<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|task| match caught(|| future.as_mut().poll(task)) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}

fn call<F>(future: F, _: u64) -> Job
where
    F: Future<Output = ()> + Send + 'static,
{
    Box::pin(async move { settled(None, guarded_future(future).await) })
}

/// Makes the job of a future, and keeps where its result goes for the handle.
fn task<F>(kept: &mut Option<Arc<Cell<F::Output>>>) -> impl FnMut(F, u64) -> Job + Send + '_
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    |future, _| {
        let promise = Promise::kept(kept, None);
        Box::pin(async move { settled(Some(promise), guarded_future(future).await) })
    }
}

impl<J: Send + 'static> Inner<J> {
    /// Puts a job into the pool, or waits for a place as async code does.
    pub(super) async fn put_async<C>(
        self: &Arc<Self>,
        content: C,
        patience: Patience,
        mut make: impl FnMut(C, u64) -> J,
    ) -> Result<u64, SubmitError<C>> {
        poll_fn(|task| if here::charge(task) { Poll::Ready(()) } else { Poll::Pending }).await;
        let patience = match patience {
            Patience::Refuse => return self.put_now(content, make),
            Patience::For(patience) => patience,
            // What is not polled by a worker of the pool cannot be its job.
            Patience::RunHere => None,
        };
        let entered = match self.enter(content, &mut make) {
            Err(SubmitError { content, kind: Why::Full }) => {
                let wait = self.place(patience.is_some());
                let placed = match patience {
                    Some(patience) => timeout(patience, wait).await.unwrap_or(Err(Why::TimedOut)),
                    None => wait.await,
                };
                match placed {
                    Ok(generation) => self.enter_reserved(generation, content, make),
                    Err(kind) => Err(SubmitError { content, kind }),
                }
            }
            entered => entered,
        };
        self.count_if_refused(&entered);
        entered
    }

    /// Puts a job into the pool, if there is a place.
    pub(super) fn put_now<C>(
        self: &Arc<Self>,
        content: C,
        make: impl FnOnce(C, u64) -> J,
    ) -> Result<u64, SubmitError<C>> {
        let entered = self.enter(content, make);
        self.count_if_refused(&entered);
        entered
    }
}

/// A pool of processes that run futures: at most as many at once as its capacity.
///
/// The workers are processes of one scheduler, started as they are needed; one that has been idle for the keep-alive, on the
/// scheduler's clock, ends. What a [`Pool`](super::Pool) does, this does; only who waits for a place, or for the end, awaits. A plain
/// thread waits by [`Wait`](crate::Wait), or in [`Scheduler::block_on`]. [`OnFull::CallerRuns`](super::OnFull::CallerRuns) waits here.
///
/// ```
/// use procession::pool::Pool;
///
/// let sum = procession::run(async {
///     let pool = Pool::builder().capacity(100).build_async()?;
///     let mut handles = Vec::new();
///     for n in 1..=1000 {
///         handles.push(pool.submit(async move { n }).await?);
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
/// Its workers are terminated, their jobs and what is queued are cancelled, and what is submitted then comes back.
///
/// # Jobs of a pool that use it
/// A job that submits to its own full pool gets an error if all others wait for the same already ([`SubmitError::is_deadlock`]), also if it would have
/// given up after a while. What else jobs await, also the handle of another job, is not seen.
#[derive(Clone)]
pub struct AsyncPool(Entrance<Job>);

impl Builder {
    /// Builds a pool of processes, of the scheduler of the calling process or thread; outside of all, of the default one.
    ///
    /// # Errors
    /// [`PoolError`]: a value out of its range, or the scheduler refused one of the workers that were to be
    /// [started](Self::prestart) at once.
    pub fn build_async(self) -> Result<AsyncPool, PoolError> {
        self.build_async_in(Arc::clone(&scheduler::here()))
    }

    /// As [`build_async`](Self::build_async), on this scheduler. The pool does not keep the scheduler from being dropped.
    ///
    /// # Errors
    /// As [`build_async`](Self::build_async).
    pub fn build_async_on(self, scheduler: &Scheduler) -> Result<AsyncPool, PoolError> {
        self.build_async_in(Arc::clone(scheduler.shared()))
    }

    fn build_async_in(self, shared: Arc<Shared>) -> Result<AsyncPool, PoolError> {
        Entrance::open(&self, Processes::polling(&self, shared, |job: Job| job)).map(AsyncPool)
    }
}

impl AsyncPool {
    async fn put_task<F>(&self, future: F, patience: Patience) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut kept = None;
        let ticket = self.inner().put_async(future, patience, task(&mut kept)).await?;
        Ok(JobHandle::new(self.inner(), kept, ticket))
    }

    /// Runs a future whose result nobody wants. If the pool is full, this waits, or refuses if [the builder](Builder::on_full) said so.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    ///
    /// # Cancellation
    /// Dropped while it waits, it leaves the queue, and drops the future.
    pub async fn execute<F>(&self, future: F) -> Result<(), SubmitError<F>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.inner().put_async(future, self.0.patience(), call).await.map(drop)
    }

    /// As [`execute`](Self::execute), with a handle to the result.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    ///
    /// # Cancellation
    /// As [`execute`](Self::execute).
    pub async fn submit<F>(&self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.put_task(future, self.0.patience()).await
    }

    /// As [`submit`](Self::submit), but waits for a place for at most `patience`.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    ///
    /// # Cancellation
    /// As [`execute`](Self::execute).
    pub async fn submit_timeout<F>(&self, future: F, patience: Duration) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.put_task(future, Patience::For(Some(patience))).await
    }

    /// As [`execute`](Self::execute), but refuses if the pool is full.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    pub fn try_execute<F>(&self, future: F) -> Result<(), SubmitError<F>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        here::spend();
        self.inner().put_now(future, call).map(drop)
    }

    /// As [`submit`](Self::submit), but refuses if the pool is full.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    pub fn try_submit<F>(&self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        here::spend();
        let mut kept = None;
        let ticket = self.inner().put_now(future, task(&mut kept))?;
        Ok(JobHandle::new(self.inner(), kept, ticket))
    }
}

operations!([] AsyncPool, Job);

impl Permit<'_, AsyncPool> {
    /// As [`AsyncPool::execute`], without waiting.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it: the pool is closed, or could start no worker.
    pub fn execute<F>(self, future: F) -> Result<(), SubmitError<F>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.enter(future, call).map(drop)
    }

    /// As [`AsyncPool::submit`], without waiting.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it: the pool is closed, or could start no worker.
    pub fn submit<F>(self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let pool = self.pool;
        let mut kept = None;
        let ticket = self.enter(future, task(&mut kept))?;
        Ok(JobHandle::new(pool.inner(), kept, ticket))
    }
}
