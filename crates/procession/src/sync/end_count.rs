//! The number of senders, or of receivers, that a channel has.

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The number of ends of one kind. Each of them is counted while it lives.
pub(crate) struct EndCount(AtomicUsize);

impl EndCount {
    pub(crate) fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// Counts a clone of an end.
    pub(crate) fn add(&self) {
        // Relaxed: the end that is cloned keeps the count above 0.
        self.0.fetch_add(1, Relaxed);
    }

    /// Counts one more end, unless there is none.
    pub(crate) fn add_if_any(&self) -> bool {
        let more = |ends| (ends > 0).then_some(ends + 1);
        // Relaxed: what an end does is ordered by the lock of its channel.
        self.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Counts an end that is dropped. Returns `true` if it was the last one.
    pub(crate) fn remove(&self) -> bool {
        // Ordering: AcqRel pairs with itself, so that the last end comes after what the others have
        // done, and with the Acquire of `is_none`.
        self.0.fetch_sub(1, AcqRel) == 1
    }

    /// Returns `true` once the last end was dropped. It stays so.
    pub(crate) fn is_none(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `remove`.
        self.0.load(Acquire) == 0
    }

    /// Returns the number of ends. It may be outdated at once.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}
