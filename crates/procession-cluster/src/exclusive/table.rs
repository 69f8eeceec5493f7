//! The names of a node: its lease, and its processes that wait for names or hold them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use procession::Pid;
use procession::mailbox::relay;
use procession::observe::DoorSection;
use procession::process::{self, catch_panic};
use procession::scheduler::Health;
use procession::sync::{Notify, watch};
use procession::time::Instant;
use procession_sync::Mutex;

use super::store::{Answer, Fence, LeaseId, LeaseStore, StoreError};
use crate::guarded::Guarded;
use crate::node::Node;
use crate::node::parts::{ExclusiveNameInfo, LISTED_MAX, Lists, Part};
use crate::node::refusals::{self, Refusals};
use crate::term::NodePid;

/// The names of a node, and the processes that claim them.
pub(super) struct Names {
    pub(super) node: Node,
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) lease_time: Duration,
    pub(super) table: Mutex<Table>,
    /// Notified when there is a lease, when a claim has ended, and when the names stop.
    pub(super) changed: Notify,
    /// Notified when `watched` begins.
    pub(super) watches: Notify,
    pub(super) reports: Refusals,
}

#[derive(Default)]
pub(super) struct Table {
    pub(super) lease: Option<Current>,
    pub(super) claims: BTreeMap<u64, Claim>,
    pub(super) monitored: BTreeMap<Arc<str>, Monitored>,
    /// The greatest fence that the store has given to this node.
    pub(super) newest: u64,
    /// The revision from which on all changes are seen, if somebody waits for one.
    pub(super) watched: Option<u64>,
    /// How often a lease with holders was lost.
    pub(super) losses: u64,
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    #[default]
    Runs,
    /// Processes that hold names may end, and no process gets a name any more.
    Stops,
    /// All have ended.
    Over,
}

/// The lease of the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) id: LeaseId,
    /// From then on, no process of this node holds a name.
    pub(super) deadline: Instant,
}

/// A process that waits for a name, or holds it.
pub(super) struct Claim {
    pub(super) name: Arc<str>,
    pub(super) pid: Pid,
    pub(super) is_singleton: bool,
    /// Of the [`ExclusiveName`](super::ExclusiveName), as long as it holds the name.
    pub(super) held: Weak<Fence>,
    /// Notified when the name may be free.
    pub(super) freed: Arc<Notify>,
}

/// A process that holds a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its PID. Messages reach it if it is [attached](Node::attach).
    pub pid: NodePid,
    /// The fence that it has.
    pub fence: Fence,
}

/// A name that somebody monitors.
#[derive(Clone)]
pub(super) struct Monitored {
    pub(super) holder: watch::Sender<Option<Holder>>,
    /// Notified when the holder may have changed.
    pub(super) changed: Arc<Notify>,
}

impl Claim {
    pub(super) fn is_held(&self) -> bool {
        self.held.strong_count() > 0
    }
}

impl Part for Names {
    fn list(&self, lists: &mut Lists) {
        let claims: Vec<_> = {
            let table = self.table.lock();
            let claims = table.claims.values().take(LISTED_MAX);
            claims
                .map(|it| (it.name.to_string(), it.pid, it.held.upgrade(), it.is_singleton))
                .collect()
        };
        let listed = claims.into_iter().filter_map(|(name, pid, fence, is_singleton)| {
            let (pid, fence) = (self.node.node_pid(pid)?, fence.map(|fence| fence.get()));
            Some(ExclusiveNameInfo { name, pid, fence, is_singleton })
        });
        lists.exclusive_names.extend(listed);
    }
}

impl Names {
    /// Asks the store. A panic of its code is an error.
    pub(super) async fn ask<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn LeaseStore) -> Answer<'a, T>,
    ) -> Result<T, StoreError> {
        let panicked = || StoreError::new("it has panicked");
        let answer = catch_panic(|| question(&*self.store)).ok_or_else(panicked)?;
        let mut answer = Guarded::new(answer);
        poll_fn(|task| {
            let polled = catch_panic(|| answer.as_mut().poll(task));
            polled.unwrap_or_else(|| Poll::Ready(Err(panicked())))
        })
        .await
    }

    /// Calls a function in the scheduler of the node. Returns `None` if it has ended.
    pub(super) fn within_node<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        self.node.0.scheduler.get().and_then(|own| relay::within(*own, call))
    }

    pub(super) fn stage(&self) -> Stage {
        self.table.lock().stage
    }

    /// Returns `true` if no process gets a name any more.
    pub(super) fn refuses(&self) -> bool {
        self.node.is_leaving() || self.stage() != Stage::Runs
    }

    /// Lets no process have a name any more. Returns `false` if that was so before.
    fn refuse(&self) -> bool {
        let is_first = {
            let mut table = self.table.lock();
            let is_first = table.stage == Stage::Runs;
            if is_first {
                table.stage = Stage::Stops;
            }
            is_first
        };
        if is_first {
            self.tell_all();
            self.changed.notify_waiters();
        }
        is_first
    }

    /// Lets the node take its names along. In a shutdown of the scheduler, others cancel the
    /// processes that hold names, in their order.
    pub(super) fn leave(self: &Arc<Self>) {
        if Health::here().is_ending() {
            self.refuse();
        } else {
            self.stop();
        }
    }

    /// Also cancels the processes that hold names, and kills those that do not end.
    pub(super) fn stop(self: &Arc<Self>) {
        if !self.refuse() {
            return;
        }
        for pid in self.holders() {
            process::cancel(pid);
        }
        let names = Arc::downgrade(self);
        let kill = move || {
            let holders = names.upgrade().map(|names| names.holders());
            for pid in holders.into_iter().flatten() {
                process::kill(pid);
            }
        };
        let lease_time = self.lease_time;
        // Ignored: without a timer, the processes have any time.
        let _ = self.within_node(|| procession::time::run_after(lease_time, kill).is_ok());
    }

    /// Returns the processes that hold names.
    pub(super) fn holders(&self) -> Vec<Pid> {
        let table = self.table.lock();
        table.claims.values().filter(|claim| claim.is_held()).map(|claim| claim.pid).collect()
    }

    pub(super) async fn until(&self, stage: Stage) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.stage() >= stage {
                return;
            }
            changed.await;
        }
    }

    /// Reports, once in a while, what is wrong with the store.
    pub(super) fn report(&self, what: &'static str, why: impl fmt::Display) {
        let text = || format!("{}: {what}", self.node.name());
        refusals::tell_apart(self.reports.report(what, text, why));
    }

    /// Shows the names in the door of the scheduler.
    pub(super) fn show(&self, section: &mut DoorSection) {
        let (held, count, losses) = {
            let table = self.table.lock();
            let held = table.claims.values().filter_map(|claim| {
                let fence = claim.held.upgrade()?;
                Some((Arc::clone(&claim.name), claim.pid, fence.get()))
            });
            (held.collect::<Vec<_>>(), table.claims.len(), table.losses)
        };
        let (node, waiting) = (self.node.name().as_str(), count - held.len());
        section.row("lease", |row| {
            row.label("node", node)
                .gauge("held", "Names that processes of the node hold.", held.len() as u64)
                .gauge("waiting", "Processes that wait for a name.", waiting as u64)
                .counter("losses", "Leases that were lost while processes held names.", losses);
        });
        for (name, pid, fence) in &held {
            section.row("name", |row| {
                row.label("node", node).label("name", name).label("pid", pid);
                row.gauge("fence", "The fence of the process that holds the name.", *fence);
            });
        }
    }

    /// Returns the time between two attempts to reach a store that has not answered.
    pub(super) fn pause(&self) -> Duration {
        self.lease_time / 10
    }

    /// Lets all claims and monitors ask again, because the watch may have missed something.
    pub(super) fn tell_all(&self) {
        let mut table = self.table.lock();
        table.watched = None;
        table
            .claims
            .values()
            .filter(|claim| !claim.is_held())
            .for_each(|claim| claim.freed.notify_one());
        table.monitored.values().for_each(|monitored| monitored.changed.notify_one());
    }
}
