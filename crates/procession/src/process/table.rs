//! The slots of a scheduler. The invariants are those of `process/slot.rs`.

use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicPtr;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::process::slot::{Pin, Slot};
use crate::scheduler::shared::Shared;

/// Slots made at once: not quite 64 KiB. Of 512, with their alignment, an allocator's block takes
/// 80 KiB (`idle_mem`: 325 bytes for each process instead of 281).
const SEGMENT: usize = 511;

/// Slots that a worker keeps for itself at most; it fetches and returns half as many at once.
pub(crate) const CACHE: usize = 64;

/// All slots of a scheduler.
pub(crate) struct Table {
    /// How many free slots a worker may keep to itself.
    cache: usize,
    /// One pointer for each segment there may be; null until it is made. The array is as long as
    /// the limit on processes asks.
    segments: Box<[AtomicPtr<Slot>]>,
    limit: u32,
    free: Mutex<Free>,
}

pub(crate) struct Free {
    slots: Vec<NonNull<Slot>>,
    /// Slots made so far.
    made: u32,
    /// Slots that are neither here nor retired: occupied, or in a worker's cache. While there are
    /// any, they hold `keep`.
    out: u32,
    /// Of those, slots whose processes have ended, but which have too many references to be used
    /// again.
    lost: u32,
    keep: Option<Arc<Shared>>,
}

impl Table {
    pub(crate) fn new(limit: u32, workers: u32) -> Self {
        let segments = (limit as usize).div_ceil(SEGMENT);
        Self {
            cache: CACHE.min((limit / workers / 16) as usize),
            segments: (0..segments).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            limit,
            free: Mutex::new(Free { slots: Vec::new(), made: 0, out: 0, lost: 0, keep: None }),
        }
    }

    /// How many free slots a worker may keep to itself.
    pub(crate) fn cache(&self) -> usize {
        self.cache
    }

    fn free<R>(&self, change: impl FnOnce(&mut Free) -> R) -> R {
        change(&mut self.free.lock())
    }

    /// Takes at most `count` slots out of the free list, making new ones if there are none and the
    /// limit allows.
    pub(crate) fn take_free(
        &self,
        shared: &Arc<Shared>,
        count: usize,
        taken: &mut Vec<NonNull<Slot>>,
    ) {
        self.free(|free| {
            if free.slots.is_empty() {
                self.make_segment(shared, free);
            }
            let from = free.slots.len() - count.min(free.slots.len());
            let before = taken.len();
            taken.extend(free.slots.drain(from..));
            free.out += (taken.len() - before) as u32;
            if free.out > 0 && free.keep.is_none() {
                free.keep = Some(Arc::clone(shared));
            }
        });
    }

    fn make_segment(&self, shared: &Arc<Shared>, free: &mut Free) {
        let count = (self.limit - free.made).min(SEGMENT as u32);
        if count == 0 {
            return;
        }
        let shared = NonNull::from(&**shared);
        let slots: Box<[Slot]> =
            (free.made..free.made + count).map(|index| Slot::new(shared, index)).collect();
        let segment = Box::leak(slots);
        // The first slot is handed out first.
        free.slots.extend(segment.iter().rev().map(NonNull::from));
        // Ordering: Release pairs with the Acquire of `slot`.
        self.segments[free.made as usize / SEGMENT].store(segment.as_mut_ptr(), Release);
        free.made += count;
    }

    /// Returns slots to the free list. With the last one comes what kept the scheduler, to be
    /// dropped when nothing refers into it.
    #[must_use]
    pub(crate) fn return_free(
        &self,
        slots: &mut Vec<NonNull<Slot>>,
        reusable: bool,
    ) -> Option<Arc<Shared>> {
        self.free(|free| {
            free.out -= slots.len() as u32;
            if reusable {
                free.slots.append(slots);
            }
            if free.out == 0 { free.keep.take() } else { None }
        })
    }

    /// The slot of this index, whatever process is in it, if it was ever made.
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

    /// Pins the process of this slot and generation, if it is still there.
    pub(crate) fn pin(&self, index: u32, generation: u32) -> Option<Pin> {
        let slot = self.slot(index)?;
        slot.pins.pin(generation).then(|| Pin(NonNull::from(slot)))
    }

    /// Pins the process that is in this slot now, if there is one.
    pub(crate) fn pin_any(&self, index: u32) -> Option<Pin> {
        let slot = self.slot(index)?;
        slot.pins.pin(slot.pins.generation()).then(|| Pin(NonNull::from(slot)))
    }

    /// A process has ended whose slot stays out of use.
    #[cold]
    pub(crate) fn count_lost(&self) {
        self.free(|free| free.lost += 1);
    }

    /// How many slots are lost.
    pub(crate) fn lost(&self) -> u32 {
        self.free(|free| free.lost)
    }

    /// Slots made so far: the indices that may hold a process.
    pub(crate) fn made(&self) -> u32 {
        self.free(|free| free.made)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for (number, segment) in self.segments.iter().enumerate() {
            let count = (self.limit as usize - number * SEGMENT).min(SEGMENT);
            if let Some(segment) = NonNull::new(segment.load(Relaxed)) {
                // SAFETY: leaked in `make_segment` with this length; no slot is out, or the
                // scheduler would have been kept.
                drop(unsafe {
                    Box::from_raw(ptr::slice_from_raw_parts_mut(segment.as_ptr(), count))
                });
            }
        }
    }
}
