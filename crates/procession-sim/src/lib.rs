//! Runs programs on Procession's scheduler, on a simulated operating system, from a seed.
//!
//! A test of a concurrent program passes a thousand times and fails once, on a busy machine, and
//! the failure cannot be had again. [`check`] runs the program many times, each time with another
//! order of events and other faults of the system, all drawn from a seed. A failure is made short
//! and printed as a story, with a line that replays it.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
//!
//! # let found = std::panic::catch_unwind(|| {
//! procession_sim::check(|sim| async move {
//!     let account = Arc::new(AtomicU32::new(0));
//!     let deposits: Vec<_> = (0..2)
//!         .map(|_| {
//!             let account = Arc::clone(&account);
//!             procession::spawn(async move {
//!                 let balance = account.load(Relaxed);
//!                 procession::yield_now().await;
//!                 account.store(balance + 1, Relaxed);
//!             })
//!         })
//!         .collect();
//!     for deposit in deposits {
//!         deposit.await.unwrap();
//!     }
//!     sim.always("no deposit is lost", account.load(Relaxed) == 2);
//! });
//! # });
//! # let report = *found.unwrap_err().downcast::<String>().unwrap();
//! # assert!(report.contains("no deposit is lost"), "{report}");
//! ```
//!
//! This fails with a report that begins like this:
//!
//! ```text
//! seed 0 failed: no deposit is lost (src/lib.rs:26), after 1.2 ms of virtual time
//! ```
//!
//! # What is simulated
//! The scheduler is the one that ships, with several workers, its watchdog and its bounds in time.
//! What lies below it is simulated: the clock, threads and their waits, the state of threads,
//! membarrier(2), and the network. This holds for every scheduler that is built in the program, for
//! `spawn_blocking` and for pools of threads.
//!
//! Threads take turns: one runs at a time. Another one may run where a thread parks or spins,
//! between two steps of processes, and at both ends of a blocking section. Inside a step nothing
//! else runs, so code without an `await` is not interleaved.
//!
//! Time is virtual. It moves by a little at each step, and jumps when all threads wait. A program
//! that sleeps for a week takes no longer than its steps.
//!
//! # Hosts
//! [`Sim::host`] adds a host, with a program, a scheduler, a name and an address of its own.
//! Sockets of TCP and UDP connect the hosts over a network that is slow, cut, or resets
//! connections. Programs [crash](Sim::crash) and [restart](Sim::restart). The code of the sockets
//! is the one that ships.
//!
//! # What is not
//! - Threads that the program starts with `std::thread`, and runtimes beside this one. The
//!   simulation does not wait for what they do. [`thread`] and [`mpsc`] are simulated.
//! - `std::thread::sleep`, locks of `std` that are held over an `await`, and everything else that
//!   waits in the real system. [`Sim::block`] stands for such a wait. [`sync::Barrier`] is
//!   simulated.
//! - `std::time::Instant`. Use `procession::time::Instant`.
//! - Unix sockets and other descriptors, which are those of the real system.
//! - `HashMap` and `rand` draw from the real system, so a run that depends on them cannot be
//!   replayed. [`Check::run`] finds that: it runs some seeds twice.
//!
//! # Laws
//! These are checked without being asked. At each moment at which all threads wait:
//! - no worker is parked while a process is ready that it could run;
//! - a thread wakes for each timer within 1 ms of virtual time;
//! - the watchdog does not sleep while a worker is awake;
//! - each process that is ready has one queue entry, and monitors have told of ends.
//!
//! At these moments, and once in a millisecond of virtual time:
//! - what waits for a worker, and for nothing else, has one in time.
//!
//! At any moment:
//! - a process takes the accepted messages of a sender in the order in which they were sent. This
//!   is looked at if the seed of its scheduler is odd: in half of the runs, unless the program sets
//!   [`Builder::seed`](procession::Builder::seed);
//! - the timer of a sleep has not fired before its deadline, and a monitor tells of one end.
//!
//! And at the end of each run, when its scheduler and those of its hosts have shut down:
//! - every process has ended, and no queue or timer holds anything.
#![forbid(unsafe_code)]

mod again;
#[cfg(procession_sim)]
mod atomics;
mod campaign;
mod chance;
mod engine;
mod explore;
mod faults;
mod marks;
#[cfg(procession_sim)]
mod memory;
pub mod mpsc;
mod net;
mod program;
mod shrink;
mod story;
pub mod sync;
mod tape;
pub mod thread;
mod turn;

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::Pid;
use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::Ordering::Relaxed;

use engine::{Engine, Held};
use program::{Configure, Seen};
use story::Kind;

#[cfg(procession_sim)]
pub use atomics::{Bound, Searched, Threads};
pub use campaign::{Check, Outcome};
pub use chance::Strategy;
#[cfg(procession_sim)]
pub use engine::OperationCounts;
pub use faults::{Fault, Faults};

/// The example in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples in the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/SIMULATION.md")]
struct Guide;

/// Runs a program with 100 seeds. This is [`Check::run`] with the defaults.
///
/// # Panics
/// If the program fails with a seed. The message is the report.
pub fn check<F, P>(program: F)
where
    F: Fn(Sim) -> P + Send + Sync + 'static,
    P: Future<Output = ()> + 'static,
{
    Check::new().run(program);
}

/// The simulation, as the program in it sees it. Clones are the same simulation.
#[derive(Clone)]
pub struct Sim {
    engine: Arc<Engine>,
    seen: Arc<Seen>,
    configure: Arc<Configure>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}

impl Sim {
    /// Chooses a number of the range. The shrinker prefers low ones.
    ///
    /// # Panics
    /// If the range is empty, or longer than `u32::MAX`.
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
    /// This panic is not a failure of the run, since the program has asked for it. No panic hook is
    /// called.
    pub fn panic(&self, pid: Pid) -> bool {
        self.engine.let_panic(pid);
        let exists = procession::sim::wake(pid);
        if exists {
            self.engine.note(|| format!("the program lets {} panic", procession::sim::name(pid)));
        }
        exists
    }

    /// Blocks the calling thread for some virtual time, like a call that waits in the system. The
    /// scheduler does not know of it, unless this is in a blocking section.
    pub fn block(&self, duration: Duration) {
        self.engine.hold(nanoseconds(duration), Held::Blocks);
    }

    /// Keeps the processor of the calling thread busy for some virtual time.
    pub fn compute(&self, duration: Duration) {
        self.engine.hold(nanoseconds(duration), Held::Computes);
    }

    /// Ends the faults, for good: threads that are preempted go on, cuts of the network are mended,
    /// and from now on the system does what is asked of it in time. What the program promises in
    /// the absence of faults can be asked for after this. Hosts that do not run stay so. The
    /// machine stays the same one, too: with `CoarseClock` or `NoMembarrier`, its clock has the
    /// same step, and it has no membarrier(2).
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
    /// if it never happens although no run fails: the program does not test what it is to test.
    /// [`Check::expect_sometimes`] adds those that no run asks about.
    pub fn sometimes(&self, event: &str, happens: bool) {
        self.seen.note(event, happens);
    }

    /// Adds a line to the story of a failure.
    pub fn note(&self, text: impl fmt::Display) {
        self.engine.note(|| text.to_string());
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn place(location: &Location<'_>) -> String {
    format!("{}:{}", location.file(), location.line())
}
