//! A job that has a handle, and the handle.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession_sync::Mutex;

use super::JobError;
use super::engine::{Inner, Jobs, block};
use super::state::outcome::Ended;
use crate::Waiting;
use crate::process::async_body::Settle;
use crate::process::unwind::{drop_guarded, guarded};
use crate::scheduler::block_on;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::time::timeout;

/// Keeps the test clock of a scheduler still while a job runs on a thread that the scheduler does not know.
pub(super) struct Outstanding(Arc<Shared>);

impl Outstanding {
    /// For a job that is submitted where a test clock counts.
    pub(super) fn here() -> Option<Self> {
        let shared = current::here().filter(|shared| shared.world.is_test())?;
        shared.begin_outstanding();
        Some(Self(Arc::clone(&shared)))
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.end_outstanding();
    }
}

enum Stage<T> {
    Pending { waker: Option<Waker>, outstanding: Option<Outstanding> },
    Ended(Result<T, JobError>),
    Taken,
}

/// Where the result of a job goes.
pub(super) struct Cell<T>(Mutex<Stage<T>>);

impl<T> Cell<T> {
    pub(super) fn new(outstanding: Option<Outstanding>) -> Self {
        Self(Mutex::new(Stage::Pending { waker: None, outstanding }))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Stage<T>) -> R) -> R {
        change(&mut self.0.lock().expect("nothing that can panic runs under this lock"))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.change(|stage| !matches!(stage, Stage::Pending { .. }))
    }

    pub(super) fn poll_result(&self, waker: &Waker) -> Poll<Result<T, JobError>> {
        // Cloned and dropped outside the lock: both are the user's code.
        let new = waker.clone();
        let (result, old) = self.change(|stage| match stage {
            Stage::Pending { waker, .. } => (None, waker.replace(new)),
            Stage::Ended(_) | Stage::Taken => match std::mem::replace(stage, Stage::Taken) {
                Stage::Ended(result) => (Some(result), Some(new)),
                _ => (Some(Err(JobError::Taken)), Some(new)),
            },
        });
        drop(old);
        result.map_or(Poll::Pending, Poll::Ready)
    }

    /// The first result counts.
    fn resolve(&self, result: Result<T, JobError>) {
        let before = self.change(|stage| match stage {
            Stage::Pending { .. } => Ok(std::mem::replace(stage, Stage::Ended(result))),
            _ => Err(result),
        });
        match before {
            Ok(Stage::Pending { waker, outstanding }) => {
                if let Some(waker) = waker {
                    drop(guarded(|| waker.wake()));
                }
                // After the wake-up: until then the clock stands still.
                drop(outstanding);
            }
            Ok(_) => {}
            Err(result) => drop_guarded(result),
        }
    }
}

/// What a handle sees of its job.
pub(super) trait Outcome<T>: Send + Sync {
    fn cell(&self) -> &Cell<T>;
}

impl<T: Send> Outcome<T> for Cell<T> {
    fn cell(&self) -> &Cell<T> {
        self
    }
}

/// The duty to resolve a cell; dropped, it says that the job was cancelled.
pub(super) struct Promise<T>(Option<Arc<Cell<T>>>);

impl<T> Promise<T> {
    /// With its cell, for the handle.
    pub(super) fn new(outstanding: Option<Outstanding>) -> (Self, Arc<Cell<T>>) {
        let cell = Arc::new(Cell::new(outstanding));
        (Self(Some(Arc::clone(&cell))), cell)
    }

    fn resolve(mut self, result: Result<T, JobError>) {
        if let Some(cell) = self.0.take() {
            cell.resolve(result);
            drop_guarded(cell);
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.0.take() {
            cell.resolve(Err(JobError::Cancelled));
        }
    }
}

/// The error of a job that panicked, made from what the panic carried.
pub(super) fn panicked(payload: Box<dyn Any + Send>) -> JobError {
    let text: Arc<str> = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => Arc::from(*text),
        (_, Some(text)) => Arc::from(text.as_str()),
        _ => Arc::from("a value that is no text"),
    };
    drop_guarded(payload);
    JobError::Panicked(text)
}

/// What user code gave, or panicked with.
pub(super) type Caught<T> = Result<T, Box<dyn Any + Send>>;

/// Runs user code, and gives a panic back.
pub(super) fn caught<R>(user_code: impl FnOnce() -> R) -> Caught<R> {
    catch_unwind(AssertUnwindSafe(user_code))
}

/// What a job panicked with; nothing, if its handle was told.
pub(super) type Panic = Option<Box<dyn Any + Send>>;

/// What remains of a job: a panic of which no handle is told.
pub(super) type Settled = Result<(), Panic>;

impl<T> Settle<T> for Option<Promise<T>> {
    type Settled = Settled;

    /// Keeps the promise of a job, or drops a result that nobody wants.
    fn settle(self, outcome: Caught<T>) -> Settled {
        match (self, outcome) {
            (Some(promise), Ok(result)) => {
                promise.resolve(Ok(result));
                Ok(())
            }
            (Some(promise), Err(payload)) => {
                promise.resolve(Err(panicked(payload)));
                Err(None)
            }
            (None, Ok(result)) => {
                drop_guarded(result);
                Ok(())
            }
            (None, Err(payload)) => Err(Some(payload)),
        }
    }
}

/// A closure and where its result goes, in one allocation.
pub(super) struct Task<F, T> {
    closure: Mutex<Option<F>>,
    cell: Cell<T>,
}

/// What a worker sees of a task.
pub(super) trait Runnable: Send + Sync {
    fn run(&self) -> Ended;
    fn cancel(&self);
}

impl<F, T> Task<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    pub(super) fn new(closure: F, outstanding: Option<Outstanding>) -> Self {
        Self { closure: Mutex::new(Some(closure)), cell: Cell::new(outstanding) }
    }

    pub(super) fn take(&self) -> Option<F> {
        self.closure.lock().expect("nothing that can panic runs under this lock").take()
    }
}

impl<F, T> Outcome<T> for Task<F, T>
where
    F: Send,
    T: Send,
{
    fn cell(&self) -> &Cell<T> {
        &self.cell
    }
}

impl<F, T> Runnable for Task<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn run(&self) -> Ended {
        let closure = self.take().expect("a job is run once, and not after it was cancelled");
        match caught(closure) {
            Ok(result) => {
                self.cell.resolve(Ok(result));
                Ended::Completed
            }
            Err(payload) => {
                self.cell.resolve(Err(panicked(payload)));
                Ended::Panicked
            }
        }
    }

    fn cancel(&self) {
        if let Some(closure) = self.take() {
            self.cell.resolve(Err(JobError::Cancelled));
            drop_guarded(closure);
        }
    }
}

/// A handle to the result of a job: a future of it, which threads can [`join`](Self::join).
///
/// Dropping the handle detaches the job, which runs nevertheless. It resolves in any case: with the result, or a [`JobError`].
#[must_use = "dropping a handle detaches the job; write `drop(handle)` to say so"]
pub struct JobHandle<T>(Option<Taken<T>>);

/// A job that was taken by a pool.
struct Taken<T> {
    job: Arc<dyn Outcome<T>>,
    pool: Arc<dyn Jobs>,
    ticket: u64,
}

impl<T> JobHandle<T> {
    /// Of a job that was taken.
    pub(super) fn new<J, O>(pool: &Arc<Inner<J>>, job: Arc<O>, ticket: u64) -> Self
    where
        J: Send + 'static,
        O: Outcome<T> + 'static,
    {
        Self(Some(Taken { job, pool: Arc::clone(pool) as _, ticket }))
    }

    pub(super) fn refused() -> Self {
        Self(None)
    }

    /// Whether the result is there.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(Taken::has_ended)
    }

    /// Cancels the job, if it does not run yet. Says whether it did: then it never runs, and the handle answers
    /// [`JobError::Cancelled`].
    pub fn cancel(&self) -> bool {
        self.0.as_ref().is_some_and(|taken| taken.pool.cancel(taken.ticket))
    }

    /// Waits for the result on a thread. If the caller is a job of the same thread pool, and the job that it waits for is still queued, it
    /// runs it here.
    ///
    /// # Errors
    /// The [`JobError`] of a job that has no result; [`JobError::WouldDeadlock`] if the caller is a job of the same thread pool, and
    /// all others wait for jobs of it already.
    ///
    /// # Blocking
    /// Blocks the thread; in a process, await the handle instead.
    pub fn join(mut self) -> Result<T, JobError> {
        let Some(taken) = &self.0 else {
            return Err(JobError::Refused);
        };
        if let Some(shared) = taken.pool.scheduler() {
            return block_on::block_on(&shared, self);
        }
        taken.pool.help(taken.ticket);
        if !taken.pool.begin_join(taken.ticket, &|| taken.has_ended()) {
            return Err(JobError::WouldDeadlock);
        }
        block(None, |task| self.poll_result(task.waker())).unwrap_or(Err(JobError::Cancelled))
    }

    /// As [`join`](Self::join), for at most `patience`; it runs no job here.
    ///
    /// # Errors
    /// The handle itself, if the time is over first.
    pub fn join_timeout(mut self, patience: Duration) -> Result<Result<T, JobError>, Self> {
        let Some(taken) = &self.0 else {
            return Ok(Err(JobError::Refused));
        };
        let result = match taken.pool.scheduler() {
            Some(shared) => block_on::block_on(&shared, async { timeout(patience, &mut self).await.ok() }),
            None => block(Some(patience), |task| self.poll_result(task.waker())),
        };
        result.ok_or(self)
    }

    fn poll_result(&mut self, waker: &Waker) -> Poll<Result<T, JobError>> {
        let Some(taken) = &self.0 else {
            return Poll::Ready(Err(JobError::Refused));
        };
        taken.job.cell().poll_result(waker)
    }
}

impl<T> Taken<T> {
    fn has_ended(&self) -> bool {
        self.job.cell().has_ended()
    }
}

impl<T> Future for JobHandle<T> {
    type Output = Result<T, JobError>;

    /// # Panics
    /// Never. Polled again after the result was taken, it answers [`JobError::Taken`].
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let result = self.get_mut().poll_result(task.waker());
        if result.is_pending() {
            current::note_waiting(Waiting::JOB);
        }
        result
    }
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}
