//! Workers that are processes: coroutines, which park while they are idle, and async processes,
//! which rest.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::IdleWorker;
use procession_protocols::pool::state::outcome::{Ended, Next};
use procession_protocols::pool::state::seat::PoolSeat;
use procession_protocols::pool::state::wakes::Launch;

use super::builder::Builder;
use super::engine::{Engine, Inner, RunJob};
use super::error::PoolError;
use super::hooks::{Hooks, Settled};
use super::parking::ParkingWorker;
use crate::process::async_body::Beside;
use crate::scheduler::shared::Shared;
use crate::spawn::reservation::Reservation;
use crate::time::action::Action;
use crate::time::arm;
use crate::{OnCancel, SpawnOptions};

/// Starts a worker with a job.
type Launcher<J> = dyn Fn(Reservation<'_>, JobWorker<J>, J) + Send + Sync;

/// The way in which idle workers wait.
enum IdleKind<J: Send + 'static> {
    Parking { run: RunJob<J>, stack_size: Option<usize> },
    Resting(Box<Launcher<J>>),
}

/// The engine of pools of processes.
pub(super) struct Processes<J: Send + 'static> {
    shared: Arc<Shared>,
    kind: IdleKind<J>,
}

impl<J: Send + 'static> Processes<J> {
    /// Returns an engine of coroutines, which park while they are idle.
    pub(super) fn coroutines(
        builder: &Builder,
        run: impl Fn(&Hooks, J) -> Ended + Send + Sync + 'static,
    ) -> Result<Self, PoolError> {
        let shared = builder.shared();
        if shared.coroutines.stacks.is_none() {
            return Err(PoolError::NoCoroutines { scheduler: shared.name().to_owned() });
        }
        let kind = IdleKind::Parking { run: Box::new(run), stack_size: builder.stack_size };
        Ok(Self { shared, kind })
    }

    /// Returns an engine of async processes that rest while they are idle. `launch` starts one with
    /// a job, as [`Work`]. It ends when no job is queued.
    pub(super) fn resting(
        shared: Arc<Shared>,
        launch: impl Fn(Reservation<'_>, JobWorker<J>, J) + Send + Sync + 'static,
    ) -> Self {
        Self { shared, kind: IdleKind::Resting(Box::new(launch)) }
    }

    fn options(&self) -> SpawnOptions {
        SpawnOptions::new().on_shared(Arc::clone(&self.shared))
    }
}

impl<J: Send + 'static> Engine<J> for Processes<J> {
    fn start(&self, inner: &Arc<Inner<J>>, seat: &Arc<PoolSeat<J>>) -> io::Result<()> {
        let IdleKind::Parking { stack_size, .. } = &self.kind else {
            unreachable!("a resting worker is launched");
        };
        let options = match stack_size {
            Some(bytes) => self.options().stack_size(*bytes),
            None => self.options(),
        };
        ParkingWorker::start(inner, seat, |worker| worker.start_coroutine(options, &self.shared))
    }

    fn launch(&self, inner: &Arc<Inner<J>>, launch: Launch<J>, reservation: Reservation<'_>) {
        let IdleKind::Resting(launcher) = &self.kind else {
            unreachable!("a parking worker is started");
        };
        let Launch { ticket, job, has_begun } = launch;
        let begins = !has_begun && inner.hooks.has_life();
        launcher(
            reservation,
            JobWorker { inner: Arc::clone(inner), ticket, is_busy: true, begins },
            job,
        );
    }

    fn run(&self, inner: &Inner<J>, job: J) -> Ended {
        match &self.kind {
            IdleKind::Parking { run, .. } => run(&inner.hooks, job),
            IdleKind::Resting(_) => unreachable!("a process polls its own job"),
        }
    }

    fn scheduler(&self) -> Option<&Arc<Shared>> {
        Some(&self.shared)
    }

    fn rests(&self) -> bool {
        matches!(self.kind, IdleKind::Resting(_))
    }

    fn dismiss(&self, inner: &Arc<Inner<J>>, count: usize) {
        let mut leavers = Leavers { inner: Arc::clone(inner), count };
        let run = async move { leavers.run() };
        // Asked, not dropped, so that the hooks run in a shutdown as well.
        if let Err(refused) = self.options().on_cancel(OnCancel::Ask).try_spawn(run) {
            // Runs the hooks on this thread instead. The future waits for nothing, so one poll
            // suffices.
            let mut run = pin!(refused.into_inner());
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
            // The job is left to the next worker that finishes, or to the next submit.
            inner.forget_retry();
        }
    }
}

/// The nanoseconds after which the pool tries again to start a worker, if the scheduler had no
/// room.
const RETRY: u64 = 10_000_000;

/// Resting workers that leave. Once this value is dropped, all these workers have left.
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
        // The process was terminated, so the remaining hooks do not run.
        for _ in 0..self.count {
            self.inner.left();
        }
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
