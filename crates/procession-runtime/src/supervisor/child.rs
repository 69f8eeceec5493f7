//! The kinds of children, and how each is started.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use super::description::{ChildSpec, Factory, Make, Spawned, StartNote, StartReport, Started};
use super::error::StartReason;
use super::policy::{Restart, Stop};
use crate::behaviour::server::{Server, serve_reporting};
use crate::behaviour::statem::{Statem, run_reporting};
use crate::machine::process::Process;
use crate::mailbox::dead_letter::KeptMailbox;
use crate::process::exit::Returns;
use crate::process::priority::Priority;
use crate::process::slot::SlotRef;
use crate::process::unwind::{DropGuarded, drop_guarded, guarded};
use crate::scheduler::owner;
use crate::scheduler::spawn_error::SpawnCause;
use crate::sys;
use crate::sys::os::CallFault;
use crate::{Address, Child, Context, Exit, SpawnOptions};

impl<M: Send + 'static> ChildSpec<Address<M>> {
    /// Describes an async process with a mailbox. `process` is called for each start, in the first
    /// step of the new process. If it panics, that process ends.
    ///
    /// The child has started before its first step. For a behaviour, use [`server`](Self::server)
    /// or [`statem`](Self::statem), which wait for its preparations.
    ///
    /// The child fails if its output says so ([`Outcome`](crate::Outcome)), most often because it
    /// is an `Err`.
    #[track_caller]
    pub fn new<F, P>(id: impl Into<Arc<str>>, process: F) -> Self
    where
        F: Fn(Context<M>) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        Self::anonymous(process).id(id)
    }

    /// Describes a child like [`new`](Self::new), but without an id. It is meant for
    /// [dynamic](super::Strategy::Dynamic) supervisors, because other supervisors need ids.
    #[track_caller]
    pub fn anonymous<F, P>(process: F) -> Self
    where
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
                .map_err(|error| StartReason::of(error.cause()))?;
            Ok(Spawned::of(child))
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
    ///     let error = Supervisor::one_for_one().child(disk).try_start().await.unwrap_err();
    ///     let text = "cannot start the supervisor: child \"disk\" did not start: no such device";
    ///     assert_eq!(error.to_string(), text);
    /// });
    /// ```
    #[track_caller]
    pub fn with_init<F, P>(id: impl Into<Arc<str>>, process: F) -> Self
    where
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
                .map_err(|error| StartReason::of(error.cause()))?;
            Ok(Spawned::of(child))
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
    pub fn coroutine<F, T>(id: impl Into<Arc<str>>, function: F) -> Self
    where
        F: Fn(crate::coroutine::context::Context<M>) -> T + Send + Sync + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        let function = Arc::new(function);
        let factory = move |options: SpawnOptions, started: Started| {
            started.forget();
            let function = Arc::clone(&function);
            let child = options
                .try_start_coroutine(move |cx| function(cx))
                .map_err(|error| StartReason::of(error.cause()))?;
            Ok(Spawned::of(child))
        };
        Self::made(owner::caller(), factory, false).id(id)
    }

    /// Describes a state machine. It is started by its entry point `method`, with the value that
    /// `input` makes. Both closures are called for each start, in the supervisor. If a closure
    /// panics or `init` refuses, the start has failed.
    #[track_caller]
    pub fn machine<P: Process<Message = M>>(
        id: impl Into<Arc<str>>,
        process: impl Fn() -> P + Send + Sync + 'static,
        method: impl Into<Box<str>>,
        input: impl Fn() -> P::Input + Send + Sync + 'static,
    ) -> Self {
        let method = method.into();
        let (process, input) = (DropGuarded::new(process), DropGuarded::new(input));
        let factory = move |options: SpawnOptions, started: Started| {
            started.forget();
            let made = guarded(|| (process(), input()));
            let (process, input) = made.map_err(|exit| StartReason::from(exit.to_string()))?;
            let child = options.try_start_machine(process, &method, input);
            let child = child.map_err(|error| {
                let reason = StartReason::of(error.cause());
                drop_guarded(error);
                reason
            })?;
            Ok(Spawned::of(child))
        };
        Self::made(owner::caller(), factory, false).id(id)
    }

    /// Describes a child with an async body that reports when it has started, by the closure that
    /// `process` is called with. If it ends before, its exit is the reason of the failed start.
    fn announcing<F, P>(location: &'static Location<'static>, process: F) -> Self
    where
        F: Fn(Context<M>, StartNote) -> P + Send + Sync + 'static,
        P: Future<Output = Exit> + Send + 'static,
    {
        let process = Arc::new(process);
        let factory = move |options: SpawnOptions, started: Started| {
            let (process, ready) = (Arc::clone(&process), started.into_note());
            let child = options
                .try_start(move |cx| process(cx, ready))
                .map_err(|error| StartReason::of(error.cause()))?;
            Ok(Spawned::of(child))
        };
        Self::made(location, factory, true)
    }

    pub(super) fn made<F>(
        location: &'static Location<'static>,
        factory: F,
        reports_start: bool,
    ) -> Self
    where
        F: Fn(SpawnOptions, Started) -> Result<Spawned, StartReason> + Send + Sync + 'static,
    {
        let factory = DropGuarded::new(Arc::new(factory) as Arc<Factory>);
        let make = Make { factory, reports_start, nested: None };
        let address = |process: SlotRef| match Address::of_pin(process) {
            Ok(address) => address,
            Err(process) => unreachable!("{} was started with these messages", process.pid()),
        };
        Self::of(location, make, address)
    }
}

impl<M: Send + 'static> ChildSpec<Address<M>> {
    /// Describes a [`Server`]. `server` makes its value, and is called for each start, in the first
    /// step of the new process.
    ///
    /// The child has started once [`Server::init`] has succeeded, as in OTP. The children behind
    /// it, and the start of the supervisor, wait for that. If `init` fails or does not return, the
    /// start has failed, and the exit of the process is the reason.
    ///
    /// ```
    /// use procession::behaviour::{Server, ServerContext};
    /// use procession::supervisor::{ChildSpec, Supervisor};
    /// use procession::Exit;
    ///
    /// struct Disk;
    ///
    /// impl Server for Disk {
    ///     type Message = ();
    ///
    ///     async fn init(&mut self, _: &mut ServerContext<Self>) -> Result<(), Exit> {
    ///         Err(Exit::failed("no such device"))
    ///     }
    ///
    ///     async fn handle(&mut self, _: (), _: &mut ServerContext<Self>) {}
    /// }
    ///
    /// procession::run(async {
    ///     let disk = ChildSpec::server("disk", || Disk);
    ///     let error = Supervisor::one_for_one().child(disk).try_start().await.unwrap_err();
    ///     assert!(error.to_string().ends_with("no such device"));
    /// });
    /// ```
    #[track_caller]
    pub fn server<S: Server<Message = M>>(
        id: impl Into<Arc<str>>,
        server: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        Self::announcing(owner::caller(), move |cx, ready| serve_reporting(server(), cx, ready))
            .id(id)
    }

    /// Describes a [`Statem`]. `machine` makes its value and its first state, and is called for
    /// each start, in the first step of the new process.
    ///
    /// The child has started once [`Statem::enter`] has returned for the first state. If it does
    /// not return, the start has failed, and the exit of the process is the reason.
    #[track_caller]
    pub fn statem<S: Statem<Message = M>>(
        id: impl Into<Arc<str>>,
        machine: impl Fn() -> (S, S::State) + Send + Sync + 'static,
    ) -> Self {
        let run = move |cx, ready| {
            let (machine, initial) = machine();
            run_reporting(machine, initial, cx, ready)
        };
        Self::announcing(owner::caller(), run).id(id)
    }
}

impl Spawned {
    pub(super) fn of<M: Send + 'static, T: Send + 'static>(child: Child<M, T>) -> Self {
        let monitor = child.monitor_ref().expect("it was spawned with a monitor");
        Self { process: child.detach().into_pin().expect("it was not refused"), monitor }
    }
}

impl<T> ChildSpec<T> {
    pub(super) fn of(
        location: &'static Location<'static>,
        make: Make,
        gives: fn(SlotRef) -> T,
    ) -> Self {
        Self {
            id: None,
            make,
            restart: Restart::Permanent,
            stop: Stop::default(),
            significant: false,
            name: None,
            entries: Vec::new(),
            label: None,
            mailbox: None,
            keeps_mailbox: false,
            affinity: None,
            priority: Priority::Normal,
            reporting: None,
            location,
            gives,
        }
    }

    /// Sets the id, which is unique among the children of a supervisor. Only the children of
    /// dynamic supervisors may have none.
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Starts the child, as a child of the running process.
    pub(super) fn spawn(
        &self,
        report: StartReport,
        kept: Option<&Arc<KeptMailbox>>,
    ) -> Result<Spawned, StartReason> {
        if sys::has_fault(CallFault::Child) {
            return Err(StartReason::of(&SpawnCause::limit()));
        }
        let mut options =
            SpawnOptions::new().link().monitor().supervised().called_at(self.location);
        if let Some(label) = self.label.as_ref().or(self.id.as_ref()) {
            options = options.label(&**label);
        }
        if let Some(name) = &self.name {
            options = options.name(Arc::clone(name));
        }
        for entry in &self.entries {
            options = options.enter(entry.clone());
        }
        if let Some((capacity, when_full)) = self.mailbox {
            options = options.mailbox(capacity, when_full);
        }
        if let Some(kept) = kept {
            options = options.keeping(Arc::clone(kept));
        }
        if let Some(worker) = self.affinity {
            options = options.affinity(worker);
        }
        options = options.priority(self.priority);
        if self.stop == Stop::Kill || self.is_supervisor() {
            options = options.expendable();
        }
        if let Some(reporting) = self.reporting {
            options = options.reporting(reporting);
        }
        (self.make.factory)(options, Started::new(report))
    }
}
