//! Pools whose workers are processes: async ones, or coroutines (`coroutines.rs`).

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession_sync::atomic::Ordering::{AcqRel, Acquire};

use super::builder::Builder;
use super::engine::{Engine, Inner, Patience};
use super::error::Why;
use super::operations::{Entrance, Pooling, operations};
use super::state::busy::Busy;
use super::state::idle::Idle;
use super::state::outcome::{Ended, Expired, Next};
use super::state::seat::{Order, Seat};
use super::state::wakes::Launch;
use super::task::{JobHandle, Promise, Settled};
use super::{Permit, PoolError, SubmitError};
use crate::process::async_body::{AsyncBody, Beside, Guarded, OwnOr};
use crate::scheduler::seat_id::NEVER;
use crate::scheduler::shared::Shared;
use crate::spawn::options::Reservation;
use crate::time::action::Action;
use crate::time::{Instant, Sleep, arm, sleep_on, timeout};
use crate::{Scheduler, SpawnOptions};

/// What a worker runs. Dropped before its end, it is cancelled.
pub(super) struct Job(Box<dyn AsyncJob>);

/// Starts a worker that stays while it is idle.
type Start<J> = dyn Fn(SpawnOptions, Worker<J>, Arc<Shared>) -> io::Result<()> + Send + Sync;

/// Starts a worker with a job.
type Launcher<J> = dyn Fn(Reservation<'_>, JobWorker<J>, J) + Send + Sync;

/// How workers are started as processes.
enum Kind<J: Send + 'static> {
    Parking(Box<Start<J>>),
    Resting(Box<Launcher<J>>),
}

/// Workers that are processes.
pub(super) struct Processes<J: Send + 'static> {
    shared: Arc<Shared>,
    kind: Kind<J>,
    stack_size: Option<usize>,
}

impl<J: Send + 'static> Processes<J> {
    /// Processes that stay while they are idle.
    pub(super) fn parking(
        builder: &Builder,
        shared: Arc<Shared>,
        start: impl Fn(SpawnOptions, Worker<J>, Arc<Shared>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { shared, kind: Kind::Parking(Box::new(start)), stack_size: builder.stack_size }
    }

    /// Async processes, which `launch` starts with a job, as [`Work`]. They end when there is none.
    pub(super) fn resting(
        shared: Arc<Shared>,
        launch: impl Fn(Reservation<'_>, JobWorker<J>, J) + Send + Sync + 'static,
    ) -> Self {
        Self { shared, kind: Kind::Resting(Box::new(launch)), stack_size: None }
    }

    fn options(&self) -> SpawnOptions {
        SpawnOptions::new().on_shared(Arc::clone(&self.shared))
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
    fn start(&self, inner: &Arc<Inner<J>>, seat: &Arc<Seat<J>>) -> io::Result<()> {
        let Kind::Parking(start) = &self.kind else {
            unreachable!("those that rest are launched");
        };
        let worker = Worker { inner: Arc::clone(inner), seat: Arc::clone(seat), runs: None, is_done: false };
        let mut options = self.options();
        if let Some(bytes) = self.stack_size {
            options = options.stack_size(bytes);
        }
        let refused = start(options, worker, Arc::clone(&self.shared)).err();
        // Ordering: AcqRel pairs with the exchange in the worker's `Drop`: one of the two is first.
        match seat.launch.swap(launch::STARTED, AcqRel) {
            launch::ENDED => Err(refused.unwrap_or_else(|| io::Error::other("the scheduler is shutting down"))),
            _ => Ok(()),
        }
    }

    fn launch(&self, inner: &Arc<Inner<J>>, launch: Launch<J>, reservation: Reservation<'_>) {
        let Kind::Resting(launcher) = &self.kind else {
            unreachable!("those that park are started");
        };
        let Launch { ticket, job, has_begun } = launch;
        let begins = !has_begun && inner.hooks.has_life();
        launcher(reservation, JobWorker { inner: Arc::clone(inner), ticket, is_busy: true, begins }, job);
    }

    fn run(&self, _: &Inner<J>, _: J) -> Ended {
        unreachable!("the jobs of processes are polled by them, and submitters wait")
    }

    fn scheduler(&self) -> Option<&Arc<Shared>> {
        Some(&self.shared)
    }

    fn rests(&self) -> bool {
        matches!(self.kind, Kind::Resting(_))
    }

    fn dismiss(&self, inner: &Arc<Inner<J>>, count: usize) {
        let mut leavers = Leavers { inner: Arc::clone(inner), count };
        let run = async move { leavers.run() };
        if let Err(refused) = self.options().try_spawn(run) {
            // Here, then. It waits for nothing, so one poll is all.
            let mut run = pin!(refused.refused);
            let _ = run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
        }
    }

    fn retry(&self, inner: &Arc<Inner<J>>) {
        let when = self.shared.world.now().saturating_add(RETRY);
        let pool = Arc::downgrade(inner);
        let retry = move || {
            if let Some(inner) = pool.upgrade() {
                inner.retry();
            }
        };
        if arm(&self.shared, when, None, Action::Call(Arc::new(retry))).is_err() {
            // The job is left to the next that ends or comes.
            inner.forget_retry();
        }
    }
}

/// After how many nanoseconds a worker is started for a job for which the scheduler had no room.
const RETRY: u64 = 10_000_000;

/// Workers that leave out of their rest; dropped, they have left.
struct Leavers<J: Send + 'static> {
    inner: Arc<Inner<J>>,
    count: usize,
}

impl<J: Send + 'static> Leavers<J> {
    fn run(&mut self) {
        while self.count > 0 {
            self.inner.hooks.run_stop();
            self.count -= 1;
            self.inner.left();
        }
    }
}

impl<J: Send + 'static> Drop for Leavers<J> {
    fn drop(&mut self) {
        // Terminated before: without their hooks.
        for _ in 0..self.count {
            self.inner.left();
        }
    }
}

/// A worker that stays while it is idle, from its start until it has left; dropped before that, it was killed.
pub(super) struct Worker<J: Send + 'static> {
    pub(super) inner: Arc<Inner<J>>,
    seat: Arc<Seat<J>>,
    /// The job that runs.
    pub(super) runs: Option<u64>,
    /// The pool does not count on it any more.
    is_done: bool,
}

impl<J: Send + 'static> Drop for Worker<J> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // While it is being started, its pool is locked, and does not count on it yet.
        // Ordering: AcqRel, as in `start`.
        if self.seat.launch.compare_exchange(launch::STARTING, launch::ENDED, AcqRel, Acquire).is_err() {
            self.inner.died(Some(&self.seat), self.runs);
        }
    }
}

impl<J: Send + 'static> Worker<J> {
    /// Tells the pool that a job has ended; says what comes next.
    pub(super) fn finish(&mut self, ticket: u64, outcome: Settled) -> Next<J> {
        let ended = self.inner.hooks.ended(outcome);
        self.runs = None;
        self.inner.finish(|| Idle::Parked(Arc::clone(&self.seat)), ticket, ended)
    }

    pub(super) fn leave(mut self) {
        self.inner.hooks.run_stop();
        self.inner.left();
        self.is_done = true;
    }

    pub(super) async fn await_order(&self, shared: &Arc<Shared>, idle: &mut Option<Sleep>) -> Order<J> {
        let mut deadline = None;
        poll_fn(|task| {
            loop {
                if let Some(order) = self.seat.take_order(task.waker()) {
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

/// A worker that rests while it has no job, from its start with one until it rests again or has left; dropped before that, it was killed.
pub(super) struct JobWorker<J: Send + 'static> {
    inner: Arc<Inner<J>>,
    /// Of the job that runs, or ran last.
    ticket: u64,
    /// The pool counts on it.
    is_busy: bool,
    /// Its hook is to be called.
    begins: bool,
}

// It takes room in the box of each job.
const _: () = assert!(size_of::<JobWorker<Job>>() <= 24);

impl<J: Send + 'static> Drop for JobWorker<J> {
    fn drop(&mut self) {
        if self.is_busy {
            self.inner.died(None, Some(self.ticket));
        }
    }
}

impl<J: Send + 'static> JobWorker<J> {
    fn begin(&mut self) {
        if std::mem::take(&mut self.begins) {
            self.inner.hooks.run_start();
        }
    }

    /// Tells the pool that the job has ended. The next one, if there is one; else the worker rests, or has left.
    fn finish(&mut self, outcome: Settled) -> Option<J> {
        let ended = self.inner.hooks.ended(outcome);
        let idle = Idle::Rests { until: self.inner.rest_until(), has_begun: self.inner.hooks.has_life() };
        self.is_busy = false;
        match self.inner.finish(|| idle, self.ticket, ended) {
            Next::Run(next, job) => {
                (self.ticket, self.is_busy) = (next, true);
                return Some(job);
            }
            Next::Rest(reap_at) => self.inner.reap_at(reap_at),
            Next::Leave => {
                self.inner.hooks.run_stop();
                self.inner.left();
            }
            Next::Park => unreachable!("an async worker rests"),
        }
        None
    }
}

/// What the process of a worker runs that rests: a job, and those that are queued then, which `next` puts in its place, as futures that do not
/// panic. It does so itself, since what it returned would take as much of the stack as the first job's future.
pub(super) type Work<J, N, F> = Beside<Working<J, N>, F>;

pub(super) struct Working<J: Send + 'static, N> {
    /// There when it is launched.
    pub(super) worker: Option<JobWorker<J>>,
    pub(super) next: N,
}

/// How the next job takes the place of the one before.
pub(super) trait Succeed<J, F> {
    fn succeed(&self, place: Pin<&mut F>, job: J);
}

impl<J, F, N: Fn(Pin<&mut F>, J)> Succeed<J, F> for N {
    fn succeed(&self, place: Pin<&mut F>, job: J) {
        self(place, job);
    }
}

impl<J, N, F> Future for Work<J, N, F>
where
    J: Send + 'static,
    N: Succeed<J, F>,
    F: Future<Output = Settled>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        let (working, mut future) = self.split();
        let worker = working.worker.as_mut().expect("only what was launched is polled");
        worker.begin();
        loop {
            let polled = {
                let _marked = worker.inner.mark(Busy::with_job(worker.ticket));
                future.as_mut().poll(task)
            };
            let Poll::Ready(outcome) = polled else { return Poll::Pending };
            match worker.finish(outcome) {
                Some(job) => working.next.succeed(future.as_mut(), job),
                None => return Poll::Ready(()),
            }
        }
    }
}

/// A job in the box that becomes the body of its process, so that it is allocated once, and not looked for when it goes on.
pub(super) trait AsyncJob: Send {
    fn launch(self: Box<Self>, reservation: Reservation<'_>, worker: JobWorker<Job>);

    /// Runs it in the process of another job.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Settled>;
}

/// A job that runs in the process of another.
struct Nested(Pin<Box<dyn AsyncJob>>);

impl Future for Nested {
    type Output = Settled;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(task)
    }
}

/// Has the next job run nested. A type and no pointer to a function, which would take room in the box of each job.
pub(super) struct Nest;

impl<F> Succeed<Job, OwnOr<F, Nested>> for Nest {
    fn succeed(&self, mut place: Pin<&mut OwnOr<F, Nested>>, job: Job) {
        place.set(OwnOr::Other(Nested(Box::into_pin(job.0))));
    }
}

type OwnOrNested<F> = OwnOr<Guarded<F, Option<Promise<<F as Future>::Output>>>, Nested>;

/// A future as a job.
type Prepared<F> = AsyncBody<Work<Job, Nest, OwnOrNested<F>>>;

impl<F> AsyncJob for Prepared<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn launch(mut self: Box<Self>, reservation: Reservation<'_>, worker: JobWorker<Job>) {
        self.future().expect("a job is launched once").state.worker = Some(worker);
        reservation.start(self);
    }

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Settled> {
        self.pinned().expect("it is no process").split().1.poll(task)
    }
}

fn prepared<F: Future>(future: F, promise: Option<Promise<F::Output>>) -> Box<Prepared<F>> {
    let future = OwnOr::Own(Guarded::new(future, promise));
    Box::new(AsyncBody::new(Work { future, state: Working { worker: None, next: Nest } }))
}

fn into_job<F>(prepared: Box<Prepared<F>>) -> Job
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    Job(prepared)
}

fn refused<F: Future>(error: SubmitError<Box<Prepared<F>>>) -> SubmitError<F> {
    SubmitError::of(error, |prepared| match prepared.into_future().map(|work| work.future) {
        Some(OwnOr::Own(future)) => future.into_future(),
        _ => unreachable!("what was refused did not run"),
    })
}

impl<J: Send + 'static> Inner<J> {
    /// Puts a job into the pool, or waits for a place as async code does.
    pub(super) async fn put_async<C>(
        self: &Arc<Self>,
        content: C,
        patience: Patience,
        mut make: impl FnMut(C) -> J,
    ) -> Result<u64, SubmitError<C>> {
        poll_fn(|task| if crate::scheduler::budget::charge(task) { Poll::Ready(()) } else { Poll::Pending }).await;
        let patience = match patience {
            Patience::Refuse => return self.put_now(content, make),
            Patience::For(patience) => patience,
            // What is not polled by a worker of the pool cannot be its job.
            Patience::RunHere => None,
        };
        let mut place = self.place(patience.is_some());
        let mut content = Some(content);
        let entering = poll_fn(|task| place.poll_enter(task, &mut content, &mut make));
        let entered = match patience {
            Some(patience) => timeout(patience, entering).await.unwrap_or(Err(Why::TimedOut)),
            None => entering.await,
        };
        drop(place);
        let entered = entered.map_err(|kind| {
            let content = content.take().expect("what was not taken is here");
            SubmitError { content, kind }
        });
        self.count_if_refused(&entered);
        entered
    }

    /// Puts a job into the pool, if there is a place.
    pub(super) fn put_now<C>(self: &Arc<Self>, content: C, make: impl FnOnce(C) -> J) -> Result<u64, SubmitError<C>> {
        let entered = self.enter(content, make);
        self.count_if_refused(&entered);
        entered
    }
}

/// A pool of processes that run futures: at most as many at once as its capacity.
///
/// The workers are processes of one scheduler, started as they are needed. One that is idle has no process, and waits as a number only; it
/// leaves when it has been idle for the keep-alive, on the scheduler's clock. Its hooks run in processes of their own. What a
/// [`Pool`](super::Pool) does, this does; only who waits for a place, or for the end, awaits. A plain thread waits by
/// [`Wait`](crate::Wait), or in [`Scheduler::block_on`]. [`OnFull::CallerRuns`](super::OnFull::CallerRuns) waits here.
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
/// Its workers are terminated, their jobs and what is queued are cancelled, and what is submitted then comes back. Idle workers, which have no
/// process, are counted until the pool is closed.
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
    /// [`PoolError::Invalid`]: a value out of its range.
    pub fn build_async(self) -> Result<AsyncPool, PoolError> {
        self.build_async_in(Arc::clone(&crate::scheduler::owner::here()))
    }

    /// As [`build_async`](Self::build_async), on this scheduler. The pool does not keep the scheduler from being dropped.
    ///
    /// # Errors
    /// As [`build_async`](Self::build_async).
    pub fn build_async_on(self, scheduler: &Scheduler) -> Result<AsyncPool, PoolError> {
        self.build_async_in(Arc::clone(scheduler.shared()))
    }

    fn build_async_in(self, shared: Arc<Shared>) -> Result<AsyncPool, PoolError> {
        Entrance::open(
            &self,
            Processes::resting(shared, |reservation, worker, job: Job| job.0.launch(reservation, worker)),
        )
        .map(AsyncPool)
    }
}

impl AsyncPool {
    async fn put_task<F>(&self, future: F, patience: Patience) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (promise, cell) = Promise::new(None);
        let job = prepared(future, Some(promise));
        let ticket = self.inner().put_async(job, patience, into_job).await.map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
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
        self.inner().put_async(prepared(future, None), self.0.patience(), into_job).await.map(drop).map_err(refused)
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
        crate::scheduler::budget::spend();
        self.inner().put_now(prepared(future, None), into_job).map(drop).map_err(refused)
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
        crate::scheduler::budget::spend();
        let (promise, cell) = Promise::new(None);
        let job = prepared(future, Some(promise));
        let ticket = self.inner().put_now(job, into_job).map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
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
        self.enter(prepared(future, None), into_job).map(drop).map_err(refused)
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
        let (promise, cell) = Promise::new(None);
        let job = prepared(future, Some(promise));
        let ticket = self.enter(job, into_job).map_err(refused)?;
        Ok(JobHandle::new(pool.inner(), cell, ticket))
    }
}
