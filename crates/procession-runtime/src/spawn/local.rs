//! Starts local processes, which are processes with futures that are not `Send`.

use std::future::Future;

use crate::mailbox::address::Address;
use crate::mailbox::context::Context;
use crate::process::local_body::LocalBody;
use crate::process::outcome::{AnyOutput, ByOutcome, Returns};
use crate::process::typed::{Nothing, TypedKind};
use crate::scheduler::spawn_error::SpawnError;
use crate::spawn::join_handle::{Child, JoinHandle};
use crate::spawn::options::SpawnOptions;

impl SpawnOptions {
    /// Starts a local process. See [`spawn_local`](crate::spawn_local()).
    #[track_caller]
    pub fn spawn_local<C, F>(self, make: C) -> JoinHandle<F::Output>
    where
        C: FnOnce() -> F + Send + 'static, // Makes the future there: `|| async { .. }`.
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn_local(make).unwrap_or_else(|_| JoinHandle::refused())
    }

    /// Starts a local process, and returns the closure if it is refused.
    ///
    /// # Errors
    /// See [`try_spawn`](Self::try_spawn).
    #[track_caller]
    pub fn try_spawn_local<C, F>(self, make: C) -> Result<JoinHandle<F::Output>, SpawnError<C>>
    where
        C: FnOnce() -> F + Send + 'static, // Makes the future there: `|| async { .. }`.
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let location = crate::scheduler::owner::caller();
        let kind = TypedKind::<Nothing>::local().erased();
        self.launch(kind, location, 0, make, |make, _| {
            Ok(Box::new(LocalBody::<_, _, AnyOutput>::new(make)))
        })
        .map(|(share, monitor)| JoinHandle::new(share, monitor))
    }

    /// Starts a local process with a mailbox. See [`start_local`](crate::start_local()).
    #[track_caller]
    pub fn start_local<M, C, F>(self, process: C) -> Child<M, F::Output>
    where
        M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
        C: FnOnce(Context<M>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
        fn() -> F::Output: Returns,
    {
        self.try_start_local(process).unwrap_or_else(|_| Child::refused())
    }

    /// Starts a local process with a mailbox, and returns the closure if it is refused.
    ///
    /// # Errors
    /// See [`try_spawn`](Self::try_spawn).
    #[track_caller]
    pub fn try_start_local<M, C, F>(self, process: C) -> Result<Child<M, F::Output>, SpawnError<C>>
    where
        M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
        C: FnOnce(Context<M>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
        fn() -> F::Output: Returns,
    {
        let location = crate::scheduler::owner::caller();
        let mut address = None;
        let kind = TypedKind::<M>::local_with_context();
        self.launch(kind.erased(), location, 2, process, |process, newborn| {
            address = Some(Address::new(kind.pin(newborn)));
            let context = Context::new(kind.pin(newborn));
            Ok(Box::new(LocalBody::<_, _, ByOutcome>::new(move || process(context))))
        })
        .map(|(share, monitor)| Child::new(address, share, monitor))
    }
}
