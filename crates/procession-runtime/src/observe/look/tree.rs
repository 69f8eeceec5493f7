//! The supervisors of a scheduler and their children.

use std::sync::Arc;

use procession_protocols::util::sorted_map::SortedMap;

use crate::Pid;
use crate::observe::look::rows::short_label;
use crate::relations::links;
use crate::report::kept::Reports;
use crate::report::supervision::{ChildExit, ChildHistory};
use crate::scheduler::shared::Shared;
use crate::time::Instant;

/// The largest number of children that are listed for each supervisor, and of supervisors.
const CHILDREN_MAX: usize = 1000;

/// A supervisor and its children. See [`Scheduler::supervision`](crate::Scheduler::supervision).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SupervisorRow {
    /// Its PID.
    pub pid: Pid,
    /// Its label, if it has one, cut after 120 characters.
    pub label: Option<String>,
    /// The name under which it is registered, if it is.
    pub name: Option<Arc<str>>,
    /// The supervisor of the supervisor, if there is one.
    pub supervisor: Option<Pid>,
    /// Its children: all children that have a process, and all ended children that are kept.
    pub children: Vec<SupervisedRow>,
    /// Number of children that are not listed, because at most 1000 children are listed.
    pub left_off: usize,
}

/// A child of a supervisor.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SupervisedRow {
    /// Its process, if it has one.
    pub pid: Option<Pid>,
    /// The id of the child, if it has one and has ended before.
    pub id: Option<Arc<str>>,
    /// The label of the process, if it has one, cut after 120 characters.
    pub label: Option<String>,
    /// Number of ends that were not asked for.
    pub ends: u64,
    /// The last 8 of these ends, the oldest first.
    pub exits: Vec<ChildExit>,
}

impl ChildExit {
    /// Returns when the process ended, on the clock of the scheduler.
    pub fn at(&self) -> Instant {
        Instant::from_nanoseconds(self.at)
    }
}

impl SupervisedRow {
    fn with_history(mut self, history: ChildHistory) -> Self {
        self.id = history.id;
        self.ends = history.count;
        self.exits = history.exits.into();
        self
    }
}

/// The listed children of each supervisor, and the number of the others.
type Listed = SortedMap<Pid, (Vec<SupervisedRow>, usize)>;

/// Returns `true` if a supervisor is listed, or may be.
fn has_room(listed: &Listed, supervisor: Pid) -> bool {
    listed.len() < CHILDREN_MAX || listed.contains_key(&supervisor)
}

/// Returns all supervisors that have children, by PID.
pub(crate) fn supervision(shared: &Shared) -> Vec<SupervisorRow> {
    let mut supervisors = Listed::new();
    for index in 0..shared.table().used() {
        let Some(slot) = shared.table().pin_any(index) else { continue };
        let Some(supervisor) = links::supervisor(&slot) else { continue };
        if slot.state.see().is_complete() || !has_room(&supervisors, supervisor) {
            continue;
        }
        let (children, left_off) = supervisors.get_or_default(supervisor);
        if children.len() == CHILDREN_MAX {
            *left_off += 1;
            continue;
        }
        let (pid, label) = (Some(slot.seen_pid()), short_label(&slot));
        children.push(SupervisedRow { pid, label, ..SupervisedRow::default() });
    }
    // The log is read supervisor by supervisor, because its lock delays the steps of all of them.
    let log = &Reports::of(shared).supervision;
    for supervisor in log.supervisors() {
        if !has_room(&supervisors, supervisor) {
            continue;
        }
        let (children, left_off) = supervisors.get_or_default(supervisor);
        let pids = children.iter().enumerate().filter_map(|(at, child)| Some((child.pid?, at)));
        let places: SortedMap<Pid, usize> = pids.collect();
        let place_of = |history: &ChildHistory| places.get(&history.started?).copied();
        let mut room = CHILDREN_MAX - children.len();
        let histories = log.children(supervisor, |history| {
            if place_of(history).is_some() {
                return true;
            }
            let has_room = room > 0;
            room -= usize::from(has_room);
            // A child with a process is counted above.
            *left_off += usize::from(!has_room && history.started.is_none());
            has_room
        });
        for history in histories {
            match place_of(&history) {
                Some(at) => {
                    children[at] = std::mem::take(&mut children[at]).with_history(history);
                }
                None => children.push(SupervisedRow::default().with_history(history)),
            }
        }
    }
    let rows = supervisors.into_iter().filter_map(|(pid, (children, left_off))| {
        let slot = shared.table().pin(pid.slot(), pid.generation())?;
        Some(SupervisorRow {
            pid,
            label: short_label(&slot),
            name: links::registered_name(&slot),
            supervisor: links::supervisor(&slot),
            children,
            left_off,
        })
    });
    rows.collect()
}
