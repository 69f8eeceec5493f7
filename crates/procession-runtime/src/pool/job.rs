//! The result of a job, on its way from the worker to the handle.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};

use procession_sync::Mutex;

use super::error::JobError;
use super::hooks::Settled;
use crate::process::async_body::Settle;
use crate::process::exit::Exiting;
use crate::process::handling::Inherited;
use crate::process::unwind::{drop_guarded, guarded, print_caught, text_of};
use crate::process::waker::another;
use crate::scheduler::inherit;
use crate::scheduler::origin::JobOrigin;
use crate::scheduler::shared::Shared;

/// Keeps the test clock of a scheduler still while a job runs on a thread that the scheduler does
/// not know.
pub(crate) struct Outstanding(Arc<Shared>);

impl Outstanding {
    /// Returns a guard if the job is submitted in a scheduler on the test clock.
    pub(crate) fn of(origin: &JobOrigin) -> Option<Self> {
        let shared = origin.on_test_clock()?;
        shared.begin_outstanding();
        Some(Self(Arc::clone(shared)))
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.end_outstanding();
    }
}

enum JobStage<T> {
    Pending { waker: Option<Waker>, outstanding: Option<Outstanding> },
    Ended(Result<T, JobError>),
    Taken,
}

/// The cell that the worker puts the result into and the handle takes it from.
pub(crate) struct ResultCell<T>(Mutex<JobStage<T>>);

impl<T> ResultCell<T> {
    pub(crate) fn new(outstanding: Option<Outstanding>) -> Self {
        Self(Mutex::new(JobStage::Pending { waker: None, outstanding }))
    }

    fn change<R>(&self, change: impl FnOnce(&mut JobStage<T>) -> R) -> R {
        change(&mut self.0.lock())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.change(|stage| !matches!(stage, JobStage::Pending { .. }))
    }

    pub(crate) fn poll_result(&self, waker: &Waker) -> Poll<Result<T, JobError>> {
        // A waker is cloned and dropped outside the lock, because both run user code.
        let new = another(waker);
        let (result, old) = self.change(|stage| match stage {
            JobStage::Pending { waker, .. } => (None, waker.replace(new)),
            JobStage::Ended(_) | JobStage::Taken => match std::mem::replace(stage, JobStage::Taken)
            {
                JobStage::Ended(result) => (Some(result), Some(new)),
                _ => (Some(Err(JobError::Taken)), Some(new)),
            },
        });
        drop(old);
        result.map_or(Poll::Pending, Poll::Ready)
    }

    /// Stores a result and wakes the handle. Only the first result counts.
    pub(crate) fn resolve(&self, result: Result<T, JobError>) {
        let before = self.change(|stage| match stage {
            JobStage::Pending { .. } => Ok(std::mem::replace(stage, JobStage::Ended(result))),
            _ => Err(result),
        });
        match before {
            Ok(JobStage::Pending { waker, outstanding }) => {
                if let Some(waker) = waker {
                    drop(guarded(|| waker.wake()));
                }
                // After the wake-up, so that the clock stands still until then.
                drop(outstanding);
            }
            Ok(_) => {}
            Err(result) => drop_guarded(result),
        }
    }
}

/// The duty to resolve a cell. Dropping it resolves the cell as cancelled.
pub(super) struct Promise<T>(Option<Arc<ResultCell<T>>>);

impl<T> Promise<T> {
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

/// Turns the payload of a panic, or of an [`exit`](crate::exit), into the error of the job. The
/// panic is printed, because nobody may look at the handle.
pub(super) fn failed(payload: Box<dyn Any + Send>) -> JobError {
    let payload = match payload.downcast::<Exiting>() {
        Ok(exiting) => return JobError::Exited(exiting.0),
        Err(payload) => payload,
    };
    let text = Arc::from(text_of(&*payload));
    print_caught(payload);
    JobError::Panicked(text)
}

/// The result of user code, or the payload of its panic.
pub(super) type Caught<T> = Result<T, Box<dyn Any + Send>>;

/// Runs user code, and catches a panic.
pub(super) fn caught<R>(user_code: impl FnOnce() -> R) -> Caught<R> {
    catch_unwind(AssertUnwindSafe(user_code))
}

impl<T> Settle<T> for Option<Promise<T>> {
    type Settled = Settled;

    /// Resolves the promise of a job. Drops the result of a job without one.
    fn settle(self, outcome: Caught<T>) -> Settled {
        match (self, outcome) {
            (Some(promise), Ok(result)) => {
                promise.resolve(Ok(result));
                Ok(())
            }
            (Some(promise), Err(payload)) => {
                promise.resolve(Err(failed(payload)));
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

/// The origin of a job, and the destination of its result.
pub struct JobEnds<T> {
    /// The promise of the result, if the job has a handle.
    pub(super) promise: Option<Promise<T>>,
    /// Set only for jobs without a promise.
    pub(super) outstanding: Option<Outstanding>,
    /// Set only for jobs on threads. Processes have a scheduler.
    pub(super) origin: JobOrigin,
    /// The values that the job inherits from its submitter.
    pub(super) inherited: Option<Inherited>,
}

impl<T> JobEnds<T> {
    /// Returns the ends of a job without a handle.
    pub(super) fn detached(origin: JobOrigin) -> (Self, ()) {
        let outstanding = Outstanding::of(&origin);
        (Self { promise: None, outstanding, origin, inherited: inherit::present() }, ())
    }

    /// Returns the ends of a job with a handle, and the cell of its result.
    pub(super) fn with_handle(origin: JobOrigin) -> (Self, Arc<ResultCell<T>>) {
        let cell = Arc::new(ResultCell::new(Outstanding::of(&origin)));
        let promise = Some(Promise(Some(Arc::clone(&cell))));
        (Self { promise, outstanding: None, origin, inherited: inherit::present() }, cell)
    }
}
