//! The options of a new process, and the steps that start it.

use std::future::Future;
use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::Arc;

use crate::Exit;
use crate::coroutine::body::{CoBody, Placement};
use crate::machine::init_error::InitError;
use crate::machine::process::{MachineBody, Process};
use crate::mailbox::address::Address;
use crate::mailbox::bounds::WhenFull;
use crate::mailbox::context::Context;
use crate::mailbox::deliver::take_over;
use crate::mailbox::kept::KeptMailbox;
use crate::mailbox::request;
use crate::process::async_body::AsyncBody;
use crate::process::body::Body;
use crate::process::handling::Handling;
use crate::process::life::{Birth, HandleShare, Newborn};
use crate::process::on_cancel::OnCancel;
use crate::process::outcome::{AnyOutput, ByOutcome, Judge, Returns};
use crate::process::reporting::Reporting;
use crate::process::slot::{Extra, Kind, Slot, SlotRef};
use crate::process::typed::{COROUTINE, Nothing, TypedKind, TypedNewborn};
use crate::relations::links;
use crate::relations::names::RegisterError;
use crate::relations::signal::MonitorRef;
use crate::relations::table_entry::TableEntry;
use crate::scheduler::current::{self, Hold};
use crate::scheduler::owner::Scheduler;
use crate::scheduler::shared::Shared;
use crate::scheduler::spawn_error::{SpawnError, SpawnErrorKind};
use crate::spawn::join_handle::{Child, JoinHandle};
use crate::spawn::known::Known;
use crate::spawn::reservation::{Reservation, queue};

/// The options of a new process. See [`spawn`](crate::spawn()) for a process without options.
#[derive(Debug, Default)]
#[must_use]
pub struct SpawnOptions {
    scheduler: Option<Arc<Shared>>,
    /// Boxed, since few processes have any of them, and all spawns pass the pointer on (`step`: 5 %
    /// of the instructions of a spawn).
    rest: Option<Box<Rest>>,
}

/// The options that few processes have.
#[derive(Debug, Default)]
struct Rest {
    label: Option<Box<str>>,
    affinity: Option<u32>,
    mailbox: Option<(u32, WhenFull)>,
    link: bool,
    monitor: bool,
    scoped: bool,
    stack_bytes: Option<usize>,
    supervised: bool,
    known: Known,
    is_expendable: bool,
    kept: Option<Arc<KeptMailbox>>,
    on_cancel: Option<OnCancel>,
    reporting: Option<Reporting>,
    /// The reported place of the spawn, if it is not the caller's.
    location: Option<&'static Location<'static>>,
}

impl SpawnOptions {
    /// Creates options without a label, for any worker. The scheduler is that of the calling
    /// process or thread, or else the default one.
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

    /// Sets a name for people, shown in snapshots and reports. It need not be unique.
    pub fn label(mut self, label: impl Into<Box<str>>) -> Self {
        self.rest().label = Some(label.into());
        self
    }

    /// Binds the process to one worker, counted from 0. No other worker ever runs it, even if that
    /// one is busy or blocked.
    pub fn affinity(mut self, worker: u32) -> Self {
        self.rest().affinity = Some(worker);
        self
    }

    /// Bounds the mailbox to `capacity` messages, at least 1. Default: unbounded.
    ///
    /// A message counts until the process receives it. A state machine receives all messages at
    /// once, so for it they count until its next step. Completions, signals and the process's own
    /// timers do not count, and are never refused.
    pub fn mailbox(mut self, capacity: u32, when_full: WhenFull) -> Self {
        self.rest().mailbox = Some((capacity, when_full));
        self
    }

    /// Returns the capacity of the mailbox, if it is bounded.
    pub fn mailbox_capacity(&self) -> Option<u32> {
        Some(self.rest.as_ref()?.mailbox.as_ref()?.0)
    }

    /// Links the new process and the running one before the new one runs (`spawn_link` in Erlang).
    /// See [`link`](crate::relations::links::link()).
    pub fn link(mut self) -> Self {
        self.rest().link = true;
        self
    }

    /// Makes the running process monitor the new one before that runs (`spawn_monitor` in Erlang).
    /// [`JoinHandle::monitor_ref`] returns the reference. See [`Context::monitor`].
    pub fn monitor(mut self) -> Self {
        self.rest().monitor = true;
        self
    }

    /// Cancels the new process when the running one ends, whatever the exit. See [`OnCancel`] for
    /// the effect.
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
    /// group ([`Groups::entry`](crate::group::Groups::entry)) before it runs, so that whoever knows
    /// of the process also finds it there. It can be called several times.
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
    /// ```
    /// use procession::{Exit, OnCancel, SpawnOptions, cancelled, spawn};
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

    /// Sets what of the failures of the process is worth a [report](crate::report), and at which
    /// level. Default: that of the scheduler ([`Builder::reporting`](crate::Builder::reporting)).
    pub fn reporting(mut self, reporting: Reporting) -> Self {
        self.rest().reporting = Some(reporting);
        self
    }

    /// Makes the running process stop the new one when the scheduler shuts down.
    pub(crate) fn supervised(mut self) -> Self {
        self.rest().supervised = true;
        self
    }

    /// Makes the end of the new process by a shutdown no loss of that shutdown
    /// ([`Unfinished`](crate::snapshot::Unfinished)).
    pub(crate) fn expendable(mut self) -> Self {
        self.rest().is_expendable = true;
        self
    }

    /// Keeps the messages that the process leaves, and gives it what an earlier process has left
    /// there.
    pub(crate) fn keeping(mut self, kept: Arc<KeptMailbox>) -> Self {
        self.rest().kept = Some(kept);
        self
    }

    pub(crate) fn called_at(mut self, location: &'static Location<'static>) -> Self {
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
    /// worker of the number given.
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

    /// Starts a process that runs `future`, and fails if its output says so. See
    /// [`spawn_fallible`](crate::spawn_fallible()).
    #[track_caller]
    pub fn spawn_fallible<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
        fn() -> F::Output: Returns,
    {
        self.spawn_body::<F, ByOutcome>(Box::new(AsyncBody::Runs(future)))
    }

    /// Starts a process like [`spawn_fallible`](Self::spawn_fallible), and returns the future if it
    /// is refused.
    ///
    /// # Errors
    /// See [`try_spawn`](Self::try_spawn).
    #[track_caller]
    pub fn try_spawn_fallible<F>(self, future: F) -> Result<JoinHandle<F::Output>, SpawnError<F>>
    where
        F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
        F::Output: Send + 'static,
        fn() -> F::Output: Returns,
    {
        let location = crate::scheduler::owner::caller();
        self.launch_body::<F, ByOutcome>(location, Box::new(AsyncBody::Runs(future)))
            .map_err(unboxed)
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
        self.launch(TypedKind::<Nothing>::plain(), location, 0, body, |body, _| Ok(body))
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

    /// Starts a process with a mailbox from a value, which comes back if the process is refused.
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
        let mut address = None;
        self.launch(TypedKind::<M>::with_context(), location, 2, value, |value, newborn| {
            address = Some(Address::new(newborn.pin()));
            let context = Context::new(newborn.pin());
            // The closure runs in the first step, so its panic ends the process and not the caller.
            let future = async move { process(context, value).await };
            Ok(Box::new(AsyncBody::<_, ByOutcome>::Runs(future)))
        })
        .map(|(share, monitor)| Child::new(address, share, monitor))
    }

    /// Starts a state machine. See [`spawn_machine`](crate::machine::spawn_machine).
    ///
    /// # Errors
    /// Returns [`SpawnError`] as [`try_spawn`](Self::try_spawn) does, or if `init` refuses.
    #[track_caller]
    pub fn spawn_machine<P: Process>(
        self,
        process: P,
        method: &str,
        input: P::Input,
    ) -> Result<Child<P::Message, P::Output>, SpawnError<P>> {
        let location = crate::scheduler::owner::caller();
        let mut address = None;
        self.launch(TypedKind::<P::Message>::machine(), location, 1, process, |process, newborn| {
            address = Some(Address::new(newborn.pin()));
            MachineBody::init(process, method, input).map(|body| body as Box<dyn Body>)
        })
        .map(|(share, monitor)| Child::new(address, share, monitor))
    }

    /// Sets the minimum size of the stack of a coroutine. Default: the size set by the scheduler's
    /// builder.
    ///
    /// If the system never has a stack of this size, the coroutine ends with
    /// [`Exit::Failed`](crate::Exit::Failed) before it begins. If none is free at present, the
    /// coroutine waits. The size has no effect on other processes.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.rest().stack_bytes = Some(bytes);
        self
    }

    /// Starts a coroutine. See [`spawn_coroutine`](crate::coroutine::spawn_coroutine()).
    ///
    /// # Errors
    /// [`SpawnError`] returns the function if coroutines are not enabled, the scheduler is at its
    /// limit or shutting down, or there is no worker of the number given.
    #[track_caller]
    pub fn spawn_coroutine<M, F, T>(self, function: F) -> Result<Child<M, T>, SpawnError<F>>
    where
        M: Send + 'static,
        F: FnOnce(crate::coroutine::context::Context<M>) -> T + Send + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        let location = crate::scheduler::owner::caller();
        self.launch_coroutine(location, function, |cx, function| function(cx), Placement::PINNED)
    }

    /// Starts a coroutine from a value, which comes back if the coroutine is refused.
    pub(crate) fn launch_coroutine<M, V, F, T>(
        self,
        location: &'static Location<'static>,
        value: V,
        function: F,
        placement: Placement,
    ) -> Result<Child<M, T>, SpawnError<V>>
    where
        M: Send + 'static,
        V: Send + 'static,
        F: FnOnce(crate::coroutine::context::Context<M>, V) -> T + Send + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        let bytes = self.rest.as_ref().and_then(|rest| rest.stack_bytes);
        let mut address = None;
        self.launch(TypedKind::<M>::coroutine(), location, 2, value, |value, newborn| {
            address = Some(Address::new(newborn.pin()));
            let context = crate::coroutine::context::Context::new(Context::new(newborn.pin()));
            let bytes = bytes.unwrap_or(newborn.shared().coroutines.stack_bytes);
            Ok(Box::new(CoBody::new(move || function(context, value), bytes, placement)))
        })
        .map(|(share, monitor)| Child::new(address, share, monitor))
    }

    /// Puts a process into a slot, and queues it. `pins` is the number of pins that its address and
    /// its context take. `body` can hand out that many at no cost.
    ///
    /// A program has an instance of this for each place that starts a process. So all that does not
    /// depend on the types is in [`begin`](Self::begin) and [`Unqueued`].
    pub(super) fn launch<M: Send + 'static, T>(
        self,
        kind: TypedKind<M>,
        location: &'static Location<'static>,
        pins: u32,
        content: T,
        body: impl FnOnce(T, &mut TypedNewborn<'_, M>) -> Result<Box<dyn Body>, (T, InitError)>,
    ) -> Result<(HandleShare, Option<MonitorRef>), SpawnError<T>> {
        let shared = self.hold();
        // Stopped before the process is counted. Otherwise the test clock could move on while a
        // thread waits for the process to end.
        let _stopped = shared.stop_clock();
        let mut unqueued = match self.begin(&shared, kind.erased(), location, pins) {
            Ok(unqueued) => unqueued,
            Err(kind) => return Err(SpawnError::new(content, kind)),
        };
        match body(content, &mut kind.newborn(&mut unqueued.newborn)) {
            Ok(body) => Ok(unqueued.finish(body)),
            Err((refused, error)) => Err(SpawnError::new(refused, unqueued.refuse(error))),
        }
    }

    #[inline]
    fn hold(&self) -> Hold {
        match &self.scheduler {
            Some(scheduler) => Hold::Shared(Arc::clone(scheduler)),
            None => crate::scheduler::owner::here(),
        }
    }

    /// Puts a process without a body into a slot.
    // Inlined in optimised builds, like `Unqueued::finish` and what both call: a spawn then takes
    // 892 instructions, and 980 if they are calls. Other builds compile faster without.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn begin<'a>(
        self,
        shared: &'a Hold,
        mut kind: &'static Kind,
        location: &'static Location<'static>,
        pins: u32,
    ) -> Result<Unqueued<'a>, SpawnErrorKind> {
        let parent = current::parent_in(shared);
        let reservation = Reservation::take(shared, parent.is_some());
        if reservation.is_closing() {
            return Err(SpawnErrorKind::Closing);
        }
        if kind.name == COROUTINE && shared.coroutines.stacks.is_none() {
            return Err(SpawnErrorKind::NoCoroutines);
        }
        let mut rest = match self.rest {
            Some(rest) => Some(rest.prepare(kind, shared)?),
            None => None,
        };
        if let Some(on_cancel) = rest.as_ref().and_then(|rest| rest.on_cancel) {
            kind = kind.with_on_cancel(on_cancel);
        }
        let mut extra = rest.as_mut().and_then(|rest| rest.extra.take());
        if shared.processes.has_request_ids {
            extra = Some(inherit_request(extra));
        }
        #[cfg(feature = "sim")]
        if shared.world.numbering().is_some() {
            extra.get_or_insert_default().headed = true;
        }
        let location = rest.as_ref().and_then(|rest| rest.location).unwrap_or(location);
        let newborn = reservation.occupy(Birth { kind, location, parent, extra }, pins)?;
        if let Some(rest) = rest.as_mut()
            && let Err(error) = rest.introduce(shared, &newborn)
        {
            end_refused(shared, &newborn, &Exit::Refused);
            return Err(SpawnErrorKind::Name(error));
        }
        Ok(Unqueued { newborn, inside: parent.is_some(), rest, shared })
    }
}

type RefusedBody<F, J> = SpawnError<Box<AsyncBody<F, J>>>;

/// Returns the future of a body that is refused.
fn unboxed<F: Future, J>(error: RefusedBody<F, J>) -> SpawnError<F> {
    error.map(|body| body.into_future().expect("a body that is refused has not run"))
}

/// A process that is in its slot, and has no body yet.
struct Unqueued<'a> {
    newborn: Newborn,
    /// A process of the same scheduler starts it.
    inside: bool,
    rest: Option<Box<Prepared>>,
    shared: &'a Hold,
}

impl Unqueued<'_> {
    /// Queues the process.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn finish(self, body: Box<dyn Body>) -> (HandleShare, Option<MonitorRef>) {
        let Self { newborn, inside, rest, shared } = self;
        newborn.set_body_bytes(size_of_val(&*body));
        #[cfg(feature = "tracing")]
        let body = crate::process::span::traced(&newborn, body);
        let (share, ready) = newborn.install(body);
        let monitor = rest.and_then(|rest| rest.relate(share.slot()));
        queue(shared, ready, inside);
        (share, monitor)
    }

    /// Ends the process, which could not be initialised.
    #[cold]
    fn refuse(self, error: InitError) -> SpawnErrorKind {
        end_refused(self.shared, &self.newborn, &error.exit());
        SpawnErrorKind::Init(error)
    }
}

/// Lets a new process receive messages with headers, and work for the request of its spawner.
#[cold]
fn inherit_request(extra: Option<Box<Extra>>) -> Box<Extra> {
    let mut extra = extra.unwrap_or_default();
    extra.headed = true;
    if let Some(request) = request::current() {
        let handling = Handling { request: Some(request), ..Handling::default() };
        extra.handling = procession_sync::Mutex::new(Some(Box::new(handling)));
    }
    extra
}

/// Ends a process that does not run after all. Others may have found it by its name or PID, sent to
/// it and monitored it. For them it ends like any other process.
#[cold]
fn end_refused(shared: &Shared, newborn: &Newborn, exit: &Exit) {
    current::count(shared, |stats| &stats.discarded, newborn.close_mailbox().into());
    newborn.refuse();
    if links::complete(newborn).is_related() {
        links::settle(newborn, exit);
    }
    shared.count_refused();
}

/// The options that few processes have, checked and built.
struct Prepared {
    extra: Option<Box<Extra>>,
    /// The running process, if the new one is to be related to it.
    own: Option<SlotRef>,
    link: bool,
    monitor: bool,
    scoped: bool,
    supervised: bool,
    known: Known,
    on_cancel: Option<OnCancel>,
    location: Option<&'static Location<'static>>,
}

impl Rest {
    #[cold]
    fn prepare(self, kind: &Kind, shared: &Shared) -> Result<Box<Prepared>, SpawnErrorKind> {
        let Self {
            label,
            affinity,
            mailbox,
            link,
            monitor,
            scoped,
            stack_bytes: _,
            supervised,
            known,
            is_expendable,
            kept,
            on_cancel,
            reporting,
            location,
        } = self;
        if let Some(worker) = affinity.filter(|&worker| worker >= shared.seats.first()) {
            return Err(SpawnErrorKind::Affinity { worker, width: shared.seats.first() });
        }
        let relates = link || monitor || scoped || supervised;
        let own = if relates { current::current() } else { None };
        if relates && own.is_none() {
            return Err(SpawnErrorKind::NoProcess);
        }
        let bounded = match mailbox {
            Some((capacity, when_full)) => {
                let capacity = NonZeroU32::new(capacity).ok_or(SpawnErrorKind::Mailbox)?;
                Some((kind.make_bounded)(capacity, when_full.into()))
            }
            None => None,
        };
        let has_extra = label.is_some()
            || affinity.is_some()
            || bounded.is_some()
            || kept.is_some()
            || reporting.is_some()
            || is_expendable;
        let extra = has_extra.then(|| {
            let rest = Extra::default();
            Box::new(Extra { label, affinity, bounded, kept, reporting, is_expendable, ..rest })
        });
        Ok(Box::new(Prepared {
            extra,
            own,
            link,
            monitor,
            scoped,
            supervised,
            known,
            on_cancel,
            location,
        }))
    }
}

impl Prepared {
    /// Makes the new process known, once it has the messages that it takes over, so that everything
    /// that is sent to it comes behind these.
    #[cold]
    fn introduce(&mut self, shared: &Shared, newborn: &Slot) -> Result<(), RegisterError> {
        take_over(newborn);
        self.known.announce(shared, newborn.pid())
    }

    /// Relates the running process to the new one, which is not queued yet.
    #[cold]
    fn relate(self, newborn: &Slot) -> Option<MonitorRef> {
        let own = self.own?;
        if self.link {
            links::link_newborn(&own, newborn);
        }
        if self.supervised {
            links::supervise_newborn(&own, newborn);
        }
        if self.scoped {
            links::adopt_newborn(&own, newborn);
        }
        self.monitor.then(|| crate::relations::links::monitor_newborn(&own, newborn))
    }
}
