//! Workers that are threads.

use std::sync::Arc;
use std::task::Waker;

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::Order;
use procession_protocols::pool::state::outcome::{Ended, Expired};
use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::Ordering::Relaxed;

use super::block::{ThreadWaker, world};
use super::builder::Builder;
use super::engine::{ParkingWorker, Workers};
use super::error::PoolError;
use super::hooks::Hooks;
use super::operations::Pool;
use super::source::ClosureJob;
use crate::sys;

impl<J: Send + 'static> ParkingWorker<J> {
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
        Self::Threads { start: Box::new(start), run: Box::new(run) }
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
