//! Waiting until a number of things have happened.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Counts down to zero, and wakes the one who waits for it. For statics, so that those who count
/// down hold nothing.
pub(crate) struct Latch {
    left: AtomicU64,
    waiter: Mutex<Option<Waker>>,
}

impl Latch {
    pub(crate) const fn new() -> Self {
        Self { left: AtomicU64::new(0), waiter: Mutex::new(None) }
    }

    /// Begins anew. Who counts down must be told of it afterwards.
    pub(crate) fn set(&self, count: u64) {
        // Relaxed: what tells the others orders it.
        self.left.store(count, Relaxed);
    }

    pub(crate) fn count_down(&self) {
        // Ordering: AcqRel pairs with itself and with `is_open`: who finds zero sees what was done
        // before each step to it.
        if self.left.fetch_sub(1, AcqRel) == 1
            && let Some(waiter) = self.waiter.lock().take()
        {
            waiter.wake();
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.left.load(Acquire) == 0
    }

    /// Waits for zero; one at a time.
    pub(crate) async fn wait(&self) {
        poll_fn(|task| {
            let waker = task.waker().clone();
            // Before the look: whoever counts to zero after it finds the waker.
            let old = self.waiter.lock().replace(waker);
            drop(old);
            if self.is_open() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
