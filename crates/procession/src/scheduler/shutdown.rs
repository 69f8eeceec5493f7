//! How far a scheduler is from its end.
//!
//! # Closing protocol
//!
//! ## Problem
//! A shutdown walks over all slots and terminates what it finds, while a process is being spawned into a slot that it has just passed.
//! The newcomer would run on for ever. Likewise somebody who waits for the last process to end looks, finds one alive, and goes to
//! sleep just after that one looked for who waits.
//!
//! ## States
//! One word that only grows: `OPEN`, `STOPPING` (processes clean up; only they may spawn), `TERMINATING` (nobody may spawn), `ENDED` (no process
//! is left; threads leave their seats).
//!
//! ## Steps
//! Shutdown: `Enter` raise the word · `EnterFence` heavy · `Walk` all slots. Spawner: look at the word · `Publish` the slot ·
//! `PublishFence` light · `CatchUp` look at the word again; if it says so, end the newcomer at once, without queueing it: the
//! workers may have left. The two are asymmetric (`util/membarrier.rs`), since one side passes for each process and the other once; where there are no such fences,
//! both are fence(SeqCst).
//! Waiter: `Leave` its waker · fence(SeqCst) · look whether all have ended. Ending process: count itself as ended · look at the word; unless
//! it is `OPEN`: fence(SeqCst) · take the wakers left. A worker that parks does the same after its `ParkFence`.
//!
//! ## Why it works
//! `EnterFence` and `PublishFence` are ordered. If `EnterFence` is first, `CatchUp` sees the word. If `PublishFence` is first, `Walk` sees the slot. The same
//! for the waiter, with fences of their own: either it sees the count, or the ending process sees its waker. If that one saw the word still `OPEN`, for want of a
//! fence that every end would pay for, its worker goes on, and comes to park when nothing is left: behind that fence it sees the word.
//!
//! ## Allowed
//! A newcomer may be found by the walk, too, which marks it; whoever holds its entry ends it, once.
//!
//! ## Rejected
//! fence(SeqCst) for spawners where there are others: two for each process (on one processor `spawn` 120 ns instead of 117, `step` 169 instead of 158).
//!
//! ## Checked by
//! `models::spawn_against_terminate`, `models::spawn_against_terminate_without_asymmetric_fences`, `models::canary_without_fence`.

use procession_sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU8, fence};

use crate::util::membarrier;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// No `EnterFence`, no `PublishFence`.
    pub(crate) const WITHOUT_FENCE: u8 = 1;
}

pub(crate) const OPEN: u8 = 0;
pub(crate) const STOPPING: u8 = 1;
pub(crate) const TERMINATING: u8 = 2;
pub(crate) const ENDED: u8 = 3;

#[derive(Debug)]
pub(crate) struct Closing<const MUTATION: u8 = { mutation::SOUND }> {
    phase: AtomicU8,
    has_fences: bool,
}

impl<const MUTATION: u8> Closing<MUTATION> {
    pub(crate) fn open() -> Self {
        Self::with_fences(membarrier::are_there())
    }

    fn with_fences(has_fences: bool) -> Self {
        Self { phase: AtomicU8::new(OPEN), has_fences }
    }

    /// The phase, as far as this thread can see.
    #[inline]
    pub(crate) fn phase(&self) -> u8 {
        // Ordering: Acquire pairs with the Release in `enter`: who sees the end sees what led to it.
        self.phase.load(Acquire)
    }

    /// `Enter` and `EnterFence`.
    pub(crate) fn enter(&self, phase: u8) {
        let order = if MUTATION == mutation::WITHOUT_FENCE { Relaxed } else { SeqCst };
        self.phase.fetch_max(phase, order);
        if MUTATION == mutation::WITHOUT_FENCE {
            return;
        }
        fence(SeqCst);
        if self.has_fences {
            membarrier::heavy_at_leisure();
        }
    }

    /// `PublishFence` and `CatchUp`: the phase, as it is after what this thread has just published.
    #[inline]
    pub(crate) fn phase_after_publishing(&self) -> u8 {
        if MUTATION == mutation::WITHOUT_FENCE {
            return self.phase();
        }
        if self.has_fences {
            membarrier::light()
        } else {
            fence(SeqCst)
        }
        self.phase()
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicU32;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, explore, thread};

    use super::{Closing, TERMINATING, mutation};

    fn spawn<const MUTATION: u8>(has_fences: bool) {
        explore(move || {
            let shared = Arc::new((Closing::<MUTATION>::with_fences(has_fences), AtomicU32::new(0)));
            let spawner = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: nothing but the fences orders slot and word.
                    shared.1.store(1, Relaxed);
                    shared.0.phase_after_publishing() >= TERMINATING
                })
            };
            shared.0.enter(TERMINATING);
            let found = shared.1.load(Relaxed) == 1;
            let caught_up = spawner.join().expect("the spawner does not panic");
            assert!(found || caught_up, "the newcomer lives on");
        });
    }

    #[test]
    fn spawn_against_terminate() {
        spawn::<{ mutation::SOUND }>(true);
    }

    #[test]
    fn spawn_against_terminate_without_asymmetric_fences() {
        spawn::<{ mutation::SOUND }>(false);
    }

    #[test]
    #[should_panic(expected = "the newcomer lives on")]
    fn canary_without_fence() {
        spawn::<{ mutation::WITHOUT_FENCE }>(true);
    }
}
