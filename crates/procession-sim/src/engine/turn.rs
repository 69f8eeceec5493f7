//! The turn of a virtual thread.

use std::sync::OnceLock;

use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::Ordering::{Acquire, Release};
use procession_sync::thread::{self, Thread};

/// The turn of one virtual thread.
#[derive(Debug, Default)]
pub(super) struct Turn {
    is_given: AtomicBool,
    pub(super) thread: OnceLock<Thread>,
}

impl Turn {
    pub(super) fn give(&self) {
        // Ordering: Release pairs with the Acquire in `take`; makes all that happened in earlier
        // turns visible.
        self.is_given.store(true, Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(super) fn take(&self) {
        while !self.is_given.swap(false, Acquire) {
            thread::park();
        }
    }
}
