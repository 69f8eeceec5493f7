//! Blocking functions on threads that are not workers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use procession_sync::{Mutex, thread};

use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::frame::{Counted, Frame, frame};
use crate::scheduler::helpers::{HelperJob, Helpers};
use crate::scheduler::origin::JobOrigin;
use crate::scheduler::shared::Shared;
use crate::scheduler::{block_on, current};

/// Calls `function`, which may block, on another thread. Until it returns, the coroutine is
/// suspended, and its worker runs other processes.
///
/// The function may borrow from the coroutine's stack, so nothing unwinds the coroutine before the
/// function has returned: a cancel, and even a terminate, waits. Where the coroutine cannot be
/// suspended, and outside of coroutines, the function is called on this thread.
///
/// # Errors
/// Returns the function if the system refuses a thread for it.
///
/// # Panics
/// Panics if the function panics, with the same payload.
#[track_caller]
pub fn blocking<F, R>(function: F) -> Result<R, F>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    lend(function, |frame, done| frame.wait(done))
}

/// Like [`blocking`], but never unwinds. Private: used by `procession-hook`, below frames of C.
#[doc(hidden)]
pub fn blocking_foreign<F, R>(function: F) -> Result<R, F>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    // If the coroutine is terminated, `Until` waits.
    lend(function, |frame, done| frame.wait_unless_terminated(done))
}

fn lend<F, R>(
    function: F,
    wait: impl FnOnce(&Frame, Pin<&mut dyn Future<Output = ()>>),
) -> Result<R, F>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let Some(frame) = frame().filter(|frame| frame.may_suspend()) else { return Ok(function()) };
    let shared = frame.slot().shared();
    let origin = JobOrigin::new(shared.arc(), frame.slot().pid());
    let loan = Loan { function: Some(function), end: None, waker: None };
    let job = Arc::new(Lent(Mutex::new(loan), origin));
    let runs: Arc<dyn HelperJob + '_> = Arc::clone(&job) as Arc<dyn HelperJob + '_>;
    // SAFETY: [lent] what the function borrows stays borrowed. From here on, this function is left,
    // by return or unwinding, only after the function was run or refused, and takes what is left of
    // it. What the helper keeps after that holds neither the function nor its result.
    let runs: Arc<dyn HelperJob + 'static> = unsafe { std::mem::transmute(runs) };
    shared.begin_outstanding();
    Helpers::of(shared).run(&shared.world, shared.name(), runs);
    let until = Until(&job, shared);
    let _shield = Counted::up(&frame.shields);
    wait(frame, pin!(std::future::poll_fn(|task: &mut TaskContext<'_>| job.poll(task))));
    drop(until);
    let (function, end) = job.change(|loan| (loan.function.take(), loan.end.take()));
    match end.expect("it was run or refused") {
        LoanEnd::Returned(result) => Ok(result),
        LoanEnd::Panicked(payload) => resume_unwind(payload),
        LoanEnd::Refused => Err(function.expect("a job that was refused was not run")),
    }
}

/// A function that is lent to a helper.
///
/// ## Invariants
/// - `[lent]` The runner drops the function before the end of the loan, unless it was refused.
///   After the end, the lender takes the function and the result. So the drop of the last share
///   drops nothing that belongs to the borrower, whichever thread does it and whenever.
struct Lent<F, R>(Mutex<Loan<F, R>>, JobOrigin);

struct Loan<F, R> {
    function: Option<F>,
    /// Set once the loan is over.
    end: Option<LoanEnd<R>>,
    waker: Option<Waker>,
}

enum LoanEnd<R> {
    Returned(R),
    Panicked(Box<dyn Any + Send>),
    /// The function was not run.
    Refused,
}

impl<F, R> Lent<F, R> {
    fn change<A>(&self, change: impl FnOnce(&mut Loan<F, R>) -> A) -> A {
        change(&mut self.0.lock())
    }

    fn poll(&self, task: &TaskContext<'_>) -> Poll<()> {
        let new = crate::process::waker::another(task.waker());
        let (done, old) = self.change(|loan| (loan.end.is_some(), loan.waker.replace(new)));
        drop_guarded(old);
        if done {
            return Poll::Ready(());
        }
        current::note_waiting(Waiting::COMPLETION);
        Poll::Pending
    }

    fn end(&self, end: LoanEnd<R>) {
        let waker = self.change(|loan| {
            loan.end = Some(end);
            loan.waker.take()
        });
        if let Some(waker) = waker {
            // The lender may be gone by now.
            drop(crate::process::unwind::guarded(|| waker.wake()));
        }
        // The lender is queued by now, unless it is suspended. In that case the clock has to
        // continue, and the lender would end the count later than it must be ended.
        if let Some(shared) = self.1.on_test_clock() {
            shared.end_outstanding();
        }
    }
}

impl<F, R> HelperJob for Lent<F, R>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    fn run(&self) {
        let Some(function) = self.change(|loan| loan.function.take()) else { return };
        let place = self.1.enter();
        let result = catch_unwind(AssertUnwindSafe(function));
        drop(place);
        self.end(result.map_or_else(LoanEnd::Panicked, LoanEnd::Returned));
    }

    fn refuse(&self) {
        self.end(LoanEnd::Refused);
    }
}

/// Waits on drop until the function was run or refused. If the coroutine is terminated before that,
/// this blocks its thread, and never panics, because a frame of C must not be unwound.
struct Until<'a, F: FnOnce() -> R + Send, R: Send>(&'a Lent<F, R>, &'a Shared);

impl<F: FnOnce() -> R + Send, R: Send> Drop for Until<'_, F, R> {
    fn drop(&mut self) {
        if self.0.change(|loan| loan.end.is_none()) {
            block_on::block_on_helper(
                &self.1.arc(),
                std::future::poll_fn(|task: &mut TaskContext<'_>| self.0.poll(task)),
            );
        }
        if thread::panicking() {
            drop_guarded(self.0.change(|loan| (loan.function.take(), loan.end.take())));
        }
    }
}
