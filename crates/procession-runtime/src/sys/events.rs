//! Waiting in the kernel for descriptors. A *bell* wakes the waiting thread.

use std::io;
use std::time::Duration;

use procession_protocols::io::readiness::ReadyEvent;

use crate::sys::os::{self, CallFault, Os, WaitSource};
pub(crate) use crate::sys::system::events::{EventMask, Kernel};

impl Kernel {
    /// Waits for events for at most `timeout`, and adds some events to `events`. `None` waits
    /// without a limit. Events that have already happened are returned immediately. The wait may
    /// end early without events, because of the bell or a signal.
    pub(crate) fn wait(
        &self,
        timeout: Option<Duration>,
        events: &mut Vec<ReadyEvent>,
    ) -> io::Result<()> {
        match os::here() {
            Some(os) => self.poll_simulated(&*os, events),
            None => self.wait_in_kernel(timeout, events),
        }
    }

    /// Polls without waiting, on a thread of a simulated system, which draws what goes wrong. Such
    /// a thread waits in its system.
    #[cold]
    fn poll_simulated(&self, os: &dyn Os, events: &mut Vec<ReadyEvent>) -> io::Result<()> {
        if os.fault(CallFault::Interrupted, 2) != 0 {
            return Ok(());
        }
        let how = os.fault(CallFault::Events, 5);
        let first = events.len();
        // One event at a time: later calls return the remaining events.
        self.take(if how == 1 { 1 } else { usize::MAX }, events)?;
        match how {
            2 => events[first..].reverse(),
            // Each event is reported twice.
            3 => events.extend_from_within(first..),
            // The other direction is reported as well, although it may not be ready.
            4 => events[first..].iter_mut().for_each(|event| {
                (event.read, event.write) = (true, true);
            }),
            _ => {}
        }
        Ok(())
    }
}

impl WaitSource for Kernel {
    fn is_ready(&self) -> bool {
        self.has_events()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use procession_protocols::scheduler::seat_id::NEVER;
    use procession_sync::atomic::AtomicBool;
    use procession_sync::atomic::Ordering::Relaxed;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use crate::sys::system::bell::Bell;
    use crate::sys::{Parker, World};

    #[test]
    fn a_bell_rings_from_the_first_ring_until_it_is_silenced() {
        let bell = Bell::open().expect("the system has descriptors");
        let rings = || {
            let fds = &mut [PollFd::new(&bell, PollFlags::IN)];
            poll(fds, Some(&Timespec::default())) == Ok(1)
        };
        assert!(!rings());
        bell.silence();
        for count in [1, 2, 64, 65, 1000] {
            (0..count).for_each(|_| bell.ring());
            assert!(rings() && rings(), "{count} rings");
            bell.silence();
            assert!(!rings(), "{count} rings");
        }
    }

    /// Goal: a thread that polls in passing does not take a wake-up away. Method: one thread waits
    /// in the kernel and is woken while another one polls all the time.
    #[test]
    fn a_ring_reaches_the_waiting_thread_while_others_poll() {
        let world = World::current(Some(0));
        let kernel = Arc::new(world.open_kernel().expect("the system has descriptors"));
        let (parker, stop) = (Parker::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (told, tells) = mpsc::channel();
            scope.spawn(|| {
                let mut events = Vec::new();
                while !stop.load(Relaxed) {
                    world.park_in_kernel(&parker, &kernel, NEVER, &mut events);
                    // Ignored: the test is over.
                    let _ = told.send(());
                }
                drop(told);
            });
            scope.spawn(|| {
                let mut events = Vec::new();
                while !stop.load(Relaxed) {
                    kernel.wait(Some(Duration::ZERO), &mut events).expect("it is open");
                }
            });
            let mut lost = 0;
            for _ in 0..20_000 {
                parker.unpark();
                if tells.recv_timeout(Duration::from_secs(5)).is_err() {
                    lost += 1;
                    break;
                }
            }
            stop.store(true, Relaxed);
            // Both, for the wake-up that may have been lost.
            parker.unpark();
            kernel.ring();
            assert_eq!(lost, 0, "a ring was lost");
        });
    }
}
