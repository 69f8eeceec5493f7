//! Pools that give work back and shrink.
//!
//! A [`Pool`] runs closures on threads of its own, as many as its capacity allows and no more than there is work for. What it does
//! when it is full is a choice ([`Queue`], [`OnFull`]); what it refuses comes back.

mod async_pool;
mod block;
mod builder;
mod coroutines;
mod current;
mod engine;
mod error;
mod function;
mod hooks;
mod job;
mod job_handle;
mod lifecycle;
mod multi;
mod object;
mod operations;
mod processes;
mod reaper;
#[expect(unsafe_code, reason = "a scope waits for what borrows from it")]
mod scope;
pub(crate) mod state;
mod stats;
mod submit;
mod thread_pool;
mod threads;

pub use self::async_pool::AsyncPool;
pub use self::builder::{Builder, OnFull, Queue, UNLIMITED};
pub use self::coroutines::CoPool;
pub use self::error::{JobError, PoolError, SubmitError, WaitError};
pub use self::function::{AsyncFnPool, FnPool};
pub use self::job_handle::JobHandle;
pub use self::multi::{Balance, MultiPool};
pub use self::object::{ObjectPool, ObjectPoolBuilder, Pooled};
pub use self::operations::{Permit, Reserve};
pub use self::scope::{Scope, ScopedHandle};
pub use self::stats::PoolStats;
pub use self::thread_pool::{Pool, spawn_blocking};
