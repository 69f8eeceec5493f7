//! The seats of workers that park, and the stack of idle workers.

use std::collections::VecDeque;
use std::task::Waker;

use procession_sync::{Arc, Mutex};

use crate::scheduler::seat_id::NEVER;

/// The order to a worker.
#[derive(Debug)]
pub enum Order<J> {
    /// Run the job of this ticket.
    Run(u64, J),
    /// Leave the pool.
    Leave,
}

#[derive(Debug)]
pub(super) struct Mail<J> {
    pub(super) order: Option<Order<J>>,
    pub(super) waker: Option<Waker>,
}

/// A worker that parks, as the pool sees it.
#[derive(Debug)]
pub struct PoolSeat<J> {
    mail: Mutex<Mail<J>>,
}

impl<J> PoolSeat<J> {
    /// Creates the seat of a worker that has no order.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { mail: Mutex::new(Mail { order: None, waker: None }) })
    }

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Mail<J>) -> R) -> R {
        change(&mut self.mail.lock())
    }

    /// Takes the order, or leaves a waker.
    pub fn take_order(&self, waker: &Waker) -> Option<Order<J>> {
        if let Some(order) = self.change(|mail| mail.order.take()) {
            return Some(order);
        }
        // A waker is cloned and dropped outside the lock, since both run user code.
        let new = waker.clone();
        let (order, old) = self.change(|mail| match mail.order.take() {
            Some(order) => (Some(order), Some(new)),
            None => (None, mail.waker.replace(new)),
        });
        drop(old);
        order
    }
}

/// A worker that has no job.
#[derive(Debug)]
pub enum IdleWorker<J> {
    /// It waits in its seat for an order.
    Parked(Arc<PoolSeat<J>>),
    /// It has no process.
    Rests {
        /// The time at which it leaves.
        until: u64,
        /// `true` once its start hook was called.
        has_begun: bool,
    },
}

impl<J> IdleWorker<J> {
    /// Returns a resting worker that has not begun.
    pub fn new_resting() -> Self {
        Self::Rests { until: NEVER, has_begun: false }
    }

    pub(super) fn until(&self) -> u64 {
        match self {
            Self::Parked(_) => NEVER,
            Self::Rests { until, .. } => *until,
        }
    }

    fn is(&self, seat: &Arc<PoolSeat<J>>) -> bool {
        matches!(self, Self::Parked(own) if Arc::ptr_eq(own, seat))
    }
}

/// The workers that have no job. The worker that became idle last is on top.
#[derive(Debug)]
pub(super) struct IdleStack<J> {
    /// The top of the stack is at the back.
    pub(super) workers: VecDeque<IdleWorker<J>>,
    /// Set when the keep-alive was changed. A resting worker may then leave before the worker below
    /// it.
    pub(super) uneven: bool,
}

impl<J> IdleStack<J> {
    pub(super) fn new() -> Self {
        Self { workers: VecDeque::new(), uneven: false }
    }

    pub(super) fn push(&mut self, mut idle: IdleWorker<J>) {
        self.uneven &= !self.workers.is_empty();
        if let IdleWorker::Rests { until, .. } = &mut idle
            && let Some(last) = self.workers.back().filter(|_| !self.uneven)
        {
            // Two workers that end their jobs at the same time may push themselves in another order
            // than the order in which they read the clock.
            *until = last.until().max(*until);
        }
        self.workers.push_back(idle);
    }

    /// Removes the worker that parks in this seat, if it is on the stack.
    pub(super) fn remove(&mut self, seat: &Arc<PoolSeat<J>>) {
        if let Some(place) = self.position(seat) {
            self.workers.remove(place);
        }
    }

    /// Returns the position, counted from the bottom, of the worker that parks in this seat.
    pub(super) fn position(&self, seat: &Arc<PoolSeat<J>>) -> Option<usize> {
        self.workers.iter().position(|idle| idle.is(seat))
    }
}
