//! The kinds of children, and how each is started.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::description::{ChildSpec, Make, Spawned, StartReport, Started};
use super::policy::{Restart, Stop};
use crate::machine::process::Process;
use crate::process::outcome::Returns;
use crate::process::unwind::guarded;
use crate::scheduler::owner;
use crate::{Context, SpawnOptions};

/// The default time that a child has to end.
const STOP_DEFAULT: Duration = Duration::from_secs(5);

impl ChildSpec {
    /// Describes an async process with a mailbox. `process` is called for each start, in the first
    /// step of the new process. If it panics, that process ends.
    ///
    /// The child fails if its output says so ([`Outcome`](crate::Outcome)), most often because it
    /// is an `Err`.
    #[track_caller]
    pub fn new<M, F, P>(id: impl Into<Arc<str>>, process: F) -> Self
    where
        M: Send + 'static,
        F: Fn(Context<M>) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        Self::anonymous(process).id(id)
    }

    /// Describes a child like [`new`](Self::new), but without an id. It is meant for
    /// [dynamic](super::Strategy::Dynamic) supervisors.
    #[track_caller]
    pub fn anonymous<M, F, P>(process: F) -> Self
    where
        M: Send + 'static,
        F: Fn(Context<M>) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        let process = Arc::new(process);
        let factory = move |options: SpawnOptions, started: Started| {
            started.forget();
            let process = Arc::clone(&process);
            let child = options
                .try_start(move |cx| process(cx))
                .map_err(|error| Arc::from(error.to_string()))?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        Self::made(owner::caller(), factory, false)
    }

    /// Describes a child like [`new`](Self::new) that reports whether it has started, as OTP's
    /// `init` does. The children behind it, and the start of the supervisor, wait for the report.
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
    ///     let text = "cannot start the supervisor: child \"disk\" did not start: no such device";
    ///     assert_eq!(error.to_string(), text);
    /// });
    /// ```
    #[track_caller]
    pub fn with_init<M, F, P>(id: impl Into<Arc<str>>, process: F) -> Self
    where
        M: Send + 'static,
        F: Fn(Context<M>, Started) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        let process = Arc::new(process);
        let factory = move |options: SpawnOptions, started: Started| {
            let process = Arc::clone(&process);
            let child = options
                .try_start(move |cx| process(cx, started))
                .map_err(|error| Arc::from(error.to_string()))?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        Self::made(owner::caller(), factory, true).id(id)
    }

    /// Describes a [coroutine](crate::coroutine), which is straight-line blocking code. `function`
    /// is called for each start, in the first step. When the child is asked to end, its stack is
    /// unwound at the next suspension.
    ///
    /// On a scheduler without coroutines
    /// ([`Builder::enable_coroutines`](crate::Builder::enable_coroutines)), the start fails.
    #[track_caller]
    pub fn coroutine<M, F, T>(id: impl Into<Arc<str>>, function: F) -> Self
    where
        M: Send + 'static,
        F: Fn(crate::coroutine::context::Context<M>) -> T + Send + Sync + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        let function = Arc::new(function);
        let factory = move |options: SpawnOptions, started: Started| {
            started.forget();
            let function = Arc::clone(&function);
            let child = options
                .spawn_coroutine(move |cx| function(cx))
                .map_err(|error| Arc::from(error.to_string()))?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        Self::made(owner::caller(), factory, false).id(id)
    }

    /// Describes a state machine. It is started by its entry point `method`, with the value that
    /// `input` makes. Both closures are called for each start, in the supervisor. If one of them
    /// panics or `init` refuses, the start has failed.
    #[track_caller]
    pub fn machine<P: Process>(
        id: impl Into<Arc<str>>,
        process: impl Fn() -> P + Send + Sync + 'static,
        method: impl Into<Box<str>>,
        input: impl Fn() -> P::Input + Send + Sync + 'static,
    ) -> Self {
        let method = method.into();
        let factory = move |options: SpawnOptions, started: Started| {
            started.forget();
            let made = guarded(|| (process(), input()));
            let (process, input) = made.map_err(|exit| Arc::from(exit.to_string()))?;
            let child = options.spawn_machine(process, &method, input);
            let child = child.map_err(|error| {
                let reason = Arc::from(error.to_string());
                crate::process::unwind::drop_guarded(error);
                reason
            })?;
            Ok((child.pid(), child.monitor_ref().expect("it was spawned with a monitor")))
        };
        Self::made(owner::caller(), factory, false).id(id)
    }

    fn made<F>(location: &'static Location<'static>, factory: F, reports_start: bool) -> Self
    where
        F: Fn(SpawnOptions, Started) -> Result<Spawned, Arc<str>> + Send + Sync + 'static,
    {
        Self::of(location, Make { factory: Arc::new(factory), reports_start, nested: None })
    }

    pub(super) fn of(location: &'static Location<'static>, make: Make) -> Self {
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

    pub(super) fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Starts the child, as a child of the running process.
    pub(super) fn spawn(&self, report: StartReport) -> Result<Spawned, Arc<str>> {
        let mut options =
            SpawnOptions::new().link().monitor().supervised().called_at(self.location);
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
        (self.make.factory)(options, Started::new(report))
    }
}
