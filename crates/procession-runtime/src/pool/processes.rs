//! Workers that are async processes, which rest while they are idle.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::IdleWorker;
use procession_protocols::pool::state::outcome::Next;
use procession_protocols::pool::state::wakes::Launch;

use super::engine::{Inner, Workers};
use super::hooks::Settled;
use crate::process::async_body::Beside;
use crate::spawn::reservation::Reservation;

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
    fn begin(&mut self) {
        if std::mem::take(&mut self.begins) {
            self.inner.hooks.run_start();
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
