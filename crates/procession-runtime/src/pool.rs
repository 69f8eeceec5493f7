//! Pools of workers, and a pool of objects.
//!
//! A pool bounds how much work runs concurrently, keeps its workers for the next job, and lets them
//! go when there is no more work. If a job is refused, the error returns it, and every handle
//! resolves.
//!
//! ```
//! use procession::pool::{OnFull, Pool, Queue};
//!
//! let builder = Pool::builder().capacity(2).queue(Queue::Bounded(10));
//! let pool = builder.on_full(OnFull::Refuse).build()?;
//! let sum = pool.submit(|| (1..=1000_u64).sum::<u64>())?;
//! assert_eq!(sum.join()?, 500_500);
//!
//! pool.close();
//! let refused = pool.submit(|| "still mine").unwrap_err();
//! assert_eq!(refused.into_inner()(), "still mine");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`JobBuilder`] gives a job a priority, a key or a timeout:
//! `pool.job(f).priority(p).key(&k).submit()`.
//!
//! All kinds of pool are one type, [`Pool`], and are built by one [`Builder`]:
//!
//! | pool | its workers | its jobs | built by |
//! |---|---|---|---|
//! | [`Pool`] | threads | closures | [`build`] |
//! | [`AsyncPool`] | async processes | futures | [`build_async`] |
//! | [`CoPool`] | coroutines | closures that may wait | [`build_coroutines`] |
//! | [`FnPool`] | threads | arguments of one function | [`build_function`] |
//! | [`AsyncFnPool`] | async processes | arguments of one function | [`build_async_function`] |
//! | [`AsyncFnPool`] | coroutines | arguments of one function | [`build_coroutine_function`] |
//!
//! Several pools of one kind act as one if the builder says so ([`Builder::members`]).
//!
//! A pool starts a worker only for a job, unless the builder says otherwise
//! ([`Builder::prestart`]), and never more than its capacity. The worker that became idle last
//! takes the next job. So if jobs become few, the other workers stay idle, and end after
//! [`Builder::keep_alive`]. If all workers are busy, a job is queued or its submitter waits, as the
//! builder says ([`Queue`], [`OnFull`]).
//!
//! An [`ObjectPool`] is something else: it keeps objects that are expensive to make, to be used
//! again.
//!
//! [`build`]: Builder::build
//! [`build_async`]: Builder::build_async
//! [`build_coroutines`]: Builder::build_coroutines
//! [`build_function`]: Builder::build_function
//! [`build_async_function`]: Builder::build_async_function
//! [`build_coroutine_function`]: Builder::build_coroutine_function

#[cfg(feature = "pool")]
mod async_pool;
mod block;
mod builder;
#[cfg(feature = "pool")]
mod coroutines;
mod current;
mod engine;
mod error;
#[cfg(any(feature = "door", feature = "metrics"))]
mod figures;
#[cfg(feature = "pool")]
mod function;
mod hooks;
pub(crate) mod job;
mod job_handle;
mod members;
#[cfg(feature = "pool")]
mod object;
mod operations;
pub(crate) mod program;
mod reaper;
#[cfg(feature = "pool")]
#[expect(unsafe_code, reason = "a scope erases the lifetime of jobs that borrow")]
mod scope;
mod source;
mod submit;
mod threads;

#[cfg(feature = "pool")]
pub use self::async_pool::AsyncPool;
pub use self::builder::{Balance, Builder, OnFull, Queue, UNLIMITED};
#[cfg(feature = "pool")]
pub use self::coroutines::CoPool;
pub use self::error::{JobError, PoolError, SubmitError, WaitError};
#[cfg(feature = "pool")]
pub use self::function::{AsyncFnPool, FnPool};
pub use self::job_handle::JobHandle;
#[cfg(feature = "pool")]
pub use self::object::{ObjectPool, ObjectPoolBuilder, Pooled};
pub use self::operations::{Permit, Pool};
pub use self::program::spawn_blocking;
#[cfg(feature = "pool")]
pub use self::scope::Scope;
pub use self::submit::{AsyncCalls, BlockingCalls, Calls, JobBuilder};
#[doc(inline)]
pub use procession_protocols::pool::state::outcome::PoolStats;
#[doc(inline)]
pub use procession_protocols::process::priority::Priority;
