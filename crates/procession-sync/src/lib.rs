//! The synchronization primitives on which Procession's crates are built.
//!
//! All crates of the project name their atomics, cells, locks and threads through this crate.
//! Normally these are std's. Under the private cfg `procession_loom` they are
//! [loom](https://docs.rs/loom)'s, so the models explore exactly the code that ships. The private
//! feature `__loom` brings loom itself: a dependency of the cfg alone would be in the lock file of
//! every dependent.
//!
//! ```
//! use procession_sync::atomic::{AtomicU32, Ordering};
//! let n = AtomicU32::new(1);
//! assert_eq!(n.fetch_add(1, Ordering::Relaxed), 1);
//! ```
//!
//! The cfg has a name of the project, because the usual `loom` would also switch on models inside
//! dependencies. The code tests for it directly and never as `all(test, ..)`. While the models of a
//! dependent crate are built, `cfg(test)` is off for this crate, so such a test would leave std's
//! primitives in place and make every model vacuous. The canaries in the model files detect that.
//!
//! Under the private cfg `procession_sim`, the types come from the module `simulated`, and each
//! operation is a place where a simulation of the whole scheduler can let another thread run. On
//! threads outside of a simulation, the types behave as std's. The simulation itself uses [`host`].
//!
//! This crate is mostly aliases, with almost no logic. [`cell::UnsafeCell`] wraps std's cell in the
//! interface of loom's. [`Mutex`], [`RwLock`] and [`Condvar`] know no poison. [`lock_with_backoff`]
//! is a plain lock under loom, and `explore` runs a model.
#![forbid(unsafe_code)]

#[cfg(all(procession_loom, not(feature = "__loom")))]
compile_error!(
    "models need the private feature `procession-sync/__loom` beside the cfg: run `.ci/run models`"
);

/// The example in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Atomic types, their orderings and `fence`.
pub mod atomic {
    #[cfg(procession_sim)]
    use crate::simulated::atomic as home;
    #[cfg(procession_loom)]
    use loom::sync::atomic as home;
    #[cfg(not(any(procession_loom, procession_sim)))]
    use std::sync::atomic as home;

    #[cfg(not(procession_loom))]
    pub use std::sync::atomic::compiler_fence;

    pub use home::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    // Loom's is std's.
    pub use std::sync::atomic::Ordering;
}

/// A cell that lets models watch every access.
pub mod cell {
    #[cfg(procession_loom)]
    pub use loom::cell::UnsafeCell;

    #[cfg(procession_sim)]
    pub use crate::simulated::cell::UnsafeCell;

    #[cfg(not(any(procession_loom, procession_sim)))]
    mod plain;
    #[cfg(not(any(procession_loom, procession_sim)))]
    pub use plain::UnsafeCell;
}

/// The hint of a spinning thread to the processor, and to loom.
pub mod hint {
    #[cfg(procession_sim)]
    pub use crate::simulated::spin_loop;
    #[cfg(procession_loom)]
    pub use loom::hint::spin_loop;
    #[cfg(not(any(procession_loom, procession_sim)))]
    pub use std::hint::spin_loop;
}

/// Threads.
pub mod thread {
    #[cfg(procession_sim)]
    pub use crate::simulated::yield_now;
    #[cfg(procession_loom)]
    pub use loom::thread::{
        Builder, JoinHandle, Thread, ThreadId, current, park, spawn, yield_now,
    };
    pub use std::thread::panicking;
    #[cfg(not(any(procession_loom, procession_sim)))]
    pub use std::thread::yield_now;
    #[cfg(not(procession_loom))]
    pub use std::thread::{
        Builder, JoinHandle, Thread, ThreadId, current, park, park_timeout, spawn,
    };
}

/// Std's primitives, even in builds where others take their place. A simulation itself uses them,
/// because it must not simulate itself.
#[cfg(not(procession_loom))]
pub mod host {
    pub use crate::mutex::{Condvar, Mutex};
    pub use std::sync::MutexGuard;

    /// Atomic types and their orderings.
    pub mod atomic {
        pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    }
}

/// What the primitives of this build ask, and what asks them.
#[cfg(procession_sim)]
pub mod simulated;

#[cfg(not(any(procession_loom, procession_sim)))]
mod backoff;
#[cfg(not(any(procession_loom, procession_sim)))]
pub use backoff::lock_with_backoff;

/// Locks a mutex. Models and simulations do not need to explore the times at which a waiting thread
/// looks at the lock.
#[cfg(any(procession_loom, procession_sim))]
#[track_caller]
pub fn lock_with_backoff<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

mod mutex;
#[cfg(not(procession_sim))]
pub use mutex::{Condvar, Mutex};
#[cfg(procession_sim)]
pub use simulated::mutex::{Condvar, Mutex, MutexGuard};

mod rw_lock;
pub use rw_lock::RwLock;

#[cfg(procession_loom)]
pub use loom::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
/// The guard of a locked [`Mutex`].
#[cfg(not(any(procession_loom, procession_sim)))]
pub use std::sync::MutexGuard;
/// Shared ownership, and the guards of a locked [`RwLock`].
#[cfg(not(procession_loom))]
pub use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

/// Declares thread-local values.
#[cfg(procession_loom)]
pub use loom::thread_local;
/// Declares thread-local values.
#[cfg(not(procession_loom))]
pub use std::thread_local;

/// Runs a model in every interleaving with at most `LOOM_MAX_PREEMPTIONS` preemptions. The default
/// is two.
#[cfg(procession_loom)]
pub fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_to(2, model);
}

/// Runs a model like [`explore`], with another default for `LOOM_MAX_PREEMPTIONS`.
#[cfg(procession_loom)]
pub fn explore_to(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    builder.check(model);
}
