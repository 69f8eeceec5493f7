//! The methods of a [`Scheduler`] that start processes.

use std::future::Future;

use crate::mailbox::context::Context;
use crate::process::async_body::AsyncBody;
use crate::process::exit::{AnyOutput, Returns};
use crate::scheduler::owner::Scheduler;
use crate::spawn::join_handle::{Child, JoinHandle};
use crate::spawn::options::SpawnOptions;

impl Scheduler {
    /// Starts a process that runs `future` on this scheduler. See [`spawn`](crate::spawn()).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
    {
        let body = Box::new(AsyncBody::<F, AnyOutput>::Runs(future));
        SpawnOptions::new().on(self).spawn_body(body)
    }

    /// Starts a process with a mailbox on this scheduler. See [`start`](crate::start()).
    #[track_caller]
    pub fn start<M, F, P>(&self, process: F) -> Child<M, P::Output>
    where
        M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
        F: FnOnce(Context<M>) -> P + Send + 'static,
        P: Future + Send + 'static, // Not `Send`: `start_local`.
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        SpawnOptions::new().on(self).start(process)
    }
}
