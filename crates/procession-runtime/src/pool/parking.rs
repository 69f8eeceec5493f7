//! Workers that park while they are idle: threads and coroutines.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::IdleWorker;
use procession_protocols::pool::state::outcome::{Expired, Next};
use procession_protocols::pool::state::seat::{Order, PoolSeat};
use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::Ordering::{AcqRel, Acquire};

use super::engine::Inner;
use crate::SpawnOptions;
use crate::coroutine;
use crate::scheduler::shared::Shared;
use crate::time::{Instant, Sleep, sleep_on};

/// The stages of the start of a worker.
mod launch {
    pub(super) const STARTING: u8 = 0;
    /// The pool counts the worker.
    pub(super) const STARTED: u8 = 1;
    /// The worker was ended before that. To the pool, its start was refused.
    pub(super) const ENDED: u8 = 2;
}

/// A worker that parks while it is idle: a thread or a coroutine. It exists from its start until it
/// has left. If it is dropped earlier, its process was killed.
pub(super) struct ParkingWorker<J: Send + 'static> {
    pub(super) inner: Arc<Inner<J>>,
    pub(super) seat: Arc<PoolSeat<J>>,
    /// The ticket of the job that runs.
    runs: Option<u64>,
    /// `true` if the worker has left the pool.
    is_done: bool,
}

impl<J: Send + 'static> Drop for ParkingWorker<J> {
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

impl<J: Send + 'static> ParkingWorker<J> {
    /// Starts a worker by `start`, which drops it if it is refused.
    pub(super) fn start(
        inner: &Arc<Inner<J>>,
        seat: &Arc<PoolSeat<J>>,
        start: impl FnOnce(Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let (inner, own) = (Arc::clone(inner), Arc::clone(seat));
        let refused = start(Self { inner, seat: own, runs: None, is_done: false }).err();
        // Ordering: AcqRel pairs with the exchange in the worker's `Drop`. One of the two exchanges
        // is first.
        match seat.launch.swap(launch::STARTED, AcqRel) {
            launch::ENDED => {
                Err(refused.unwrap_or_else(|| io::Error::other("the scheduler is shutting down")))
            }
            _ => Ok(()),
        }
    }

    /// Runs jobs until the worker leaves. `wait` waits for an order, and `begin` is called before
    /// each job. `guard` is dropped once the last user code of the worker has returned.
    pub(super) fn work<G>(
        mut self,
        guard: G,
        begin: impl Fn(u64),
        mut wait: impl FnMut(&Self) -> Order<J>,
    ) {
        let inner = Arc::clone(&self.inner);
        inner.hooks.run_start();
        let mut order = wait(&self);
        while let Order::Run(ticket, job) = order {
            self.runs = Some(ticket);
            begin(ticket);
            let ended = inner.engine.run(&inner, job);
            self.runs = None;
            let idle = || IdleWorker::Parked(Arc::clone(&self.seat));
            order = match inner.finish(idle, ticket, ended) {
                Next::Run(ticket, job) => Order::Run(ticket, job),
                Next::Park => wait(&self),
                Next::Leave => Order::Leave,
                Next::Rest(_) => unreachable!("the worker parks"),
            };
        }
        inner.hooks.run_stop();
        drop(guard);
        inner.left();
        self.is_done = true;
    }

    /// Runs the worker in a coroutine.
    pub(super) fn start_coroutine(
        self,
        options: SpawnOptions,
        shared: &Arc<Shared>,
    ) -> io::Result<()> {
        let shared = Arc::clone(shared);
        let runs = move |_: coroutine::Context<()>| {
            // A cancel of the worker leaves its jobs alone, as for async processes. The pool ends
            // only when it is closed.
            coroutine::shield(|| {
                let mark = self.inner.coroutine_mark();
                let mut idle = None;
                let begin = |ticket| mark.set(Busy::with_job(ticket));
                self.work((), begin, |worker| {
                    coroutine::wait(worker.await_order(&shared, &mut idle))
                });
            });
        };
        let started = options.try_start_coroutine(runs).map(drop);
        started.map_err(|refused| io::Error::other(refused.to_string()))
    }

    async fn await_order(&self, shared: &Arc<Shared>, idle: &mut Option<Sleep>) -> Order<J> {
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
