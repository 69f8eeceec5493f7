//! The tests' record of their items: how often each was taken, how often each was dropped, and if
//! more will come.

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A counter for each number below a limit: how often any thread took it.
pub(crate) struct Tally(Vec<AtomicUsize>);

impl Tally {
    pub(crate) fn of(limit: usize) -> Self {
        Self((0..limit).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Records that `number` was taken. This does not assert anything yet, because a panic would
    /// leave other threads waiting.
    pub(crate) fn note(&self, number: usize) {
        self.0[number].fetch_add(1, Relaxed);
    }

    pub(crate) fn note_each(&self, numbers: impl IntoIterator<Item = usize>) {
        numbers.into_iter().for_each(|number| self.note(number));
    }

    /// Returns the number of takes, of all numbers together.
    pub(crate) fn total(&self) -> usize {
        self.0.iter().map(|times| times.load(Relaxed)).sum()
    }

    #[track_caller]
    pub(crate) fn assert_each_once(&self) {
        for (number, times) in self.0.iter().enumerate() {
            let times = times.load(Relaxed);
            assert!(times == 1, "item {number} of {} was taken {times} times", self.0.len());
        }
    }
}

/// An item that records its drop.
pub(crate) struct Noted<'a> {
    number: usize,
    panics: bool,
    drops: &'a Tally,
}

impl<'a> Noted<'a> {
    pub(crate) fn new(number: usize, drops: &'a Tally) -> Self {
        Self { number, panics: false, drops }
    }

    /// Creates an item that records its drop and then panics.
    pub(crate) fn panicking(number: usize, drops: &'a Tally) -> Self {
        Self { number, panics: true, drops }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.drops.note(self.number);
        assert!(!self.panics, "item {} panics on drop, as it should", self.number);
    }
}

/// Spans many cache lines, so that an item copied while it is written would be torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Large([usize; 1024]);

impl Large {
    pub(crate) fn new(number: usize) -> Self {
        Self([number; 1024])
    }

    /// Returns the number that the item was created with, or `None` if the item is torn.
    pub(crate) fn number(&self) -> Option<usize> {
        self.0.iter().all(|word| *word == self.0[0]).then_some(self.0[0])
    }
}

/// An item with an alignment that no allocator provides by chance. Debug builds of std check the
/// address of each slot that is written.
#[repr(align(4096))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverAligned(pub(crate) usize);

/// The number of threads that may still push.
pub(crate) struct Pushers(AtomicUsize);

impl Pushers {
    pub(crate) fn of(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// Returns a guard that removes one pusher when it is dropped, even during a panic. The takers
    /// would otherwise wait forever.
    pub(crate) fn leave_with_scope(&self) -> impl Drop + '_ {
        struct Leave<'a>(&'a AtomicUsize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                // Ordering: Release pairs with the Acquire in `have_left`; a thread that sees that
                // all pushers left sees every push.
                self.0.fetch_sub(1, Release);
            }
        }
        Leave(&self.0)
    }

    pub(crate) fn have_left(&self) -> bool {
        self.0.load(Acquire) == 0
    }
}

/// A generator of numbers that look random and are the same in each run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: usize) -> Self {
        Self(seed as u64 + 1)
    }

    /// Returns a number below `sides` (xorshift64*).
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % sides
    }
}
