//! Pools of async processes. Their workers rest while they are idle.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::IdleWorker;
use procession_protocols::pool::state::outcome::{Launch, Next};

use super::builder::Builder;
use super::engine::{Inner, Workers};
use super::error::PoolError;
use super::hooks::{Hooks, Settled};
use super::job::{JobEnds, Promise};
use super::operations::Pool;
use super::source::{JobSource, Owning, opaque};
use super::submit::AsyncCalls;
use crate::process::async_body::{AsyncBody, Beside, Guarded, OwnOr};
use crate::process::priority::Priority;
use crate::scheduler::inherit::within::Inheriting;
use crate::spawn::reservation::Reservation;

/// A job of a pool of async processes. If it is dropped before its end, it is cancelled.
///
/// Available with the crate feature `pool`.
pub struct FutureJob(Box<dyn AsyncJob>);

// It takes room in the box of each job.
const _: () = assert!(size_of::<JobWorker<FutureJob>>() <= 24);

/// A job in the box that becomes the body of its process. It is allocated only once, and its memory
/// is in the cache when the process continues.
trait AsyncJob: Send {
    fn launch(self: Box<Self>, reservation: Reservation<'_>, worker: JobWorker<FutureJob>);

    /// Polls the job in the process of another job.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Settled>;
}

/// A job that runs in the process of another job.
struct Nested(Pin<Box<dyn AsyncJob>>);

impl Future for Nested {
    type Output = Settled;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(task)
    }
}

/// Runs the next job nested. This is a type instead of a function pointer, which would take room in
/// the box of each job.
struct Nest;

impl<F> Succeed<FutureJob, OwnOr<F, Nested>> for Nest {
    fn succeed(&self, mut place: Pin<&mut OwnOr<F, Nested>>, job: FutureJob) {
        place.set(OwnOr::Other(Nested(Box::into_pin(job.0))));
    }
}

type OwnOrNested<F> = OwnOr<Guarded<Inheriting<F>, Option<Promise<<F as Future>::Output>>>, Nested>;

/// A future, boxed as a job.
///
/// Available with the crate feature `pool`.
pub struct PreparedJob<F: Future>(Box<AsyncBody<Work<FutureJob, Nest, OwnOrNested<F>>>>);

impl<F> AsyncJob for AsyncBody<Work<FutureJob, Nest, OwnOr<F, Nested>>>
where
    F: Future<Output = Settled> + Send + 'static,
{
    fn launch(mut self: Box<Self>, reservation: Reservation<'_>, worker: JobWorker<FutureJob>) {
        let priority = worker.priority();
        self.future().expect("a job is launched once").state.worker = Some(worker);
        reservation.start(priority, self);
    }

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Settled> {
        self.pinned().expect("a nested job has no process of its own").split().1.poll(task)
    }
}

impl<F> JobSource<FutureJob, F> for Owning
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    type Output = F::Output;
    type Discarded = F::Output;
    type Boxed = PreparedJob<F>;

    fn boxed(&self, content: F, ends: JobEnds<F::Output>) -> Self::Boxed {
        let content = Inheriting::new(ends.inherited, content);
        let future = OwnOr::Own(Guarded::new(content, ends.promise));
        let state = Working { worker: None, next: Nest };
        PreparedJob(Box::new(AsyncBody::Runs(Work { future, state })))
    }

    fn content(boxed: PreparedJob<F>) -> F {
        match boxed.0.into_future().map(|work| work.future) {
            Some(OwnOr::Own(future)) => future.into_future().into_future(),
            _ => unreachable!("a refused job did not run"),
        }
    }
}

impl<F> From<PreparedJob<F>> for FutureJob
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn from(prepared: PreparedJob<F>) -> Self {
        Self(prepared.0)
    }
}

impl FutureJob {
    /// Returns a job that runs a future and settles its result.
    pub(super) fn of(future: Pin<Box<dyn Future<Output = Settled> + Send>>) -> Self {
        let future = OwnOr::Own(future);
        Self(Box::new(AsyncBody::Runs(Work {
            future,
            state: Working { worker: None, next: Nest },
        })))
    }
}

opaque! {
    [] FutureJob;
    [F: Future] PreparedJob<F>;
}

/// A pool of async processes that run futures. At most as many futures run concurrently as its
/// capacity says.
///
/// It behaves like a [`Pool`](super::Pool), except that its methods are awaited instead of blocking
/// the thread. A plain thread can call them through [`Wait`](crate::coroutine::Wait), or in
/// [`Scheduler::block_on`](crate::Scheduler::block_on).
///
/// The workers are processes of one scheduler, started as jobs need them. An idle worker has no
/// process, only an entry in a list. It leaves when it has been idle for the keep-alive, by the
/// scheduler's clock. Its stop hook then runs in a separate process.
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
/// The workers are terminated. Their jobs and the queued jobs are cancelled, and later jobs are
/// refused. Idle workers, which have no process, are counted until the pool is closed.
///
/// # Jobs that use their own pool
/// A job may await the handle of another job of the same pool. If the awaited job is still queued,
/// it begins immediately, in a place that the waiting job lends: a job that waits does no work, so
/// no more jobs work than the capacity allows. If the awaited job is held behind earlier jobs of
/// its [key](super::JobBuilder::key), these begin in the place before it. So jobs may wait for
/// their own jobs to any depth, with any capacity:
///
/// ```
/// use procession::pool::{Pool, Queue};
///
/// let sum = procession::run(async {
///     let pool = Pool::builder().capacity(2).queue(Queue::Unbounded).build_async()?;
///     let inside = pool.clone();
///     let outer = pool.submit(async move {
///         let inner = inside.submit(async { 1 }).await.expect("the pool is open");
///         inner.await.map(|one| one + 1)
///     });
///     Ok::<i32, Box<dyn std::error::Error>>(outer.await?.await??)
/// })?;
/// assert_eq!(sum, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// While jobs lend their places, there are more workers than the capacity. If a job continues
/// although the job in its place has not ended, for example because of a
/// [`timeout`](crate::timeout()), both work until the first of the two ends. A job lends its place
/// to one job at a time. While the borrower runs, other queued jobs that it awaits wait for a
/// worker as all jobs do.
///
/// If a job waits for a place in its own full pool while all others do the same, or await jobs of
/// the pool, its submit is an error
/// ([`SubmitError::is_deadlock`](super::SubmitError::is_deadlock)). The pool cannot know whether
/// such a job would stop waiting later. Waits with a [`timeout`](super::JobBuilder::timeout) are
/// not counted, nor is anything else that a job awaits, such as a lock. Jobs that await one another
/// in a circle wait forever.
pub type AsyncPool = Pool<AsyncCalls, FutureJob>;

/// Available with the crate feature `pool`.
impl Builder {
    /// Builds a pool of async processes. The pool does not keep their scheduler from being dropped.
    ///
    /// # Errors
    /// [`PoolError::OutOfRange`]: a value is out of its range.
    pub fn build_async(self) -> Result<AsyncPool, PoolError> {
        let launch = |reservation: Reservation<'_>, worker, job: FutureJob| {
            job.0.launch(reservation, worker);
        };
        Pool::open(&self, Some(&self.shared()), Workers::resting(launch))
    }
}

impl<J: Send + 'static> Workers<J> {
    /// Async processes that rest while they are idle. `launch` starts one with a job, as [`Work`].
    /// It ends when no job is queued.
    pub(super) fn resting(
        launch: impl Fn(Reservation<'_>, JobWorker<J>, J) + Send + Sync + 'static,
    ) -> Self {
        Self::Resting(Box::new(move |inner, Launch { ticket, job, has_begun }, reservation| {
            let begins = !has_begun && inner.hooks.has_life();
            let inner = Arc::clone(inner);
            launch(reservation, JobWorker { inner, ticket, is_busy: true, begins }, job);
        }))
    }
}

/// A worker that rests while it is idle. It exists from its launch with a job until it rests again
/// or has left. If it is dropped earlier, its process was killed.
pub(super) struct JobWorker<J: Send + 'static> {
    inner: Arc<Inner<J>>,
    /// The ticket of the current job, or of the last one.
    ticket: u64,
    /// `true` if the pool counts the worker as busy.
    is_busy: bool,
    /// `true` if the start hook must still be called.
    begins: bool,
}
impl<J: Send + 'static> Drop for JobWorker<J> {
    fn drop(&mut self) {
        if self.is_busy {
            self.inner.died(None, Some(self.ticket));
        }
    }
}

impl<J: Send + 'static> JobWorker<J> {
    /// Returns the priority of the process of the worker.
    pub(super) fn priority(&self) -> Priority {
        self.inner.priority
    }

    fn begin(&mut self) {
        if std::mem::take(&mut self.begins) {
            Hooks::run(self.inner.hooks.start.as_ref());
        }
    }

    /// Reports to the pool that the job has ended. Returns the next job, or `None` if the worker
    /// rests or has left.
    fn finish(&mut self, outcome: Settled) -> Option<J> {
        let ended = self.inner.hooks.ended(outcome);
        let idle = IdleWorker::Rests {
            until: self.inner.rest_until(),
            has_begun: self.inner.hooks.has_life(),
        };
        self.is_busy = false;
        match self.inner.woken(self.inner.core.finish(|| idle, self.ticket, ended)) {
            Next::Run(next, job) => {
                (self.ticket, self.is_busy) = (next, true);
                return Some(job);
            }
            Next::Rest(reap_at) => self.inner.reap_at(reap_at),
            Next::Leave => {
                Hooks::run(self.inner.hooks.stop.as_ref());
                self.inner.left();
            }
            Next::Park => unreachable!("an async worker rests"),
        }
        None
    }
}

/// What the process of a resting worker runs: its first job, and then the queued jobs, which `next`
/// puts in its place. All are futures that do not panic. `next` replaces the future in place,
/// because returning one would take as much of the stack as the future of the first job.
pub(super) type Work<J, N, F> = Beside<Working<J, N>, F>;

pub(super) struct Working<J: Send + 'static, N> {
    /// Set when the job is launched.
    pub(super) worker: Option<JobWorker<J>>,
    pub(super) next: N,
}

/// The way in which the next job takes the place of the previous one.
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
        let worker = working.worker.as_mut().expect("only a launched job is polled");
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
