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
//! One word. Its phase only grows: `OPEN`, or `OPEN_UNFENCED` where there are no asymmetric fences
//! (`util/membarrier.rs`); `STOPPING` (processes clean up; only they may spawn); `TERMINATING`
//! (nothing may be spawned); `ENDED` (no process is left; threads leave their seats).
//!
//! Its flag `WATCHED` says that somebody waits for the end of all processes of an open scheduler.
//! In the later phases the flag means nothing, because an ending process looks for waiters in any
//! case.
//!
//! ## Steps
//! - Shutdown: `Enter` raise the word · `EnterFence` heavy · `Walk` all slots.
//! - Spawner: look at the word · `Publish` the slot · `PublishFence` light · `CatchUp` look at the
//!   word again. If it shows a shutdown, the spawner ends the new process immediately, without
//!   queueing it: the workers may have left.
//! - Ending process: count itself as ended · `PublishFence` light · `CatchUp`. Unless the word is
//!   open and not watched: fence(SeqCst) · look whether all have ended · if so, take the wakers of
//!   the waiters.
//! - Waiter of a shutdown, after `Enter`: `Leave` its waker · fence(SeqCst) · look whether all have
//!   ended.
//! - Any other waiter, at each poll: `Leave` its waker · `Watch` set the flag · `EnterFence` · look
//!   whether all have ended. When it goes, it removes its waker and, if no other is left, does
//!   `Unwatch` in the same critical section: clear the flag.
//!
//! `EnterFence` and `PublishFence` are asymmetric: each spawn and each end passes one
//! `PublishFence`, and a shutdown and each poll of a waiter pass one `EnterFence`. Where there are
//! no such fences, `CatchUp` finds `OPEN_UNFENCED`. Then it passes a fence(SeqCst) and looks once
//! more, and `EnterFence` is a fence(SeqCst).
//!
//! ## Why it works
//! `EnterFence` and `PublishFence` are ordered. If `EnterFence` is first, `CatchUp` sees the word.
//! If `PublishFence` is first, `Walk` sees the slot, and the waiter sees the count.
//!
//! An ending process that sees the word has a fence(SeqCst) before its look at the wakers, and the
//! waiter has one after `Leave`. These two fences are ordered as well: either the waiter sees the
//! count, or the process finds the waker. So an end is noticed wherever it happens: on a worker
//! that continues with other work, on a caller's thread that leaves its seat without parking, and
//! on a thread that is no worker.
//!
//! `Watch` takes the place of `Enter` for a waiter of an open scheduler. Each poll passes a fence,
//! even if another waiter has already set the flag, because that waiter may not have passed its
//! fence yet. The flag is not cleared while a waker is left: `Unwatch` is in one critical section
//! with the look that finds none, and `Watch` follows `Leave`, which takes the same lock.
//!
//! ## Allowed
//! The walk may also find the new process and mark it. The thread that holds its entry ends it,
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
//! `models::spawn_against_terminate`, `models::last_end_against_wait` and
//! `models::last_end_against_watch`, each with and without asymmetric fences;
//! `models::watch_against_unwatch`; `models::canary_without_fence`,
//! `models::canary_end_without_fence`, `models::canary_unfenced_end_without_fence`,
//! `models::canary_watch_without_fence`, `models::canary_unwatch_unlocked`. In models the light
//! fence is a full one. Nothing here relies on an order between two light fences. With the fences
//! that the real machine has, `atomics::fences::shutdown` of `procession-sim` runs the protocol on
//! a weak processor.

use procession_sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU8, fence};

use crate::util::membarrier;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::{is, or_relaxed};

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("shutdown", SOUND);
    /// Neither `EnterFence` nor `PublishFence`.
    pub const WITHOUT_FENCE: u8 = 1;
    /// `CatchUp` treats `OPEN_UNFENCED` as `OPEN`.
    pub const UNFENCED_WITHOUT_FENCE: u8 = 2;
    /// `Watch` without `EnterFence`.
    pub const WATCH_WITHOUT_FENCE: u8 = 3;
    /// `Unwatch` after the critical section.
    pub const UNWATCH_UNLOCKED: u8 = 4;
    /// `EnterFence` is fence(SeqCst), although `PublishFence` is light. In models that is enough.
    pub const ENTER_WITHOUT_HEAVY_FENCE: u8 = 5;
    /// `Enter` does not release what was before it.
    pub const ENTER_RELAXED: u8 = 6;
    /// A look at the phase does not acquire what was before `Enter`.
    pub const PHASE_RELAXED: u8 = 7;
    /// `CatchUp` does not acquire what was before `Enter`. In models its fence does.
    pub const CATCH_UP_RELAXED: u8 = 8;
    /// A shutdown waits for the ends of processes without a deadline. No model plants this: the
    /// runtime waits.
    pub const WITHOUT_DEADLINE: u8 = 9;
}

/// The flag of the word. The phase is in the bits above it.
const WATCHED: u8 = 1;

/// Processes may be spawned.
pub const OPEN: u8 = 0;
/// Open, where `PublishFence` is nothing until this value was found. Not visible outside this
/// module.
const OPEN_UNFENCED: u8 = 1;
/// The processes are asked to end.
pub const STOPPING: u8 = 2;
/// The processes are terminated.
pub const TERMINATING: u8 = 3;
/// All processes have ended.
pub const ENDED: u8 = 4;

/// Returns the phase of a word.
#[inline]
fn phase_of(word: u8) -> u8 {
    match word >> 1 {
        OPEN_UNFENCED => OPEN,
        phase => phase,
    }
}

/// The phase of a scheduler, from open to ended.
#[derive(Debug)]
pub struct ShutdownPhase<const MUTATION: u8 = { mutation::BUILT }> {
    word: AtomicU8,
    has_fences: bool,
}

impl<const MUTATION: u8> ShutdownPhase<MUTATION> {
    /// Creates the phase of a new scheduler.
    pub fn open() -> Self {
        Self::with_fences(membarrier::are_there())
    }

    pub(super) fn with_fences(has_fences: bool) -> Self {
        let phase = if has_fences { OPEN } else { OPEN_UNFENCED };
        Self { word: AtomicU8::new(phase << 1), has_fences }
    }

    /// Returns the phase, as far as this thread can see.
    #[inline]
    pub fn phase(&self) -> u8 {
        // Ordering: Acquire pairs with the Release in `enter`: a thread that sees the end sees
        // everything before it.
        phase_of(self.word.load(mutation::or_relaxed(MUTATION, mutation::PHASE_RELAXED, Acquire)))
    }

    /// `Enter` and `EnterFence`.
    pub fn enter(&self, phase: u8) {
        // Ordering: SeqCst also releases, and pairs with the Acquire in `phase` and in `CatchUp`.
        let order = mutation::or_relaxed(MUTATION, mutation::WITHOUT_FENCE, SeqCst);
        let order = mutation::or_relaxed(MUTATION, mutation::ENTER_RELAXED, order);
        // The flag of an earlier phase is lost, and no longer needed.
        self.word.fetch_max(phase << 1, order);
        if !mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            self.enter_fence();
        }
    }

    /// `Watch` and `EnterFence`. The caller has left its waker.
    pub fn watch(&self) {
        // Relaxed: the fence orders it.
        self.word.fetch_or(WATCHED, Relaxed);
        if !mutation::is(MUTATION, mutation::WATCH_WITHOUT_FENCE) {
            self.enter_fence();
        }
    }

    /// `Unwatch`. `lock` is the guard under which the caller has found that no waker is left.
    pub fn unwatch<G>(&self, lock: G) {
        let is_unlocked = mutation::is(MUTATION, mutation::UNWATCH_UNLOCKED);
        let lock = (!is_unlocked).then_some(lock);
        // Relaxed: the lock orders it.
        self.word.fetch_and(!WATCHED, Relaxed);
        drop(lock);
    }

    fn enter_fence(&self) {
        fence(SeqCst);
        if self.has_fences && !mutation::is(MUTATION, mutation::ENTER_WITHOUT_HEAVY_FENCE) {
            membarrier::heavy_at_leisure();
        }
    }

    /// `PublishFence` and `CatchUp`: returns the phase after what this thread has just published.
    #[inline]
    pub fn phase_after_publishing(&self) -> u8 {
        phase_of(self.word_after_publishing())
    }

    /// `PublishFence` and `CatchUp` of a process that was just counted as ended: returns `true` if
    /// somebody may wait for the end.
    #[inline]
    pub fn is_end_awaited(&self) -> bool {
        let word = self.word_after_publishing();
        word & WATCHED != 0 || phase_of(word) != OPEN
    }

    #[inline]
    fn word_after_publishing(&self) -> u8 {
        if mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            return self.word.load(Acquire);
        }
        // In models a light fence is a full fence. Without asymmetric fences there would be none.
        if self.has_fences || cfg!(not(procession_loom)) {
            membarrier::light();
        }
        // Ordering: as in `phase`.
        let order = mutation::or_relaxed(MUTATION, mutation::CATCH_UP_RELAXED, Acquire);
        let word = self.word.load(order);
        if word == OPEN << 1 { word } else { self.catch_up(word) }
    }

    #[cold]
    fn catch_up(&self, word: u8) -> u8 {
        if word >> 1 == OPEN_UNFENCED && !mutation::is(MUTATION, mutation::UNFENCED_WITHOUT_FENCE) {
            fence(SeqCst);
        }
        // Ordering: as in `phase`.
        self.word.load(mutation::or_relaxed(MUTATION, mutation::CATCH_UP_RELAXED, Acquire))
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

    /// What the processes and the waiters of an open scheduler share.
    struct Open<const MUTATION: u8> {
        phase: ShutdownPhase<MUTATION>,
        ended: AtomicU32,
        /// Whether each of two waiters has left its waker.
        waits: Mutex<[bool; 2]>,
    }

    impl<const MUTATION: u8> Open<MUTATION> {
        /// Returns `true` if the first waiter is woken by the end of the last process.
        fn end(&self) -> bool {
            // Relaxed: nothing but the fences orders count and word.
            self.ended.store(1, Relaxed);
            if !self.phase.is_end_awaited() {
                return false;
            }
            fence(SeqCst);
            let waits = self.waits.lock();
            waits[0]
        }

        /// Waits as the first waiter. Returns `true` if it finds that the last process has ended.
        fn wait(&self) -> bool {
            self.waits.lock()[0] = true;
            self.phase.watch();
            self.ended.load(Relaxed) == 1
        }
    }

    /// The last process ends, while a thread begins to wait for that, with no shutdown. If
    /// `is_watched`, another waiter is there already, and goes.
    fn watch<const MUTATION: u8>(has_fences: bool, is_watched: bool) {
        explore(move || {
            let shared = Arc::new(Open {
                phase: ShutdownPhase::<MUTATION>::with_fences(has_fences),
                ended: AtomicU32::new(0),
                waits: Mutex::new([false, is_watched]),
            });
            let ends = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.end())
            };
            let waits = {
                if is_watched {
                    shared.phase.watch();
                }
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.wait())
            };
            if is_watched {
                let mut waits = shared.waits.lock();
                waits[1] = false;
                if !waits[0] {
                    shared.phase.unwatch(waits);
                }
            }
            let woken = ends.join().expect("the process does not panic");
            let found = waits.join().expect("the waiter does not panic");
            assert!(found || woken, "the last end is missed");
        });
    }

    #[test]
    fn last_end_against_watch() {
        watch::<{ mutation::SOUND }>(true, false);
    }

    #[test]
    fn last_end_against_watch_without_asymmetric_fences() {
        watch::<{ mutation::SOUND }>(false, false);
    }

    #[test]
    fn watch_against_unwatch() {
        watch::<{ mutation::SOUND }>(true, true);
    }

    #[test]
    #[should_panic(expected = "the last end is missed")]
    fn canary_watch_without_fence() {
        watch::<{ mutation::WATCH_WITHOUT_FENCE }>(true, false);
    }

    #[test]
    #[should_panic(expected = "the last end is missed")]
    fn canary_unwatch_unlocked() {
        watch::<{ mutation::UNWATCH_UNLOCKED }>(true, true);
    }
}
