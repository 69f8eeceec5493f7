//! The synchronisation primitives that Procession's crates are built on.
//!
//! Every atomic, cell, lock and thread of the project is named through this crate. Normally the names are
//! std's. Under the private cfg `procession_loom` they are [loom](https://docs.rs/loom)'s, and the models then
//! explore the very code that ships. The cfg has its own name so that turning it on does not switch on models
//! inside dependencies. It is tested plainly, never as `all(test, ..)`: this is a crate of its own, for which
//! `cfg(test)` is off while a dependent's models are built, and a shim that is off makes every model vacuous.
//! The canaries of the model files guard against just that.
//!
//! There is hardly any logic here: aliases, the one-field [`cell::UnsafeCell`] that gives std's cell the interface
//! of loom's, [`lock_with_backoff`], which under loom is a plain lock, and
//! `explore`, which runs a model.
//!
//! ```
//! use procession_sync::atomic::{AtomicU32, Ordering};
//! let n = AtomicU32::new(1);
//! assert_eq!(n.fetch_add(1, Ordering::Relaxed), 1);
//! ```
#![forbid(unsafe_code)]

/// Atomic types, their orderings and `fence`.
pub mod atomic {
    #[cfg(procession_loom)]
    use loom::sync::atomic as home;
    #[cfg(not(procession_loom))]
    use std::sync::atomic as home;

    #[cfg(not(procession_loom))]
    pub use std::sync::atomic::compiler_fence;

    pub use home::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

/// A cell whose accesses models can watch.
pub mod cell {
    #[cfg(procession_loom)]
    pub use loom::cell::UnsafeCell;

    #[cfg(not(procession_loom))]
    mod plain;
    #[cfg(not(procession_loom))]
    pub use plain::UnsafeCell;
}

/// What a spinning thread tells the processor (and loom).
pub mod hint {
    #[cfg(procession_loom)]
    pub use loom::hint::spin_loop;
    #[cfg(not(procession_loom))]
    pub use std::hint::spin_loop;
}

/// Threads.
pub mod thread {
    #[cfg(procession_loom)]
    pub use loom::thread::{Builder, JoinHandle, Thread, ThreadId, current, park, spawn, yield_now};
    pub use std::thread::panicking;
    #[cfg(not(procession_loom))]
    pub use std::thread::{Builder, JoinHandle, Thread, ThreadId, current, park, park_timeout, spawn, yield_now};
}

#[cfg(not(procession_loom))]
mod backoff;
#[cfg(not(procession_loom))]
pub use backoff::lock_with_backoff;

/// Locks a mutex: when to look for it is no matter of a model.
///
/// # Errors
/// As of [`Mutex::lock`].
#[cfg(procession_loom)]
pub fn lock_with_backoff<T>(mutex: &Mutex<T>) -> std::sync::LockResult<MutexGuard<'_, T>> {
    mutex.lock()
}

#[cfg(procession_loom)]
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
/// Shared ownership and locks.
#[cfg(not(procession_loom))]
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Runs a model in every interleaving, with at most two preemptions, or as many as `LOOM_MAX_PREEMPTIONS` says.
#[cfg(procession_loom)]
pub fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_to(2, model);
}

/// As [`explore`], with at most so many preemptions if `LOOM_MAX_PREEMPTIONS` does not say.
#[cfg(procession_loom)]
pub fn explore_to(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    builder.check(model);
}
