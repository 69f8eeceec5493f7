//! Work that is arranged once while things come that need it.
//!
//! # Upkeep protocol
//!
//! ## Problem
//! Things come to a place from many threads, for example free stacks, and something must be done
//! for them later, for example by a timer. One timer is enough. When it finds nothing left, it
//! ends, so that an idle program does not wake. A thing that comes at that moment must not be left
//! alone.
//!
//! ## States
//! A flag says that the work is arranged.
//!
//! ## Steps
//! - Thread that has put a thing in its place, `Arrange`: fence · if the flag is not set, set it,
//!   and arrange the work.
//! - The work, once it has found nothing, `Rest`: clear the flag · fence · look at the place again,
//!   and if something is there, `Arrange`.
//!
//! ## Why it works
//! Each side writes, executes a SeqCst fence, and reads what the other side writes. So the thread
//! finds the flag cleared, or the work finds the thing. If both do, the one that sets the flag
//! arranges the work.
//!
//! ## Checked by
//! `models::arrange_against_rest` and its canaries.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, fence};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Arrange` has no fence.
    #[cfg(all(test, procession_loom))]
    pub const ARRANGE_WITHOUT_FENCE: u8 = 1;
    /// `Rest` does not look again.
    #[cfg(all(test, procession_loom))]
    pub const REST_WITHOUT_LOOK: u8 = 2;
}

/// Whether the work for the things of a place is arranged.
#[derive(Debug)]
pub struct Upkeep<const MUTATION: u8 = { mutation::SOUND }>(AtomicBool);

impl<const MUTATION: u8> Upkeep<MUTATION> {
    /// Returns the state of a place that is empty.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// `Arrange`: returns `true` if the caller must arrange the work.
    #[inline]
    pub fn arrange(&self) -> bool {
        if !(cfg!(procession_loom) && MUTATION == 1) {
            fence(SeqCst);
        }
        // Relaxed: the fence pairs with the fence in `rest`.
        !self.0.load(Relaxed) && !self.0.swap(true, Relaxed)
    }

    /// Notes that the work could not be arranged. What is in the place waits for the next thing.
    pub fn give_up(&self) {
        // Relaxed: it promises nothing.
        self.0.store(false, Relaxed);
    }

    /// `Rest`: ends the work. Returns `true` if the caller must arrange it again, because something
    /// has come.
    pub fn rest(&self, is_left: impl FnOnce() -> bool) -> bool {
        // Relaxed: the fence pairs with the fence in `arrange`.
        self.0.store(false, Relaxed);
        if cfg!(procession_loom) && MUTATION == 2 {
            return false;
        }
        fence(SeqCst);
        is_left() && self.arrange()
    }
}

impl<const MUTATION: u8> Default for Upkeep<MUTATION> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicBool;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, explore, thread};

    use super::{Upkeep, mutation};

    /// A thread puts something into the place while the work has found nothing, and rests.
    fn arrange_and_rest<const MUTATION: u8>() {
        explore(|| {
            let (upkeep, place) = (Upkeep::<MUTATION>::new(), AtomicBool::new(false));
            assert!(upkeep.arrange(), "nobody has arranged it");
            let both = Arc::new((upkeep, place));
            let other = {
                let both = Arc::clone(&both);
                thread::spawn(move || {
                    both.1.store(true, Relaxed);
                    both.0.arrange()
                })
            };
            let by_rest = both.0.rest(|| both.1.load(Relaxed));
            let by_other = other.join().expect("it does not panic");
            assert!(by_rest != by_other, "the work is arranged once");
        });
    }

    #[test]
    fn arrange_against_rest() {
        arrange_and_rest::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the work is arranged once")]
    fn canary_arrange_without_fence() {
        arrange_and_rest::<{ mutation::ARRANGE_WITHOUT_FENCE }>();
    }

    #[test]
    #[should_panic(expected = "the work is arranged once")]
    fn canary_rest_without_look() {
        arrange_and_rest::<{ mutation::REST_WITHOUT_LOOK }>();
    }
}
