//! The options of a new process.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use procession_protocols::process::priority::Priority;

use crate::mailbox::address::Address;
use crate::mailbox::bounds::{Urgent, WhenFull};
use crate::mailbox::context::Context;
use crate::mailbox::dead_letter::KeptMailbox;
use crate::process::async_body::{AsyncBody, Deferred};
use crate::process::exit::{AnyOutput, ByOutcome, Judge, OnCancel, Returns};
use crate::process::reporting::Reporting;
use crate::process::slot::{Slot, SlotRef};
use crate::process::typed::{Nothing, TypedKind};
use crate::relations::names::{self, RegisterError, TableEntry};
use crate::scheduler::owner::Scheduler;
use crate::scheduler::shared::Shared;
use crate::scheduler::spawn_error::SpawnError;
use crate::spawn::join_handle::{Child, JoinHandle};

/// The options of a new process. See [`spawn`](crate::spawn()) for a process without options.
///
/// ```
/// use procession::mailbox::WhenFull;
/// use procession::{Context, SpawnOptions};
///
/// procession::run(async {
///     // A log that never makes its writers wait: if it is slow, it loses the oldest lines.
///     let log = SpawnOptions::new().label("log").mailbox(2, WhenFull::DropOldest).try_start(
///         |mut cx: Context<&str>| async move {
///             let mut lines = Vec::new();
///             while let Some(line) = cx.recv().await {
///                 lines.push(line);
///             }
///             lines
///         },
///     )?;
///     for line in ["one", "two", "three", "four"] {
///         log.send(line)?;
///     }
///     log.cancel();
///     assert!(log.await?.ends_with(&["four"]), "the latest line is never lost");
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct SpawnOptions {
    pub(super) scheduler: Option<Arc<Shared>>,
    /// Boxed, because few processes have any such option, and all spawns pass the pointer on
    /// (`step`: 5 % of the instructions of a spawn).
    pub(super) rest: Option<Box<Rest>>,
}

/// The options that few processes have.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pub(super) label: Option<Box<str>>,
    pub(super) affinity: Option<u32>,
    pub(super) priority: Priority,
    pub(super) mailbox: Option<(u32, WhenFull)>,
    pub(super) urgent: Option<Urgent>,
    pub(super) link: bool,
    pub(super) monitor: bool,
    pub(super) scoped: bool,
    pub(super) stack_bytes: Option<usize>,
    pub(super) supervised: bool,
    pub(super) known: Known,
    pub(super) is_expendable: bool,
    pub(super) kept: Option<Arc<KeptMailbox>>,
    pub(super) on_cancel: Option<OnCancel>,
    pub(super) reporting: Option<Reporting>,
    /// The reported place of the spawn, if it is not the caller's.
    pub(super) location: Option<&'static Location<'static>>,
    /// The running process, if the new process is to be related to it. Set when the options are
    /// checked.
    pub(super) own: Option<SlotRef>,
}

/// Where others find the process from its first moment on.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) name: Option<Arc<str>>,
    pub(super) entries: Vec<TableEntry>,
}

impl Known {
    /// Makes the process known, before it runs and before anybody else knows its PID.
    pub(super) fn announce(
        &mut self,
        shared: &Shared,
        newborn: &Slot,
    ) -> Result<(), RegisterError> {
        if let Some(name) = self.name.take() {
            names::register_in(shared, name, newborn.pid())?;
        }
        self.entries.iter().try_for_each(|entry| entry.make(newborn.pid()))
    }
}

impl SpawnOptions {
    /// Creates options without a label, for any worker. The scheduler is the scheduler of the
    /// calling process or thread, or else the default scheduler.
    pub fn new() -> Self {
        Self::default()
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    /// Sets the scheduler that the process belongs to.
    pub fn on(self, scheduler: &Scheduler) -> Self {
        self.on_shared(Arc::clone(scheduler.shared()))
    }

    pub(crate) fn on_shared(mut self, shared: Arc<Shared>) -> Self {
        self.scheduler = Some(shared);
        self
    }

    /// Sets a name for people, shown in snapshots and reports. It need not be unique, and no
    /// process can be found by it.
    pub fn label(mut self, label: impl Into<Box<str>>) -> Self {
        self.rest().label = Some(label.into());
        self
    }

    /// Binds the process to one worker, counted from 0. No other worker ever runs the process, even
    /// while its worker is busy or blocked.
    pub fn affinity(mut self, worker: u32) -> Self {
        self.rest().affinity = Some(worker);
        self
    }

    /// Sets whether the process runs before or behind others that are ready. Default:
    /// [`Priority::Normal`], whatever the priority of the process that spawns it. See
    /// [`process::set_priority`](crate::process::set_priority()) for a change while it runs.
    ///
    /// ```
    /// use procession::SpawnOptions;
    /// use procession::process::Priority;
    ///
    /// let sum = procession::run(async {
    ///     let report = SpawnOptions::new().priority(Priority::Batch).spawn(async {
    ///         let mut sum = 0_u64;
    ///         for number in 0..1000 {
    ///             sum += number;
    ///             // Others have their turns here.
    ///             procession::yield_now().await;
    ///         }
    ///         sum
    ///     });
    ///     report.await
    /// });
    /// assert_eq!(sum, Ok(499_500));
    /// ```
    pub fn priority(mut self, priority: Priority) -> Self {
        self.rest().priority = priority;
        self
    }

    /// Bounds the mailbox to `capacity` messages, at least 1. Default: unbounded.
    ///
    /// A message counts until the process receives it. A state machine receives all messages
    /// together, so for a state machine, messages count until its next step. Completions, signals
    /// and the process's own timers do not count, and are never refused.
    ///
    /// A process of [`spawn`](Self::spawn) has no mailbox, and is refused with this option.
    pub fn mailbox(mut self, capacity: u32, when_full: WhenFull) -> Self {
        self.rest().mailbox = Some((capacity, when_full));
        self
    }

    /// Lets the mailbox take urgent messages ([`Address::send_urgent`]), and the notices that are
    /// chosen here as urgent. The process receives all of these before ordinary messages and
    /// notices, also before messages that [`recv_matching`](Context::recv_matching) has left.
    ///
    /// A mailbox without this option takes none, and does not pay for them. A mailbox with it has a
    /// lock, as a [bounded](Self::mailbox) mailbox, also if it is unbounded.
    ///
    /// A state machine receives urgent messages first in each step. A
    /// [`Statem`](crate::behaviour::Statem) handles its postponed events before it receives
    /// anything. If a supervised child keeps its mailbox, the next process gets all messages as
    /// ordinary ones.
    pub fn urgent(mut self, urgent: Urgent) -> Self {
        self.rest().urgent = Some(urgent);
        self
    }

    /// Returns the capacity of the mailbox, if it is bounded.
    pub fn mailbox_capacity(&self) -> Option<u32> {
        Some(self.rest.as_ref()?.mailbox.as_ref()?.0)
    }

    /// Links the new process and the running process before the new process runs (`spawn_link` in
    /// Erlang). See [`link`](crate::relations::links::link()).
    pub fn link(mut self) -> Self {
        self.rest().link = true;
        self
    }

    /// Makes the running process monitor the new process before the new process runs
    /// (`spawn_monitor` in Erlang). [`JoinHandle::monitor_ref`] returns the reference. See
    /// [`Context::monitor`].
    pub fn monitor(mut self) -> Self {
        self.rest().monitor = true;
        self
    }

    /// Cancels the new process when the running process ends, with whatever exit. For example, the
    /// helpers of a request end with the request. See [`OnCancel`] for the effect.
    pub fn scoped(mut self) -> Self {
        self.rest().scoped = true;
        self
    }

    /// Registers the process under a name before it runs. See
    /// [`register`](crate::relations::names::register()).
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.rest().known.name = Some(name.into());
        self
    }

    /// Enters the process into a registry ([`Registry::entry`](crate::group::Registry::entry)) or a
    /// group ([`Groups::entry`](crate::group::Groups::entry)) before it runs, so that the process
    /// is there as soon as anybody can know it. It can be called several times.
    ///
    /// If the key of a unique registry is taken, the process is refused, as if a
    /// [name](Self::name) were taken:
    /// [`SpawnCause::register_error`](crate::scheduler::SpawnCause::register_error) has the key and
    /// the process that owns it.
    pub fn enter(mut self, entry: TableEntry) -> Self {
        self.rest().known.entries.push(entry);
        self
    }

    /// Sets the effect of a cancel. Default: [`OnCancel::Drop`] for [`spawn`](Self::spawn), and
    /// [`OnCancel::Ask`] for all processes with a context.
    ///
    /// A [shutdown](Scheduler::shutdown) counts a process that it drops
    /// ([`Unfinished::dropped`](crate::snapshot::Unfinished::dropped)), unless you have chosen
    /// `OnCancel::Drop` for the process.
    ///
    /// ```
    /// use procession::process::{OnCancel, cancelled};
    /// use procession::{Exit, SpawnOptions, spawn};
    ///
    /// procession::run(async {
    ///     let dropped = spawn(std::future::pending::<()>());
    ///     dropped.cancel();
    ///     assert_eq!(dropped.await, Err(Exit::Shutdown));
    ///
    ///     let asked = SpawnOptions::new().on_cancel(OnCancel::Ask).spawn(async {
    ///         cancelled().await;
    ///         "cleaned up"
    ///     });
    ///     asked.cancel();
    ///     assert_eq!(asked.await, Ok("cleaned up"));
    /// });
    /// ```
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.rest().on_cancel = Some(on_cancel);
        self
    }

    /// Sets which failures of the process are worth a [report](crate::report::Reporting), and at
    /// which level. Default: as the scheduler has it
    /// ([`Builder::reporting`](crate::Builder::reporting)).
    pub fn reporting(mut self, reporting: Reporting) -> Self {
        self.rest().reporting = Some(reporting);
        self
    }

    /// Makes the running process stop the new process when the scheduler shuts down.
    pub(crate) fn supervised(mut self) -> Self {
        self.rest().supervised = true;
        self
    }

    /// Declares that nothing is lost if a shutdown ends the new process, so that the shutdown does
    /// not report it ([`Unfinished`](crate::snapshot::Unfinished)).
    #[doc(hidden)]
    pub fn expendable(mut self) -> Self {
        self.rest().is_expendable = true;
        self
    }

    /// Keeps the messages that the process leaves, and delivers to the process the messages that an
    /// earlier process has left there.
    pub(crate) fn keeping(mut self, kept: Arc<KeptMailbox>) -> Self {
        self.rest().kept = Some(kept);
        self
    }

    /// Replaces the place of the spawn.
    #[doc(hidden)]
    pub fn called_at(mut self, location: &'static Location<'static>) -> Self {
        self.rest().location = Some(location);
        self
    }

    /// Starts a process that runs `future`. See [`spawn`](crate::spawn()).
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
    {
        self.spawn_body::<F, AnyOutput>(Box::new(AsyncBody::Runs(future)))
    }

    /// Starts a process that runs `future`, and returns the future if it is refused.
    ///
    /// # Errors
    /// Returns [`SpawnError`] if the scheduler is at its limit or shutting down, or if there is no
    /// worker with the given number.
    #[track_caller]
    pub fn try_spawn<F>(self, future: F) -> Result<JoinHandle<F::Output>, SpawnError<F>>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
    {
        let location = crate::scheduler::owner::caller();
        self.launch_body::<F, AnyOutput>(location, Box::new(AsyncBody::Runs(future)))
            .map_err(unboxed)
    }

    /// Starts a process that runs `future`, like [`spawn`](Self::spawn), and fails if its output
    /// says so.
    ///
    /// The output is an [`Outcome`](crate::Outcome), most often a `Result`. If it is an `Err`, the
    /// process ends with [`Exit::Failed`](crate::Exit::Failed) and the text of the error. Links and
    /// monitors receive that exit. The handle returns the output itself.
    ///
    /// ```
    /// use procession::{Context, Exit, SpawnOptions, start};
    ///
    /// async fn read(path: &str) -> std::io::Result<String> {
    ///     std::fs::read_to_string(path)
    /// }
    ///
    /// procession::run(async {
    ///     let watcher = start(|mut cx: Context<()>| async move {
    ///         let reader = SpawnOptions::new().monitor().spawn_fallible(read("/no/such/file"));
    ///         let monitor = reader.monitor_ref().expect("it was asked for");
    ///         let exit = cx.down(monitor).await.map(|down| down.exit);
    ///         assert!(reader.await?.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound));
    ///         Ok::<_, Exit>(exit)
    ///     });
    ///     let exit = watcher.await??;
    ///     assert_eq!(exit, Some(Exit::failed("No such file or directory (os error 2)")));
    ///     Ok::<(), Exit>(())
    /// })?;
    /// # Ok::<(), procession::Exit>(())
    /// ```
    ///
    /// If the scheduler refuses the process, the future is dropped, and the handle returns
    /// [`Exit::Refused`](crate::Exit::Refused). [`try_start`](Self::try_start) returns a closure
    /// that ignores its context, and fails by its output, too.
    #[track_caller]
    pub fn spawn_fallible<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
        fn() -> F::Output: Returns,
    {
        self.spawn_body::<F, ByOutcome>(Box::new(AsyncBody::Runs(future)))
    }

    /// Starts an async process. Takes the body in its box, and not the future: see [`AsyncBody`].
    #[inline]
    #[track_caller]
    pub(crate) fn spawn_body<F, J>(self, body: Box<AsyncBody<F, J>>) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
        J: Judge<F::Output> + 'static,
    {
        let location = crate::scheduler::owner::caller();
        self.launch_body(location, body).unwrap_or_else(|_| JoinHandle::refused())
    }

    /// Starts an async process, and returns its body if it is refused.
    #[inline]
    fn launch_body<F, J>(
        self,
        location: &'static Location<'static>,
        body: Box<AsyncBody<F, J>>,
    ) -> Result<JoinHandle<F::Output>, RefusedBody<F, J>>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
        J: Judge<F::Output> + 'static,
    {
        let kind = TypedKind::<Nothing>::plain().erased();
        self.launch(kind, location, 0, body, |body, _| Ok(body))
            .map(|(share, monitor)| JoinHandle::new(share, monitor))
    }

    /// Starts a process with a mailbox. See [`start`](crate::start()).
    #[track_caller]
    pub fn start<M, F, P>(self, process: F) -> Child<M, P::Output>
    where
        M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
        F: FnOnce(Context<M>) -> P + Send + 'static,
        P: Future + Send + 'static, // Not `Send`: `start_local`.
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        self.try_start(process).unwrap_or_else(|_| Child::refused())
    }

    /// Starts a process with a mailbox, and returns the closure if it is refused.
    ///
    /// # Errors
    /// See [`try_spawn`](Self::try_spawn).
    #[track_caller]
    pub fn try_start<M, F, P>(self, process: F) -> Result<Child<M, P::Output>, SpawnError<F>>
    where
        M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
        F: FnOnce(Context<M>) -> P + Send + 'static,
        P: Future + Send + 'static, // Not `Send`: `start_local`.
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        let location = crate::scheduler::owner::caller();
        self.launch_with_mailbox(location, process, |context, process| process(context))
    }

    /// Starts a process with a mailbox from a value. If the process is refused, the error returns
    /// the value.
    pub(crate) fn launch_with_mailbox<M, V, F, P>(
        self,
        location: &'static Location<'static>,
        value: V,
        process: F,
    ) -> Result<Child<M, P::Output>, SpawnError<V>>
    where
        M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
        V: Send + 'static,
        F: FnOnce(Context<M>, V) -> P + Send + 'static,
        P: Future + Send + 'static, // Not `Send`: `start_local`.
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        let kind = TypedKind::<M>::with_context();
        let mut address = None;
        self.launch(kind.erased(), location, 2, value, |value, newborn| {
            address = Some(Address::new(kind.pin(newborn)));
            let context = Context::new(kind.pin(newborn));
            // The closure runs in the first step, so its panic ends the process and not the caller.
            let future = Deferred::new(move || process(context, value));
            Ok(Box::new(AsyncBody::<_, ByOutcome>::Runs(future)))
        })
        .map(|(share, monitor)| Child::new(address, share, monitor))
    }

    /// Sets the minimum size of the stack of a coroutine. Default: the size set by the scheduler's
    /// builder.
    ///
    /// If the system never has a stack of this size, the coroutine ends with
    /// [`Exit::Failed`](crate::Exit::Failed) before it begins. If no stack is free at present, the
    /// coroutine waits. Other processes have no stacks, and are refused with this option.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.rest().stack_bytes = Some(bytes);
        self
    }

    /// Returns the size that [`stack_size`](Self::stack_size) has set.
    pub(crate) fn chosen_stack_size(&self) -> Option<usize> {
        self.rest.as_ref()?.stack_bytes
    }
}

type RefusedBody<F, J> = SpawnError<Box<AsyncBody<F, J>>>;

/// Returns the future of a body that is refused.
fn unboxed<F: Future, J>(error: RefusedBody<F, J>) -> SpawnError<F> {
    error.map(|body| body.into_future().expect("a body that is refused has not run"))
}
