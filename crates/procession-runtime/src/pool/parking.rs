//! Workers that park while they are idle: threads and coroutines.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::{IdleWorker, Order, PoolSeat};
use procession_protocols::pool::state::outcome::{Ended, Expired, Next};
use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::block::{ThreadWaker, world};
use super::builder::Builder;
use super::engine::{Inner, StartWorker, Workers};
use super::error::PoolError;
use super::hooks::Hooks;
use super::operations::Pool;
use super::source::ClosureJob;
use crate::sys;

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
    /// Starts a worker by `start`, which drops it if it is refused. Returns its seat.
    pub(super) fn start(
        inner: &Arc<Inner<J>>,
        start: &StartWorker<J>,
    ) -> io::Result<Arc<PoolSeat<J>>> {
        let (inner, seat) = (Arc::clone(inner), PoolSeat::new());
        let own = Arc::clone(&seat);
        let refused = start(Self { inner, seat: own, runs: None, is_done: false }).err();
        // Ordering: AcqRel pairs with the exchange in the worker's `Drop`. One of the two exchanges
        // is first.
        match seat.launch.swap(launch::STARTED, AcqRel) {
            launch::ENDED => {
                Err(refused.unwrap_or_else(|| io::Error::other("the scheduler is shutting down")))
            }
            _ => Ok(seat),
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
        Hooks::run(inner.hooks.start.as_ref());
        let mut order = wait(&self);
        while let Order::Run(ticket, job) = order {
            self.runs = Some(ticket);
            begin(ticket);
            let ended = inner.run(job);
            self.runs = None;
            let idle = || IdleWorker::Parked(Arc::clone(&self.seat));
            order = match inner.woken(inner.core.finish(idle, ticket, ended)) {
                Next::Run(ticket, job) => Order::Run(ticket, job),
                Next::Park => wait(&self),
                Next::Leave => Order::Leave,
                Next::Rest(_) => unreachable!("the worker parks"),
            };
        }
        Hooks::run(inner.hooks.stop.as_ref());
        drop(guard);
        inner.left();
        self.is_done = true;
    }

    /// Runs the worker on a thread.
    fn run_on_thread(self) {
        let marked = self.inner.mark(Busy::in_seat(&self.seat));
        let thread = Arc::new(ThreadWaker::default());
        let waker = Waker::from(Arc::clone(&thread));
        self.work(marked, |_| {}, |worker| worker.take_order(&thread, &waker));
    }

    fn take_order(&self, thread: &ThreadWaker, waker: &Waker) -> Order<J> {
        let mut deadline = None;
        loop {
            if let Some(order) = self.seat.take_order(waker) {
                return order;
            }
            // Read only if the worker has to wait.
            let until = *deadline
                .get_or_insert_with(|| world().now_here().saturating_add(self.inner.keep_alive()));
            if until != NEVER && world().now_here() >= until {
                sys::point();
                match self.inner.woken(self.inner.core.expire(&self.seat)) {
                    Expired::Leave => return Order::Leave,
                    Expired::Kept => deadline = Some(NEVER),
                    Expired::Claimed => {}
                }
            }
            thread.park_until(deadline.unwrap_or(until));
        }
    }
}

impl<J: Send + 'static> Workers<J> {
    /// Threads that run jobs by `run`.
    pub(super) fn threads(
        builder: &Builder,
        run: impl Fn(&Hooks, J) -> Ended + Send + Sync + 'static,
    ) -> Self {
        let stack_size = builder.stack_size;
        let start = move |worker: ParkingWorker<J>| {
            let inner = &worker.inner;
            let name = format!("{}-{}", inner.name, inner.last_worker.fetch_add(1, Relaxed));
            world().start_thread_of(name, stack_size, move || worker.run_on_thread())
        };
        Self::Parking { start: Box::new(start), run: Box::new(run) }
    }
}

impl Builder {
    /// Builds a pool of threads.
    ///
    /// # Errors
    /// [`PoolError`]: a value is out of its range, or the system refused one of the threads that
    /// [start with the pool](Self::prestart).
    pub fn build(self) -> Result<Pool, PoolError> {
        Pool::open(&self, None, Workers::threads(&self, ClosureJob::run))
    }
}
