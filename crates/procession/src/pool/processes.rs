//! Workers that are processes: coroutines, which park while they are idle, and async ones, which
//! rest.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::IdleWorker;
use procession_protocols::pool::state::outcome::{Ended, Expired, Next};
use procession_protocols::pool::state::seat::{Order, PoolSeat};
use procession_protocols::pool::state::wakes::Launch;
use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::Ordering::{AcqRel, Acquire};

use super::builder::Builder;
use super::engine::{Engine, Inner};
use super::hooks::Settled;
use crate::process::async_body::Beside;
use crate::scheduler::shared::Shared;
use crate::spawn::reservation::Reservation;
use crate::time::action::Action;
use crate::time::{Instant, Sleep, arm, sleep_on};
use crate::{OnCancel, SpawnOptions};

/// Starts a worker that parks.
type StartWorker<J> = dyn Fn(SpawnOptions, Worker<J>, Arc<Shared>) -> io::Result<()> + Send + Sync;

/// Starts a worker with a job.
type Launcher<J> = dyn Fn(Reservation<'_>, JobWorker<J>, J) + Send + Sync;

/// The way in which idle workers wait.
enum IdleKind<J: Send + 'static> {
    Parking(Box<StartWorker<J>>),
    Resting(Box<Launcher<J>>),
}

/// The engine of pools of processes.
pub(super) struct Processes<J: Send + 'static> {
    shared: Arc<Shared>,
    kind: IdleKind<J>,
    stack_size: Option<usize>,
}

impl<J: Send + 'static> Processes<J> {
    /// Returns an engine of processes that park while they are idle.
    pub(super) fn parking(
        builder: &Builder,
        shared: Arc<Shared>,
        start: impl Fn(SpawnOptions, Worker<J>, Arc<Shared>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { shared, kind: IdleKind::Parking(Box::new(start)), stack_size: builder.stack_size }
    }

    /// Returns an engine of async processes that rest while they are idle. `launch` starts one with
    /// a job, as [`Work`]. It ends when no job is queued.
    pub(super) fn resting(
        shared: Arc<Shared>,
        launch: impl Fn(Reservation<'_>, JobWorker<J>, J) + Send + Sync + 'static,
    ) -> Self {
        Self { shared, kind: IdleKind::Resting(Box::new(launch)), stack_size: None }
    }

    fn options(&self) -> SpawnOptions {
        SpawnOptions::new().on_shared(Arc::clone(&self.shared))
    }
}

/// The stages of the start of a worker.
mod launch {
    pub(super) const STARTING: u8 = 0;
    /// The pool counts the worker.
    pub(super) const STARTED: u8 = 1;
    /// The worker was ended before that. To the pool, its start was refused.
    pub(super) const ENDED: u8 = 2;
}

impl<J: Send + 'static> Engine<J> for Processes<J> {
    fn start(&self, inner: &Arc<Inner<J>>, seat: &Arc<PoolSeat<J>>) -> io::Result<()> {
        let IdleKind::Parking(start) = &self.kind else {
            unreachable!("a resting worker is launched");
        };
        let worker =
            Worker { inner: Arc::clone(inner), seat: Arc::clone(seat), runs: None, is_done: false };
        let mut options = self.options();
        if let Some(bytes) = self.stack_size {
            options = options.stack_size(bytes);
        }
        let refused = start(options, worker, Arc::clone(&self.shared)).err();
        // Ordering: AcqRel pairs with the exchange in the worker's `Drop`. One of the two comes
        // first.
        match seat.launch.swap(launch::STARTED, AcqRel) {
            launch::ENDED => {
                Err(refused.unwrap_or_else(|| io::Error::other("the scheduler is shutting down")))
            }
            _ => Ok(()),
        }
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

    fn run(&self, _: &Inner<J>, _: J) -> Ended {
        unreachable!("a process polls its own job")
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

/// Resting workers that leave. Once they are dropped, all of them have left.
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

/// A worker that parks while it is idle. It exists from the start of its process until it has left.
/// If it is dropped earlier, its process was killed.
pub(super) struct Worker<J: Send + 'static> {
    pub(super) inner: Arc<Inner<J>>,
    seat: Arc<PoolSeat<J>>,
    /// The ticket of the job that runs.
    pub(super) runs: Option<u64>,
    /// `true` if the worker has left the pool.
    is_done: bool,
}

impl<J: Send + 'static> Drop for Worker<J> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // While the worker is being started, its pool is locked and does not count it yet.
        // Ordering: AcqRel, as in `start`.
        if self
            .seat
            .launch
            .compare_exchange(launch::STARTING, launch::ENDED, AcqRel, Acquire)
            .is_err()
        {
            self.inner.died(Some(&self.seat), self.runs);
        }
    }
}

impl<J: Send + 'static> Worker<J> {
    /// Tells the pool that a job has ended, and returns what to do next.
    pub(super) fn finish(&mut self, ticket: u64, ended: Ended) -> Next<J> {
        self.runs = None;
        self.inner.finish(|| IdleWorker::Parked(Arc::clone(&self.seat)), ticket, ended)
    }

    pub(super) fn leave(mut self) {
        self.inner.hooks.run_stop();
        self.inner.left();
        self.is_done = true;
    }

    pub(super) async fn await_order(
        &self,
        shared: &Arc<Shared>,
        idle: &mut Option<Sleep>,
    ) -> Order<J> {
        let mut deadline = None;
        poll_fn(|task| {
            loop {
                if let Some(order) = self.seat.take_order(task.waker()) {
                    return Poll::Ready(order);
                }
                // Set only if the worker has to wait. A sleep that is moved to a later time does
                // not set a new timer.
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
                    // The order has been written.
                    Expired::Claimed => {}
                }
            }
        })
        .await
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

    /// Tells the pool that the job has ended. Returns the next job, or `None` if the worker rests
    /// or has left.
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
