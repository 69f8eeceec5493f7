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
//! | choose how many processes run at a time, and on which CPUs | [`Builder::worker_threads`], [`Builder::cpus`] |
//! | bound threads, processes and timers | [`Builder::max_threads`], [`Builder::max_processes`], [`Builder::max_timers`] |
//! | test without waiting, in an order that repeats | [`Builder::test_clock`], [`Builder::seed`] |
//! | learn of steps that block, and of processes that wait in a cycle | [`Builder::on_stall`], [`Builder::on_wait_cycle`] |
//! | run processes on the threads that call `block_on` | [`Builder::callers_drive`] |
//! | use coroutines | [`Builder::enable_coroutines`] |
//! | spawn from a thread that belongs to no scheduler | [`Scheduler::enter`](crate::Scheduler::enter) |
//! | end in order | [`Scheduler::shutdown`](crate::Scheduler::shutdown) |
//! | answer the health checks of a load balancer | [`Health`] |

#[doc(inline)]
pub use procession_runtime::Builder;
#[doc(inline)]
pub use procession_runtime::scheduler::{
    BlockOnError, BuildError, EnterGuard, Health, MisplacedCall, NotReady, OutOfRange,
};
