//! A worker that parks, and what it is told.

use std::task::Waker;

use procession_sync::atomic::AtomicU8;
use procession_sync::{Arc, Mutex};

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Order<J> {
    /// To run the job with this ticket.
    Run(u64, J),
    Leave,
}

#[derive(Debug)]
pub(super) struct Mail<J> {
    pub(super) order: Option<Order<J>>,
    pub(super) waker: Option<Waker>,
}

/// A worker that parks, as the pool sees it.
#[derive(Debug)]
pub(crate) struct Seat<J> {
    mail: Mutex<Mail<J>>,
    /// How far its start has come, as its engine counts.
    pub(crate) launch: AtomicU8,
}

impl<J> Seat<J> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { mail: Mutex::new(Mail { order: None, waker: None }), launch: AtomicU8::new(0) })
    }

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Mail<J>) -> R) -> R {
        change(&mut self.mail.lock().expect("nothing that can panic runs under this lock"))
    }

    /// Takes the order, or leaves a waker.
    pub(crate) fn take_order(&self, waker: &Waker) -> Option<Order<J>> {
        if let Some(order) = self.change(|mail| mail.order.take()) {
            return Some(order);
        }
        // Cloned and dropped outside the lock: both are the user's code.
        let new = waker.clone();
        let (order, old) = self.change(|mail| match mail.order.take() {
            Some(order) => (Some(order), Some(new)),
            None => (None, mail.waker.replace(new)),
        });
        drop(old);
        order
    }
}
