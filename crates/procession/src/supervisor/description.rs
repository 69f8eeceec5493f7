//! What a supervisor and its children are to be like.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::error::{ChildError, SpecError};
use super::policy::{AutoShutdown, BackOff, Restart, Stop, Strategy};
use super::status::{ChildInfo, ChildKey, ChildStatus, Counts};
use crate::{Address, MonitorRef, Pid, Reply, SpawnOptions, WhenFull};

/// One restart in this time is fine.
const PERIOD_DEFAULT: Duration = Duration::from_secs(5);

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

    /// What [`SupervisorRef::start_another`](super::SupervisorRef::start_another) starts. For dynamic supervisors.
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
        match (&child.mailbox, &child.make.nested) {
            (Some((0, _)), _) => return Err(SpecError::Mailbox(id())),
            (Some(_), Some(_)) => return Err(SpecError::SupervisorMailbox(id())),
            _ => {}
        }
        if let Some(nested) = &child.make.nested {
            nested.check().map_err(|error| SpecError::Nested { child: id(), error: Box::new(error) })?;
        }
        Ok(())
    }
}

/// The process of a child that was just made, and the supervisor's monitor of it.
pub(super) type Spawned = (Pid, MonitorRef);

pub(super) type Factory = dyn Fn(SpawnOptions, Started) -> Result<Spawned, Arc<str>> + Send + Sync;

/// How a child is made.
#[derive(Clone)]
pub(super) struct Make {
    pub(super) factory: Arc<Factory>,
    /// The child says by itself that it has started.
    pub(super) reports_start: bool,
    /// Its description, if it is a supervisor.
    pub(super) nested: Option<Arc<Supervisor>>,
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
    pub(super) label: Option<Arc<str>>,
    pub(super) mailbox: Option<(u32, WhenFull)>,
    pub(super) affinity: Option<u32>,
    pub(super) location: &'static Location<'static>,
}

impl ChildSpec {
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
        self.make.nested.is_some()
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
pub struct Started(Option<StartReport>);

impl Started {
    pub(super) fn new(report: StartReport) -> Self {
        Self(Some(report))
    }

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
    pub(super) fn forget(self) {
        drop(self.into_report());
    }

    /// For a child that says by other means that it has not started.
    pub(super) fn into_report(mut self) -> Option<StartReport> {
        self.0.take()
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

pub(super) type Asked<T> = Reply<Result<T, ChildError>>;

/// What a supervisor is told and asked.
pub(super) enum Request {
    Started { key: u64, incarnation: u64, result: Result<(), Arc<str>> },
    Which(Reply<Vec<ChildInfo>>),
    Count(Reply<Counts>),
    Status(ChildKey, Asked<ChildStatus>),
    Start(Box<ChildSpec>, Asked<Pid>),
    StartAnother(Asked<Pid>),
    Terminate(ChildKey, Asked<()>),
    Restart(ChildKey, Asked<Pid>),
    Delete(ChildKey, Asked<()>),
}

/// Where a child says that it has started.
#[derive(Debug)]
pub(super) struct StartReport {
    pub(super) supervisor: Address<Request>,
    pub(super) key: u64,
    pub(super) incarnation: u64,
}

impl StartReport {
    pub(super) fn send(self, result: Result<(), Arc<str>>) {
        // Ignored: a supervisor that has ended has no children.
        drop(self.supervisor.send(Request::Started { key: self.key, incarnation: self.incarnation, result }));
    }
}
