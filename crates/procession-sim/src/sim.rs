//! The simulation, as the program in it sees it.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::Pid;
use procession::scheduler::Builder;
use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::Ordering::Relaxed;

use crate::engine::{Engine, Held};
use crate::seen::Seen;
use crate::story::{Kind, place};
use crate::time::nanoseconds;

/// Changes the builder of the program's scheduler.
pub(crate) type Configure = dyn Fn(Builder) -> Builder + Send + Sync;

/// The simulation, as the program in it sees it. Clones are the same simulation.
#[derive(Clone)]
pub struct Sim {
    pub(crate) engine: Arc<Engine>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) configure: Arc<Configure>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}

impl Sim {
    /// Chooses a number of the range. The shrinker prefers low numbers.
    ///
    /// # Panics
    /// Panics if the range is empty, or longer than `u32::MAX`.
    pub fn choose(&self, range: Range<u64>) -> u64 {
        let length = range.end.checked_sub(range.start).filter(|&length| length > 0);
        let length = length.expect("cannot choose: the range is empty");
        let length = u32::try_from(length).expect("cannot choose: the range is too long");
        let chosen = range.start + u64::from(self.engine.choose(length));
        if chosen != range.start {
            self.engine.note(|| format!("the program chooses {chosen} of {range:?}"));
        }
        chosen
    }

    /// Starts a process, like [`procession::spawn`].
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> procession::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        procession::spawn(future)
    }

    /// Ends a process between two of its steps. Returns `true` if the process exists.
    pub fn kill(&self, pid: Pid) -> bool {
        let killed = procession::sim::terminate(pid);
        if killed {
            self.engine.note(|| format!("the program kills {}", procession::sim::name(pid)));
        }
        killed
    }

    /// Lets the next step of a process panic before it begins. If the process waits, it is woken
    /// for that. Returns `true` if the process exists.
    ///
    /// This panic is not a failure of the run, because the program has asked for it. No panic hook
    /// is called.
    pub fn panic(&self, pid: Pid) -> bool {
        self.engine.let_panic(pid);
        let exists = procession::sim::wake(pid);
        if exists {
            self.engine.note(|| format!("the program lets {} panic", procession::sim::name(pid)));
        }
        exists
    }

    /// Blocks the calling thread for some virtual time, like a call that waits in the system. The
    /// scheduler does not see this wait, unless it is in a blocking section.
    pub fn block(&self, duration: Duration) {
        self.engine.hold(nanoseconds(duration), Held::Blocks);
    }

    /// Keeps the processor of the calling thread busy for some virtual time.
    pub fn compute(&self, duration: Duration) {
        self.engine.hold(nanoseconds(duration), Held::Computes);
    }

    /// Ends the faults, for good: threads that are preempted continue, cuts of the network are
    /// mended, and from now on the system does everything in time. After this call, a program can
    /// check what it promises in the absence of faults. Hosts that do not run stay so. The machine
    /// also stays the same: with `CoarseClock` or `NoMembarrier`, its clock has the same step, and
    /// it has no membarrier(2).
    pub fn heal(&self) {
        self.engine.set_faults(false);
        self.engine.note(|| "the faults end".to_owned());
    }

    /// Waits until nothing can happen unless time passes: all processes wait, and no thread is
    /// about to run.
    pub async fn settle(&self) {
        let flag = Arc::new(AtomicBool::new(false));
        poll_fn(|task| {
            // Relaxed: only one virtual thread runs at a time.
            if flag.load(Relaxed) {
                return Poll::Ready(());
            }
            self.engine.settle(Arc::clone(&flag), task.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Fails the run unless the law holds.
    #[track_caller]
    pub fn always(&self, law: &str, holds: bool) {
        if !holds {
            let place = place(Location::caller());
            self.engine.fail_by_program(Kind::Always(place), law.to_owned());
        }
    }

    /// Notes whether something happens that the program should meet in some runs. The check fails
    /// if it never happens although no run fails, because the program then does not test what it is
    /// to test. [`expect_sometimes`](crate::Check::expect_sometimes) adds events that no run asks
    /// about.
    pub fn sometimes(&self, event: &str, happens: bool) {
        self.seen.note(event, happens);
    }

    /// Adds a line to the story of a failure.
    pub fn note(&self, text: impl fmt::Display) {
        self.engine.note(|| text.to_string());
    }
}
