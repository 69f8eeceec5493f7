//! The pace at which a worker serves the sources of work other than its own queues, and the turns
//! that it owes afterwards.
//!
//! # Service protocol
//!
//! ## Problem
//! A worker that always has something in its own queues never looks at timers, descriptors and the
//! global queue. Looking once in a fixed number of dispatches bounds the delay in dispatches, not
//! in time: 61 steps of 9 ms hold every timer up for half a second. Reading the clock before each
//! dispatch bounds it in time, but the read costs 23 to 41 ns, as much as a whole step.
//!
//! ## States
//! Each worker has a [`Pace`]: the number of dispatches until its next look (`every`), the time of
//! its last read of the clock, and the time of its last service. The scheduler has a [`Beacon`]: a
//! word into which the watchdog writes the time at each of its looks, every 2.5 ms while any worker
//! runs.
//!
//! ## Steps
//! - `Tick`, before each dispatch: count down, and compare the beacon with the last value seen.
//! - `Nudge`, by a thread that queues a process of another level than the normal one: change the
//!   beacon, so that every worker looks (`scheduler/levels.rs`).
//! - `Look`, when the count is over or the beacon has changed: read the clock, derive the mean
//!   duration of the steps since the last read, and choose `every` so that the next look is 250 us
//!   later at that mean. `every` is at least 1, at most [`FAIRNESS`], and at most twice its
//!   previous value. At the maximum, with an unchanged beacon, `Look` does not read the clock: it
//!   only counts the dispatches.
//! - `Stop`, while levels wait: the worker stops before each dispatch, and `Look` comes after as
//!   many dispatches as without.
//! - `Serve`, when a look finds that [`FAIRNESS`] dispatches or [`SERVE_EVERY`] have passed since
//!   the last service: take shares of the queues behind the rings, fire due timers, poll
//!   descriptors, and note how many woken and how many continued processes wait. These turns are
//!   *owed*: until they are had, woken processes, continued processes and the usual order of the
//!   search alternate (`scheduler/worker.rs`).
//!
//! ## Why it works
//! If steps take at least 250 us on average, the worker looks before every dispatch, so each source
//! is served at the first step boundary that is 750 us or more after its last service. If they are
//! shorter, `every * mean <= 250 us`. At [`FAIRNESS`], the mean was below 4.1 us at the last look.
//!
//! Steps may become long from one to the next. A step that contains a look of the watchdog changes
//! the beacon, and the boundary after it reads the clock. So a worker that believes its steps to be
//! short notices the change after one interval of the watchdog and one step. It then looks at each
//! boundary: one long step makes `every` 1, and it grows by doubling only.
//!
//! ## Allowed
//! - The first service after such a change is late by up to 2.5 ms plus the delay with which the
//!   system wakes the watchdog.
//! - Without a watchdog (`Builder::watchdog(false)`, `Builder::max_threads(1)`, the test clock) the
//!   beacon never changes. The worker then looks, with a read of the clock, after at most
//!   `UNWATCHED` dispatches.
//!
//! ## Rejected
//! - A clock read before each dispatch: `yield` 14 ns to 38 ns.
//! - A number of dispatches calibrated once, or by an average over many looks: the steps of one
//!   program go from 20 ns to 9 ms within one dispatch.
//! - The beacon alone, at 1 ms: 1000 wake-ups a second, and while both processors compute the
//!   system delays the watchdog by whole slices.
//! - `CLOCK_MONOTONIC_COARSE`: 5 ns, but it advances once in 4 ms on most kernels.
//!
//! ## Checked by
//! `tests::*` below, with a scripted beacon; `it::bounds` on the test clock, without one; the
//! defect of the module `mutation`, which the simulation finds.

use std::cell::Cell;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering;
use procession_sync::atomic::Ordering::Relaxed;

/// The defect that the simulation plants.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("pace", SOUND);
    /// A worker that has something in its own queues never serves.
    pub const NEVER_SERVE: u8 = 1;
}

/// The maximum number of dispatches between two services. The number is Go's, a prime, so that it
/// does not resonate with the periods of a program.
pub const FAIRNESS: u32 = 61;

/// Nanoseconds between two services while the worker knows the time. With `READ_EVERY` it is 1
/// ms.
pub const SERVE_EVERY: u64 = 750_000;

/// Nanoseconds between two reads of the clock, at the mean duration of the last steps.
const READ_EVERY: u64 = 250_000;

/// The maximum number of dispatches between two looks if no watchdog writes the beacon.
const UNWATCHED: u32 = 16;

/// The time of the watchdog's last look. It has its own cache line, because every worker reads it
/// before every dispatch.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Beacon(AtomicU64);

impl Beacon {
    /// Stores the time. Relaxed, as are all uses: a hint that makes workers read the clock
    /// themselves.
    #[inline]
    pub fn set(&self, now: u64) {
        // A read-modify-write, so that a worker that reads this time also sees what was queued
        // before a `nudge` that it overwrites.
        self.0.swap(now, Relaxed);
    }

    /// Changes the word, so that every worker looks before its next dispatch. The time is a
    /// nanosecond later then.
    pub fn nudge(&self, order: Ordering) {
        self.0.fetch_add(1, order);
    }

    /// Returns the time that was set last.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Set if the worker is to serve now.
    pub serves: bool,
    /// Dispatches since the last service.
    pub dispatches: u32,
    /// The time, if the clock was read.
    pub now: Option<u64>,
}

/// The pace at which a worker dispatches, and the state that decides when it serves.
#[derive(Debug)]
pub struct Pace {
    /// Dispatches until the next look.
    left: Cell<u32>,
    /// The value of `left` after the last look.
    count: Cell<u32>,
    /// Dispatches between two looks, from the duration of the last steps.
    every: Cell<u32>,
    /// Dispatches since the last service.
    unserved: Cell<u32>,
    /// Dispatches since the last read of the clock.
    unread: Cell<u32>,
    /// The time of the last read of the clock; `None` if the worker has parked since.
    read_at: Cell<Option<u64>>,
    served_at: Cell<u64>,
    beacon: Cell<u64>,
    /// Dispatches and nanoseconds since `is_slow` was last determined.
    window: Cell<(u32, u64)>,
    /// Set if [`FAIRNESS`] dispatches take longer than [`SERVE_EVERY`].
    is_slow: Cell<bool>,
    /// Set if the worker stops at each dispatch, because levels wait (`scheduler/levels.rs`) or the
    /// system is simulated. `left` is 1 then.
    stops: Cell<bool>,
    /// The dispatches until the next look, while the worker stops at each.
    stretch: Cell<u32>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            left: Cell::new(1),
            count: Cell::new(1),
            every: Cell::new(1),
            unserved: Cell::new(0),
            unread: Cell::new(0),
            read_at: Cell::new(None),
            served_at: Cell::new(0),
            beacon: Cell::new(0),
            window: Cell::new((0, 0)),
            is_slow: Cell::new(false),
            stops: Cell::new(false),
            stretch: Cell::new(1),
        }
    }
}

impl Pace {
    /// `Tick`: returns `true` if the worker is to look.
    #[inline]
    pub fn tick(&self, beacon: u64) -> bool {
        let left = self.left.get() - 1;
        self.left.set(left);
        left == 0 || beacon != self.beacon.get()
    }

    /// Called after a `Tick` that was `true`: returns `true` if the worker is to look, and not only
    /// stops.
    #[inline]
    pub fn is_due(&self, beacon: u64) -> bool {
        if !self.stops.get() {
            return true;
        }
        let left = self.stretch.get().saturating_sub(1);
        let is_due = left == 0 || beacon != self.beacon.get();
        self.stretch.set(left);
        self.left.set(if is_due { left } else { 1 });
        self.stops.set(!is_due);
        is_due
    }

    /// Stops at each dispatch until the next look.
    pub fn stop_at_each(&self) {
        if !self.stops.replace(true) {
            self.stretch.set(self.left.replace(1));
        }
    }

    /// Stops at no dispatch before the next look.
    pub fn stop_at_none(&self) {
        if self.stops.replace(false) {
            self.left.set(self.stretch.get());
        }
    }

    /// `Look`. `is_watched` is set if a watchdog writes the beacon.
    pub fn look(&self, beacon: u64, is_watched: bool, clock: impl FnOnce() -> u64) -> Look {
        let passed = self.count.get() - self.left.get();
        self.unserved.set(self.unserved.get().saturating_add(passed));
        self.unread.set(self.unread.get().saturating_add(passed));
        let is_current = self.beacon.replace(beacon) == beacon;
        let most = if is_watched { FAIRNESS } else { UNWATCHED };
        let now = if is_watched && is_current && self.every.get() == FAIRNESS {
            None
        } else {
            Some(clock())
        };
        if let Some(now) = now {
            let unread = self.unread.replace(0).max(1);
            if let Some(before) = self.read_at.replace(Some(now)) {
                let passed = now.saturating_sub(before);
                let mean = passed / u64::from(unread);
                let fitting = u32::try_from(READ_EVERY / mean.max(1)).unwrap_or(u32::MAX);
                self.every.set(fitting.min(self.every.get() * 2).clamp(1, most));
                self.judge(unread, passed);
            }
        }
        let is_late =
            now.is_some_and(|now| now.saturating_sub(self.served_at.get()) >= SERVE_EVERY);
        let dispatches = self.unserved.get();
        let serves = is_late || dispatches >= FAIRNESS;
        if serves {
            self.unserved.set(0);
            self.served_at.set(now.unwrap_or(self.served_at.get()));
        }
        let count = self.every.get().min(FAIRNESS - self.unserved.get());
        self.count.set(count);
        self.left.set(count);
        let serves = serves && !mutation::is(mutation::BUILT, mutation::NEVER_SERVE);
        Look { serves, dispatches, now }
    }

    /// Determines whether steps are slow, over a window of at least [`SERVE_EVERY`]. One long step
    /// among short steps does not make them slow.
    #[inline]
    fn judge(&self, dispatches: u32, passed: u64) {
        let (count, time) = self.window.get();
        let (count, time) = (count.saturating_add(dispatches), time.saturating_add(passed));
        if time < SERVE_EVERY {
            self.window.set((count, time));
        } else {
            self.window.set((0, 0));
            self.is_slow.set(time / u64::from(count) > SERVE_EVERY / u64::from(FAIRNESS));
        }
    }

    /// Lets the next dispatch serve: a computation has found that somebody waits.
    pub fn serve_next(&self) {
        self.served_at.set(0);
        self.every.set(1);
        self.count.set(self.count.get() + 1 - self.left.get().min(self.count.get()));
        self.left.set(1);
        #[cfg(feature = "sim")]
        self.stretch.set(1);
    }

    /// Restarts the measurement after the worker has parked. The time since the last look is not
    /// the time of steps, and earlier steps do not predict later steps. The worker reads the clock
    /// at the next two boundaries.
    #[inline]
    pub fn resume(&self) {
        self.read_at.set(None);
        self.every.set(1);
        self.count.set(1);
        self.left.set(1);
        self.stops.set(false);
    }

    /// Returns `true` if the last steps were so long that a count of dispatches does not bound the
    /// time.
    #[inline]
    pub fn is_slow(&self) -> bool {
        self.is_slow.get()
    }
}

/// The turns that are owed since the last service.
#[derive(Debug, Default)]
pub struct OwedTurns {
    is_any: Cell<bool>,
    woken: Cell<u32>,
    continued: Cell<u32>,
    /// Processes at the oldest end of the deque.
    spawned: Cell<u32>,
    /// Set if the last owed turn was had by a woken process; the same for a continued one.
    was_woken: Cell<bool>,
    was_continued: Cell<bool>,
}

/// The class that has the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum NextTurn {
    /// The oldest woken process.
    Woken,
    /// The oldest continued process.
    Continued,
    /// The oldest process of the deque.
    Spawned,
    /// The next process in the usual order of the search.
    Any,
}

impl OwedTurns {
    /// Notes the numbers of processes that wait at a service.
    #[inline]
    pub fn note(&self, woken: usize, continued: usize, spawned: usize) {
        let count = |waiting: usize| u32::try_from(waiting).unwrap_or(u32::MAX);
        self.woken.set(count(woken));
        self.continued.set(count(continued));
        self.spawned.set(count(spawned));
        self.is_any.set(woken + continued + spawned > 0);
    }

    /// Returns `true` if any turn is owed.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.get()
    }

    /// Returns the next turn. Woken processes have every other turn, and continued processes every
    /// other one of the remaining turns. If the class has no process, the caller reports that with
    /// [`none_left`](Self::none_left).
    #[inline]
    pub fn next(&self) -> NextTurn {
        if !self.was_woken.get() && self.woken.get() > 0 {
            self.was_woken.set(true);
            self.woken.set(self.woken.get() - 1);
            return NextTurn::Woken;
        }
        self.was_woken.set(false);
        if !self.was_continued.get() && self.continued.get() > 0 {
            self.was_continued.set(true);
            self.continued.set(self.continued.get() - 1);
            return NextTurn::Continued;
        }
        self.was_continued.set(false);
        if self.spawned.get() > 0 {
            self.spawned.set(self.spawned.get() - 1);
            return NextTurn::Spawned;
        }
        self.is_any.set(self.woken.get() + self.continued.get() > 0);
        NextTurn::Any
    }

    /// Reports that no process could have this turn: thieves took the processes, or they ran
    /// before.
    #[inline]
    pub fn none_left(&self, turn: NextTurn) {
        match turn {
            NextTurn::Woken => self.woken.set(0),
            NextTurn::Continued => self.continued.set(0),
            NextTurn::Spawned => self.spawned.set(0),
            NextTurn::Any => {}
        }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::{FAIRNESS, Look, NextTurn, OwedTurns, Pace, READ_EVERY, SERVE_EVERY};

    /// The interval of a watchdog.
    const BEACON_EVERY: u64 = 2_500_000;

    /// A worker that dispatches steps, on a clock that only the steps move.
    #[derive(Default)]
    struct Worker {
        pace: Pace,
        now: u64,
        dispatches: u64,
        /// The number of reads of the clock.
        reads: u64,
        /// The time and the dispatch number of the last service.
        served: (u64, u64),
        /// The longest time, and the most dispatches, between two services.
        longest: (u64, u64),
    }

    impl Worker {
        /// Dispatches one step. The watchdog, if there is one, looks on time.
        fn step(&mut self, duration: u64, is_watched: bool) {
            let beacon = if is_watched { self.now / BEACON_EVERY } else { 0 };
            self.step_after(beacon, duration, is_watched);
        }

        fn step_after(&mut self, beacon: u64, duration: u64, is_watched: bool) {
            self.dispatches += 1;
            if self.pace.tick(beacon) {
                let Look { serves, now, .. } = self.pace.look(beacon, is_watched, || self.now);
                self.reads += u64::from(now.is_some());
                if serves {
                    let (time, dispatches) =
                        (self.now - self.served.0, self.dispatches - self.served.1);
                    self.longest = (self.longest.0.max(time), self.longest.1.max(dispatches));
                    self.served = (self.now, self.dispatches);
                }
            }
            self.now += duration;
        }

        fn longest_beside(&mut self, steps: impl IntoIterator<Item = u64>) -> (u64, u64) {
            self.longest = (0, 0);
            steps.into_iter().for_each(|duration| self.step(duration, true));
            self.longest
        }
    }

    #[test]
    fn steps_of_one_duration_are_served_within_a_millisecond_and_one_step() {
        for duration in [1, 20, 1_000, 4_000, 16_000, 100_000, 999_999, 1_000_000, 9_000_000] {
            let mut worker = Worker::default();
            let warm_up = 100 + BEACON_EVERY / duration;
            (0..warm_up).for_each(|_| worker.step(duration, true));
            let (time, dispatches) = worker.longest_beside((0..10_000).map(|_| duration));
            assert!(time <= SERVE_EVERY + READ_EVERY + duration, "{duration} ns: {time} ns");
            assert!(dispatches <= u64::from(FAIRNESS), "{duration} ns: {dispatches} dispatches");
        }
    }

    #[test]
    fn a_worker_that_stops_at_each_dispatch_looks_as_often() {
        let looks = |stops: bool| {
            let (pace, mut looks) = (Pace::default(), Vec::new());
            for now in 0..1000_u64 {
                let ticks = pace.tick(0);
                assert!(ticks || !stops, "dispatch {now}");
                if ticks && pace.is_due(0) {
                    looks.push((now, pace.look(0, true, || now).dispatches));
                }
                match (stops, now % 100 < 90) {
                    (true, true) => pace.stop_at_each(),
                    (true, false) => {
                        pace.stop_at_none();
                        pace.stop_at_each();
                    }
                    (false, _) => pace.stop_at_none(),
                }
            }
            looks
        };
        assert_eq!(looks(true), looks(false));
    }

    #[test]
    fn long_steps_are_noticed_after_one_look_of_the_watchdog() {
        for long in [100_000, 1_000_000, 9_000_000] {
            let mut worker = Worker::default();
            (0..1_000_000).for_each(|_| worker.step(20, true));
            let (time, _) = worker.longest_beside((0..1000).map(|_| long));
            assert!(time <= BEACON_EVERY + 2 * long, "{long} ns: {time} ns");
        }
    }

    #[test]
    fn long_steps_among_short_ones_are_served_behind() {
        for long in [1_000_000, 9_000_000] {
            for short in [1, 3, 10, 30, 100] {
                let mut worker = Worker::default();
                let steps = || {
                    (0..200 * (short + 1))
                        .map(move |n| if n % (short + 1) == 0 { long } else { 20 })
                };
                steps().for_each(|duration| worker.step(duration, true));
                let (time, _) = worker.longest_beside(steps());
                // Two steps, because one may begin just before the millisecond is over.
                assert!(
                    time <= BEACON_EVERY.max(SERVE_EVERY) + 2 * long,
                    "{short} beside {long} ns: {time} ns"
                );
            }
        }
    }

    #[test]
    fn short_steps_need_no_clock() {
        let mut worker = Worker::default();
        (0..10_000_000).for_each(|_| worker.step(20, true));
        // One for each look of the watchdog, and a few at first.
        assert!(
            worker.reads <= worker.now / BEACON_EVERY + 20,
            "{} reads in {} ns",
            worker.reads,
            worker.now
        );
    }

    #[test]
    fn without_a_watchdog_the_clock_is_read_more_often() {
        let mut worker = Worker::default();
        (0..1_000_000).for_each(|_| worker.step(20, false));
        worker.longest = (0, 0);
        (0..1000).for_each(|_| worker.step(1_000_000, false));
        assert!(worker.longest.0 <= 17 * 1_000_000, "{:?}", worker.longest);
        assert!(worker.longest.1 <= u64::from(FAIRNESS), "{:?}", worker.longest);
    }

    #[test]
    fn one_step_of_many_does_not_make_them_slow() {
        for every in [16, 37, 100] {
            let mut worker = Worker::default();
            for n in 0..10_000 {
                worker.step(if n % every == 0 { 100_000 } else { 0 }, true);
                assert!(!worker.pace.is_slow(), "step {n} of {every}");
            }
        }
    }

    #[test]
    fn time_in_which_a_worker_was_parked_is_no_step() {
        let mut worker = Worker::default();
        (0..1_000_000).for_each(|_| worker.step(20, true));
        worker.now += 1_000_000_000;
        worker.pace.resume();
        (0..100).for_each(|_| worker.step(20, true));
        assert!(!worker.pace.is_slow());
    }

    /// The watchdog does not help here: its first look may come later.
    #[test]
    fn long_steps_after_a_pause_are_noticed_at_once() {
        for long in [20_000, 100_000, 150_000, 1_000_000] {
            let mut worker = Worker::default();
            (0..1_000_000).for_each(|_| worker.step(20, true));
            let beacon = worker.now / BEACON_EVERY;
            worker.pace.resume();
            (worker.longest, worker.served) = ((0, 0), (worker.now, worker.dispatches));
            for _ in 0..1000 {
                worker.step_after(beacon, long, true);
            }
            assert!(
                worker.longest.0 <= SERVE_EVERY + READ_EVERY + 2 * long,
                "{long} ns: {:?}",
                worker.longest
            );
        }
    }

    #[test]
    fn turns_alternate_woken_first() {
        let owed = OwedTurns::default();
        owed.note(3, 2, 1);
        let turns: Vec<_> = (0..9).map(|_| owed.next()).collect();
        use NextTurn::{Any, Continued, Spawned, Woken};
        assert_eq!(turns, [Woken, Continued, Woken, Spawned, Woken, Continued, Any, Any, Any]);
        assert!(!owed.is_any());
    }

    #[test]
    fn a_turn_that_nobody_can_have_is_owed_no_longer() {
        let owed = OwedTurns::default();
        owed.note(3, 0, 0);
        let turn = owed.next();
        assert_eq!(turn, NextTurn::Woken);
        owed.none_left(turn);
        assert_eq!(owed.next(), NextTurn::Any);
        assert!(!owed.is_any());
    }
}
