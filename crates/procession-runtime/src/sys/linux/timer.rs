//! A timer with a descriptor (timerfd), so that a thread that waits for it does not wake when the
//! time moves.

use std::io;
use std::os::fd::OwnedFd;

use procession_protocols::scheduler::seat_id::NEVER;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

pub(crate) struct SystemTimer(OwnedFd);

impl SystemTimer {
    /// Opens a timer that is not set, if there is a descriptor.
    pub(crate) fn open() -> Option<Self> {
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
            .ok()
            .map(Self)
    }

    /// Starts the timer, or stops it if the time is `NEVER`. If the time has passed, the timer
    /// rings immediately.
    pub(crate) fn start(&self, when: u64) -> io::Result<()> {
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
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &time)?;
        Ok(())
    }

    /// Waits until the timer rings. It rings once.
    pub(crate) fn wait(&self) -> io::Result<()> {
        rustix::io::read(&self.0, &mut [0_u8; 8])?;
        Ok(())
    }
}
