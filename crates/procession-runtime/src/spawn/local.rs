//! Starts local processes, which are processes with futures that are not `Send`.

use std::future::Future;

use crate::mailbox::address::Address;
use crate::mailbox::context::Context;
use crate::process::exit::{AnyOutput, ByOutcome, Returns};
use crate::process::local_body::LocalBody;
use crate::process::typed::{Nothing, TypedKind};
use crate::scheduler::spawn_error::SpawnError;
use crate::spawn::join_handle::{Child, JoinHandle};
use crate::spawn::options::SpawnOptions;

impl SpawnOptions {
    /// Starts a local process. The future of a local process need not be `Send`: it may hold an
    /// `Rc`, a `RefCell` guard, or a handle of a library that must stay on its thread.
    ///
    /// `make` is `Send`, and makes the future. It is called in the first step of the process, on
    /// the worker where the process begins. From then on the process stays on that worker's thread:
    /// its future is polled and dropped there, however the process ends. The output is `Send`,
    /// because the handle may be awaited on another thread. Everything else is as for
    /// [`spawn`](Self::spawn). Prefer `spawn`, because it is cheaper and any worker can continue
    /// its processes.
    ///
    /// ```
    /// use std::cell::RefCell;
    /// use std::rc::Rc;
    ///
    /// procession::run(async {
    ///     let handle = procession::SpawnOptions::new().spawn_local(|| async {
    ///         let lines = Rc::new(RefCell::new(Vec::new()));
    ///         let other = Rc::clone(&lines);
    ///         let write = async move {
    ///             other.borrow_mut().push("first");
    ///             procession::yield_now().await;
    ///             other.borrow_mut().push("second");
    ///         };
    ///         write.await;
    ///         lines.take().join(", ")
    ///     });
    ///     assert_eq!(handle.await, Ok("first, second".to_owned()));
    /// });
    /// ```
    ///
    /// `make` itself is `Send`, and so is the output:
    ///
    /// ```compile_fail,E0277
    /// let local = std::rc::Rc::new(1);
    /// drop(procession::SpawnOptions::new().spawn_local(move || async move { *local }));
    /// ```
    ///
    /// ```compile_fail,E0277
    /// drop(procession::SpawnOptions::new().spawn_local(|| async { std::rc::Rc::new(1) }));
    /// ```
    ///
    /// # Where it runs
    /// A local process is placed like a [coroutine](crate::coroutine):
    ///
    /// - If it was not run yet, any worker may take it. A worker that has many more local processes
    ///   than another sends new processes to that worker. With an [affinity](Self::affinity),
    ///   the process begins on the chosen worker.
    /// - If its worker blocks or computes, it waits, even if another worker takes the permit.
    /// - If its worker has nothing else to do, and its thread would retire, the thread stays until
    ///   the process has ended.
    /// - If the workers become [fewer](crate::Scheduler::set_worker_threads), its worker takes
    ///   turns with other workers.
    /// - If it is cancelled or terminated, or the scheduler shuts down, its future is dropped on
    ///   its thread.
    /// - If its thread [drives](crate::Builder::callers_drive) the scheduler, no other thread
    ///   drives the scheduler while the process lives. When the thread ends, it drops the future,
    ///   and the process ends with [`Exit::ThreadEnded`](crate::Exit::ThreadEnded). The main thread
    ///   does not drop the future, because it ends with the program.
    ///
    /// If the scheduler refuses the process, `make` is dropped, and the handle returns
    /// [`Exit::Refused`](crate::Exit::Refused). [`try_start_local`](Self::try_start_local) returns
    /// a closure that ignores its context.
    #[track_caller]
    pub fn spawn_local<C, F>(self, make: C) -> JoinHandle<F::Output>
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
        .map_or_else(|_| JoinHandle::refused(), |(share, monitor)| JoinHandle::new(share, monitor))
    }

    /// Starts a local process with a mailbox: `process` is `Send`, and the future that it makes
    /// need not be. See [`spawn_local`](Self::spawn_local) for where it runs, and
    /// [`start`](Self::start) for everything else.
    ///
    /// ```
    /// use std::rc::Rc;
    /// use std::time::Duration;
    /// use procession::{Context, Reply, SpawnOptions};
    ///
    /// procession::run(async {
    ///     let options = SpawnOptions::new();
    ///     let cache = options.start_local(|mut cx: Context<(u32, Reply<usize>)>| async move {
    ///         let mut seen = vec![Rc::new(0)];
    ///         while let Some((number, reply)) = cx.recv().await {
    ///             seen.push(Rc::new(number));
    ///             reply.send(seen.len());
    ///         }
    ///     });
    ///     let length = cache.call(|reply| (7, reply), Duration::from_secs(9)).await?;
    ///     assert_eq!(length, 2);
    ///     Ok::<(), procession::CallError<_>>(())
    /// })?;
    /// # Ok::<(), procession::CallError<_>>(())
    /// ```
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
