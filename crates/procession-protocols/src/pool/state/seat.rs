//! The seat of a worker that parks, and the orders that it gets there.

use std::task::Waker;

use procession_sync::atomic::AtomicU8;
use procession_sync::{Arc, Mutex};

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
    /// The stage of the start of the worker. Its engine defines the values.
    pub launch: AtomicU8,
}

impl<J> PoolSeat<J> {
    /// Creates the seat of a worker that has no order.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            mail: Mutex::new(Mail { order: None, waker: None }),
            launch: AtomicU8::new(0),
        })
    }

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Mail<J>) -> R) -> R {
        change(&mut self.mail.lock())
    }

    /// Takes the order, or leaves a waker.
    pub fn take_order(&self, waker: &Waker) -> Option<Order<J>> {
        if let Some(order) = self.change(|mail| mail.order.take()) {
            return Some(order);
        }
        // A waker is cloned and dropped outside the lock, because both run user code.
        let new = waker.clone();
        let (order, old) = self.change(|mail| match mail.order.take() {
            Some(order) => (Some(order), Some(new)),
            None => (None, mail.waker.replace(new)),
        });
        drop(old);
        order
    }
}
