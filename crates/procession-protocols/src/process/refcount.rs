//! The slot word: which process a slot holds, and how many pins keep the slot from being reused.
//!
//! # Pin protocol
//!
//! ## Problem
//! A PID is a number that any code may keep forever. Between the lookup of its slot and the use of
//! the slot, the process may end, and another process may get the slot. The message would reach a
//! stranger.
//!
//! ## States
//! `generation:32 | pins:32`. A slot is *free* while `pins` is 0, and then only the free list
//! refers to it. The generation counts the uses of the slot, and a PID names one use. Slots are
//! never deallocated while anything can name them.
//!
//! ## Steps
//! - `occupy`, by the allocator of the slot: pins 0 -> n.
//! - `pin`, by the holder of a PID: CAS pins + 1. Fails if the generation differs or pins is 0.
//! - `again`, by the holder of a pin: pins + n.
//! - `unpin`, by the holder of n pins: pins - n. If that is 0, the generation increases in the same
//!   step, and the caller recycles the slot.
//! - `seal`, by the holder of n pins: CAS n -> 0. Fails if there are more. No PID reaches the slot
//!   afterwards, although its process has not ended yet.
//! - After `seal`: `end`, by the thread that sealed it, increases the generation, and the caller
//!   recycles the slot. Or that thread calls `occupy` again.
//!
//! From `SATURATED` pins on, the slot is lost: `again` resets the count to that number, `pin` and
//! `unpin` do not change it, and `seal` fails.
//!
//! ## Why it works
//! `pin` compares generation and pins in the word that it changes, so it succeeds only while
//! another pin exists. The `unpin` or `seal` of the last pin, and therefore the reuse of the slot,
//! is ordered after it. The thread that drops the last pin is alone: nothing else changes a word
//! without pins, so stores suffice for `occupy` and `end`.
//!
//! Safe code can forget any number of pins, so the count has to stop before it carries into the
//! generation. `SATURATED` is the middle of its range. Once the count has reached it, the count
//! never falls below: only an `again` that has raised it lowers it, and only to `SATURATED`. The
//! count does not reach the end of the range either: each `again` adds one, so 2^31 threads would
//! have to be between its two steps at the same time.
//!
//! ## Allowed
//! - A slot with 2^31 pins is lost with its 128 bytes, and keeps the memory of its scheduler, even
//!   if all pins are dropped later. Its process ends like any other. The table counts such slots.
//! - A generation that reaches its maximum retires the slot: 4 billion uses cost 128 bytes.
//!
//! ## Checked by
//! `models::reuse_against_late_pin`, `models::seal_against_late_pin`,
//! `models::canary_pin_without_generation`, `models::canary_seal_without_cas`;
//! `tests::forgotten_pins_saturate` begins near the edge.

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("pins", SOUND);
    /// `pin` checks the generation, then adds.
    pub const PIN_WITHOUT_CAS: u8 = 1;
    /// `seal` checks the pins, then stores.
    pub const SEAL_WITHOUT_CAS: u8 = 2;
}

/// The state of a slot after pins were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Unpinned {
    /// Other pins are left.
    Held,
    /// No pins are left. The caller recycles the slot.
    Free,
    /// No pins and no generations are left. The slot stays out of use.
    Retired,
    /// There were more pins than can be counted. The slot stays out of use, and its generation
    /// never ends.
    Lost,
}

impl Unpinned {
    /// `word` is the word without pins.
    #[inline]
    fn last(word: u64) -> Self {
        // Retired before the generation wraps around to 0.
        if generation_of(word) == u32::MAX { Self::Retired } else { Self::Free }
    }
}

/// The slot word.
#[derive(Debug)]
pub struct PinCount<const MUTATION: u8 = { mutation::BUILT }>(AtomicU64);

const GENERATION_ONE: u64 = 1 << 32;
const PINS: u64 = GENERATION_ONE - 1;
/// Pins are not counted from this number on. It is half the range.
const SATURATED: u64 = 1 << 31;

#[inline]
fn generation_of(word: u64) -> u32 {
    (word >> 32) as u32
}

impl<const MUTATION: u8> PinCount<MUTATION> {
    /// Creates a free slot that was never used. Generations start at 1, so that no PID is all
    /// zeros.
    pub fn free() -> Self {
        Self::free_at(1)
    }

    /// Creates a free slot, with the generation of its next process.
    pub fn free_at(generation: u32) -> Self {
        Self(AtomicU64::new(u64::from(generation) << 32))
    }

    /// Returns the generation of the slot.
    pub fn generation(&self) -> u32 {
        // Relaxed: the caller holds a pin, or accepts an old value.
        generation_of(self.0.load(Relaxed))
    }

    /// Returns `true` if there are `count` pins, as far as this thread can see.
    #[inline]
    pub fn are(&self, count: u32) -> bool {
        // Relaxed: no memory access depends on it.
        self.0.load(Relaxed) & PINS == u64::from(count)
    }

    /// Returns the number of pins.
    pub fn count(&self) -> u32 {
        // Ordering: Acquire pairs with the Release of `unpin`: the caller sees what was done with
        // the pins that are gone.
        (self.0.load(Acquire) & PINS) as u32
    }

    /// Pins a free slot `count` times, which makes it reachable for PIDs of its generation. If the
    /// caller has sealed the slot, this undoes it.
    #[inline]
    pub fn occupy(&self, count: u32) {
        let word = self.0.load(Relaxed);
        debug_assert_eq!(word & PINS, 0, "[free] only a free slot is taken into use");
        // Ordering: Release pairs with the Acquire of `pin`: a thread that pins the slot sees it as
        // prepared for its new process.
        self.0.store(word + u64::from(count), Release);
    }

    /// Drops `count` pins if there are no others. The generation stays until `end`, or until
    /// `occupy`.
    #[inline]
    pub fn seal(&self, count: u32) -> bool {
        let word = self.0.load(Relaxed);
        if word & PINS != u64::from(count) {
            return false;
        }
        let sealed = word & !PINS;
        if mutation::is(MUTATION, mutation::SEAL_WITHOUT_CAS) {
            self.0.store(sealed, Release);
            return true;
        }
        // Ordering: Acquire pairs with the Release of `unpin`: the caller is alone, and sees the
        // writes of all others.
        self.0.compare_exchange(word, sealed, Acquire, Relaxed).is_ok()
    }

    /// Ends the generation of a slot that the caller has sealed.
    #[inline]
    pub fn end(&self) -> Unpinned {
        let new = self.0.load(Relaxed).wrapping_add(GENERATION_ONE);
        debug_assert_eq!(new & PINS, 0, "[free] it is sealed");
        // Relaxed: no thread pins it before `occupy`.
        self.0.store(new, Relaxed);
        Unpinned::last(new)
    }

    /// Pins the slot if it holds the process of this generation.
    pub fn pin(&self, generation: u32) -> bool {
        let mut word = self.0.load(Relaxed);
        loop {
            if generation_of(word) != generation || word & PINS == 0 {
                return false;
            }
            if mutation::is(MUTATION, mutation::PIN_WITHOUT_CAS) {
                self.0.fetch_add(1, Acquire);
                return true;
            }
            let new = if word & PINS < SATURATED { word + 1 } else { word };
            // Ordering: Acquire pairs with the Release of `occupy`.
            match self.0.compare_exchange_weak(word, new, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Adds `count` pins for the holder of a pin.
    #[inline]
    pub fn again(&self, count: u32) {
        // Ordering: Relaxed; the existing pin already makes everything visible.
        let old = self.0.fetch_add(count.into(), Relaxed);
        debug_assert_ne!(old & PINS, 0, "[pinned] only a holder multiplies its pin");
        // Safe code can forget pins, so their number is not limited by memory.
        if old & PINS >= SATURATED {
            self.saturate();
        }
    }

    /// Resets the count to `SATURATED`.
    #[cold]
    fn saturate(&self) {
        let mut word = self.0.load(Relaxed);
        // Each failure means that another thread has pinned the slot, or has reset the count.
        while word & PINS > SATURATED {
            // Relaxed: no thread is ever alone with this slot again.
            match self.0.compare_exchange_weak(word, word & !PINS | SATURATED, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Drops `count` pins.
    #[inline]
    pub fn unpin(&self, count: u32) -> Unpinned {
        let count = u64::from(count);
        let mut word = self.0.load(Relaxed);
        loop {
            debug_assert!(word & PINS >= count, "[pinned] a pin is dropped once");
            if word & PINS >= SATURATED {
                return Unpinned::Lost;
            }
            let last = word & PINS == count;
            let new = if last { (word - count).wrapping_add(GENERATION_ONE) } else { word - count };
            // Ordering: Release pairs with the Acquire of the last `unpin`. That thread is alone,
            // and sees the writes of all others.
            match self.0.compare_exchange_weak(word, new, AcqRel, Relaxed) {
                Ok(_) if !last => return Unpinned::Held,
                Ok(_) => return Unpinned::last(new),
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::cell::UnsafeCell;
    use procession_sync::{Arc, explore, thread};

    use super::{PinCount, Unpinned, mutation};

    /// The process of generation 1 ends through `end`, and its slot goes to generation 2, while a
    /// sender looks up generation 1.
    fn reuse<const MUTATION: u8>(
        end: impl Fn(&PinCount<MUTATION>) -> bool + Copy + Sync + Send + 'static,
    ) {
        explore(move || {
            let slot = Arc::new((PinCount::<MUTATION>::free(), UnsafeCell::new(0)));
            // SAFETY: [free] no other thread has the slot.
            slot.1.with_mut(|process| unsafe { *process = 1 });
            slot.0.occupy(1);
            slot.0.again(1);
            let sender = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    if !slot.0.pin(1) {
                        return false;
                    }
                    // SAFETY: [pinned], which the model checks.
                    let found = slot.1.with(|process| unsafe { *process });
                    assert_eq!(found, 1, "the message reached a stranger");
                    slot.0.unpin(1) == Unpinned::Free
                })
            };
            let freed = end(&slot.0);
            if freed {
                // SAFETY: [free] this thread dropped the last pin.
                slot.1.with_mut(|process| unsafe { *process = 2 });
                slot.0.occupy(2);
            }
            let freed_by_sender = sender.join().expect("the sender does not panic");
            assert!(freed != freed_by_sender, "exactly one of them dropped the last pin");
        });
    }

    fn unpin<const MUTATION: u8>(pins: &PinCount<MUTATION>) -> bool {
        pins.unpin(2) == Unpinned::Free
    }

    /// Ends the slot like the end of a process.
    fn seal<const MUTATION: u8>(pins: &PinCount<MUTATION>) -> bool {
        if pins.seal(2) { pins.end() == Unpinned::Free } else { unpin(pins) }
    }

    #[test]
    fn reuse_against_late_pin() {
        reuse::<{ mutation::SOUND }>(unpin);
    }

    #[test]
    fn seal_against_late_pin() {
        reuse::<{ mutation::SOUND }>(seal);
    }

    #[test]
    #[should_panic(expected = "the message reached a stranger")]
    fn canary_pin_without_generation() {
        reuse::<{ mutation::PIN_WITHOUT_CAS }>(unpin);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_seal_without_cas() {
        reuse::<{ mutation::SEAL_WITHOUT_CAS }>(seal);
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::{PinCount, SATURATED, Unpinned};

    #[test]
    fn a_pid_of_another_generation_pins_nothing() {
        let pins = PinCount::<0>::free();
        assert!(!pins.pin(1), "a free slot holds no process");
        pins.occupy(1);
        assert!(!pins.pin(0) && !pins.pin(2));
        assert!(pins.pin(1));
        assert_eq!(pins.unpin(1), Unpinned::Held);
        assert_eq!(pins.unpin(1), Unpinned::Free);
        assert!(!pins.pin(1), "its process is gone");
        assert_eq!(pins.generation(), 2);
    }

    #[test]
    fn several_pins_go_at_once() {
        let pins = PinCount::<0>::free();
        pins.occupy(4);
        assert_eq!(pins.unpin(3), Unpinned::Held);
        pins.again(1);
        assert_eq!(pins.unpin(2), Unpinned::Free);
        assert_eq!(pins.generation(), 2);
    }

    /// Safe code forgets 2^32 references. The count must not carry into the generation, nor fall to
    /// 0 while there are pins.
    #[test]
    fn forgotten_pins_saturate() {
        let pins = PinCount::<0>::free();
        pins.occupy(SATURATED as u32 - 2);
        pins.again(1);
        assert_eq!(pins.unpin(1), Unpinned::Held, "it is still counted");
        pins.again(1);
        assert!(pins.pin(1));
        assert_eq!(pins.unpin(1), Unpinned::Lost);
        // The whole range of the word, four times.
        for _ in 0..4 * 8 {
            pins.again(1 << 29);
            assert_eq!(pins.generation(), 1);
            assert_eq!(pins.unpin(1 << 29), Unpinned::Lost);
        }
        assert!(pins.pin(1), "it still is the process of this PID");
        assert!(!pins.pin(2));
        assert!(!pins.seal(2));
        for _ in 0..4 {
            assert_eq!(pins.unpin(SATURATED as u32), Unpinned::Lost, "it is never free");
        }
        assert_eq!(pins.generation(), 1);
    }

    #[test]
    fn an_exhausted_generation_retires_the_slot() {
        let pins = PinCount::<0>::free_at(u32::MAX - 1);
        pins.occupy(1);
        assert_eq!(pins.unpin(1), Unpinned::Retired);
        let pins = PinCount::<0>::free_at(u32::MAX - 1);
        pins.occupy(2);
        assert!(pins.seal(2));
        assert_eq!(pins.end(), Unpinned::Retired);
    }

    #[test]
    fn a_sealed_slot_keeps_its_generation_and_is_pinned_by_nobody() {
        let pins = PinCount::<0>::free();
        pins.occupy(2);
        assert!(pins.pin(1));
        assert!(!pins.seal(2), "there is another pin");
        assert_eq!(pins.unpin(1), Unpinned::Held);
        assert!(pins.seal(2));
        assert!(!pins.pin(1));
        assert_eq!(pins.generation(), 1);
        pins.occupy(2);
        assert!(pins.pin(1), "it is as it was");
        assert_eq!(pins.unpin(1), Unpinned::Held);
        assert!(pins.seal(2));
        assert_eq!(pins.end(), Unpinned::Free);
        assert_eq!(pins.generation(), 2);
    }
}
