//! What a supervisor and its children are to be like.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::error::{SpecError, StartError};
use super::reference::{Running, SupervisorRef};
use super::tree::{Report, Request, supervise};
use crate::coroutine;
use crate::mailbox::call::pair;
use crate::process::unwind::guarded;
use crate::{Context, MonitorRef, Pid, Process, SpawnOptions, Value, Waiting, WhenFull};

/// One restart in this time is fine.
const PERIOD_DEFAULT: Duration = Duration::from_secs(5);

/// How long a worker has to end.
const STOP_DEFAULT: Duration = Duration::from_secs(5);

/// What happens to the others when a child is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Nothing.
    OneForOne,
    /// They are stopped, in reverse, and all are started again.
    OneForAll,
    /// Those that were started after it are stopped, in reverse, and started again.
    RestForOne,
    /// Nothing. Children are added and removed at run time, any number, with or without ids, in no order.
    Dynamic,
}

/// When a child is restarted. See the [table](super#restarts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// When it failed.
    Transient,
    /// Never.
    Temporary,
}

/// How a child is ended by its supervisor. See [Stopping](super#stopping).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// It is terminated at once: OTP's `brutal_kill`.
    Kill,
    /// It is cancelled, and terminated if it has not ended after this time.
    Within(Duration),
    /// It is sent [`Exit::Shutdown`](crate::Exit::Shutdown), which ends it at once unless it traps exits, and terminated if it has not ended after this time.
    Signal(Duration),
    /// It is cancelled, and waited for as long as it takes. Meant for supervisors.
    Wait,
}

/// Whether a supervisor ends when significant children have ended by themselves, and are not restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoShutdown {
    /// No.
    #[default]
    Never,
    /// When any of them has.
    AnySignificant,
    /// When the last of them has.
    AllSignificant,
}

/// How long a supervisor waits before it restarts a child, if that fails again and again.
///
/// The first restart waits for about `first`, each further one for twice as long as the one before, up to `most`. Each wait is drawn between a half and all of that,
/// by the scheduler's seed. A child that has run for longer than `most` begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
}

/// The description of a supervisor. See the [module](super).
#[derive(Clone, Debug)]
#[must_use = "a description does nothing; start it"]
pub struct Supervisor {
    pub(super) strategy: Strategy,
    pub(super) intensity: u32,
    pub(super) period: Duration,
    pub(super) auto_shutdown: AutoShutdown,
    pub(super) back_off: Option<BackOff>,
    pub(super) children: Vec<ChildSpec>,
    pub(super) template: Option<ChildSpec>,
}

impl Supervisor {
    /// A supervisor without children.
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            intensity: 1,
            period: PERIOD_DEFAULT,
            auto_shutdown: AutoShutdown::Never,
            back_off: None,
            children: Vec::new(),
            template: None,
        }
    }

    /// See [`Strategy::OneForOne`].
    pub fn one_for_one() -> Self {
        Self::new(Strategy::OneForOne)
    }

    /// See [`Strategy::OneForAll`].
    pub fn one_for_all() -> Self {
        Self::new(Strategy::OneForAll)
    }

    /// See [`Strategy::RestForOne`].
    pub fn rest_for_one() -> Self {
        Self::new(Strategy::RestForOne)
    }

    /// See [`Strategy::Dynamic`].
    pub fn dynamic() -> Self {
        Self::new(Strategy::Dynamic)
    }

    /// How many restarts are fine within any `period`; with one more, the supervisor gives up. 0 allows none. Default: 1 in 5 s.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> Self {
        (self.intensity, self.period) = (restarts, period);
        self
    }

    /// When the supervisor ends by itself.
    pub fn auto_shutdown(mut self, auto_shutdown: AutoShutdown) -> Self {
        self.auto_shutdown = auto_shutdown;
        self
    }

    /// Waits before restarts, from `first` up to `most`. See [`BackOff`]. Default: none.
    pub fn back_off(mut self, first: Duration, most: Duration) -> Self {
        self.back_off = Some(BackOff { first, most });
        self
    }

    /// Adds a child, which starts after those added before.
    pub fn child(mut self, child: ChildSpec) -> Self {
        self.children.push(child);
        self
    }

    /// What [`SupervisorRef::start_another`] starts. For dynamic supervisors.
    pub fn template(mut self, child: ChildSpec) -> Self {
        self.template = Some(child);
        self
    }

    /// Whether this can be started.
    ///
    /// # Errors
    /// [`SpecError`]: what is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.period.is_zero() {
            return Err(SpecError::ZeroPeriod);
        }
        if self.back_off.is_some_and(|back_off| back_off.first.is_zero() || back_off.first > back_off.most) {
            return Err(SpecError::BackOff);
        }
        if self.template.is_some() && self.strategy != Strategy::Dynamic {
            return Err(SpecError::Template);
        }
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for (place, child) in self.children.iter().enumerate() {
            match &child.id {
                Some(id) if !ids.insert(id) => return Err(SpecError::DuplicateId(Arc::clone(id))),
                None if self.strategy != Strategy::Dynamic => return Err(SpecError::NoId(place)),
                _ => {}
            }
            if let Some(name) = child.name.as_ref().filter(|&name| !names.insert(name)) {
                return Err(SpecError::DuplicateName(Arc::clone(name)));
            }
        }
        self.children.iter().chain(&self.template).try_for_each(|child| self.check_child(child))
    }

    pub(super) fn check_child(&self, child: &ChildSpec) -> Result<(), SpecError> {
        let id = || child.id.clone().unwrap_or_else(|| Arc::from("#"));
        if child.id.is_none() && self.strategy != Strategy::Dynamic {
            return Err(SpecError::NoId(self.children.len()));
        }
        if child.significant && self.auto_shutdown == AutoShutdown::Never {
            return Err(SpecError::SignificantForNothing(id()));
        }
        if child.significant && child.restart == Restart::Permanent {
            return Err(SpecError::SignificantPermanent(id()));
        }
        match (&child.mailbox, &child.make) {
            (Some((0, _)), _) => return Err(SpecError::Mailbox(id())),
            (Some(_), Make::Supervisor(_)) => return Err(SpecError::SupervisorMailbox(id())),
            _ => {}
        }
        if let Make::Supervisor(nested) = &child.make {
            nested.check().map_err(|error| SpecError::Nested { child: id(), error: Box::new(error) })?;
        }
        Ok(())
    }

    /// Starts the supervisor, and returns once all its children have started. It is not linked to the caller.
    ///
    /// # Errors
    /// [`StartError`]: the description is wrong, a child did not start, or the scheduler takes no more processes.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it leaves the supervisor to start and run by itself.
    #[track_caller]
    pub fn start(self) -> impl Future<Output = Result<Running, StartError>> + Send {
        self.start_with(SpawnOptions::new().label("supervisor"))
    }

    /// As [`start`](Self::start), as a process with these options: of another scheduler, [linked](SpawnOptions::link) to the caller (OTP's
    /// `start_link`), with a name. When its parent ends it by the link, it stops its children first.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Cancellation
    /// As for [`start`](Self::start).
    #[track_caller]
    pub fn start_with(self, options: SpawnOptions) -> impl Future<Output = Result<Running, StartError>> + Send {
        let options = options.called_at(crate::scheduler::owner::caller());
        async move {
            // Here, so that the scheduler is that of who awaits this.
            self.check().map_err(StartError::Spec)?;
            let description = Arc::new(self);
            let (reply, caller) = pair();
            let child = options
                .try_start(move |cx: Context<Request>| supervise(cx, description, None, Some(reply)))
                .map_err(|error| StartError::Refused(error.to_string().into()))?;
            let (address, handle) = child.into_parts();
            caller.replied(Waiting::REPLY).await.unwrap_or(Err(StartError::Ended))?;
            Ok(Running::new(SupervisorRef::new(address), handle))
        }
    }
}

/// The process of a child that was just made, and the supervisor's monitor of it.
pub(super) type Spawned = (Pid, MonitorRef);

type Factory = dyn Fn(SpawnOptions, Started) -> Result<Spawned, Arc<str>> + Send + Sync;

#[derive(Clone)]
pub(super) enum Make {
    /// Says by itself that it has started, if `true`.
    Worker(Arc<Factory>, bool),
    Supervisor(Arc<Supervisor>),
}

/// The description of a child: how to start it, again and again, and what to do when it ends.
#[derive(Clone)]
#[must_use = "a description does nothing; give it to a supervisor"]
pub struct ChildSpec {
    pub(super) id: Option<Arc<str>>,
    pub(super) make: Make,
    pub(super) restart: Restart,
    pub(super) stop: Stop,
    pub(super) significant: bool,
    pub(super) name: Option<Arc<str>>,
    label: Option<Arc<str>>,
    mailbox: Option<(u32, WhenFull)>,
    affinity: Option<u32>,
    location: &'static Location<'static>,
}

impl ChildSpec {
    /// A process with a mailbox. `process` is called for each start, in the first step of the new process; a panic of it is that process's.
    #[track_caller]
    pub fn new<M, F, P>(id: impl Into<Arc<str>>, process: F) -> Self
    where
        M: Send + 'static,
        F: Fn(Context<M>) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
    {
        Self::anonymous(process).id(id)
    }

    /// As [`new`](Self::new), without an id, for [dynamic](Strategy::Dynamic) supervisors.
    #[track_caller]
    pub fn anonymous<M, F, P>(process: F) -> Self
    where
        M: Send + 'static,
        F: Fn(Context<M>) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
    {
        let process = Arc::new(process);
        let factory = move |options: SpawnOptions, started: Started| {
            started.forget();
            let process = Arc::clone(&process);
            let child = options.try_start(move |cx| process(cx)).map_err(|error| Arc::from(error.to_string()))?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        Self::made(crate::scheduler::owner::caller(), Make::Worker(Arc::new(factory), false))
    }

    /// As [`new`](Self::new), but the child has started only when it says so, or fails to: OTP's `init`. Children behind it, and the supervisor's start,
    /// wait for that.
    ///
    /// ```
    /// use procession::Context;
    /// use procession::supervisor::{ChildSpec, Supervisor};
    ///
    /// procession::run(async {
    ///     let disk = ChildSpec::with_init("disk", |_: Context<()>, started| async move {
    ///         started.fail("no such device");
    ///     });
    ///     let error = Supervisor::one_for_one().child(disk).start().await.unwrap_err();
    ///     assert_eq!(error.to_string(), "cannot start the supervisor: child \"disk\" did not start: no such device");
    /// });
    /// ```
    #[track_caller]
    pub fn with_init<M, F, P>(id: impl Into<Arc<str>>, process: F) -> Self
    where
        M: Send + 'static,
        F: Fn(Context<M>, Started) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
    {
        let process = Arc::new(process);
        let factory = move |options: SpawnOptions, started: Started| {
            let process = Arc::clone(&process);
            let child =
                options.try_start(move |cx| process(cx, started)).map_err(|error| Arc::from(error.to_string()))?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        Self::made(crate::scheduler::owner::caller(), Make::Worker(Arc::new(factory), true)).id(id)
    }

    /// A [coroutine](crate::coroutine): straight-line blocking code. `function` is called for each start, in the first step. Asked to end, it is unwound at its next
    /// suspension. On a scheduler that has no coroutines ([`Builder::enable_coroutines`](crate::Builder::enable_coroutines)), a start fails.
    #[track_caller]
    pub fn coroutine<M, F, T>(id: impl Into<Arc<str>>, function: F) -> Self
    where
        M: Send + 'static,
        F: Fn(coroutine::Context<M>) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        let function = Arc::new(function);
        let factory = move |options: SpawnOptions, started: Started| {
            started.forget();
            let function = Arc::clone(&function);
            let child =
                options.spawn_coroutine(move |cx| function(cx)).map_err(|error| Arc::from(error.to_string()))?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        Self::made(crate::scheduler::owner::caller(), Make::Worker(Arc::new(factory), false)).id(id)
    }

    /// A state machine, started by the entry point `method` with what `input` makes. Both closures are called for each start, in the supervisor; a panic, and a
    /// refusal of `init`, is a failed start.
    #[track_caller]
    pub fn machine<P: Process>(
        id: impl Into<Arc<str>>,
        process: impl Fn() -> P + Send + Sync + 'static,
        method: impl Into<Box<str>>,
        input: impl Fn() -> Value + Send + Sync + 'static,
    ) -> Self {
        let method = method.into();
        let factory = move |options: SpawnOptions, started: Started| {
            started.forget();
            let made = guarded(|| (process(), input()));
            let (process, input) = made.map_err(|exit| Arc::from(exit.to_string()))?;
            let child = options.spawn_process(process, &method, input);
            let child = child.map_err(|error| {
                let reason = Arc::from(error.to_string());
                crate::process::unwind::drop_guarded(error);
                reason
            })?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        Self::made(crate::scheduler::owner::caller(), Make::Worker(Arc::new(factory), false)).id(id)
    }

    /// A supervisor, with children of its own. It has started when they have.
    #[track_caller]
    pub fn supervisor(id: impl Into<Arc<str>>, supervisor: Supervisor) -> Self {
        let mut child = Self::made(crate::scheduler::owner::caller(), Make::Supervisor(Arc::new(supervisor))).id(id);
        child.stop = Stop::Wait;
        child
    }

    fn made(location: &'static Location<'static>, make: Make) -> Self {
        Self {
            id: None,
            make,
            restart: Restart::Permanent,
            stop: Stop::Within(STOP_DEFAULT),
            significant: false,
            name: None,
            label: None,
            mailbox: None,
            affinity: None,
            location,
        }
    }

    fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// When it is restarted.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// How it is ended.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Whether its end counts for [`AutoShutdown`].
    pub fn significant(mut self) -> Self {
        self.significant = true;
        self
    }

    /// The name that each process of this child is registered by, before it runs.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// A name for people. See [`SpawnOptions::label`].
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Bounds the mailbox. See [`SpawnOptions::mailbox`].
    pub fn mailbox(mut self, capacity: u32, when_full: WhenFull) -> Self {
        self.mailbox = Some((capacity, when_full));
        self
    }

    /// Binds it to a worker. See [`SpawnOptions::affinity`].
    pub fn affinity(mut self, worker: u32) -> Self {
        self.affinity = Some(worker);
        self
    }

    pub(super) fn is_supervisor(&self) -> bool {
        matches!(self.make, Make::Supervisor(_))
    }

    /// Whether it says by itself that it has started.
    pub(super) fn says_so(&self) -> bool {
        matches!(self.make, Make::Worker(_, true) | Make::Supervisor(_))
    }

    /// Starts it, as a child of the running process.
    pub(super) fn spawn(&self, report: Report) -> Result<Spawned, Arc<str>> {
        let mut options = SpawnOptions::new().link().monitor().supervised().called_at(self.location);
        if let Some(label) = self.label.as_ref().or(self.id.as_ref()) {
            options = options.label(&**label);
        }
        if let Some(name) = &self.name {
            options = options.name(Arc::clone(name));
        }
        if let Some((capacity, when_full)) = self.mailbox {
            options = options.mailbox(capacity, when_full);
        }
        if let Some(worker) = self.affinity {
            options = options.affinity(worker);
        }
        match &self.make {
            Make::Worker(factory, _) => factory(options, Started(Some(report))),
            Make::Supervisor(nested) => {
                let nested = Arc::clone(nested);
                let child = options
                    .try_start(move |cx: Context<Request>| supervise(cx, nested, Some(report), None))
                    .map_err(|error| Arc::from(error.to_string()))?;
                Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
            }
        }
    }
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("id", &self.id)
            .field("restart", &self.restart)
            .field("stop", &self.stop)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The right of a child to say that it has started. Dropped, it says that it has not.
#[derive(Debug)]
#[must_use = "dropping it says that the start failed"]
pub struct Started(Option<Report>);

impl Started {
    /// The child has started.
    pub fn ready(mut self) {
        if let Some(report) = self.0.take() {
            report.send(Ok(()));
        }
    }

    /// The child cannot start; it is ended.
    pub fn fail(mut self, reason: impl Into<Arc<str>>) {
        if let Some(report) = self.0.take() {
            report.send(Err(reason.into()));
        }
    }

    /// The child has started when it is there.
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The end of a process that panics says more.
        if let Some(report) = self.0.take()
            && !std::thread::panicking()
        {
            report.send(Err(Arc::from("it did not say that it is ready")));
        }
    }
}
