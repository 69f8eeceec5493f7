//! The slot table of a scheduler. `process/slot.rs` lists the invariants.

use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicPtr;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::process::slot::{Home, Slot, SlotRef, prefetch_slot};

/// The number of slots in a segment, which is slightly under 64 KiB. For 512 slots with their
/// alignment, an allocator's block takes 80 KiB (`idle_mem`: 325 bytes for each process instead of
/// 281).
const SEGMENT: usize = 511;

/// The maximum number of free slots in the cache of a worker. One exchange with the table fetches
/// or returns half as many.
pub(crate) const CACHE: usize = 64;

/// All slots of a scheduler.
pub(crate) struct Table {
    /// The maximum number of free slots in the cache of each worker.
    cache: usize,
    /// One pointer for each possible segment, null until that is made. The limit on processes
    /// determines the length of the array.
    segments: Box<[AtomicPtr<Slot>]>,
    limit: u32,
    free: Mutex<Free>,
}

pub(crate) struct Free {
    slots: Vec<NonNull<Slot>>,
    /// The number of slots made so far.
    made: u32,
    /// The number of slots that were never handed out. They are the first slots of `slots`, and
    /// have the highest indices.
    fresh: u32,
    /// The number of slots that are neither free here nor retired: occupied, or in a worker's
    /// cache. While it is not 0, `keep` is set.
    out: u32,
    /// The number of slots among `out` that are free of a process and can never be reused, because
    /// their reference counts are saturated.
    lost: u32,
    keep: Option<Arc<dyn Home>>,
}

// SAFETY: [free] slots in the list are touched only by the holder of its lock.
unsafe impl Send for Free {}

impl Table {
    pub(crate) fn new(limit: u32, workers: u32) -> Self {
        let segments = (limit as usize).div_ceil(SEGMENT);
        Self {
            cache: CACHE.min((limit / workers / 16) as usize),
            segments: (0..segments).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            limit,
            free: Mutex::new(Free {
                slots: Vec::new(),
                made: 0,
                fresh: 0,
                out: 0,
                lost: 0,
                keep: None,
            }),
        }
    }

    /// Returns the maximum number of free slots in the cache of each worker.
    pub(crate) fn cache(&self) -> usize {
        self.cache
    }

    /// Returns the maximum number of slots.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    fn free<R>(&self, change: impl FnOnce(&mut Free) -> R) -> R {
        change(&mut self.free.lock())
    }

    /// Takes at most `count` slots out of the free list. If the list is empty, makes new slots if
    /// the limit allows.
    pub(crate) fn take_free<H: Home>(
        &self,
        home: &Arc<H>,
        count: usize,
        taken: &mut Vec<NonNull<Slot>>,
    ) {
        self.free(|free| {
            if free.slots.is_empty() {
                self.make_segment(home, free);
            }
            let from = free.slots.len() - count.min(free.slots.len());
            free.fresh = free.fresh.min(from as u32);
            let before = taken.len();
            taken.extend(free.slots.drain(from..));
            free.out += (taken.len() - before) as u32;
            if free.out > 0 && free.keep.is_none() {
                let keep: Arc<H> = Arc::clone(home);
                free.keep = Some(keep);
            }
        });
    }

    fn make_segment<H: Home>(&self, home: &Arc<H>, free: &mut Free) {
        let count = (self.limit - free.made).min(SEGMENT as u32);
        if count == 0 {
            return;
        }
        let home = NonNull::from(&**home);
        let slots: Box<[Slot]> =
            (free.made..free.made + count).map(|index| Slot::new(home, index)).collect();
        let segment = Box::leak(slots);
        // The first slot is handed out first.
        free.slots.extend(segment.iter().rev().map(NonNull::from));
        // Ordering: Release pairs with the Acquire of `slot`.
        self.segments[free.made as usize / SEGMENT].store(segment.as_mut_ptr(), Release);
        free.made += count;
        free.fresh = count;
    }

    /// Returns slots to the free list. If no slot is out any more, also returns the reference that
    /// kept the scheduler, to be dropped when nothing refers to the scheduler.
    #[must_use]
    pub(crate) fn return_free(
        &self,
        slots: &mut Vec<NonNull<Slot>>,
        reusable: bool,
    ) -> Option<Arc<dyn Home>> {
        self.free(|free| {
            free.out -= slots.len() as u32;
            if reusable {
                free.slots.append(slots);
            }
            if free.out == 0 { free.keep.take() } else { None }
        })
    }

    /// Returns the slot of this index, whether it holds a process or not, if it was ever made.
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        // Ordering: Acquire pairs with the Release of `make_segment`.
        let segment = NonNull::new(self.segments.get(index as usize / SEGMENT)?.load(Acquire))?;
        if index >= self.limit {
            return None;
        }
        // SAFETY: [type-stable] a segment has SEGMENT slots, or as many as the limit leaves.
        let slot = unsafe { segment.add(index as usize % SEGMENT) };
        // SAFETY: [type-stable]
        Some(unsafe { slot.as_ref() })
    }

    /// Pins the process of this slot and generation, if it exists.
    pub(crate) fn pin(&self, index: u32, generation: u32) -> Option<SlotRef> {
        let slot = self.slot(index)?;
        slot.pins.pin(generation).then(|| SlotRef(NonNull::from(slot)))
    }

    /// Prefetches the slot of this index, if it was ever made.
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(slot) = self.slot(index) {
            prefetch_slot(slot);
        }
    }

    /// Pins the process that is in this slot now, if there is one.
    pub(crate) fn pin_any(&self, index: u32) -> Option<SlotRef> {
        let slot = self.slot(index)?;
        slot.pins.pin(slot.pins.generation()).then(|| SlotRef(NonNull::from(slot)))
    }

    /// Calls `each` with all processes that exist, one after the other.
    pub(crate) fn each(&self, mut each: impl FnMut(&Slot)) {
        for index in 0..self.used() {
            if let Some(pin) = self.pin_any(index) {
                each(&pin);
            }
        }
    }

    /// Counts a slot that stays out of use after the end of its process.
    #[cold]
    pub(crate) fn count_lost(&self) {
        self.free(|free| free.lost += 1);
    }

    /// Returns the number of lost slots.
    pub(crate) fn lost(&self) -> u32 {
        self.free(|free| free.lost)
    }

    /// Returns the number of slots handed out so far. Only these indices can hold a process.
    pub(crate) fn used(&self) -> u32 {
        self.free(|free| free.made - free.fresh)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for (number, segment) in self.segments.iter().enumerate() {
            let count = (self.limit as usize - number * SEGMENT).min(SEGMENT);
            if let Some(segment) = NonNull::new(segment.load(Relaxed)) {
                // SAFETY: leaked in `make_segment` with this length; no slot is out, since a slot
                // that is out keeps the scheduler.
                drop(unsafe {
                    Box::from_raw(ptr::slice_from_raw_parts_mut(segment.as_ptr(), count))
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::{CACHE, SEGMENT};
    use crate::Scheduler;

    #[test]
    fn only_slots_that_were_handed_out_can_hold_a_process() {
        let builder = Scheduler::builder().worker_threads(1).test_clock().watchdog(false);
        let scheduler = builder.build().expect("it starts no thread");
        let table = scheduler.shared().table();
        let existing = |used: u32| (0..used).filter(|&at| table.pin_any(at).is_some()).count();
        assert_eq!(table.used(), 0);
        let mut processes = vec![scheduler.spawn(pending::<()>())];
        scheduler.run_until_idle();
        assert!(table.used() as usize <= CACHE, "{}", table.used());
        assert_eq!(existing(table.used()), 1);
        // These take more than the first segment.
        processes.extend((0..SEGMENT + 1).map(|_| scheduler.spawn(pending())));
        scheduler.run_until_idle();
        let used = table.used();
        assert!((used as usize) < 2 * SEGMENT, "{used}");
        assert_eq!(existing(used), processes.len());
        assert_eq!(existing(2 * SEGMENT as u32), processes.len());
        // They are handed out again before others.
        processes.drain(..).for_each(|process| process.cancel());
        scheduler.run_until_idle();
        let again: Vec<_> = (0..SEGMENT).map(|_| scheduler.spawn(pending::<()>())).collect();
        scheduler.run_until_idle();
        assert_eq!(table.used(), used);
        assert_eq!(existing(used), again.len());
    }
}
