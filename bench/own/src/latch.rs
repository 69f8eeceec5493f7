//! A latch: waits until a number of events have happened.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// A counter that wakes its waiter when it reaches zero. Made for statics, so that the threads and
/// processes that count down hold no reference.
pub(crate) struct Latch {
    left: AtomicU64,
    waiter: Mutex<Option<Waker>>,
}

impl Latch {
    pub(crate) const fn new() -> Self {
        Self { left: AtomicU64::new(0), waiter: Mutex::new(None) }
    }

    /// Restarts the count at `count`. The threads that count down must learn of it afterwards.
    pub(crate) fn set(&self, count: u64) {
        // Relaxed: the way in which those threads learn of it orders this.
        self.left.store(count, Relaxed);
    }

    pub(crate) fn count_down(&self) {
        // Ordering: AcqRel pairs with itself and with `is_open`: a thread that finds zero sees
        // everything that was done before each step to it.
        if self.left.fetch_sub(1, AcqRel) == 1
            && let Some(waiter) = self.waiter.lock().take()
        {
            waiter.wake();
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.left.load(Acquire) == 0
    }

    /// Waits until the count is zero. Only one waiter at a time is allowed.
    pub(crate) async fn wait(&self) {
        poll_fn(|task| {
            let waker = task.waker().clone();
            // Stored before the look: a thread that counts to zero after the look finds the waker.
            let old = self.waiter.lock().replace(waker);
            drop(old);
            if self.is_open() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
