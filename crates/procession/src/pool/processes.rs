//! Pools whose workers are processes: async ones, or coroutines (`coroutines.rs`).

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_sync::atomic::AtomicU8;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::builder::{Builder, check_capacity};
use super::core::{Ended, Expired, Next, Order, Seat};
use super::error::Why;
use super::inner::{Engine, Inner, Mark, Owner, PlaceWait};
use super::task::{Cell, JobHandle, Promise, caught, panicked};
use super::{PoolError, PoolStats, SubmitError, WaitError};
use crate::body::drop_guarded;
use crate::keeper::NEVER;
use crate::scheduler;
use crate::shared::Shared;
use crate::time::{Instant, Sleep, sleep_on, timeout};
use crate::world::nanoseconds;
use crate::{Scheduler, SpawnOptions, here};

/// What a worker runs. Dropped before its end, it is cancelled.
pub(super) enum Job {
    Future(Pin<Box<dyn Future<Output = Result<(), Panic>> + Send>>),
    /// For coroutines only.
    Closure(Box<dyn FnOnce() -> Result<(), Panic> + Send>),
}

/// What a job panicked with; nothing, if its handle was told.
pub(super) type Panic = Option<Box<dyn Any + Send>>;

/// How a worker is started as a process.
pub(super) type Start = fn(SpawnOptions, Worker, Arc<Shared>) -> io::Result<()>;

/// Workers that are processes.
struct Processes {
    shared: Arc<Shared>,
    start: Start,
    stack_size: Option<usize>,
}

fn start(options: SpawnOptions, worker: Worker, shared: Arc<Shared>) -> io::Result<()> {
    options.try_spawn(worker.work(shared)).map(drop).map_err(|refused| io::Error::other(refused.to_string()))
}

/// How far the start of a worker has come.
mod launch {
    pub(super) const STARTING: u8 = 0;
    /// The pool counts on it.
    pub(super) const STARTED: u8 = 1;
    /// It was ended before that: the pool is told that it was refused.
    pub(super) const ENDED: u8 = 2;
}

impl Engine<Job> for Processes {
    fn start(&self, inner: &Arc<Inner<Job>>, seat: Arc<Seat<Job>>) -> io::Result<()> {
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

    fn run(&self, _: &Inner<Job>, _: Job) -> Ended {
        unreachable!("the jobs of processes are polled by them, and submitters wait")
    }

    fn scheduler(&self) -> Option<&Arc<Shared>> {
        Some(&self.shared)
    }
}

/// A worker, from its first step until it has left; dropped before that, it was killed.
pub(super) struct Worker {
    pub(super) inner: Arc<Inner<Job>>,
    seat: Arc<Seat<Job>>,
    /// The job that runs.
    pub(super) runs: Option<u64>,
    launch: Arc<AtomicU8>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // While it is being started, its pool is locked, and does not count on it yet.
        // Ordering: AcqRel, as in `start`.
        if self.launch.compare_exchange(launch::STARTING, launch::ENDED, AcqRel, Acquire).is_err() {
            self.inner.died(&self.seat, self.runs);
        }
    }
}

impl Worker {
    async fn work(mut self, shared: Arc<Shared>) {
        self.inner.hooks.run_start();
        let mut mark = Mark::new(&self.inner, &self.seat);
        let mut idle = None;
        let mut order = self.await_order(&shared, &mut idle).await;
        while let Order::Run(ticket, mut job) = order {
            self.runs = Some(ticket);
            let Job::Future(future) = &mut job else { unreachable!("closures are submitted to coroutines only") };
            let outcome = poll_fn(|task| {
                let _marked = mark.put();
                match caught(|| future.as_mut().poll(task)) {
                    Ok(outcome) => outcome,
                    Err(payload) => Poll::Ready(Err(Some(payload))),
                }
            })
            .await;
            drop_guarded(job);
            order = match self.finish(ticket, outcome) {
                Some(order) => order,
                None => self.await_order(&shared, &mut idle).await,
            };
        }
        self.leave();
    }

    /// Tells the pool that a job has ended; says what comes next, if that is known.
    pub(super) fn finish(&mut self, ticket: u64, outcome: Result<(), Panic>) -> Option<Order<Job>> {
        let ended = match outcome {
            Ok(()) => Ended::Completed,
            Err(payload) => {
                if let Some(payload) = payload {
                    self.inner.hooks.report(payload);
                }
                Ended::Panicked
            }
        };
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

    pub(super) async fn await_order(&self, shared: &Arc<Shared>, idle: &mut Option<Sleep>) -> Order<Job> {
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
async fn guarded_future<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
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
    Job::Future(Box::pin(async move { guarded_future(future).await.map_err(Some) }))
}

/// Makes the job of a future, and keeps where its result goes for the handle.
fn task<F>(kept: &mut Option<Arc<Cell<F::Output>>>) -> impl FnMut(F, u64) -> Job + Send + '_
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    |future, _| {
        let cell = Arc::new(Cell::new(None));
        *kept = Some(Arc::clone(&cell));
        let promise = Promise::new(cell);
        Job::Future(Box::pin(async move {
            match guarded_future(future).await {
                Ok(result) => {
                    promise.resolve(Ok(result));
                    Ok(())
                }
                Err(payload) => {
                    promise.resolve(Err(panicked(payload)));
                    Err(None)
                }
            }
        }))
    }
}

pub(super) fn handle<T: Send + 'static>(
    inner: &Arc<Inner<Job>>,
    kept: Option<Arc<Cell<T>>>,
    ticket: u64,
) -> JobHandle<T> {
    JobHandle::new(kept.expect("the job of a ticket was made"), Arc::clone(inner) as _, ticket)
}

/// For how long a submitter waits for a place.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    Refuse,
    For(Option<Duration>),
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
pub struct AsyncPool {
    owner: Arc<Owner<Job>>,
    refuses: bool,
}

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
        self.build_processes(shared, start)
    }

    pub(super) fn build_processes(self, shared: Arc<Shared>, start: Start) -> Result<AsyncPool, PoolError> {
        let inner = self.make(Box::new(Processes { shared, start, stack_size: self.stack_size }))?;
        Ok(AsyncPool { owner: Arc::new(Owner(inner)), refuses: self.how_full() == super::OnFull::Refuse })
    }
}

impl AsyncPool {
    pub(super) fn inner(&self) -> &Arc<Inner<Job>> {
        &self.owner.0
    }

    pub(super) fn patience(&self) -> Patience {
        if self.refuses { Patience::Refuse } else { Patience::For(None) }
    }

    pub(super) async fn put<C>(
        &self,
        content: C,
        patience: Patience,
        mut make: impl FnMut(C, u64) -> Job,
    ) -> Result<u64, SubmitError<C>> {
        let inner = self.inner();
        poll_fn(|task| if here::charge(task) { Poll::Ready(()) } else { Poll::Pending }).await;
        let entered = match (inner.enter(content, &mut make), patience) {
            (Err(SubmitError { content, kind: Why::Full }), Patience::For(patience)) => {
                let wait = inner.place(patience.is_some());
                let placed = match patience {
                    Some(patience) => timeout(patience, wait).await.unwrap_or(Err(Why::TimedOut)),
                    None => wait.await,
                };
                match placed {
                    Ok(generation) => inner.enter_reserved(generation, content, make),
                    Err(kind) => Err(SubmitError { content, kind }),
                }
            }
            (entered, _) => entered,
        };
        inner.count_if_refused(&entered);
        entered
    }

    async fn put_task<F>(&self, future: F, patience: Patience) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut kept = None;
        let ticket = self.put(future, patience, task(&mut kept)).await?;
        Ok(handle(self.inner(), kept, ticket))
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
        self.put(future, self.patience(), call).await.map(drop)
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
        self.put_task(future, self.patience()).await
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
        let entered = self.inner().enter(future, call);
        self.inner().count_if_refused(&entered);
        entered.map(drop)
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
        let entered = self.inner().enter(future, task(&mut kept));
        self.inner().count_if_refused(&entered);
        entered.map(|ticket| handle(self.inner(), kept, ticket))
    }

    /// Waits for a place in the pool, behind all who came before, and reserves it. See [`Pool::reserve`](super::Pool::reserve).
    ///
    /// # Errors
    /// As [`Pool::reserve`](super::Pool::reserve).
    ///
    /// # Cancellation
    /// As [`Pool::reserve`](super::Pool::reserve).
    pub fn reserve(&self) -> AsyncReserve<'_> {
        AsyncReserve { pool: self, place: self.inner().place(false) }
    }

    /// As [`reserve`](Self::reserve), if there is a place.
    ///
    /// # Errors
    /// [`SubmitError`]: the pool is full, or closed.
    pub fn try_reserve(&self) -> Result<AsyncPermit<'_>, SubmitError<()>> {
        match self.inner().try_reserve() {
            Ok(generation) => Ok(AsyncPermit { pool: self, generation: Some(generation) }),
            Err(kind) => Err(SubmitError { content: (), kind }),
        }
    }

    /// See [`Pool::stats`](super::Pool::stats).
    pub fn stats(&self) -> PoolStats {
        self.inner().stats()
    }

    /// Whether the pool was closed.
    pub fn is_closed(&self) -> bool {
        self.inner().is_closed()
    }

    /// See [`Pool::resize`](super::Pool::resize).
    ///
    /// # Errors
    /// [`PoolError::Invalid`]: the capacity is 0.
    pub fn resize(&self, capacity: usize) -> Result<usize, PoolError> {
        check_capacity(capacity)?;
        Ok(self.inner().resize(capacity))
    }

    /// See [`Pool::set_keep_alive`](super::Pool::set_keep_alive).
    pub fn set_keep_alive(&self, idle: Duration) {
        let nanoseconds = if idle == Duration::MAX { NEVER } else { nanoseconds(idle) };
        self.inner().keep_alive.store(nanoseconds, Relaxed);
    }

    /// See [`Pool::close`](super::Pool::close).
    pub fn close(&self) -> bool {
        self.inner().close()
    }

    /// See [`Pool::shutdown_now`](super::Pool::shutdown_now).
    pub fn shutdown_now(&self) -> usize {
        self.inner().shutdown_now()
    }

    /// Waits until a closed pool has run all its jobs, and its workers their hooks.
    ///
    /// # Errors
    /// [`WaitError`]: the pool is open, or the caller is one of its jobs.
    pub async fn ended(&self) -> Result<(), WaitError> {
        self.inner().drained().await
    }

    /// Waits until no job is queued and none runs, open or closed.
    ///
    /// # Errors
    /// [`WaitError`]: the caller is one of its jobs.
    pub async fn idle(&self) -> Result<(), WaitError> {
        self.inner().idle().await
    }

    /// See [`Pool::reopen`](super::Pool::reopen).
    ///
    /// # Errors
    /// [`PoolError::NotDrained`].
    pub fn reopen(&self) -> Result<(), PoolError> {
        if self.inner().reopen() { Ok(()) } else { Err(PoolError::NotDrained) }
    }
}

impl fmt::Debug for AsyncPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().fmt(f)
    }
}

/// The future of [`AsyncPool::reserve`].
#[must_use = "futures do nothing unless awaited"]
pub struct AsyncReserve<'a> {
    pool: &'a AsyncPool,
    place: PlaceWait<'a, Job>,
}

impl<'a> Future for AsyncReserve<'a> {
    type Output = Result<AsyncPermit<'a>, SubmitError<()>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let pool = self.pool;
        Pin::new(&mut self.place).poll(task).map(|placed| match placed {
            Ok(generation) => Ok(AsyncPermit { pool, generation: Some(generation) }),
            Err(kind) => Err(SubmitError { content: (), kind }),
        })
    }
}

impl fmt::Debug for AsyncReserve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncReserve").field("waits", &self.place.is_enlisted()).finish_non_exhaustive()
    }
}

/// A place in a pool, for one job. Dropped, it goes to the next who waits. If the pool is closed meanwhile, it is void.
#[must_use = "dropped, the place is given back"]
pub struct AsyncPermit<'a> {
    pool: &'a AsyncPool,
    generation: Option<u64>,
}

impl AsyncPermit<'_> {
    fn enter<C>(mut self, content: C, make: impl FnOnce(C, u64) -> Job) -> Result<u64, SubmitError<C>> {
        let generation = self.generation.take().expect("a permit is used once");
        let entered = self.pool.inner().enter_reserved(generation, content, make);
        self.pool.inner().count_if_refused(&entered);
        entered
    }

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
        Ok(handle(pool.inner(), kept, ticket))
    }
}

impl Drop for AsyncPermit<'_> {
    fn drop(&mut self) {
        if let Some(generation) = self.generation.take() {
            self.pool.inner().release(generation);
        }
    }
}

impl fmt::Debug for AsyncPermit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncPermit(..)")
    }
}
