//! How long processes wait from a wake-up until their step begins, by samples.
//!
//! # Samples of wake-ups
//!
//! ## Problem
//! A process that is ready and does not run is the first sign of too few workers, or of a step that
//! takes too long. To read the clock at each wake-up and at each step would take longer than many
//! steps do. Besides, a slot has no room for a time.
//!
//! ## Steps
//! - `Pick`, at a wake-up: count down, and pick the wake-up at 0. Each worker has its own count.
//!   All threads that are no workers share one.
//! - `Begin`, at a wake-up that was picked, by the thread that has the entry of the process: keep
//!   the time in a table, and set the flag `ASKED` of the process (`process/state.rs`). Then queue
//!   the entry.
//! - `End`: the flag makes the next step a special one. It takes the time out of the table, and
//!   adds what has passed to the histogram.
//!
//! ## Why it works
//! Other steps look for no samples, because they test the flag in any case. The entry is queued
//! after `Begin`, so the worker that takes it finds the flag. A process has at most one entry, so
//! the slot is all that the table needs as a key, and the table has at most one row for each ready
//! process.
//!
//! The counts are drawn from a geometric distribution. So each wake-up of a worker is picked with
//! the probability `1 / gap`, whatever has happened before, and a picked one counts `gap` times.
//! The sums are therefore right on average, even though the gap changes with the load: it is
//! [`GAP_MIN`] after a park, because a worker that parks has time, and doubles at each pick up to
//! [`GAP_MAX`].
//!
//! ## Allowed
//! - What continues is no wake-up, and is not counted: a step that yields, and a process that is
//!   woken while it is ready or in its step.
//! - A suspended process is counted when a worker takes it, although it does not run.
//! - A wait includes one reading of the clock, some 25 to 80 ns.
//!
//! ## Rejected
//! - The looks of the watchdog as the moments of the samples: the first wake-up after a long pause
//!   would be picked more often than the last one of a burst, and it waits for less time.
//! - A fixed gap: programs with a period alias with it, and a program with ten wake-ups a second
//!   would have a sample in half a minute.

use std::cell::{Cell, RefCell};

use procession_protocols::util::histogram::WaitHistogram;
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::Slot;
use crate::util::generator::Generator;

/// The gap of a worker that has just parked. A park and the wake-up of the thread take at least
/// twenty times as long as a sample.
const GAP_MIN: u32 = 8;
/// The largest gap. With it, samples take half a percent of the instructions of `pingpong`.
const GAP_MAX: u32 = 256;
/// The gap of threads that are no workers. A wake-up from there takes a lock, and often wakes a
/// thread.
const GAP_OUTSIDE: u32 = 16;

/// Picks some of the wake-ups of one worker.
pub(crate) struct WakeSampler {
    /// The number of wake-ups until the next one that is looked at.
    left: Cell<u32>,
    /// The number of wake-ups that the next one that is picked stands for.
    gap: Cell<u32>,
    /// The number of wake-ups until the next one that is picked, if each one is looked at.
    picked_in: Cell<Option<u32>>,
    generator: RefCell<Generator>,
}

impl WakeSampler {
    pub(crate) fn new(generator: Generator) -> Self {
        let sampler = Self {
            left: Cell::new(0),
            gap: Cell::new(GAP_MIN),
            picked_in: Cell::new(None),
            generator: RefCell::new(generator),
        };
        sampler.draw();
        sampler
    }

    /// Makes `is_due` return `true` at each wake-up, or not.
    pub(crate) fn look_at_each(&self, each: bool) {
        if each != self.picked_in.get().is_some() {
            self.picked_in.set(each.then_some(0));
            self.draw();
        }
    }

    /// Counts a wake-up. If it returns `true`, the caller calls `pick`.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let left = self.left.get().wrapping_sub(1);
        self.left.set(left);
        left == 0
    }

    /// Returns the number of wake-ups that this one stands for, if it is picked.
    pub(crate) fn pick(&self) -> Option<u32> {
        if let Some(more @ 2..) = self.picked_in.get() {
            self.picked_in.set(Some(more - 1));
            self.left.set(1);
            return None;
        }
        let gap = self.gap.get();
        self.gap.set((gap * 2).min(GAP_MAX));
        self.draw();
        Some(gap)
    }

    /// Notes that the worker parks.
    pub(crate) fn rest(&self) {
        if self.gap.replace(GAP_MIN) != GAP_MIN {
            // The distribution has no memory, so the count that is dropped does not matter.
            self.draw();
        }
    }

    fn draw(&self) {
        let count = draw(&mut self.generator.borrow_mut(), self.gap.get());
        if self.picked_in.get().is_some() {
            self.picked_in.set(Some(count));
            self.left.set(1);
        } else {
            self.left.set(count);
        }
    }
}

/// Returns after how many wake-ups one is picked, if each is picked with the probability `1 / gap`.
fn draw(generator: &mut Generator, gap: u32) -> u32 {
    // Not 0, which has no logarithm.
    let unit = ((generator.any() >> 11) | 1) as f64 / (1_u64 << 53) as f64;
    // The mean of an exponential distribution. Rounded up, its values have the mean `gap`.
    let mean = f64::from(gap) - 0.5;
    ((-unit.ln() * mean).ceil() as u32).max(1)
}

/// A wake-up that was picked. Its step has not begun.
struct BegunWait {
    at: u64,
    /// The number of wake-ups that it stands for.
    gap: u32,
}

/// The waits of the processes of a scheduler.
pub(crate) struct WakeWaits {
    begun: Mutex<SortedMap<u32, BegunWait>>,
    ended: Mutex<WaitHistogram>,
    /// The number of wake-ups by threads that are no workers until the next one that is picked.
    outside: AtomicU32,
}

impl Default for WakeWaits {
    fn default() -> Self {
        Self {
            begun: Mutex::default(),
            ended: Mutex::default(),
            outside: AtomicU32::new(GAP_OUTSIDE / 2),
        }
    }
}

impl WakeWaits {
    /// `Begin`, with the time now. `slot` has a process whose entry belongs to the caller.
    pub(crate) fn begin(&self, slot: &Slot, now: u64, gap: u32) {
        self.begun.lock().insert(slot.index(), BegunWait { at: now, gap });
        slot.state.ask_again();
    }

    /// `Pick` and `Begin`, for a thread that is no worker of the scheduler.
    pub(crate) fn begin_outside(&self, slot: &Slot, now: impl Fn() -> u64) {
        // Relaxed: only the number matters. A count below 0 lasts until `store`.
        if self.outside.fetch_sub(1, Relaxed) == 1 {
            let now = now();
            let next = draw(&mut Generator::with_seed(now), GAP_OUTSIDE);
            self.outside.store(next, Relaxed);
            self.begin(slot, now, GAP_OUTSIDE);
        }
    }

    /// `End`
    pub(crate) fn end(&self, slot: &Slot, now: impl Fn() -> u64) {
        let begun = self.begun.lock().remove(&slot.index());
        if let Some(BegunWait { at, gap }) = begun {
            self.ended.lock().add_many(now().saturating_sub(at), gap.into());
        }
    }

    /// Returns the waits that have ended. Each counts as many times as it stands for.
    pub(crate) fn all(&self) -> WaitHistogram {
        *self.ended.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::{GAP_MAX, GAP_MIN, WakeSampler, draw};
    use crate::util::generator::Generator;

    /// Returns the sum of what the picked wake-ups of each kind stand for.
    fn estimate(sampler: &WakeSampler, kinds: impl Iterator<Item = usize>) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for kind in kinds {
            if sampler.is_due()
                && let Some(gap) = sampler.pick()
            {
                sums[kind] += f64::from(gap);
            }
        }
        sums
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.03, "{found} instead of {expected}");
    }

    #[test]
    fn the_mean_of_the_counts_is_the_gap() {
        for gap in [GAP_MIN, 100, GAP_MAX] {
            let mut generator = Generator::with_seed(1);
            let sum: f64 = (0..100_000).map(|_| f64::from(draw(&mut generator, gap))).sum();
            assert_near(sum / 100_000.0, f64::from(gap));
        }
    }

    /// Programs in which each second wake-up is of one kind have no period that matters.
    #[test]
    fn picked_wake_ups_stand_for_all() {
        for each in [false, true] {
            let sampler = WakeSampler::new(Generator::with_seed(2));
            sampler.look_at_each(each);
            let sums = estimate(&sampler, (0..4_000_000).map(|at| at % 2));
            sums.iter().for_each(|&sum| assert_near(sum, 2_000_000.0));
        }
    }

    /// The first wake-ups after a park are picked more often, and count less.
    #[test]
    fn bursts_between_parks_are_not_weighed_wrongly() {
        let sampler = WakeSampler::new(Generator::with_seed(3));
        let mut sums = [0.0; 2];
        for _ in 0..20_000 {
            let burst = estimate(&sampler, (0..200).map(|at| usize::from(at >= 20)));
            sums.iter_mut().zip(burst).for_each(|(sum, more)| *sum += more);
            sampler.rest();
        }
        assert_near(sums[0], 400_000.0);
        assert_near(sums[1], 3_600_000.0);
    }
}
