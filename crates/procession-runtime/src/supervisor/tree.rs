//! The knowledge of a supervisor about its children.

use std::collections::VecDeque;
use std::sync::Arc;

use procession_protocols::util::sorted_map::{SortedMap, SortedSet};

use super::description::{Asked, ChildReports, ChildSpec, Request, Supervisor};
use super::error::{ChildError, StartError, StartReason};
use super::policy::Strategy;
use super::status::{ChildKey, ChildStatus};
use crate::mailbox::dead_letter::KeptMailbox;
use crate::mailbox::deliver::discard_kept;
use crate::process::slot::SlotRef;
use crate::process::unwind::drop_each;
use crate::relations::signal::MonitorRef;
use crate::report::failure::tell_owed;
use crate::report::kept::Reports;
use crate::scheduler::reach::reach;
use crate::time::Instant;
use crate::util::generator::Generator;
use crate::{Address, Exit, Pid, Reply};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildState {
    /// No process. The child may be in `to_start`.
    None,
    /// No process. The child is in `delayed`.
    Delayed { until: u64 },
    /// The process has not reported yet that it has started.
    Starting(Pid, MonitorRef),
    /// The process runs since this time.
    Running(Pid, MonitorRef, u64),
    /// The process is being stopped. If there is a deadline, it is in `deadlines`.
    Stopping { pid: Pid, monitor: MonitorRef, deadline: Option<u64> },
}

impl ChildState {
    pub(super) fn pid(self) -> Option<Pid> {
        match self {
            Self::None | Self::Delayed { .. } => None,
            Self::Starting(pid, _) | Self::Running(pid, ..) | Self::Stopping { pid, .. } => {
                Some(pid)
            }
        }
    }
}

pub(super) struct Child {
    pub(super) spec: ChildSpec,
    pub(super) state: ChildState,
    /// `true` if the child is started again once it has stopped.
    pub(super) starts_again: bool,
    /// Distinguishes reports of this process from reports of an earlier process.
    pub(super) incarnation: u64,
    /// The restarts since the child last ran for long.
    pub(super) restarts: u32,
    /// The reason for a failed start, if the child reported one.
    pub(super) failure: Option<StartReason>,
    /// `true` until the child has started or was stopped. If such a child is added at run time and
    /// does not start, it is forgotten.
    pub(super) is_new: bool,
    pub(super) started: Option<Asked<SlotRef>>,
    /// The process, for the answer to `started`. A pin keeps the slot from being reused, even if
    /// the process ends before it has an address.
    pub(super) process: Option<SlotRef>,
    pub(super) stopped: Vec<Asked<()>>,
    /// Keeps the messages that a process of the child leaves, for the next process.
    pub(super) kept: Option<Arc<KeptMailbox>>,
}

impl Child {
    /// Drops the kept messages, because no process of the child will receive them.
    pub(super) fn discard_kept(&self) {
        let left = self.kept.as_ref().map(|kept| kept.hand_over(None)).unwrap_or_default();
        let Some(first) = left.first() else { return };
        match reach(first.to.scheduler()) {
            Some(shared) => discard_kept(&shared, left),
            None => drop_each(left),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.discard_kept();
    }
}

/// The pending actions on children, by their keys.
#[derive(Default)]
pub(super) struct Agenda {
    pub(super) to_stop: SortedSet<u64>,
    pub(super) stopping: SortedSet<u64>,
    pub(super) to_start: SortedSet<u64>,
    pub(super) starting: SortedSet<u64>,
    /// The children to start at a time.
    pub(super) delayed: SortedSet<(u64, u64)>,
    /// The children to terminate at a time.
    pub(super) deadlines: SortedSet<(u64, u64)>,
}

pub(super) struct Tree {
    pub(super) own: Address<Request>,
    pub(super) reports: Arc<ChildReports>,
    pub(super) description: Arc<Supervisor>,
    pub(super) generator: Generator,
    /// In the order of their starts.
    pub(super) children: SortedMap<u64, Child>,
    pub(super) ids: SortedMap<Arc<str>, u64>,
    pub(super) pids: SortedMap<Pid, u64>,
    pub(super) last_key: u64,
    pub(super) last_incarnation: u64,
    pub(super) agenda: Agenda,
    /// The times of the restarts within the last period.
    pub(super) restarts: VecDeque<u64>,
    /// The number of processes of significant children.
    pub(super) significant: usize,
    /// A significant child has ended for good, and since then none has started or was stopped.
    /// Then a failed start of the last one ends the tree, as if the start had failed before.
    pub(super) significant_ended: bool,
    /// The result of the start of the tree.
    pub(super) started: Option<Result<(), StartError>>,
    pub(super) awaited: Option<Reply<Result<(), StartError>>>,
    /// The exit with which the supervisor ends once no child is left.
    pub(super) ending: Option<Exit>,
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(own) = self.own.slot() {
            Reports::of(own.shared()).supervision.forget(own.pid());
            // The remaining reports are about children that ended so late that the supervisor no
            // longer handled them.
            for owed in Reports::of(own.shared()).owed.close(own.pid()) {
                tell_owed(own, &owed);
            }
        }
    }
}

impl Tree {
    pub(super) fn new(
        own: Address<Request>,
        description: Arc<Supervisor>,
        generator: Generator,
        awaited: Option<Reply<Result<(), StartError>>>,
    ) -> Self {
        let mut tree = Self {
            own,
            reports: Arc::default(),
            generator,
            children: SortedMap::new(),
            ids: SortedMap::new(),
            pids: SortedMap::new(),
            last_key: 0,
            last_incarnation: 0,
            agenda: Agenda::default(),
            restarts: VecDeque::new(),
            significant: 0,
            significant_ended: false,
            started: None,
            awaited,
            ending: None,
            description: Arc::clone(&description),
        };
        if let Some(own) = tree.own.slot() {
            Reports::of(own.shared()).owed.open(own.pid());
        }
        for spec in &description.children {
            tree.add(spec.clone(), None);
        }
        tree
    }

    pub(super) fn is_dynamic(&self) -> bool {
        self.description.strategy == Strategy::Dynamic
    }

    /// Returns `true` if children start one after the other at present.
    pub(super) fn in_order(&self) -> bool {
        let grouped =
            matches!(self.description.strategy, Strategy::OneForAll | Strategy::RestForOne);
        grouped || self.started.is_none()
    }

    pub(super) fn add(&mut self, spec: ChildSpec, started: Option<Asked<SlotRef>>) {
        self.last_key += 1;
        let key = self.last_key;
        if let Some(id) = &spec.id {
            self.ids.insert(Arc::clone(id), key);
        }
        let kept = spec.keeps_mailbox.then(Arc::default);
        let child = Child {
            kept,
            spec,
            state: ChildState::None,
            starts_again: false,
            incarnation: 0,
            restarts: 0,
            failure: None,
            process: None,
            is_new: true,
            started,
            stopped: Vec::new(),
        };
        self.children.insert(key, child);
        self.agenda.to_start.insert(key);
    }

    pub(super) fn forget(&mut self, key: u64) {
        if let Some(child) = self.children.remove(&key) {
            if let Some(own) = self.own.slot() {
                Reports::of(own.shared()).supervision.forget_child(own.pid(), key);
            }
            if let Some(id) = &child.spec.id {
                self.ids.remove(id);
            }
        }
        self.agenda.to_start.remove(&key);
    }

    /// Returns the earliest time at which there is something to do.
    pub(super) fn next_moment(&self) -> Option<u64> {
        let first = |moments: &SortedSet<(u64, u64)>| moments.first().map(|&(moment, _)| moment);
        first(&self.agenda.delayed).into_iter().chain(first(&self.agenda.deadlines)).min()
    }

    /// Returns the exit of the supervisor, if it is time to end.
    pub(super) fn ended(&self) -> Option<Exit> {
        self.ending.clone().filter(|_| self.pids.is_empty())
    }

    pub(super) fn find(&self, child: &ChildKey) -> Result<u64, ChildError> {
        let key = match child {
            ChildKey::Id(id) => self.ids.get(id),
            ChildKey::Pid(pid) => self.pids.get(pid),
        };
        key.copied().ok_or(ChildError::NotFound)
    }

    pub(super) fn status(&self, key: u64, child: &Child) -> ChildStatus {
        match child.state {
            ChildState::None if self.agenda.to_start.contains(&key) => {
                ChildStatus::Waiting(Instant::from_nanoseconds(0))
            }
            ChildState::None => ChildStatus::Stopped,
            ChildState::Delayed { until } => ChildStatus::Waiting(Instant::from_nanoseconds(until)),
            ChildState::Starting(pid, _) => ChildStatus::Starting(pid),
            ChildState::Running(pid, ..) => ChildStatus::Running(pid),
            ChildState::Stopping { pid, .. } => ChildStatus::Stopping(pid),
        }
    }
}
