//! Workers that are threads.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::idle::IdleWorker;
use procession_protocols::pool::state::outcome::{Ended, Expired, Next};
use procession_protocols::pool::state::seat::{Order, PoolSeat};
use procession_protocols::scheduler::seat_id::NEVER;

use super::block::{ThreadWaker, world};
use super::builder::Builder;
use super::engine::{Engine, Inner};
use super::error::PoolError;
use super::hooks::Hooks;
use super::operations::Pool;
use super::source::{ClosureJob, JobStack};
use crate::scheduler::shared::Shared;
use crate::sys;

/// The function by which workers run a job.
type Run<J> = Box<dyn Fn(&Hooks, J) -> Ended + Send + Sync>;

/// The engine of pools of threads.
pub(super) struct Threads<J> {
    pub(super) run: Run<J>,
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
        let (worker, seat) = (Arc::clone(inner), Arc::clone(seat));
        world()
            .start_thread_of(inner.next_worker_name(), self.stack_size, move || worker.work(seat))
    }

    fn run(&self, inner: &Inner<J>, job: J) -> Ended {
        (self.run)(&inner.hooks, job)
    }

    fn scheduler(&self) -> Option<&Arc<Shared>> {
        None
    }
}

impl<J: Send + 'static> Inner<J> {
    /// The main function of a worker thread.
    fn work(self: Arc<Self>, seat: Arc<PoolSeat<J>>) {
        let marked = self.mark(Busy::in_seat(&seat));
        self.hooks.run_start();
        let thread = Arc::new(ThreadWaker::default());
        let waker = Waker::from(Arc::clone(&thread));
        let mut order = self.await_order(&seat, &thread, &waker);
        while let Order::Run(ticket, job) = order {
            let ended = self.engine.run(&self, job);
            order = match self.finish(|| IdleWorker::Parked(Arc::clone(&seat)), ticket, ended) {
                Next::Run(ticket, job) => Order::Run(ticket, job),
                Next::Park => self.await_order(&seat, &thread, &waker),
                Next::Leave => Order::Leave,
                Next::Rest(_) => unreachable!("a thread parks"),
            };
        }
        self.hooks.run_stop();
        drop(marked);
        self.left();
    }

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
