//! The part of the reactor's state that a scheduler owns.

use std::sync::{Arc, OnceLock};
use std::task::Waker;

use procession_protocols::io::readiness::{ReadyEvent, Sources};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::sys::events::Kernel;

/// The reactor's state: the kernel's queue of events, and the registered descriptors.
pub(crate) struct Poller {
    pub(crate) kernel: OnceLock<Arc<Kernel>>,
    pub(crate) opening: Mutex<()>,
    pub(crate) sources: Sources,
    /// `true` while a thread polls the kernel or waits in it. A hint: two threads may do so at the
    /// same time.
    pub(crate) asking: AtomicBool,
    /// Number of polls.
    pub(crate) polls: AtomicU64,
    pub(crate) events: AtomicU64,
    /// Number of wakers that were left and not woken yet. Counted only on the test clock, which
    /// stands still until it is zero.
    pub(crate) waiting: AtomicU32,
}

/// The buffers of a thread that polls. They are kept because a poll should not allocate.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<ReadyEvent>,
    pub(crate) wakers: Vec<Waker>,
}

impl Poller {
    pub(crate) fn closed() -> Self {
        Self {
            kernel: OnceLock::new(),
            opening: Mutex::new(()),
            sources: Sources::none(),
            asking: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            events: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    /// Returns the kernel's queue of events, if a descriptor was ever registered.
    #[inline]
    pub(crate) fn kernel(&self) -> Option<&Arc<Kernel>> {
        self.kernel.get()
    }

    /// Returns `true` if processes wait for descriptors. Always `false` without the test clock.
    pub(crate) fn is_waited_for(&self) -> bool {
        // Ordering: Acquire pairs with the Release in `deliver`: what was woken is seen to be
        // queued.
        self.waiting.load(Acquire) > 0
    }

    /// How many descriptors are registered, how often the kernel was asked, and how many events it
    /// told.
    pub(crate) fn counts(&self) -> (usize, u64, u64) {
        (self.sources.len(), self.polls.load(Relaxed), self.events.load(Relaxed))
    }
}
