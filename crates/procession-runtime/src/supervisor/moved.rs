//! Children that are made from a value which moves into them.
//!
//! The value is in its cell until a process has it. A start takes the value out, and puts it back
//! if the process is refused. If a process has taken the value and then fails to start, the value
//! is lost.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use procession_sync::Mutex;

use super::description::{ChildSpec, Spawned, StartNote, Started};
use super::error::StartReason;
use super::policy::{Restart, Stop};
use crate::behaviour::server::{Server, serve_reporting};
use crate::behaviour::statem::{Statem, run_reporting};
use crate::coroutine::body::Placement;
use crate::mailbox::bounds::WhenFull;
use crate::process::exit::Returns;
use crate::process::priority::Priority;
use crate::process::reporting::Reporting;
use crate::process::typed::Typed;
use crate::process::unwind::{DropGuarded, drop_guarded, guarded};
use crate::relations::names::TableEntry;
use crate::scheduler::owner;
use crate::scheduler::spawn_error::SpawnError;
use crate::{Address, Context, Exit, SpawnOptions};

/// The cell of a value on its way into a child.
pub(super) struct Moved<V>(Mutex<Option<V>>);

impl<V> Moved<V> {
    fn new(value: V) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(value))))
    }

    pub(super) fn take(&self) -> Option<V> {
        self.0.lock().take()
    }

    fn put(&self, value: V) {
        *self.0.lock() = Some(value);
    }

    /// Starts a process from the value.
    fn start(
        &self,
        start: impl FnOnce(V) -> Result<Spawned, SpawnError<V>>,
    ) -> Result<Spawned, StartReason> {
        let value = self.take().ok_or("its value has moved into an earlier process")?;
        start(value).map_err(|error| {
            let (value, cause) = error.into_parts();
            self.put(value);
            StartReason::of(&cause)
        })
    }

    /// Starts a process from a clone of the value.
    fn start_clone(
        &self,
        clone: fn(&V) -> V,
        start: impl FnOnce(V) -> Result<Spawned, SpawnError<V>>,
    ) -> Result<Spawned, StartReason> {
        let value = self.take().ok_or("its argument was taken back")?;
        // Cloned and dropped outside the lock, since both are user code.
        let cloned = guarded(|| clone(&value));
        self.put(value);
        let cloned = cloned.map_err(|exit| StartReason::from(exit.to_string()))?;
        start(cloned).map_err(|error| {
            let (cloned, cause) = error.into_parts();
            drop_guarded(cloned);
            StartReason::of(&cause)
        })
    }
}

impl<V> Drop for Moved<V> {
    fn drop(&mut self) {
        drop_guarded(self.take());
    }
}

/// The description of a child that is made from a value which moves into it, such as a connection.
///
/// The closure runs once, so the child is [temporary](Restart::Temporary): it is never restarted,
/// and forgotten when it ends. [`SupervisorRef::add_once`] starts it. If the process is refused,
/// the error returns the closure, with everything that it has captured.
///
/// To start many children of one kind, use a [`Template`]. If a child is refused, the error returns
/// its argument.
///
/// [`SupervisorRef::add_once`]: super::SupervisorRef::add_once
///
/// ```
/// use procession::Context;
/// use procession::supervisor::{OnceSpec, Supervisor};
///
/// procession::run(async {
///     let connections = Supervisor::dynamic().try_start().await?;
///     let (replies, connection) = procession::sync::channel::bounded(1);
///     let serve = move |_: Context<()>| async move { replies.send("hello").await };
///     connections.add_once(OnceSpec::new(serve).label("connection")).await?;
///     assert_eq!(connection.recv().await, Some("hello"));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a description does nothing; give it to a supervisor"]
pub struct OnceSpec<M, F> {
    child: ChildSpec<Address<M>>,
    process: Arc<Moved<F>>,
}

impl<M: Send + 'static, F: Send + 'static> OnceSpec<M, F> {
    /// Describes an async process with a mailbox. `process` is called in its first step.
    #[track_caller]
    pub fn new<P>(process: F) -> Self
    where
        F: FnOnce(Context<M>) -> P,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        Self::made(owner::caller(), process, false, |options, process, started| {
            started.forget();
            options.try_start(process).map(Spawned::of)
        })
    }

    /// Describes a [coroutine](crate::coroutine). `function` is called in its first step.
    #[track_caller]
    pub fn coroutine<T>(function: F) -> Self
    where
        F: FnOnce(crate::coroutine::context::Context<M>) -> T,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        Self::made(owner::caller(), function, false, |options, function, started| {
            started.forget();
            options.try_start_coroutine(function).map(Spawned::of)
        })
    }

    /// Describes a [`Server`]. `server` makes its value, in the first step of the new process. The
    /// child has started once [`Server::init`] has succeeded, as with [`ChildSpec::server`].
    ///
    /// ```
    /// use procession::behaviour::{Server, ServerContext};
    /// use procession::supervisor::{OnceSpec, Supervisor};
    /// use procession::Exit;
    ///
    /// struct Session(String);
    ///
    /// impl Server for Session {
    ///     type Message = ();
    ///
    ///     async fn init(&mut self, _: &mut ServerContext<Self>) -> Result<(), Exit> {
    ///         Err(Exit::failed(format!("{} is not known", self.0)))
    ///     }
    ///
    ///     async fn handle(&mut self, _: (), _: &mut ServerContext<Self>) {}
    /// }
    ///
    /// procession::run(async {
    ///     let sessions = Supervisor::dynamic().try_start().await.expect("it has no children");
    ///     let session = OnceSpec::server(|| Session("ann".to_owned()));
    ///     let error = sessions.add_once(session).await.unwrap_err();
    ///     assert!(error.to_string().ends_with("ann is not known"));
    /// });
    /// ```
    #[track_caller]
    pub fn server<S: Server<Message = M>>(server: F) -> Self
    where
        F: FnOnce() -> S,
    {
        Self::announcing(owner::caller(), server, |cx, server, ready| {
            serve_reporting(server(), cx, ready)
        })
    }

    /// Describes a [`Statem`]. `machine` makes its value and its first state, in the first step of
    /// the new process. The child has started once [`Statem::enter`] has returned for that state,
    /// as with [`ChildSpec::statem`].
    #[track_caller]
    pub fn statem<S: Statem<Message = M>>(machine: F) -> Self
    where
        F: FnOnce() -> (S, S::State),
    {
        Self::announcing(owner::caller(), machine, |cx, machine, ready| {
            let (machine, initial) = machine();
            run_reporting(machine, initial, cx, ready)
        })
    }

    /// Describes a child with an async body that reports when it has started, by the closure that
    /// `process` is called with.
    fn announcing<P>(
        location: &'static Location<'static>,
        value: F,
        process: fn(Context<M>, F, StartNote) -> P,
    ) -> Self
    where
        P: Future<Output = Exit> + Send + 'static,
    {
        Self::made(location, value, true, move |options, value, started| {
            let ready = started.into_note();
            let run = move |cx, value| process(cx, value, ready);
            options.launch_with_mailbox(location, value, run).map(Spawned::of)
        })
    }

    fn made(
        location: &'static Location<'static>,
        process: F,
        reports_start: bool,
        start: impl Fn(SpawnOptions, F, Started) -> Result<Spawned, SpawnError<F>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let process = Moved::new(process);
        let moved = Arc::clone(&process);
        let factory = move |options: SpawnOptions, started: Started| {
            moved.start(|process| start(options, process, started))
        };
        let child = ChildSpec::made(location, factory, reports_start).restart(Restart::Temporary);
        Self { child, process }
    }

    /// Sets the id, which a supervisor that is not dynamic requires. Default: none.
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.child = self.child.id(id);
        self
    }

    /// See [`ChildSpec::stop`].
    pub fn stop(mut self, stop: Stop) -> Self {
        self.child = self.child.stop(stop);
        self
    }

    /// See [`ChildSpec::significant`].
    pub fn significant(mut self) -> Self {
        self.child = self.child.significant();
        self
    }

    /// See [`ChildSpec::name`].
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.child = self.child.name(name);
        self
    }

    /// See [`ChildSpec::enter`].
    pub fn enter(mut self, entry: TableEntry) -> Self {
        self.child = self.child.enter(entry);
        self
    }

    /// See [`ChildSpec::label`].
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.child = self.child.label(label);
        self
    }

    /// See [`ChildSpec::mailbox`].
    pub fn mailbox(mut self, capacity: u32, when_full: WhenFull) -> Self {
        self.child = self.child.mailbox(capacity, when_full);
        self
    }

    /// See [`ChildSpec::priority`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.child = self.child.priority(priority);
        self
    }

    /// See [`ChildSpec::affinity`].
    pub fn affinity(mut self, worker: u32) -> Self {
        self.child = self.child.affinity(worker);
        self
    }

    /// See [`ChildSpec::reporting`].
    pub fn reporting(mut self, reporting: Reporting) -> Self {
        self.child = self.child.reporting(reporting);
        self
    }

    pub(super) fn into_parts(self) -> (ChildSpec<Address<M>>, Arc<Moved<F>>) {
        (self.child, self.process)
    }
}

impl<M, F> fmt::Debug for OnceSpec<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceSpec").field(&self.child).finish()
    }
}

/// Starts a process from an argument.
type TemplateStart<A> =
    dyn Fn(SpawnOptions, A, Started) -> Result<Spawned, SpawnError<A>> + Send + Sync;

/// Makes a part of the description of a child from its argument.
type FromArgument<A, T> = DropGuarded<Arc<dyn Fn(&A) -> T + Send + Sync>>;

/// Describes children of one kind, each of which is made from an argument of type `A` and receives
/// messages of type `M`.
///
/// [`SupervisorRef::add_another`] starts one under a [dynamic](super::Strategy::Dynamic)
/// supervisor, as `start_child` of OTP does with a `simple_one_for_one` supervisor. The template is
/// a value of the program, so the compiler checks the type of the argument. Clones are the same
/// template.
///
/// A child is [temporary](Restart::Temporary) by default, because the argument moves into it. If
/// the argument can be cloned, [`restart`](Self::restart) makes the children start again with a
/// clone. The children have no ids, because a template may start any number.
///
/// A child gets its name and its entries in registries and groups before it runs, so it can be
/// found by them as soon as `add_another` has returned its address. The template makes both from
/// the argument:
///
/// ```
/// use procession::mailbox::send;
/// use procession::process::Registry;
/// use procession::supervisor::{ChildError, Supervisor, Template};
/// use procession::Context;
///
/// async fn room(mut cx: Context<&'static str>, _: String) {
///     while cx.recv().await.is_some() {}
/// }
///
/// procession::run(async {
///     let rooms = Registry::unique();
///     let entries = rooms.clone();
///     let template = Template::new(room)
///         .enter(move |name: &String| entries.entry(name.as_str(), ()))
///         .name(|name: &String| format!("room {name}"));
///     let supervisor = Supervisor::dynamic().try_start().await?;
///     let lobby = supervisor.add_another(&template, "lobby".to_owned()).await?;
///     assert_eq!(rooms.lookup("lobby")[0].0, lobby.pid());
///     send(procession::process::whereis("room lobby").expect("it runs"), "hello")?;
///
///     // A second child of the same name is refused, with the first one in the error.
///     let refused = supervisor.add_another(&template, "lobby".to_owned()).await.unwrap_err();
///     assert_eq!(refused.cause().owner(), Some(lobby.pid()));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`SupervisorRef::add_another`]: super::SupervisorRef::add_another
///
/// ```
/// use std::time::Duration;
/// use procession::{Context, Reply};
/// use procession::supervisor::{Supervisor, Template};
///
/// procession::run(async {
///     let multiplier = Template::new(|mut cx: Context<(u32, Reply<u32>)>, by: u32| async move {
///         while let Some((number, reply)) = cx.recv().await {
///             reply.send(number * by);
///         }
///     });
///     let multipliers = Supervisor::dynamic().try_start().await?;
///     let double = multipliers.add_another(&multiplier, 2).await?;
///     let triple = multipliers.add_another(&multiplier, 3).await?;
///     let second = Duration::from_secs(1);
///     assert_eq!(double.call(|reply| (7, reply), second).await?, 14);
///     assert_eq!(triple.call(|reply| (7, reply), second).await?, 21);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An argument of another type does not compile, and neither does a restart with an argument that
/// cannot be cloned:
///
/// ```compile_fail,E0308
/// # use procession::{Context, supervisor::{SupervisorRef, Template}};
/// async fn start(supervisor: SupervisorRef) {
///     let template = Template::new(|_: Context<()>, number: u32| async move { number });
///     let _ = supervisor.add_another(&template, "text").await;
/// }
/// ```
///
/// ```compile_fail,E0277
/// # use procession::{Context, supervisor::{Restart, Template}};
/// # use procession::net::TcpStream;
/// let template = Template::new(|_: Context<()>, stream: TcpStream| async move { drop(stream) })
///     .restart(Restart::Transient);
/// ```
#[must_use = "a description does nothing; give it to a supervisor"]
pub struct Template<A, M> {
    start: DropGuarded<Arc<TemplateStart<A>>>,
    reports_start: bool,
    /// `None` if the child is never restarted.
    clone: Option<fn(&A) -> A>,
    restart: Restart,
    stop: Stop,
    significant: bool,
    name: Option<FromArgument<A, Arc<str>>>,
    entries: Vec<FromArgument<A, TableEntry>>,
    label: Option<Arc<str>>,
    mailbox: Option<(u32, WhenFull)>,
    keeps_mailbox: bool,
    affinity: Option<u32>,
    priority: Priority,
    reporting: Option<Reporting>,
    location: &'static Location<'static>,
    message: Typed<M>,
}

impl<A: Send + 'static, M: Send + 'static> Template<A, M> {
    /// Describes async processes with a mailbox. `process` is called in the first step of each.
    #[track_caller]
    pub fn new<F, P>(process: F) -> Self
    where
        F: Fn(Context<M>, A) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Send + 'static,
        fn() -> P::Output: Returns,
    {
        let (process, location) = (Arc::new(process), owner::caller());
        Self::made(location, false, move |options, argument, started| {
            started.forget();
            let process = Arc::clone(&process);
            let child = options
                .launch_with_mailbox(location, argument, move |cx, argument| process(cx, argument));
            child.map(Spawned::of)
        })
    }

    /// Describes [coroutines](crate::coroutine). `function` is called in the first step of each.
    #[track_caller]
    pub fn coroutine<F, T>(function: F) -> Self
    where
        F: Fn(crate::coroutine::context::Context<M>, A) -> T + Send + Sync + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        let (function, location) = (Arc::new(function), owner::caller());
        Self::made(location, false, move |options, argument, started| {
            started.forget();
            let function = Arc::clone(&function);
            let function =
                move |cx: crate::coroutine::context::Context<M>, argument| function(cx, argument);
            let child = options.launch_coroutine(location, argument, function, Placement::PINNED);
            child.map(Spawned::of)
        })
    }

    /// Describes [`Server`]s. `server` makes the value of each, in its first step. A child has
    /// started once [`Server::init`] has succeeded, as with [`ChildSpec::server`].
    #[track_caller]
    pub fn server<S: Server<Message = M>>(server: impl Fn(A) -> S + Send + Sync + 'static) -> Self {
        Self::announcing(owner::caller(), move |cx, argument, ready| {
            serve_reporting(server(argument), cx, ready)
        })
    }

    /// Describes [`Statem`]s. `machine` makes the value and the first state of each, in its first
    /// step. A child has started once [`Statem::enter`] has returned for that state, as with
    /// [`ChildSpec::statem`].
    #[track_caller]
    pub fn statem<S: Statem<Message = M>>(
        machine: impl Fn(A) -> (S, S::State) + Send + Sync + 'static,
    ) -> Self {
        Self::announcing(owner::caller(), move |cx, argument, ready| {
            let (machine, initial) = machine(argument);
            run_reporting(machine, initial, cx, ready)
        })
    }

    /// Describes children with an async body that report when they have started, by the closure
    /// that `process` is called with.
    fn announcing<F, P>(location: &'static Location<'static>, process: F) -> Self
    where
        F: Fn(Context<M>, A, StartNote) -> P + Send + Sync + 'static,
        P: Future<Output = Exit> + Send + 'static,
    {
        let process = Arc::new(process);
        Self::made(location, true, move |options, argument, started| {
            let (process, ready) = (Arc::clone(&process), started.into_note());
            let run = move |cx, argument| process(cx, argument, ready);
            options.launch_with_mailbox(location, argument, run).map(Spawned::of)
        })
    }

    fn made(
        location: &'static Location<'static>,
        reports_start: bool,
        start: impl Fn(SpawnOptions, A, Started) -> Result<Spawned, SpawnError<A>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            start: DropGuarded::new(Arc::new(start)),
            reports_start,
            clone: None,
            restart: Restart::Temporary,
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
            message: Typed::default(),
        }
    }

    /// Sets when the children are restarted, each with a clone of its argument. Default:
    /// [`Restart::Temporary`]. If the clone panics, the start has failed.
    pub fn restart(mut self, restart: Restart) -> Self
    where
        A: Clone,
    {
        self.clone = (restart != Restart::Temporary).then_some(A::clone);
        self.restart = restart;
        self
    }

    /// See [`ChildSpec::stop`].
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// See [`ChildSpec::significant`].
    pub fn significant(mut self) -> Self {
        self.significant = true;
        self
    }

    /// Sets the function that makes the name of each child from its argument. The child is
    /// registered under it before it runs. See [`ChildSpec::name`]. Default: no name.
    ///
    /// The function runs once for each child, in `add_another`. A restarted child has the same
    /// name.
    pub fn name<N: Into<Arc<str>>>(
        mut self,
        name: impl Fn(&A) -> N + Send + Sync + 'static,
    ) -> Self {
        self.name = Some(DropGuarded::new(Arc::new(move |argument| name(argument).into())));
        self
    }

    /// Sets a function that makes an entry of each child in a registry or a group from its
    /// argument. The child gets it before it runs. See [`ChildSpec::enter`]. It can be called
    /// several times.
    ///
    /// The function runs once for each child, in `add_another`. A restarted child has the same
    /// entries.
    pub fn enter(mut self, entry: impl Fn(&A) -> TableEntry + Send + Sync + 'static) -> Self {
        self.entries.push(DropGuarded::new(Arc::new(entry)));
        self
    }

    /// See [`ChildSpec::label`]. Default: none.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// See [`ChildSpec::mailbox`].
    pub fn mailbox(mut self, capacity: u32, when_full: WhenFull) -> Self {
        self.mailbox = Some((capacity, when_full));
        self
    }

    /// See [`ChildSpec::keep_mailbox`]. It has an effect only on children that are
    /// [restarted](Self::restart).
    pub fn keep_mailbox(mut self) -> Self {
        self.keeps_mailbox = true;
        self
    }

    /// See [`ChildSpec::priority`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// See [`ChildSpec::affinity`].
    pub fn affinity(mut self, worker: u32) -> Self {
        self.affinity = Some(worker);
        self
    }

    /// See [`ChildSpec::reporting`].
    pub fn reporting(mut self, reporting: Reporting) -> Self {
        self.reporting = Some(reporting);
        self
    }

    /// Describes the child with this argument.
    pub(super) fn child(&self, argument: A) -> (ChildSpec<Address<M>>, Arc<Moved<A>>) {
        let name = self.name.as_ref().map(|name| name(&argument));
        let entries = self.entries.iter().map(|entry| entry(&argument)).collect();
        let argument = Moved::new(argument);
        let (start, clone, moved) = (self.start.clone(), self.clone, Arc::clone(&argument));
        let factory = move |options: SpawnOptions, started: Started| {
            let start = |argument| start(options, argument, started);
            match clone {
                None => moved.start(start),
                Some(clone) => moved.start_clone(clone, start),
            }
        };
        let mut child = ChildSpec::made(self.location, factory, self.reports_start);
        child.restart = self.restart;
        child.stop = self.stop;
        child.significant = self.significant;
        child.name = name;
        child.entries = entries;
        child.label = self.label.clone();
        child.mailbox = self.mailbox;
        child.keeps_mailbox = self.keeps_mailbox;
        child.affinity = self.affinity;
        child.priority = self.priority;
        child.reporting = self.reporting;
        (child, argument)
    }
}

impl<A, M> Clone for Template<A, M> {
    fn clone(&self) -> Self {
        Self {
            start: self.start.clone(),
            name: self.name.clone(),
            entries: self.entries.clone(),
            label: self.label.clone(),
            ..*self
        }
    }
}

impl<A, M> fmt::Debug for Template<A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("restart", &self.restart)
            .field("stop", &self.stop)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
