//! Pools whose workers are threads.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_sync::atomic::Ordering::Relaxed;

use super::builder::{Builder, OnFull, check_capacity};
use super::core::{Ended, Seat};
use super::inner::{Engine, Inner, Owner, Patience, PlaceWait, world};
use super::task::{JobHandle, Outstanding, Runnable, Task, caught};
use super::{PoolError, PoolStats, Queue, SubmitError, WaitError};
use crate::body::drop_guarded;
use crate::keeper::NEVER;
use crate::shared::Shared;
use crate::world::nanoseconds;

/// How workers run a job.
type Run<J> = Box<dyn Fn(&Inner<J>, J) -> Ended + Send + Sync>;

/// Workers that are threads.
pub(super) struct Threads<J> {
    pub(super) run: Run<J>,
    pub(super) stack_size: Option<usize>,
}

impl<J: Send + 'static> Engine<J> for Threads<J> {
    fn start(&self, inner: &Arc<Inner<J>>, seat: Arc<Seat<J>>) -> io::Result<()> {
        let worker = Arc::clone(inner);
        world().start_thread_of(inner.next_worker_name(), self.stack_size, move || worker.work(seat))
    }

    fn run(&self, inner: &Inner<J>, job: J) -> Ended {
        (self.run)(inner, job)
    }

    fn scheduler(&self) -> Option<&Arc<Shared>> {
        None
    }
}

/// A job with a handle; dropped before it was run, it is cancelled.
pub(super) struct Held(Arc<dyn Runnable>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A job of a scope, which borrows for `'a`.
pub(super) type Scoped<'a> = Box<dyn FnOnce(&Inner<Job>) -> Ended + Send + 'a>;

pub(super) enum Job {
    /// Of `execute`.
    Call(Box<dyn FnOnce() + Send>, Option<Outstanding>),
    /// Of `submit`.
    Task(Held),
    /// Of a scope.
    Scoped(Scoped<'static>),
}

fn run(inner: &Inner<Job>, job: Job) -> Ended {
    match job {
        Job::Call(closure, outstanding) => {
            let result = caught(closure);
            let ended = match result {
                Ok(()) => Ended::Completed,
                Err(payload) => {
                    inner.hooks.report(payload);
                    Ended::Panicked
                }
            };
            drop(outstanding);
            ended
        }
        Job::Task(task) => {
            let ended = task.0.run();
            // The result goes with it, if the handle is gone.
            drop_guarded(task);
            ended
        }
        Job::Scoped(run) => run(inner),
    }
}

fn call<F: FnOnce() + Send + 'static>(closure: F, _: u64) -> Job {
    Job::Call(Box::new(closure), Outstanding::here())
}

/// Makes the job of a closure, and keeps its task for the handle.
fn task<F, T>(kept: &mut Option<Arc<Task<F, T>>>) -> impl FnMut(F, u64) -> Job + '_
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    |closure, _| {
        let task = Arc::new(Task::new(closure, Outstanding::here()));
        *kept = Some(Arc::clone(&task));
        Job::Task(Held(task))
    }
}

fn handle<F, T>(inner: &Arc<Inner<Job>>, task: Option<Arc<Task<F, T>>>, ticket: u64) -> JobHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let task = task.expect("the job of a ticket was made");
    JobHandle::new(task, Arc::clone(inner) as _, ticket)
}

/// A pool of threads that run closures.
///
/// It starts a thread for a job if none is idle and fewer live than its capacity, and lets one go that has been idle for the keep-alive. A
/// panic goes to the job's handle, or to the handler of the pool, and the worker goes on. Everything that is refused comes back in the
/// error.
///
/// This is a handle; clones are of the same pool. When the last one is dropped, the pool is closed: what is queued still runs, and
/// then its threads end. The drop waits for nothing.
///
/// ```
/// use procession::pool::Pool;
///
/// let pool = Pool::builder().capacity(2).build()?;
/// let words = pool.submit(|| "so much to do".split(' ').count())?;
/// let panics = pool.submit(|| -> usize { std::panic::resume_unwind(Box::new("out of luck")) })?;
/// assert_eq!(words.join(), Ok(4));
/// assert_eq!(panics.join().unwrap_err().to_string(), "the job panicked: out of luck");
///
/// pool.close();
/// let refused = pool.execute(|| println!("never")).unwrap_err();
/// assert!(refused.is_closed());
/// let closure = refused.into_inner();
/// closure(); // Nothing is lost.
/// pool.wait(None)?;
/// assert_eq!(pool.stats().live, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Jobs of a pool that use it
/// A job may submit to its own pool. If it would have to wait for a place, and all other workers wait for the same already, none of them
/// could ever go on: then it gets an error ([`SubmitError::is_deadlock`]). Waits with a limit of time do not count, nor does what else a job
/// may wait for, such as locks.
#[derive(Clone)]
pub struct Pool {
    owner: Arc<Owner<Job>>,
    on_full: OnFull,
}

impl Builder {
    /// Builds a pool of threads.
    ///
    /// # Errors
    /// [`PoolError`]: a value out of its range, or the system refused one of the threads that were to be [started](Self::prestart) at once.
    pub fn build(self) -> Result<Pool, PoolError> {
        let engine = Threads { run: Box::new(run), stack_size: self.stack_size };
        let inner = self.make(Box::new(engine))?;
        Ok(Pool { owner: Arc::new(Owner(inner)), on_full: self.how_full() })
    }
}

impl Pool {
    /// Starts to describe a pool.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(super) fn inner(&self) -> &Arc<Inner<Job>> {
        &self.owner.0
    }

    /// For how long a submitter waits who does not say it.
    pub(super) fn patience(&self) -> Patience {
        self.on_full.into()
    }

    fn put_call<F: FnOnce() + Send + 'static>(&self, closure: F, patience: Patience) -> Result<(), SubmitError<F>> {
        self.inner().put(closure, patience, call).map(drop)
    }

    fn put_task<F, T>(&self, closure: F, patience: Patience) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let mut kept = None;
        let ticket = self.inner().put(closure, patience, task(&mut kept))?;
        Ok(handle(self.inner(), kept, ticket))
    }

    /// Runs a closure whose result nobody wants. If the pool is full, this does what [`Builder::on_full`] says.
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place. In async code, [`reserve`](Self::reserve) one instead.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, closure: F) -> Result<(), SubmitError<F>> {
        self.put_call(closure, self.on_full.into())
    }

    /// As [`execute`](Self::execute), with a handle to the result.
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    ///
    /// # Blocking
    /// As [`execute`](Self::execute).
    pub fn submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.put_task(closure, self.on_full.into())
    }

    /// As [`execute`](Self::execute), but refuses if the pool is full.
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    pub fn try_execute<F: FnOnce() + Send + 'static>(&self, closure: F) -> Result<(), SubmitError<F>> {
        self.put_call(closure, Patience::Refuse)
    }

    /// As [`submit`](Self::submit), but refuses if the pool is full.
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    pub fn try_submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.put_task(closure, Patience::Refuse)
    }

    /// As [`execute`](Self::execute), but waits for a place for at most `patience`.
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute_timeout<F>(&self, closure: F, patience: Duration) -> Result<(), SubmitError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.put_call(closure, Patience::For(Some(patience)))
    }

    /// As [`submit`](Self::submit), but waits for a place for at most `patience`.
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn submit_timeout<F, T>(&self, closure: F, patience: Duration) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.put_task(closure, Patience::For(Some(patience)))
    }

    /// Waits for a place in the pool, behind all who came before, and reserves it: this is how async code is slowed down to what
    /// the pool can do. Whether or not the pool is to be waited for ([`Builder::on_full`]), this waits.
    ///
    /// ```
    /// use procession::pool::Pool;
    ///
    /// let pool = Pool::builder().capacity(1).build()?;
    /// let sum = procession::run(async {
    ///     let mut sum = 0;
    ///     for n in 1..=3 {
    ///         sum += pool.reserve().await?.submit(move || n)?.await?;
    ///     }
    ///     Ok::<i32, Box<dyn std::error::Error>>(sum)
    /// })?;
    /// assert_eq!(sum, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SubmitError`]: the pool is closed, or as many wait as may, or the caller is a job of the pool that would wait for ever.
    ///
    /// # Cancellation
    /// Dropped while it waits, it leaves the queue; a place that it was given meanwhile goes to the next.
    pub fn reserve(&self) -> Reserve<'_> {
        Reserve { pool: self, place: self.inner().place(false) }
    }

    /// As [`reserve`](Self::reserve), if there is a place.
    ///
    /// # Errors
    /// [`SubmitError`]: the pool is full, or closed.
    pub fn try_reserve(&self) -> Result<Permit<'_>, SubmitError<()>> {
        match self.inner().try_reserve() {
            Ok(generation) => Ok(Permit { pool: self, generation: Some(generation) }),
            Err(kind) => Err(SubmitError { content: (), kind }),
        }
    }

    /// How the pool is doing, at one moment.
    pub fn stats(&self) -> PoolStats {
        self.inner().stats()
    }

    /// Whether the pool was closed.
    pub fn is_closed(&self) -> bool {
        self.inner().is_closed()
    }

    /// Changes the capacity, at any time; gives back what it was. More: those who wait go on at once. Fewer: idle workers that are too many
    /// leave at once, busy ones after their job.
    ///
    /// # Errors
    /// [`PoolError::Invalid`]: the capacity is 0.
    pub fn resize(&self, capacity: usize) -> Result<usize, PoolError> {
        check_capacity(capacity)?;
        Ok(self.inner().resize(capacity))
    }

    /// Changes how long workers stay that have nothing to do, from the next time on that one becomes idle.
    pub fn set_keep_alive(&self, idle: Duration) {
        let nanoseconds = if idle == Duration::MAX { NEVER } else { nanoseconds(idle) };
        self.inner().keep_alive.store(nanoseconds, Relaxed);
    }

    /// Takes no more jobs. Who waits for a place gets his job back; what is queued still runs. Says whether the pool was open.
    ///
    /// When this has returned, no job is taken any more. It waits for nothing, and a job may call it.
    pub fn close(&self) -> bool {
        self.inner().close()
    }

    /// Closes the pool and cancels what is queued; says how many jobs. What runs goes on. Every handle resolves.
    pub fn shutdown_now(&self) -> usize {
        self.inner().shutdown_now()
    }

    /// Waits until a closed pool has run all its jobs, and its workers their hooks; for at most `patience`, if that is given. It may be called
    /// again.
    ///
    /// # Errors
    /// [`WaitError`]: the time is over, the pool is open, or the caller is one of its jobs.
    ///
    /// # Blocking
    /// Blocks the thread; in async code, await [`ended`](Self::ended).
    pub fn wait(&self, patience: Option<Duration>) -> Result<(), WaitError> {
        self.inner().wait(patience)
    }

    /// As [`wait`](Self::wait), for async code.
    ///
    /// # Errors
    /// [`WaitError`]: the pool is open, or the caller is one of its jobs.
    pub async fn ended(&self) -> Result<(), WaitError> {
        self.inner().drained().await
    }

    /// Waits until no job is queued and none runs, open or closed; for at most `patience`, if that is given.
    ///
    /// # Errors
    /// [`WaitError`]: the time is over, or the caller is one of its jobs.
    ///
    /// # Blocking
    /// Blocks the thread; in async code, await [`idle`](Self::idle).
    pub fn wait_idle(&self, patience: Option<Duration>) -> Result<(), WaitError> {
        self.inner().wait_idle(patience)
    }

    /// As [`wait_idle`](Self::wait_idle), for async code.
    ///
    /// # Errors
    /// [`WaitError`]: the caller is one of its jobs.
    pub async fn idle(&self) -> Result<(), WaitError> {
        self.inner().idle().await
    }

    /// Opens a closed pool again, as soon as its last worker has left.
    ///
    /// # Errors
    /// [`PoolError::NotDrained`]: it is open, or not all of its jobs and workers have ended.
    pub fn reopen(&self) -> Result<(), PoolError> {
        if self.inner().reopen() { Ok(()) } else { Err(PoolError::NotDrained) }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().fmt(f)
    }
}

/// The future of [`Pool::reserve`].
#[must_use = "futures do nothing unless awaited"]
pub struct Reserve<'a> {
    pool: &'a Pool,
    place: PlaceWait<'a, Job>,
}

impl<'a> Future for Reserve<'a> {
    type Output = Result<Permit<'a>, SubmitError<()>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let pool = self.pool;
        Pin::new(&mut self.place).poll(task).map(|placed| match placed {
            Ok(generation) => Ok(Permit { pool, generation: Some(generation) }),
            Err(kind) => Err(SubmitError { content: (), kind }),
        })
    }
}

impl fmt::Debug for Reserve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("waits", &self.place.is_enlisted()).finish_non_exhaustive()
    }
}

/// A place in a pool, for one job. Dropped, it goes to the next who waits. If the pool is closed meanwhile, it is void.
#[must_use = "dropped, the place is given back"]
pub struct Permit<'a> {
    pool: &'a Pool,
    generation: Option<u64>,
}

impl Permit<'_> {
    fn enter<C>(mut self, content: C, make: impl FnOnce(C, u64) -> Job) -> Result<u64, SubmitError<C>> {
        let generation = self.generation.take().expect("a permit is used once");
        let entered = self.pool.inner().enter_reserved(generation, content, make);
        self.pool.inner().count_if_refused(&entered);
        entered
    }

    /// As [`Pool::execute`], without waiting.
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it: the pool is closed, or could start no worker.
    pub fn execute<F: FnOnce() + Send + 'static>(self, closure: F) -> Result<(), SubmitError<F>> {
        self.enter(closure, call).map(drop)
    }

    /// As [`Pool::submit`], without waiting.
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it: the pool is closed, or could start no worker.
    pub fn submit<F, T>(self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let pool = self.pool;
        let mut kept = None;
        let ticket = self.enter(closure, task(&mut kept))?;
        Ok(handle(pool.inner(), kept, ticket))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(generation) = self.generation.take() {
            self.pool.inner().release(generation);
        }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}

/// Runs a closure that blocks, or computes for long, on a thread of its own, while processes go on.
///
/// The threads are those of one pool of this program: as many as 512, started as they are needed, and each goes after 10 s without
/// work; what comes beyond them is queued, without a bound. For more say in this, make a [`Pool`].
///
/// ```
/// let text = procession::run(async { procession::spawn_blocking(|| std::fs::read_to_string("Cargo.toml")).await })?;
/// assert!(text?.contains("[package]"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If the system gives no thread at all, the closure is dropped, and the handle answers [`JobError::Refused`](super::JobError::Refused). A test clock
/// stands still until the closure has returned.
pub fn spawn_blocking<F, T>(closure: F) -> JobHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    static POOL: OnceLock<Pool> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let builder = Pool::builder().name("blocking").queue(Queue::Unbounded);
        builder.build().expect("the defaults are in range, and nothing is started yet")
    });
    pool.submit(closure).unwrap_or_else(|_| JobHandle::refused())
}
