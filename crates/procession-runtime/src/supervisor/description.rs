//! The descriptions of supervisors and children, and the requests to a running supervisor.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::util::sorted_map::SortedSet;
use procession_sync::Mutex;

use super::error::{ChildError, SpecError, StartReason};
use super::policy::{AutoShutdown, BackOff, Restart, Stop, Strategy};
use super::status::{ChildInfo, ChildKey, ChildStatus, Counts};
use crate::mailbox::bounds::WhenFull;
use crate::process::priority::Priority;
use crate::process::reporting::Reporting;
use crate::process::slot::SlotRef;
use crate::process::unwind::DropGuarded;
use crate::process::wake::wake;
use crate::relations::names::TableEntry;
use crate::relations::signal::MonitorRef;
use crate::scheduler::reach::find;
use crate::{Address, Pid, Reply, SpawnOptions};

/// The default period of the intensity.
const PERIOD_DEFAULT: Duration = Duration::from_secs(5);

/// The description of a supervisor. See the [module](super).
///
/// ```
/// use std::time::Duration;
/// use procession::supervisor::{ChildSpec, Supervisor};
/// use procession::{Context, Exit};
///
/// procession::run(async {
///     let worker = ChildSpec::new("worker", |mut cx: Context<()>| async move {
///         while cx.recv().await.is_some() {}
///     });
///     let limited = Supervisor::one_for_one().intensity(3, Duration::from_secs(10));
///     let tree = limited.child(worker).try_start().await?;
///     assert_eq!(tree.count().await?.running, 1);
///     tree.cancel();
///     assert_eq!(tree.await, Exit::Shutdown);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a description does nothing; start it"]
pub struct Supervisor {
    pub(super) strategy: Strategy,
    pub(super) intensity: u32,
    pub(super) period: Duration,
    pub(super) auto_shutdown: AutoShutdown,
    pub(super) back_off: Option<BackOff>,
    pub(super) stops_together: bool,
    pub(super) children: Vec<ChildSpec>,
    /// What is dropped with the last copy of the description.
    kept: Vec<DropGuarded<Arc<dyn Any + Send + Sync>>>,
}

impl Supervisor {
    /// Describes a supervisor without children.
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            intensity: 1,
            period: PERIOD_DEFAULT,
            auto_shutdown: AutoShutdown::Never,
            back_off: None,
            stops_together: false,
            children: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Describes a supervisor with [`Strategy::OneForOne`].
    pub fn one_for_one() -> Self {
        Self::new(Strategy::OneForOne)
    }

    /// Describes a supervisor with [`Strategy::OneForAll`].
    pub fn one_for_all() -> Self {
        Self::new(Strategy::OneForAll)
    }

    /// Describes a supervisor with [`Strategy::RestForOne`].
    pub fn rest_for_one() -> Self {
        Self::new(Strategy::RestForOne)
    }

    /// Describes a supervisor with [`Strategy::Dynamic`].
    pub fn dynamic() -> Self {
        Self::new(Strategy::Dynamic)
    }

    /// Sets how many restarts are tolerated within any `period`. With one restart more, the
    /// supervisor ends with [`Exit::GaveUp`](crate::Exit::GaveUp). 0 tolerates none. Default: 1 in
    /// 5 s.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> Self {
        (self.intensity, self.period) = (restarts, period);
        self
    }

    /// Sets whether the supervisor ends when significant children have ended. Default:
    /// [`AutoShutdown::Never`].
    pub fn auto_shutdown(mut self, auto_shutdown: AutoShutdown) -> Self {
        self.auto_shutdown = auto_shutdown;
        self
    }

    /// Makes the supervisor wait before restarts, from `first` up to `most`. See [`BackOff`].
    /// Default: no wait.
    pub fn back_off(mut self, first: Duration, most: Duration) -> Self {
        self.back_off = Some(BackOff { first, most });
        self
    }

    /// Stops all children at the same time when the supervisor ends, so that the end takes only as
    /// long as the slowest child. By default, each child is stopped only after the child that was
    /// started after it has ended, so their times add up. For example, eight workers that each
    /// finish a job of 5 s take 40 s.
    ///
    /// Use this for independent children, such as the workers of one queue. If some children need
    /// others, put each group of such children below a separate supervisor. A restart by the
    /// [strategy](Strategy) still stops children in reverse.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::process::cancelled;
    /// use procession::supervisor::{ChildSpec, Supervisor};
    /// use procession::{Context, Exit, Scheduler, sleep};
    ///
    /// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    /// let begin = scheduler.now();
    /// scheduler.block_on(async {
    ///     let mut workers = Supervisor::one_for_one().stop_together();
    ///     for number in 0..8 {
    ///         workers = workers.child(ChildSpec::new(format!("{number}"), |_: Context<()>| async {
    ///             cancelled().await;
    ///             sleep(Duration::from_secs(4)).await;
    ///         }));
    ///     }
    ///     let workers = workers.try_start().await.expect("each child starts");
    ///     workers.cancel();
    ///     assert_eq!(workers.await, Exit::Shutdown);
    /// });
    /// assert_eq!(scheduler.now() - begin, Duration::from_secs(4));
    /// # Ok::<(), procession::scheduler::BuildError>(())
    /// ```
    pub fn stop_together(mut self) -> Self {
        self.stops_together = true;
        self
    }

    /// Keeps a value until this description and its copies are dropped. A supervisor has its
    /// description until it has ended, and longer if it is the child of another supervisor, which
    /// may restart it. So the value may be a permit that counts supervisors.
    pub fn keep(mut self, value: impl Any + Send + Sync) -> Self {
        self.kept.push(DropGuarded::new(Arc::new(value)));
        self
    }

    /// Adds a child, which starts after the children that were added before.
    pub fn child(mut self, child: impl Into<ChildSpec>) -> Self {
        self.children.push(child.into());
        self
    }

    /// Checks whether the supervisor can be started.
    ///
    /// # Errors
    /// [`SpecError`]: the first mistake in the description.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.period.is_zero() {
            return Err(SpecError::ZeroPeriod);
        }
        if self
            .back_off
            .is_some_and(|back_off| back_off.first.is_zero() || back_off.first > back_off.most)
        {
            return Err(SpecError::BackOff);
        }
        let (mut ids, mut names) = (SortedSet::new(), SortedSet::new());
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
        self.children.iter().try_for_each(|child| self.check_child(child))
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
        if matches!(child.mailbox, Some((0, _))) {
            return Err(SpecError::Mailbox(id()));
        }
        if child.is_supervisor() && (child.mailbox.is_some() || child.keeps_mailbox) {
            return Err(SpecError::SupervisorMailbox(id()));
        }
        if let Some(nested) = &child.make.nested {
            nested
                .check()
                .map_err(|error| SpecError::Nested { child: id(), error: Box::new(error) })?;
        }
        Ok(())
    }
}

/// The process of a child that was just started, and the supervisor's monitor for the process.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) process: SlotRef,
    pub(super) monitor: MonitorRef,
}

pub(super) type Factory =
    dyn Fn(SpawnOptions, Started) -> Result<Spawned, StartReason> + Send + Sync;

/// The way in which a child is started.
#[derive(Clone)]
pub(super) struct Make {
    pub(super) factory: DropGuarded<Arc<Factory>>,
    /// `true` if the child reports that it has started.
    pub(super) reports_start: bool,
    /// The description of the child, if it is a supervisor.
    pub(super) nested: Option<Arc<Supervisor>>,
}

/// The description of a child: how to start it, as often as necessary, and what to do when it ends.
///
/// `T` is what [`add_child`](super::SupervisorRef::add_child) returns for this child:
/// - the [`Address`] of a process with a mailbox,
/// - the [`SupervisorRef`](super::SupervisorRef) of a supervisor,
/// - the [`Pid`], once [`untyped`](Self::untyped) has removed the type.
///
/// `ChildSpec` without a parameter means the last. [`Supervisor::child`] accepts all three.
///
/// If a child is made from a value that moves into it, for example from a connection, use
/// [`OnceSpec`](super::OnceSpec) or a [`Template`](super::Template).
///
/// ```
/// use std::time::Duration;
/// use procession::supervisor::{ChildSpec, Restart, Stop, Supervisor};
/// use procession::{Context, Reply};
///
/// async fn count(mut cx: Context<Reply<u32>>) {
///     let mut n = 0;
///     while let Some(reply) = cx.recv().await {
///         n += 1;
///         reply.send(n);
///     }
/// }
///
/// procession::run(async {
///     let tree = Supervisor::one_for_one().try_start().await?;
///     let counter = ChildSpec::new("counter", count)
///         .restart(Restart::Transient)
///         .stop(Stop::Within(Duration::from_secs(1)));
///     let address = tree.add_child(counter).await?;
///     assert_eq!(address.call(|reply| reply, Duration::from_secs(1)).await?, 1);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a description does nothing; give it to a supervisor"]
pub struct ChildSpec<T = Pid> {
    pub(super) id: Option<Arc<str>>,
    pub(super) make: Make,
    pub(super) restart: Restart,
    pub(super) stop: Stop,
    pub(super) significant: bool,
    pub(super) name: Option<Arc<str>>,
    pub(super) entries: Vec<TableEntry>,
    pub(super) label: Option<Arc<str>>,
    pub(super) mailbox: Option<(u32, WhenFull)>,
    pub(super) keeps_mailbox: bool,
    pub(super) affinity: Option<u32>,
    pub(super) priority: Priority,
    pub(super) reporting: Option<Reporting>,
    pub(super) location: &'static Location<'static>,
    /// Makes the result of the start from the process.
    pub(super) gives: fn(SlotRef) -> T,
}

impl<T> ChildSpec<T> {
    /// Removes the type, so that descriptions of different children are of one type.
    pub fn untyped(self) -> ChildSpec {
        self.giving(|process| process.pid())
    }

    pub(super) fn giving<U>(self, gives: fn(SlotRef) -> U) -> ChildSpec<U> {
        let Self {
            id,
            make,
            restart,
            stop,
            significant,
            name,
            entries,
            label,
            mailbox,
            keeps_mailbox,
            affinity,
            priority,
            reporting,
            location,
            gives: _,
        } = self;
        ChildSpec {
            id,
            make,
            restart,
            stop,
            significant,
            name,
            entries,
            label,
            mailbox,
            keeps_mailbox,
            affinity,
            priority,
            reporting,
            location,
            gives,
        }
    }

    /// Sets when the child is restarted. Default: [`Restart::Permanent`].
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Sets how the child is stopped. Default: [`Stop::Graceful`], and [`Stop::Wait`] for a
    /// supervisor.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Makes the end of the child count for [`AutoShutdown`].
    pub fn significant(mut self) -> Self {
        self.significant = true;
        self
    }

    /// Sets the name under which each process of this child is registered before it runs.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Enters each process of this child into a registry or a group before it runs. See
    /// [`SpawnOptions::enter`]. It can be called several times.
    pub fn enter(mut self, entry: TableEntry) -> Self {
        self.entries.push(entry);
        self
    }

    /// Sets a label for people. See [`SpawnOptions::label`]. Default: the id.
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Bounds the mailbox. See [`SpawnOptions::mailbox`].
    pub fn mailbox(mut self, capacity: u32, when_full: WhenFull) -> Self {
        self.mailbox = Some((capacity, when_full));
        self
    }

    /// Keeps the messages that a process of this child has not received when it ends. If the
    /// supervisor restarts the child, the next process gets them. Default: they are discarded.
    ///
    /// - The message that the process was handling is lost, because the process has taken it out of
    ///   the mailbox. If it was a call, the caller gets no reply. Therefore a message that makes
    ///   the process fail does not make the next process fail as well.
    /// - The next process receives the kept messages first, in their order. Calls among them are
    ///   answered as usual, as long as their timeouts last. Messages that the old process had put
    ///   aside or postponed are kept as well, and may exceed the capacity of a bounded mailbox.
    /// - Between the two processes, there is no mailbox to send to. By address, a sender gets its
    ///   message back, because the address belongs to the old process. By [name](Self::name), a
    ///   sender gets its message back until the next process has the name.
    /// - A restart counts as always ([`Supervisor::intensity`]). With [`WhenFull::Kill`], a process
    ///   that a full mailbox has ended leaves a full mailbox.
    /// - If the child is not restarted, because it has stopped or its supervisor ends, the kept
    ///   messages become [dead letters](crate::Builder::on_dead_letter), addressed to the process
    ///   that has left them. Until then they count neither as discarded nor as being in a mailbox.
    ///
    /// Signals, timers and completions are not kept.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::process::Named;
    /// use procession::supervisor::{ChildSpec, Supervisor};
    /// use procession::{Context, Reply};
    ///
    /// enum Job {
    ///     Fail,
    ///     Add(u32, u32, Reply<u32>),
    /// }
    ///
    /// procession::run(async {
    ///     let worker = ChildSpec::new("worker", |mut cx: Context<Job>| async move {
    ///         while let Some(job) = cx.recv().await {
    ///             match job {
    ///                 Job::Fail => return Err("asked to"),
    ///                 Job::Add(a, b, reply) => reply.send(a + b),
    ///             }
    ///         }
    ///         Ok(())
    ///     });
    ///     let worker = worker.name("worker").keep_mailbox();
    ///     let _tree = Supervisor::one_for_one().child(worker).try_start().await?;
    ///     let worker = Named::new("worker");
    ///     worker.send(Job::Fail)?;
    ///     // This call is behind the failure, and the next process answers it.
    ///     let sum = worker.call(|reply| Job::Add(1, 2, reply), Duration::from_secs(9)).await?;
    ///     assert_eq!(sum, 3);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep_mailbox(mut self) -> Self {
        self.keeps_mailbox = true;
        self
    }

    /// Sets the priority of the child. See [`SpawnOptions::priority`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Binds the child to a worker. See [`SpawnOptions::affinity`].
    pub fn affinity(mut self, worker: u32) -> Self {
        self.affinity = Some(worker);
        self
    }

    /// Sets which failures of the child are worth a report, and at which level. See
    /// [`SpawnOptions::reporting`]. This applies to the reports of its restarts as well. The end of
    /// a supervisor with [`Exit::GaveUp`](crate::Exit::GaveUp) is always reported.
    pub fn reporting(mut self, reporting: Reporting) -> Self {
        self.reporting = Some(reporting);
        self
    }

    pub(super) fn is_supervisor(&self) -> bool {
        self.make.nested.is_some()
    }
}

impl<M> From<ChildSpec<Address<M>>> for ChildSpec {
    fn from(child: ChildSpec<Address<M>>) -> Self {
        child.untyped()
    }
}

impl<T> fmt::Debug for ChildSpec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("id", &self.id)
            .field("restart", &self.restart)
            .field("stop", &self.stop)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Reports that a child has started.
pub(super) type StartNote = Box<dyn FnOnce() + Send>;

/// The right of a child to report that it has started. Dropping it reports that the start failed.
/// If the process of the child drops it because the process returns an error or panics, the reason
/// is that error or panic.
#[derive(Debug)]
#[must_use = "dropping it reports that the start failed"]
pub struct Started(Option<StartReport>);

impl Started {
    pub(super) fn new(report: StartReport) -> Self {
        Self(Some(report))
    }

    /// Reports that the child has started.
    pub fn ready(mut self) {
        if let Some(report) = self.0.take() {
            report.send(Ok(()));
        }
    }

    /// Reports that the child cannot start. The child is then ended.
    pub fn fail(mut self, reason: impl Into<Arc<str>>) {
        if let Some(report) = self.0.take() {
            report.send(Err(reason.into().into()));
        }
    }

    /// Drops the report of a child that has started as soon as its process exists.
    pub(super) fn forget(self) {
        drop(self.into_report());
    }

    /// Returns a closure that reports that the child has started. If it is dropped, the exit of the
    /// child is the reason of the failed start.
    pub(super) fn into_note(self) -> StartNote {
        let report = self.into_report();
        Box::new(move || {
            if let Some(report) = report {
                report.send(Ok(()));
            }
        })
    }

    /// Returns the bare report. Dropping that reports no failure.
    pub(super) fn into_report(mut self) -> Option<StartReport> {
        self.0.take()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            report.send(Err(StartReason::not_reported()));
        }
    }
}

pub(super) type Asked<T> = Reply<Result<T, ChildError>>;

/// A request to a supervisor.
pub(super) enum Request {
    Which(Reply<Vec<ChildInfo>>),
    Count(Reply<Counts>),
    Status(ChildKey, Asked<ChildStatus>),
    Start(Box<ChildSpec>, Asked<SlotRef>),
    Terminate(ChildKey, Asked<()>),
    Restart(ChildKey, Asked<SlotRef>),
    Delete(ChildKey, Asked<()>),
}

/// The report of a child about its start: its key, its incarnation, and the result.
pub(super) type Reported = (u64, u64, Result<(), StartReason>);

/// The reports of children that the supervisor has not noted yet, the oldest first. They are no
/// messages, because the mailbox of a supervisor may be bounded and refuse or drop messages.
#[derive(Debug, Default)]
pub(super) struct ChildReports(Mutex<Vec<Reported>>);

impl ChildReports {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(super) fn take(&self) -> Vec<Reported> {
        std::mem::take(&mut self.0.lock())
    }
}

/// The report of one process of a child, once it has started or failed to.
#[derive(Debug)]
pub(super) struct StartReport {
    pub(super) supervisor: Pid,
    pub(super) reports: Arc<ChildReports>,
    pub(super) key: u64,
    pub(super) incarnation: u64,
}

impl StartReport {
    pub(super) fn send(self, result: Result<(), StartReason>) {
        self.reports.0.lock().push((self.key, self.incarnation, result));
        // A supervisor that has ended has no children.
        if let Some(supervisor) = find(self.supervisor) {
            wake(&supervisor);
        }
    }
}
