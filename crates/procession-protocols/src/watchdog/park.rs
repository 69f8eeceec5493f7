//! The sleep of the watchdog while nothing runs.
//!
//! # Dozing protocol
//!
//! ## Problem
//! - The watchdog sees that no worker runs, and goes to sleep without a timeout. At the same moment
//!   a worker leaves its parker, and nothing watches it. Waking the watchdog at every wake-up of a
//!   worker would cost a lock each time.
//! - A worker that wakes for a short step, such as the sign of life of a connection, parks again
//!   long before a stall could be found. If the watchdog woke for it, an idle program would wake
//!   three times as often.
//!
//! ## States
//! One word: set while the watchdog sleeps or is about to. It is changed under a lock, and read
//! without it.
//!
//! Under the lock: the time of the watchdog's *alarm*, at which the system wakes it; whether that
//! was set early, for a worker; the time that the sleep has without this; and how often the alarm
//! was put off in this sleep. A thread that holds the lock moves the alarm of the sleeping thread
//! (`sys/alarm.rs`), and wakes no thread with it.
//!
//! ## Steps
//! Watchdog, `Sleep`: under the lock, set the alarm and the word · fence(SeqCst) · look whether a
//! worker is awake. If none is, sleep until the alarm. `End`: under the lock, clear the word. Every
//! other pause of the watchdog sets the alarm under the lock, and leaves the word clear.
//!
//! Worker that became awake; thread that claims a seat, because its worker may be late; or thread
//! that the system has refused another thread, while processes are bound to the refused thread's
//! seat: fence(SeqCst) · `Rouse`: if the word is set, then under the lock, if it still is and the
//! alarm is not early, set the alarm [`FIRST_LOOK`] ahead.
//!
//! Worker that parks, after its announcement: `PutOff`, if the word is set: under the lock, if it
//! still is and the alarm is early, look whether a worker is awake. If none is, the alarm gets the
//! time that the sleep has without it, at most `LATEST_LOOK` ahead. After `PUT_OFFS` times, the
//! alarm is left as it is.
//!
//! Thread that ends the scheduler, `Dismiss`: under the lock, note it and set the alarm to now. A
//! thread that would set the alarm later finds the note.
//!
//! ## Why it works
//! *Sleep against Rouse.* The two fences are totally ordered. If the watchdog's fence is first, the
//! worker sees the word set. If the worker's fence is first, the watchdog sees the worker awake.
//! The same holds for the thread without a worker to wake: the watchdog sees what it has queued.
//!
//! *Rouse against PutOff.* Both hold the lock. If `Rouse` is second, it finds the alarm put off,
//! and sets it. If it is first, its worker became awake before, so the look of `PutOff` sees it,
//! unless it has parked since.
//!
//! *End against both.* Under the lock, a `Rouse` or `PutOff` after `End` finds the word clear, and
//! leaves the alarm of the next pause as it is.
//!
//! ## Allowed
//! - The alarm may ring when nothing runs any more: a worker has blocked instead of parking, or has
//!   read the word before it was set. The watchdog then looks, and sleeps again.
//! - The first step after a sleep is first seen [`FIRST_LOOK`] after it has begun.
//! - Without a descriptor for the alarm, each `Rouse` wakes the watchdog's thread.
//!
//! ## Rejected
//! - A token that wakes the watchdog at the first wake-up of a worker, for two looks: of 7.5
//!   wake-ups in a second of an idle node of a cluster, the watchdog had 4.
//! - To leave the alarm early when a worker parks: one wake-up for each short step.
//!
//! ## Checked by
//! `models::sleep_against_rouse`, `models::canary_without_fence`, `models::canary_without_look`,
//! `models::put_off_against_rouse`, `models::canary_put_off_blindly`,
//! `models::canary_look_before_the_lock`, `models::put_off_against_end`,
//! `models::canary_put_off_whatever_the_word`, `models::dismiss_against_sleep`,
//! `models::canary_dismissal_unnoted`.

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, fence};

/// Nanoseconds from the moment when a worker becomes awake to the first look. Most steps that a
/// timer or a descriptor starts in an idle program are over by then. With looks every 2.5 ms
/// afterwards, a step that stalls for 10 ms is found after 11 ms.
pub const FIRST_LOOK: u64 = 1_000_000;
/// Nanoseconds from the first time that the alarm is put off in a sleep to a look in any case, so
/// that the times since which processes wait stay near the truth.
const LATEST_LOOK: u64 = 5_000_000_000;
/// The number of times that the alarm is put off in one sleep. Each time takes two system calls,
/// which a program that works often is to be spared.
const PUT_OFFS: u32 = 64;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("watchdog", SOUND);
    /// No fence on either side.
    pub const WITHOUT_FENCE: u8 = 1;
    /// The watchdog does not look once more.
    pub const WITHOUT_LOOK: u8 = 2;
    /// `PutOff` does not look whether a worker is awake.
    pub const PUT_OFF_BLINDLY: u8 = 3;
    /// `PutOff` looks before it takes the lock.
    pub const LOOK_BEFORE_THE_LOCK: u8 = 4;
    /// `PutOff` does not look at the word under the lock.
    pub const PUT_OFF_WHATEVER_THE_WORD: u8 = 5;
    /// `Dismiss` leaves no note.
    pub const DISMISSAL_UNNOTED: u8 = 6;
}

/// The reason why the watchdog woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Woken {
    /// The time of its pause is over.
    InTime,
    /// A worker became awake.
    Roused,
    /// Workers were awake for moments, and the alarm was put off each time.
    PutOff,
}

#[derive(Debug, Default)]
struct AlarmState {
    /// The time of the sleep, without the workers that become awake.
    until: u64,
    /// Set if the alarm is set for a worker that became awake.
    is_early: bool,
    /// The number of times that the alarm was put off in this sleep.
    put_offs: u32,
    is_dismissed: bool,
}

/// The sleep of the watchdog, and the alarm that ends it.
#[derive(Debug, Default)]
pub struct WatchdogPark<const MUTATION: u8 = { mutation::BUILT }> {
    sleeps: AtomicBool,
    alarm: Mutex<AlarmState>,
}

impl<const MUTATION: u8> WatchdogPark<MUTATION> {
    fn fence(&self) {
        if !mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            fence(SeqCst);
        }
    }

    /// Sets the alarm for a pause that is not a sleep.
    pub fn pause(&self, until: u64, set: impl FnOnce(u64)) {
        let state = self.alarm.lock();
        if !state.is_dismissed {
            set(until);
        }
    }

    /// `Sleep`: returns `true` if the watchdog may sleep. If not, it must set the alarm for another
    /// pause.
    pub fn begin(&self, until: u64, is_quiet: impl Fn() -> bool, set: impl FnOnce(u64)) -> bool {
        let mut state = self.alarm.lock();
        if state.is_dismissed {
            return true;
        }
        (state.until, state.is_early, state.put_offs) = (until, false, 0);
        set(until);
        // Relaxed, as all accesses of the word: the fences and the lock order it.
        self.sleeps.store(true, Relaxed);
        drop(state);
        self.fence();
        let sleeps = mutation::is(MUTATION, mutation::WITHOUT_LOOK) || is_quiet();
        if !sleeps {
            let _state = self.alarm.lock();
            self.sleeps.store(false, Relaxed);
        }
        sleeps
    }

    /// Returns `true` if the watchdog sleeps and no worker has set its alarm.
    #[cfg(feature = "sim")]
    pub fn is_asleep(&self) -> bool {
        let state = self.alarm.lock();
        self.sleeps.load(Relaxed) && !state.is_early
    }

    /// Returns `true` if the watchdog sleeps, or is about to.
    #[cfg(feature = "sim")]
    pub fn is_sleeping(&self) -> bool {
        self.sleeps.load(Relaxed)
    }

    /// `End`: returns why the sleep has ended.
    pub fn end(&self) -> Woken {
        let state = self.alarm.lock();
        self.sleeps.store(false, Relaxed);
        match &*state {
            state if state.is_early => Woken::Roused,
            state if state.put_offs > 0 => Woken::PutOff,
            _ => Woken::InTime,
        }
    }

    /// `Rouse`.
    #[inline]
    pub fn rouse(&self, now: impl FnOnce() -> u64, set: impl FnOnce(u64)) {
        self.fence();
        if self.sleeps.load(Relaxed) {
            self.set_early(now, set);
        }
    }

    #[cold]
    fn set_early(&self, now: impl FnOnce() -> u64, set: impl FnOnce(u64)) {
        let mut state = self.alarm.lock();
        if self.sleeps.load(Relaxed) && !state.is_early && !state.is_dismissed {
            state.is_early = true;
            set(state.until.min(now().saturating_add(FIRST_LOOK)));
        }
    }

    /// `PutOff`.
    #[inline]
    pub fn put_off(
        &self,
        is_quiet: impl Fn() -> bool,
        now: impl FnOnce() -> u64,
        set: impl FnOnce(u64),
    ) {
        // If a worker does not see the word yet, the watchdog makes one look that was not needed.
        if self.sleeps.load(Relaxed) {
            self.set_late(is_quiet, now, set);
        }
    }

    #[cold]
    fn set_late(
        &self,
        is_quiet: impl Fn() -> bool,
        now: impl FnOnce() -> u64,
        set: impl FnOnce(u64),
    ) {
        let planted = |defect| mutation::is(MUTATION, defect);
        let looks_early = planted(mutation::LOOK_BEFORE_THE_LOCK);
        let looked = looks_early && is_quiet();
        let mut state = self.alarm.lock();
        let sleeps = self.sleeps.load(Relaxed) || planted(mutation::PUT_OFF_WHATEVER_THE_WORD);
        if !sleeps || !state.is_early || state.is_dismissed || state.put_offs == PUT_OFFS {
            return;
        }
        // This call takes the lock of the seats. No thread takes the lock of the alarm while it
        // holds the lock of the seats.
        let is_quiet = || if looks_early { looked } else { is_quiet() };
        if !planted(mutation::PUT_OFF_BLINDLY) && !is_quiet() {
            return;
        }
        if state.put_offs == 0 {
            state.until = state.until.min(now().saturating_add(LATEST_LOOK));
        }
        state.is_early = false;
        state.put_offs += 1;
        set(state.until);
    }

    /// `Dismiss`: the watchdog ends, whatever it does.
    pub fn dismiss(&self, set: impl FnOnce(u64)) {
        let mut state = self.alarm.lock();
        state.is_dismissed = !mutation::is(MUTATION, mutation::DISMISSAL_UNNOTED);
        set(0);
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicU64;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, explore, thread};

    use super::{FIRST_LOOK, WatchdogPark, mutation};

    /// A sleep without an end.
    const LONG: u64 = u64::MAX;
    /// The end of a pause.
    const SHORT: u64 = 7;

    /// The protocol, the alarm of the system, and the number of workers that are awake.
    struct Scheduler<const MUTATION: u8> {
        park: WatchdogPark<MUTATION>,
        alarm: AtomicU64,
        awake: AtomicU64,
    }

    impl<const MUTATION: u8> Scheduler<MUTATION> {
        fn new(awake: u64) -> Arc<Self> {
            let (park, alarm) = (WatchdogPark::default(), AtomicU64::new(LONG));
            Arc::new(Self { park, alarm, awake: AtomicU64::new(awake) })
        }

        fn set(&self, when: u64) {
            // Relaxed: the lock of the protocol orders it.
            self.alarm.store(when, Relaxed);
        }

        // Relaxed, as all accesses of the number: nothing but the fences and the lock orders it, as
        // in `scheduler/idle.rs`.
        fn is_quiet(&self) -> bool {
            self.awake.load(Relaxed) == 0
        }

        fn sleep(&self) -> bool {
            self.park.begin(LONG, || self.is_quiet(), |when| self.set(when))
        }

        fn become_awake(&self) {
            self.awake.fetch_add(1, Relaxed);
            self.park.rouse(|| 0, |when| self.set(when));
        }

        fn park(&self) {
            self.awake.fetch_sub(1, Relaxed);
            self.park.put_off(|| self.is_quiet(), || 0, |when| self.set(when));
        }

        fn rings_soon(&self) -> bool {
            self.alarm.load(Relaxed) <= FIRST_LOOK
        }
    }

    fn sleep<const MUTATION: u8>() {
        explore(|| {
            let shared = Scheduler::<MUTATION>::new(0);
            let worker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.become_awake())
            };
            let sleeps = shared.sleep();
            worker.join().expect("the worker does not panic");
            assert!(!sleeps || shared.rings_soon(), "the watchdog sleeps while a worker runs");
        });
    }

    /// The watchdog sleeps. One worker is awake and parks, while another becomes awake.
    fn put_off<const MUTATION: u8>() {
        explore(|| {
            let shared = Scheduler::<MUTATION>::new(0);
            assert!(shared.sleep(), "nothing runs");
            shared.become_awake();
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.become_awake())
            };
            shared.park();
            other.join().expect("the other does not panic");
            assert!(shared.rings_soon(), "the watchdog sleeps while a worker runs");
        });
    }

    /// The alarm has rung, and the watchdog begins its next pause, while a worker parks.
    fn end<const MUTATION: u8>() {
        explore(|| {
            let shared = Scheduler::<MUTATION>::new(0);
            assert!(shared.sleep(), "nothing runs");
            shared.become_awake();
            let worker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.park())
            };
            let _ = shared.park.end();
            shared.park.pause(SHORT, |when| shared.set(when));
            worker.join().expect("the worker does not panic");
            assert_eq!(shared.alarm.load(Relaxed), SHORT, "the pause has no end");
        });
    }

    /// A thread ends the scheduler, while the watchdog goes to sleep.
    fn dismiss<const MUTATION: u8>() {
        explore(|| {
            let shared = Scheduler::<MUTATION>::new(0);
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.park.dismiss(|when| shared.set(when)))
            };
            assert!(shared.sleep(), "nothing runs");
            other.join().expect("the other does not panic");
            assert_eq!(shared.alarm.load(Relaxed), 0, "the watchdog is never told");
        });
    }

    #[test]
    fn sleep_against_rouse() {
        sleep::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the watchdog sleeps while a worker runs")]
    fn canary_without_fence() {
        sleep::<{ mutation::WITHOUT_FENCE }>();
    }

    #[test]
    #[should_panic(expected = "the watchdog sleeps while a worker runs")]
    fn canary_without_look() {
        sleep::<{ mutation::WITHOUT_LOOK }>();
    }

    #[test]
    fn put_off_against_rouse() {
        put_off::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the watchdog sleeps while a worker runs")]
    fn canary_put_off_blindly() {
        put_off::<{ mutation::PUT_OFF_BLINDLY }>();
    }

    #[test]
    #[should_panic(expected = "the watchdog sleeps while a worker runs")]
    fn canary_look_before_the_lock() {
        put_off::<{ mutation::LOOK_BEFORE_THE_LOCK }>();
    }

    #[test]
    fn put_off_against_end() {
        end::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the pause has no end")]
    fn canary_put_off_whatever_the_word() {
        end::<{ mutation::PUT_OFF_WHATEVER_THE_WORD }>();
    }

    #[test]
    fn dismiss_against_sleep() {
        dismiss::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the watchdog is never told")]
    fn canary_dismissal_unnoted() {
        dismiss::<{ mutation::DISMISSAL_UNNOTED }>();
    }
}
