//! What a pool runs: the way from a closure or an argument to a job.

use std::fmt;
use std::panic::resume_unwind;

use procession_protocols::pool::state::outcome::Ended;

use super::hooks::Hooks;
use super::job::{Caught, JobEnds, caught};
use crate::coroutine;
use crate::process::async_body::Settle;
use crate::scheduler::inherit::within::Within;

/// Runs user code like [`caught`], but lets the unwinding of a coroutine itself continue. If the
/// code ends itself by [`exit`](crate::exit()), only the job ends.
pub(super) fn catch<T>(user_code: impl FnOnce() -> T) -> Caught<T> {
    caught(user_code).map_err(|payload| {
        if coroutine::is_coroutine() && coroutine::is_unwound(&*payload) {
            resume_unwind(payload)
        }
        payload
    })
}

/// A closure or an argument, with the ends of the job. If it is dropped before it runs, the job is
/// cancelled.
pub struct Call<C, T> {
    pub(super) content: C,
    pub(super) ends: JobEnds<T>,
}

impl<C, T> Call<C, T> {
    pub(super) fn run(self, hooks: &Hooks, run: impl FnOnce(C) -> Caught<T>) -> Ended {
        let Self { content, ends: JobEnds { promise, outstanding, origin, inherited } } = self;
        let _place = origin.enter();
        let _within = Within::enter_any(inherited);
        let ended = hooks.ended(promise.settle(run(content)));
        drop(outstanding);
        ended
    }
}

/// A job, as its worker sees it.
pub(super) trait Runs: Send {
    fn run(self: Box<Self>, hooks: &Hooks) -> Ended;
}

impl<F, T> Runs for Call<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn run(self: Box<Self>, hooks: &Hooks) -> Ended {
        (*self).run(hooks, catch)
    }
}

/// A job of a pool that runs closures.
pub struct ClosureJob(pub(super) Box<dyn Runs>);

impl ClosureJob {
    pub(super) fn run(hooks: &Hooks, job: Self) -> Ended {
        job.0.run(hooks)
    }
}

/// Decides which pool runs what: how a job of type `J` is made from the `C` that a user submits to
/// a pool.
#[diagnostic::on_unimplemented(message = "this pool cannot run `{C}`")]
pub trait JobSource<J, C: Send>: Send + Sync {
    type Output: Send;
    /// The output that a job without a handle may have.
    type Discarded;
    /// The job, boxed before the pool is locked. It can still be taken apart. It is converted once
    /// it is certain to be taken, under the lock of the pool.
    type Boxed: Into<J> + Send;

    fn boxed(&self, content: C, ends: JobEnds<Self::Output>) -> Self::Boxed;

    fn content(boxed: Self::Boxed) -> C;
}

/// The source of jobs that own what they use.
#[derive(Clone, Copy, Debug)]
pub struct Owning;

impl<F, T> JobSource<ClosureJob, F> for Owning
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    type Output = T;
    type Discarded = T;
    type Boxed = Box<Call<F, T>>;

    fn boxed(&self, content: F, ends: JobEnds<T>) -> Self::Boxed {
        Box::new(Call { content, ends })
    }

    fn content(boxed: Self::Boxed) -> F {
        boxed.content
    }
}

impl<F, T> From<Box<Call<F, T>>> for ClosureJob
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    fn from(call: Box<Call<F, T>>) -> Self {
        Self(call)
    }
}

/// Implements `Debug` for types that users see only as parameters.
macro_rules! opaque {
    ($([$($generics:tt)*] $opaque:ty;)*) => {$(
        impl<$($generics)*> fmt::Debug for $opaque {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a job")
            }
        }
    )*};
}

#[cfg(feature = "pool")]
pub(super) use opaque;

opaque! {
    [] ClosureJob;
    [C, T] Call<C, T>;
    [T] JobEnds<T>;
}
