//! Workers that are threads.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::outcome::{Ended, Expired};
use procession_protocols::pool::state::seat::{Order, PoolSeat};
use procession_protocols::scheduler::seat_id::NEVER;

use super::block::{ThreadWaker, world};
use super::builder::Builder;
use super::engine::{Engine, Inner, RunJob};
use super::error::PoolError;
use super::hooks::Hooks;
use super::operations::Pool;
use super::parking::ParkingWorker;
use super::source::{ClosureJob, JobStack};
use crate::scheduler::shared::Shared;
use crate::sys;

/// The engine of pools of threads.
pub(super) struct Threads<J> {
    pub(super) run: RunJob<J>,
    pub(super) stack_size: Option<usize>,
}

impl Builder {
    /// Builds a pool of threads.
    ///
    /// # Errors
    /// [`PoolError`]: a value is out of its range, or the system refused one of the threads that
    /// [start with the pool](Self::prestart).
    pub fn build(self) -> Result<Pool, PoolError> {
        let run = |hooks: &Hooks, job: ClosureJob| job.0.run(hooks, JobStack::Thread);
        Pool::open(&self, Threads { run: Box::new(run), stack_size: self.stack_size })
    }
}

impl<J: Send + 'static> Engine<J> for Threads<J> {
    fn start(&self, inner: &Arc<Inner<J>>, seat: &Arc<PoolSeat<J>>) -> io::Result<()> {
        ParkingWorker::start(inner, seat, |worker| {
            let work = move || work_on_thread(worker);
            world().start_thread_of(inner.next_worker_name(), self.stack_size, work)
        })
    }

    fn run(&self, inner: &Inner<J>, job: J) -> Ended {
        (self.run)(&inner.hooks, job)
    }

    fn scheduler(&self) -> Option<&Arc<Shared>> {
        None
    }
}

/// The main function of a worker thread.
fn work_on_thread<J: Send + 'static>(worker: ParkingWorker<J>) {
    let marked = worker.inner.mark(Busy::in_seat(&worker.seat));
    let thread = Arc::new(ThreadWaker::default());
    let waker = Waker::from(Arc::clone(&thread));
    worker.work(marked, |_| {}, |worker| worker.inner.await_order(&worker.seat, &thread, &waker));
}

impl<J: Send + 'static> Inner<J> {
    fn await_order(
        &self,
        seat: &Arc<PoolSeat<J>>,
        thread: &ThreadWaker,
        waker: &Waker,
    ) -> Order<J> {
        let mut deadline = None;
        loop {
            if let Some(order) = seat.take_order(waker) {
                return order;
            }
            // Read only if the worker has to wait.
            let until = *deadline
                .get_or_insert_with(|| world().now_here().saturating_add(self.keep_alive()));
            if until != NEVER && world().now_here() >= until {
                sys::point();
                match self.expire(seat) {
                    Expired::Leave => return Order::Leave,
                    Expired::Kept => deadline = Some(NEVER),
                    Expired::Claimed => {}
                }
            }
            thread.park_until(deadline.unwrap_or(until));
        }
    }
}
