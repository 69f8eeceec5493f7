//! What polls descriptors: the state that a scheduler shares.

use std::sync::{Arc, OnceLock};
use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::io::readiness::{Event, Sources};
use crate::io::starved::Starved;
use crate::sys::epoll::Kernel;

/// The poller of a scheduler.
pub(crate) struct Poller {
    pub(crate) kernel: OnceLock<Arc<Kernel>>,
    pub(crate) opening: Mutex<()>,
    pub(crate) sources: Sources,
    /// Whether somebody asks, or waits, just now. A hint: two may.
    pub(crate) asking: AtomicBool,
    /// How often the kernel was asked.
    pub(crate) polls: AtomicU64,
    pub(crate) events: AtomicU64,
    /// Wakers that were left and not yet woken, on the test clock only, which stands still for
    /// them.
    pub(crate) waiting: AtomicU32,
    pub(crate) starved: Starved,
}

/// What a thread polls into: kept, so that polls do not allocate.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Event>,
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
            starved: Starved::default(),
        }
    }

    /// What to wait in, once there has been a descriptor.
    #[inline]
    pub(crate) fn kernel(&self) -> Option<&Arc<Kernel>> {
        self.kernel.get()
    }

    /// Whether processes wait for descriptors. Told on the test clock only.
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
