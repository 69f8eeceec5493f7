//! The phases of a scheduler on its way to its end.
//!
//! # Closing protocol
//!
//! ## Problem
//! - A shutdown walks over all slots and terminates the processes that it finds, while a process is
//!   being spawned into a slot that it has just passed. The new process would run forever.
//! - A thread that waits for the last process to end finds one alive. It goes to sleep just after
//!   that process looked for waiters.
//!
//! ## States
//! One word that only grows: `OPEN`, or `OPEN_UNFENCED` where there are no asymmetric fences
//! (`util/membarrier.rs`); `STOPPING` (processes clean up; only they may spawn); `TERMINATING`
//! (nothing may be spawned); `ENDED` (no process is left; threads leave their seats).
//!
//! ## Steps
//! - Shutdown: `Enter` raise the word · `EnterFence` heavy · `Walk` all slots.
//! - Spawner: look at the word · `Publish` the slot · `PublishFence` light · `CatchUp` look at the
//!   word again. If it shows a shutdown, the spawner ends the new process immediately, without
//!   queueing it: the workers may have left.
//! - Ending process: count itself as ended · `PublishFence` light · `CatchUp`. Unless the word is
//!   open: fence(SeqCst) · look whether all have ended · if so, take the wakers of the waiters.
//! - Waiter, after `Enter`: `Leave` its waker · fence(SeqCst) · look whether all have ended.
//!
//! `EnterFence` and `PublishFence` are asymmetric: each spawn and each end passes one
//! `PublishFence`, and a shutdown passes one `EnterFence`. Where there are no such fences,
//! `CatchUp` finds `OPEN_UNFENCED`. Then it passes a fence(SeqCst) and looks once more, and
//! `EnterFence` is a fence(SeqCst).
//!
//! ## Why it works
//! `EnterFence` and `PublishFence` are ordered. If `EnterFence` is first, `CatchUp` sees the word.
//! If `PublishFence` is first, `Walk` sees the slot, and the waiter sees the count.
//!
//! An ending process that sees the word has a fence(SeqCst) before its look at the wakers, and the
//! waiter has one after `Leave`. Those two are ordered as well: either the waiter sees the count,
//! or the process finds the waker. So an end is noticed wherever it happens: on a worker that
//! continues with other work, on a caller's thread that leaves its seat without parking, and on a
//! thread that is no worker.
//!
//! ## Allowed
//! The walk may find the new process, too, and mark it. The thread that holds its entry ends it,
//! once.
//!
//! ## Rejected
//! - fence(SeqCst) for spawners where there are asymmetric fences: two for each process (on one
//!   processor `spawn` 120 ns instead of 117, `step` 169 instead of 158).
//! - An ending process that looks at the word without a fence, and relies on its worker to look
//!   again when it parks. A caller's thread leaves its seat without parking when its future is
//!   complete, and never parks while its future is ready. In these cases, without asymmetric
//!   fences, a shutdown could miss the last end (`canary_end_without_fence`).
//!
//! ## Checked by
//! `models::spawn_against_terminate` and `models::last_end_against_wait`, each with and without
//! asymmetric fences; `models::canary_without_fence`, `models::canary_end_without_fence`,
//! `models::canary_unfenced_end_without_fence`. In models the light fence is a full one. Nothing
//! here relies on an order between two light fences.

use procession_sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU8, fence};

use crate::util::membarrier;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) use crate::util::mutant::is;

    pub(crate) const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub(crate) const BUILT: u8 = crate::util::mutant::planted("shutdown", SOUND);
    /// Neither `EnterFence` nor `PublishFence`.
    pub(crate) const WITHOUT_FENCE: u8 = 1;
    /// `CatchUp` treats `OPEN_UNFENCED` as `OPEN`.
    pub(crate) const UNFENCED_WITHOUT_FENCE: u8 = 2;
}

pub(crate) const OPEN: u8 = 0;
/// Open, where `PublishFence` is nothing until this value was found. Not visible outside this
/// module.
const OPEN_UNFENCED: u8 = 1;
pub(crate) const STOPPING: u8 = 2;
pub(crate) const TERMINATING: u8 = 3;
pub(crate) const ENDED: u8 = 4;

#[derive(Debug)]
pub(crate) struct ShutdownPhase<const MUTATION: u8 = { mutation::BUILT }> {
    phase: AtomicU8,
    has_fences: bool,
}

impl<const MUTATION: u8> ShutdownPhase<MUTATION> {
    pub(crate) fn open() -> Self {
        Self::with_fences(membarrier::are_there())
    }

    pub(super) fn with_fences(has_fences: bool) -> Self {
        Self { phase: AtomicU8::new(if has_fences { OPEN } else { OPEN_UNFENCED }), has_fences }
    }

    /// Returns the phase, as far as this thread can see.
    #[inline]
    pub(crate) fn phase(&self) -> u8 {
        // Ordering: Acquire pairs with the Release in `enter`: a thread that sees the end sees
        // everything before it.
        match self.phase.load(Acquire) {
            OPEN_UNFENCED => OPEN,
            phase => phase,
        }
    }

    /// `Enter` and `EnterFence`.
    pub(crate) fn enter(&self, phase: u8) {
        let order = if mutation::is(MUTATION, mutation::WITHOUT_FENCE) { Relaxed } else { SeqCst };
        self.phase.fetch_max(phase, order);
        if mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            return;
        }
        fence(SeqCst);
        if self.has_fences {
            membarrier::heavy_at_leisure();
        }
    }

    /// `PublishFence` and `CatchUp`: returns the phase after what this thread has just published.
    #[inline]
    pub(crate) fn phase_after_publishing(&self) -> u8 {
        if mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            return self.phase();
        }
        // In models a light fence is a full fence. Without asymmetric fences there would be none.
        if self.has_fences || cfg!(not(procession_loom)) {
            membarrier::light();
        }
        // Ordering: as in `phase`.
        match self.phase.load(Acquire) {
            OPEN => OPEN,
            phase => self.catch_up(phase),
        }
    }

    #[cold]
    fn catch_up(&self, phase: u8) -> u8 {
        if phase == OPEN_UNFENCED && !mutation::is(MUTATION, mutation::UNFENCED_WITHOUT_FENCE) {
            fence(SeqCst);
        }
        self.phase()
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
    use procession_sync::atomic::{AtomicU32, fence};
    use procession_sync::{Arc, Mutex, explore, thread};

    use super::{OPEN, STOPPING, ShutdownPhase, TERMINATING, mutation};

    fn spawn<const MUTATION: u8>(has_fences: bool) {
        explore(move || {
            let shared =
                Arc::new((ShutdownPhase::<MUTATION>::with_fences(has_fences), AtomicU32::new(0)));
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

    /// The last process ends on a thread that does not look for waiters later, while a shutdown
    /// begins and waits for it.
    fn end<const MUTATION: u8>(has_fences: bool) {
        explore(move || {
            // The number of ended processes, and whether a thread waits.
            let shared = Arc::new((
                ShutdownPhase::<MUTATION>::with_fences(has_fences),
                AtomicU32::new(0),
                Mutex::new(false),
            ));
            let worker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: nothing but the fences orders count and word.
                    shared.1.store(1, Relaxed);
                    if shared.0.phase_after_publishing() == OPEN {
                        return false;
                    }
                    fence(SeqCst);
                    let waits = shared.2.lock();
                    *waits
                })
            };
            shared.0.enter(STOPPING);
            *shared.2.lock() = true;
            fence(SeqCst);
            let found = shared.1.load(Relaxed) == 1;
            let woken = worker.join().expect("the worker does not panic");
            assert!(found || woken, "the last end is missed");
        });
    }

    #[test]
    fn last_end_against_wait() {
        end::<{ mutation::SOUND }>(true);
    }

    #[test]
    fn last_end_against_wait_without_asymmetric_fences() {
        end::<{ mutation::SOUND }>(false);
    }

    #[test]
    #[should_panic(expected = "the last end is missed")]
    fn canary_end_without_fence() {
        end::<{ mutation::WITHOUT_FENCE }>(true);
    }

    #[test]
    #[should_panic(expected = "the last end is missed")]
    fn canary_unfenced_end_without_fence() {
        end::<{ mutation::UNFENCED_WITHOUT_FENCE }>(false);
    }
}
