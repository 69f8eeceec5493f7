//! When a computation that calls `checkpoint` looks whether others wait for its worker.
//!
//! # Checkpoint protocol
//!
//! ## Problem
//! A loop that computes calls `checkpoint` every 10 ns or every millisecond, and the runtime does
//! not know which. If each call looked at timers and queues, it would cost more than the loop. If
//! only each hundredth call looked, a slow loop would keep a timer waiting for 100 ms.
//!
//! ## States
//! Each seat has a [`CheckWord`]: the number of calls until the next look, and a bit that asks for
//! a look. The thread in the seat counts it down. The thread also keeps the number of calls between
//! two looks (`stride`), and the time of its last look.
//!
//! ## Steps
//! - `Tick`, in each call: count down, with a load and a store. At 0, or if the bit is set, `Look`.
//! - `Look`: read the clock, and choose the stride so that the next look is [`LOOK_EVERY`] later if
//!   the calls keep their pace. The stride is at most twice its previous value. The caller of
//!   `Look` then decides whether somebody waits for the worker (`scheduler/checkpoint.rs`).
//! - `Ask`, by the watchdog, at each of its looks that finds the worker in the same step as the
//!   look before: set the bit.
//!
//! ## Why it works
//! While the calls keep their pace or become faster, looks are at most [`LOOK_EVERY`] apart. If
//! they become slower from one to the next, the watchdog asks at its second look after that. The
//! first stride may still be too long, because it also counts fast calls. The next look of the
//! watchdog corrects it.
//!
//! ## Allowed
//! `Tick` is no read-modify-write, so it can overwrite an `Ask`. The watchdog asks again at its
//! next look, 2.5 ms later.
//!
//! ## Rejected
//! - Only `Ask`: nothing is noticed before the second look of the watchdog, 5 ms after a step
//!   began. A timer behind a computation shall be late by tenths of a millisecond.
//! - A waker that asks: each wake-up would have to find out which worker its process waits for, and
//!   whether this worker computes. Most wake-ups find an idle worker.
//! - A read of the clock in each call: 23 to 41 ns, or 8 ns for the cycle counter of the processor.
//! - A flag beside a private count: a second load in each call.
//! - A store of 1 in place of the bit: the next look does not know how many calls there were, and
//!   takes a call of 10 ms for thousands of short ones.
//!
//! ## Checked by
//! `tests::*` below, and `it::stalls`.

use std::cell::Cell;

use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

/// Nanoseconds between two looks, if the calls keep their pace.
pub const LOOK_EVERY: u64 = 100_000;

/// The longest stride. It takes 0.7 ms if a call takes 10 ns.
const STRIDE_MAX: u32 = 1 << 16;

/// The bit of the word that asks for a look.
const ASKED: u32 = 1 << 31;

/// The number of calls until a worker looks.
#[derive(Debug)]
#[repr(align(128))]
pub struct CheckWord(AtomicU32);

impl Default for CheckWord {
    fn default() -> Self {
        Self(AtomicU32::new(1))
    }
}

impl CheckWord {
    /// `Tick`: returns `true` if the worker is to look. Only the thread in the seat calls this.
    #[inline]
    pub fn tick(&self) -> bool {
        // Relaxed, here and below: the word is a hint, and publishes nothing.
        let left = self.0.load(Relaxed).wrapping_sub(1);
        self.0.store(left, Relaxed);
        left.wrapping_sub(1) >= ASKED - 1
    }

    /// `Ask`.
    pub fn ask(&self) {
        self.0.fetch_or(ASKED, Relaxed);
    }
}

/// The pace of the calls of one worker.
#[derive(Debug)]
pub struct Checks {
    stride: Cell<u32>,
    looked_at: Cell<u64>,
    /// Set if work was queued at the last look.
    waited: Cell<bool>,
}

impl Default for Checks {
    fn default() -> Self {
        Self { stride: Cell::new(1), looked_at: Cell::new(0), waited: Cell::new(false) }
    }
}

impl Checks {
    /// `Look`: chooses the stride.
    pub fn look(&self, word: &CheckWord, now: u64) {
        let stride = self.stride.get();
        let calls = stride.saturating_sub(word.0.load(Relaxed) & !ASKED).max(1);
        let passed = now.saturating_sub(self.looked_at.replace(now)).max(1);
        let fitting = u64::from(calls) * LOOK_EVERY / passed;
        let fitting = u32::try_from(fitting).unwrap_or(u32::MAX);
        let next = fitting.clamp(1, (stride * 2).min(STRIDE_MAX));
        self.stride.set(next);
        word.0.store(next, Relaxed);
    }

    /// Looks at the next call, whatever the time is.
    pub fn look_again(&self, word: &CheckWord) {
        word.0.store(1, Relaxed);
    }

    /// Notes whether work is queued. Returns `true` if it was also queued at the look before, so
    /// that no other worker has come for it.
    pub fn still_waits(&self, is_queued: bool) -> bool {
        self.waited.replace(is_queued) && is_queued
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::{CheckWord, Checks, LOOK_EVERY};

    /// Calls every `nanos` nanoseconds until `end`. Returns the longest time between two looks.
    fn calls(checks: &Checks, word: &CheckWord, now: &mut u64, nanos: u64, count: u64) -> u64 {
        let (mut looked, mut longest) = (*now, 0);
        for _ in 0..count {
            *now += nanos;
            if word.tick() {
                longest = longest.max(*now - looked);
                looked = *now;
                checks.look(word, *now);
            }
        }
        longest.max(*now - looked)
    }

    #[test]
    fn looks_are_as_far_apart_as_they_should_be_at_each_pace() {
        let (checks, word, mut now) = (Checks::default(), CheckWord::default(), 1);
        assert!(calls(&checks, &word, &mut now, 10, 1_000_000) <= LOOK_EVERY + 10);
        let mut looks = 0;
        for _ in 0..100_000 {
            now += 10;
            if word.tick() {
                looks += 1;
                checks.look(&word, now);
            }
        }
        assert!((9..=11).contains(&looks), "{looks} looks in a millisecond");
        // Faster calls: soon as far apart as before.
        assert!(calls(&checks, &word, &mut now, 1, 1_000_000) <= LOOK_EVERY + 1);
        // Slower calls: until somebody asks.
        for _ in 0..2 {
            word.ask();
            assert_eq!(calls(&checks, &word, &mut now, 1_000_000, 1), 1_000_000);
        }
        assert_eq!(calls(&checks, &word, &mut now, 1_000_000, 10), 1_000_000, "each call looks");
    }

    #[test]
    fn work_waits_if_two_looks_find_it() {
        let checks = Checks::default();
        assert!(!checks.still_waits(true));
        assert!(checks.still_waits(true));
        assert!(!checks.still_waits(false));
        assert!(!checks.still_waits(true));
    }
}
