//! The settings of a scheduler, its health, and the errors of both.
//!
//! A [`Scheduler`](crate::Scheduler) itself is in the root of the crate. Most programs need only
//! the default scheduler, which starts when it is first used. To choose settings, build a
//! scheduler:
//!
//! ```
//! use std::time::Duration;
//! use procession::Scheduler;
//!
//! let scheduler = Scheduler::builder()
//!     .name("bank")
//!     .worker_threads(2)
//!     .max_processes(1_000_000)
//!     .on_stall(|stall| eprintln!("a long step: {stall:?}"))
//!     .build()?;
//! let sum = scheduler.block_on(async { procession::spawn(async { 1 + 1 }).await });
//! assert_eq!(sum, Ok(2));
//! let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(1)));
//! assert!(unfinished.is_empty());
//! # Ok::<(), procession::scheduler::BuildError>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | choose the number of workers, and their CPUs | [`worker_threads`], [`cpus`] |
//! | bound threads, processes and timers | [`max_threads`], [`max_processes`], [`max_timers`] |
//! | test without waiting, in an order that repeats | [`Builder::test_clock`], [`Builder::seed`] |
//! | learn of steps that block, and of cycles of waits | [`on_stall`], [`on_wait_cycle`] |
//! | run processes on the threads that call `block_on` | [`Builder::callers_drive`] |
//! | use coroutines | [`Builder::enable_coroutines`] |
//! | spawn from a plain thread | [`Scheduler::enter`](crate::Scheduler::enter) |
//! | end in order | [`Scheduler::shutdown`](crate::Scheduler::shutdown) |
//! | answer the health checks of a load balancer | [`Health`] |
//!
//! [`worker_threads`]: Builder::worker_threads
//! [`cpus`]: Builder::cpus
//! [`on_stall`]: Builder::on_stall
//! [`on_wait_cycle`]: Builder::on_wait_cycle
//! [`max_threads`]: Builder::max_threads
//! [`max_processes`]: Builder::max_processes
//! [`max_timers`]: Builder::max_timers

#[doc(inline)]
pub use procession_runtime::Builder;
#[doc(inline)]
pub use procession_runtime::scheduler::{
    BlockOnError, BuildError, EnterGuard, Health, MisplacedCall, NotReady, OutOfRange,
};
