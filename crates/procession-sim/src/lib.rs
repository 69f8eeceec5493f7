//! Runs programs on Procession's scheduler, on a simulated operating system, from a seed.
//!
//! A test of a concurrent program may pass a thousand times and fail once, on a busy machine, and
//! nobody can reproduce the failure. [`check`] runs the program many times. Each run has another
//! order of events and other faults of the system, all drawn from a seed. A failure is shortened
//! and printed as a story, with a command line that replays it.
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
//! The scheduler is the shipped scheduler, with several workers, its watchdog and its bounds in
//! time. Everything below it is simulated: the clock, threads and their waits, the state of
//! threads, membarrier(2), and the network. This holds for every scheduler that is built in the
//! program, for `spawn_blocking` and for pools of threads.
//!
//! Threads take turns: one runs at a time. The turn may pass to another thread where a thread parks
//! or spins, between two steps of processes, and at both ends of a blocking section. Inside a step
//! nothing else runs, so code without an `await` is not interleaved.
//!
//! Time is virtual. It moves by a little at each step, and jumps when all threads wait. For
//! example, a program that sleeps for a week takes no longer than its steps.
//!
//! # Hosts
//! [`Sim::host`] adds a host, with its own program, scheduler, name and address. Sockets of TCP and
//! UDP connect the hosts over a network that is slow, cut, or resets connections. Programs
//! [crash](Sim::crash) and [restart](Sim::restart). The code of the sockets is the shipped code.
//!
//! # What is not
//! - Threads that the program starts with `std::thread`, and other runtimes. The simulation does
//!   not wait for what they do. [`thread`] and [`mpsc`] are simulated.
//! - `std::thread::sleep`, locks of `std` that are held over an `await`, and everything else that
//!   waits in the real system. [`Sim::block`] stands for such a wait. [`sync::Barrier`] is
//!   simulated.
//! - `std::time::Instant`. Use `procession::time::Instant`.
//! - Unix sockets and other descriptors, which belong to the real system. A socket of TCP or UDP is
//!   closed when it is dropped, even if its descriptor has duplicates.
//! - `HashMap` and `rand`, because they draw from the real system. A run that depends on them
//!   cannot be replayed. [`Check::run`] finds such a dependency, because it runs some seeds twice.
//!
//! # Laws
//! The simulator checks these laws in every program. At each moment at which all threads wait:
//! - no worker is parked while a process is ready that it could run;
//! - a thread wakes for each timer within 1 ms of virtual time;
//! - the watchdog does not sleep while a worker is awake;
//! - each process that is ready has one queue entry, and monitors have reported the ends.
//!
//! At these moments, and once in a millisecond of virtual time:
//! - everything that waits only for a worker gets a worker in time.
//!
//! At any moment:
//! - a process takes the accepted messages of a sender in the order in which they were sent. To
//!   check this, the simulator numbers each message in a header. Headers select a different path
//!   through the mailbox, so the check is active only if the seed of the scheduler is odd: in half
//!   of the runs, unless the program sets [`Builder::seed`](procession::scheduler::Builder::seed);
//! - the timer of a sleep does not fire before its deadline, and a monitor reports one end.
//!
//! And at the end of each run, when its scheduler and the schedulers of its hosts have shut down:
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
mod hosts;
mod marks;
#[cfg(procession_sim)]
mod memory;
pub mod mpsc;
mod net;
mod program;
mod seen;
mod shrink;
mod sim;
mod story;
pub mod sync;
mod tape;
pub mod thread;
mod time;
mod turn;

use std::future::Future;

#[cfg(procession_sim)]
pub use atomics::{Bound, Searched, Threads};
pub use campaign::Check;
pub use chance::Strategy;
#[cfg(procession_sim)]
pub use engine::buffers::OperationCounts;
pub use explore::Outcome;
pub use faults::{Fault, Faults};
#[cfg(procession_sim)]
pub use memory::Processor;
pub use sim::Sim;

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
/// Panics if the program fails with a seed. The message is the report.
pub fn check<F, P>(program: F)
where
    F: Fn(Sim) -> P + Send + Sync + 'static,
    P: Future<Output = ()> + 'static,
{
    Check::new().run(program);
}
