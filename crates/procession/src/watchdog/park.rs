//! The sleep of the watchdog while nothing runs.
//!
//! # Dozing protocol
//!
//! ## Problem
//! The watchdog sees that no worker runs, and goes to sleep without a timeout. At the same moment a
//! worker leaves its parker, and nothing watches it. Waking the watchdog at every wake-up of a
//! worker would cost a lock each time.
//!
//! ## States
//! One word: set while the watchdog sleeps or is about to.
//!
//! ## Steps
//! Watchdog, `Sleep`: set the word · fence(SeqCst) · look whether a worker is awake. If none is,
//! sleep until a token comes or for some milliseconds. Clear the word.
//!
//! Worker that became awake, thread that claims a seat (its worker may be late), or thread for
//! which the system has refused another one, while processes are bound to that one's seat:
//! fence(SeqCst) · `Rouse`: if the word is set, clear it and send a token.
//!
//! ## Why it works
//! The two fences are totally ordered. If the watchdog's is first, the worker sees the word set. If
//! the worker's is first, the watchdog sees the worker awake. The same holds for the thread without
//! a worker to wake: the watchdog sees what it has queued.
//!
//! ## Allowed
//! A token may come when the watchdog has just found a worker awake. It then looks once more than
//! necessary.
//!
//! ## Checked by
//! `models::sleep_against_rouse`, `models::canary_without_fence`, `models::canary_without_look`.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, fence};

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) use crate::util::mutant::is;

    pub(crate) const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub(crate) const BUILT: u8 = crate::util::mutant::planted("watchdog", SOUND);
    /// No fence on either side.
    pub(crate) const WITHOUT_FENCE: u8 = 1;
    /// The watchdog does not look once more.
    pub(crate) const WITHOUT_LOOK: u8 = 2;
}

#[derive(Debug, Default)]
pub(crate) struct WatchdogPark<const MUTATION: u8 = { mutation::BUILT }>(AtomicBool);

impl<const MUTATION: u8> WatchdogPark<MUTATION> {
    fn fence(&self) {
        if !mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            fence(SeqCst);
        }
    }

    /// `Sleep`: returns `true` if the watchdog may sleep.
    pub(crate) fn begin(&self, is_quiet: impl Fn() -> bool) -> bool {
        // Relaxed, as all accesses of the word: the fences order it.
        self.0.store(true, Relaxed);
        self.fence();
        let sleeps = mutation::is(MUTATION, mutation::WITHOUT_LOOK) || is_quiet();
        if !sleeps {
            self.0.store(false, Relaxed);
        }
        sleeps
    }

    /// Returns `true` if the watchdog sleeps and no worker has roused it.
    #[cfg(feature = "sim")]
    pub(crate) fn is_asleep(&self) -> bool {
        // Relaxed: the threads of a simulated system take turns.
        self.0.load(Relaxed)
    }

    /// Ends the sleep. Returns `true` if a worker roused the watchdog.
    pub(crate) fn end(&self) -> bool {
        !self.0.swap(false, Relaxed)
    }

    /// `Rouse`: returns `true` if the caller must send a token.
    #[inline]
    pub(crate) fn rouse(&self) -> bool {
        self.fence();
        self.0.load(Relaxed) && self.0.swap(false, Relaxed)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicU32;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, explore, thread};

    use super::{WatchdogPark, mutation};

    fn race<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new((WatchdogPark::<MUTATION>::default(), AtomicU32::new(0)));
            let worker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: nothing but the fences orders the two, as in `scheduler/idle.rs`.
                    shared.1.store(1, Relaxed);
                    shared.0.rouse()
                })
            };
            let sleeps = shared.0.begin(|| shared.1.load(Relaxed) == 0);
            let roused = worker.join().expect("the worker does not panic");
            assert!(!sleeps || roused, "the watchdog sleeps while a worker runs");
        });
    }

    #[test]
    fn sleep_against_rouse() {
        race::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the watchdog sleeps while a worker runs")]
    fn canary_without_fence() {
        race::<{ mutation::WITHOUT_FENCE }>();
    }

    #[test]
    #[should_panic(expected = "the watchdog sleeps while a worker runs")]
    fn canary_without_look() {
        race::<{ mutation::WITHOUT_LOOK }>();
    }
}
