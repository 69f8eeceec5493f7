//! An alarm: the time until which one thread waits. Other threads may change the time during the
//! wait.
//!
//! On the real clock it is a timer of the system, if the system has such timers, so that the thread
//! does not wake when its time moves. Without a timer, and in a simulated system, the thread wakes
//! for each earlier time, and waits again.

use std::fmt;
use std::io::ErrorKind;

use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::sys::system::timer::SystemTimer;
use crate::sys::{Parker, World, os};

pub(crate) struct Alarm {
    timer: Option<SystemTimer>,
    /// The time. Written by one thread at a time, which the caller sees to.
    at: AtomicU64,
    parker: Parker,
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").finish_non_exhaustive()
    }
}

impl Alarm {
    /// Creates an alarm that is not set. If it will be used, takes a descriptor, if there is one.
    pub(crate) fn new(is_used: bool) -> Self {
        let timer = match os::here() {
            None if is_used => SystemTimer::open(),
            _ => None,
        };
        Self { timer, at: AtomicU64::new(NEVER), parker: Parker::default() }
    }

    /// Moves the time. The caller lets no other thread do so concurrently.
    pub(crate) fn set(&self, when: u64) {
        // Relaxed: a waiting thread that sees an older time is woken by what follows, and looks
        // again.
        let before = self.at.swap(when, Relaxed);
        if self.timer.as_ref().is_some_and(|timer| timer.start(when).is_ok()) {
            return;
        }
        if when < before {
            self.parker.unpark();
        }
    }

    /// Returns `true` if it rings only after `when`.
    #[cfg(feature = "sim")]
    pub(crate) fn is_after(&self, when: u64) -> bool {
        self.at.load(Relaxed) > when
    }

    /// Waits until the time is reached, or until the timer rings. The clock of the timer may be
    /// ahead.
    pub(crate) fn wait(&self, world: &World) {
        loop {
            // Relaxed: as in `set`.
            let at = self.at.load(Relaxed);
            if at != NEVER && world.now() >= at {
                return;
            }
            // The wait fails if other code of the program has closed this descriptor by mistake.
            match self.timer.as_ref().map(SystemTimer::wait) {
                // The timer rings once. If the time has moved, it will ring again for the new time.
                Some(Ok(())) if self.at.load(Relaxed) == at => return,
                Some(Ok(())) => {}
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Some(Err(_)) | None => world.park(&self.parker, at),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use procession_protocols::scheduler::seat_id::NEVER;

    use super::Alarm;
    use crate::sys::World;

    const SECOND: u64 = 1_000_000_000;

    fn both() -> [Alarm; 2] {
        let (with, without) = (Alarm::new(true), Alarm::new(false));
        let has_timers = cfg!(all(target_os = "linux", not(procession_portable)));
        assert_eq!(with.timer.is_some(), has_timers, "the system has descriptors");
        [with, without]
    }

    #[test]
    fn a_time_that_has_passed_comes_at_once() {
        let world = World::real(Some(0));
        for alarm in both() {
            for when in [0, 1, SECOND, world.now()] {
                alarm.set(when);
                alarm.wait(&world);
            }
        }
    }

    /// A sandbox may emulate the timer with another clock than the clock that threads read.
    #[cfg(all(target_os = "linux", not(procession_portable)))]
    #[test]
    fn a_timer_that_rings_early_is_not_waited_for_again() {
        let world = World::real(Some(0));
        let [alarm, _] = both();
        alarm.set(world.now() + 1000 * SECOND);
        alarm.timer.as_ref().expect("it has one").start(1).expect("it is a timer");
        alarm.wait(&world);
    }

    #[test]
    fn the_time_of_a_waiting_thread_moves() {
        let world = World::real(Some(0));
        for alarm in both() {
            for (first, then) in [(NEVER, 0), (world.now() + 1000 * SECOND, 0), (0, 0)] {
                alarm.set(first);
                std::thread::scope(|scope| {
                    scope.spawn(|| alarm.wait(&world));
                    alarm.set(then);
                });
            }
            // Put off, it does not come at the earlier time.
            let soon = world.now() + 20_000_000;
            alarm.set(soon);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    alarm.wait(&world);
                    world.now()
                });
                alarm.set(soon + 30_000_000);
                let was_in_time = world.now() < soon;
                let came = waits.join().expect("it does not panic");
                assert!(!was_in_time || came >= soon + 30_000_000, "{came} {soon}");
            });
        }
    }
}
