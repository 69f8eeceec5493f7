//! The reasons why a program is not ready for new work.

use std::sync::Arc;

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicU64};

use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;

/// Why a program is not ready for new work.
#[derive(Debug, Default)]
pub(crate) struct HealthState {
    is_ending: AtomicBool,
    /// The reasons why the program is not ready, by the numbers of their guards.
    reasons: Mutex<SortedMap<u64, Arc<str>>>,
    last: AtomicU64,
}

impl Part for HealthState {}

impl HealthState {
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    /// Makes the program not ready from now on.
    pub(crate) fn end(&self) {
        // Ordering: Release pairs with the Acquire in `is_ending`: a thread that sees this sees the
        // request to end the program.
        self.is_ending.store(true, Release);
    }

    pub(crate) fn is_ending(&self) -> bool {
        // Ordering: Acquire pairs with the Release in `end`.
        self.is_ending.load(Acquire)
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.is_ending() && self.reasons.lock().is_empty()
    }

    /// Returns the reasons that were given, the oldest first.
    pub(crate) fn reasons(&self) -> Vec<Arc<str>> {
        self.reasons.lock().values().cloned().collect()
    }

    /// Adds a reason, and returns its number.
    pub(crate) fn add(&self, reason: Arc<str>) -> u64 {
        // Relaxed: only distinct numbers matter.
        let number = self.last.fetch_add(1, Relaxed);
        self.reasons.lock().insert(number, reason);
        number
    }

    pub(crate) fn remove(&self, number: u64) {
        let reason = self.reasons.lock().remove(&number);
        drop(reason);
    }
}
