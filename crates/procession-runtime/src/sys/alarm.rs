//! An alarm: the time until which one thread waits. Other threads may change the time during the
//! wait.
//!
//! On the real clock it is a timer with a descriptor (timerfd), so that the thread does not wake
//! when its time moves. Without a descriptor, and in a simulated system, the thread wakes for each
//! earlier time, and waits again.

use std::fmt;
use std::os::fd::OwnedFd;

use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::sys::{Parker, World, os};

pub(crate) struct Alarm {
    timer: Option<OwnedFd>,
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
            None if is_used => {
                rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).ok()
            }
            _ => None,
        };
        Self { timer, at: AtomicU64::new(NEVER), parker: Parker::default() }
    }

    /// Moves the time. The caller lets no other thread do so concurrently.
    pub(crate) fn set(&self, when: u64) {
        // Relaxed: a waiting thread that sees an older time is woken by what follows, and looks
        // again.
        let before = self.at.swap(when, Relaxed);
        if self.timer.as_ref().is_some_and(|timer| start(timer, when).is_ok()) {
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
            // The read fails if other code of the program has closed this descriptor by mistake.
            let rings = match &self.timer {
                Some(timer) => rustix::io::read(timer, &mut [0_u8; 8]).map(drop),
                None => Err(Errno::BADF),
            };
            match rings {
                // The timer rings once. If the time has moved, it will ring again for the new time.
                Ok(()) if self.at.load(Relaxed) == at => return,
                Ok(()) | Err(Errno::INTR) => {}
                Err(_) => world.park(&self.parker, at),
            }
        }
    }
}

/// Starts a timer, or stops it if the time is `NEVER`. If the time has passed, the timer rings
/// immediately.
fn start(timer: &OwnedFd, when: u64) -> rustix::io::Result<()> {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let at = match when {
        NEVER => never,
        // Zero would stop it.
        when => Timespec {
            tv_sec: (when / 1_000_000_000) as i64,
            tv_nsec: (when % 1_000_000_000).max(u64::from(when == 0)) as i64,
        },
    };
    let time = Itimerspec { it_interval: never, it_value: at };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &time).map(drop)
}

#[cfg(test)]
mod tests {
    use procession_protocols::scheduler::seat_id::NEVER;

    use super::Alarm;
    use crate::sys::World;

    const SECOND: u64 = 1_000_000_000;

    fn both() -> [Alarm; 2] {
        let (with, without) = (Alarm::new(true), Alarm::new(false));
        assert!(with.timer.is_some(), "the system has descriptors");
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
    #[test]
    fn a_timer_that_rings_early_is_not_waited_for_again() {
        let world = World::real(Some(0));
        let [alarm, _] = both();
        alarm.set(world.now() + 1000 * SECOND);
        super::start(alarm.timer.as_ref().expect("it has one"), 1).expect("it is a timer");
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
