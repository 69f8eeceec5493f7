//! The last exits of supervised children.

use std::collections::VecDeque;
use std::sync::Arc;

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::report::crash_report::cut_exit;
use crate::{Exit, Pid};

/// The number of exits that are kept for each child.
const EXITS_KEPT: usize = 8;

/// An end of a supervised child that was not asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildExit {
    /// The process that ended.
    pub pid: Pid,
    /// Its exit. A text is cut after 1024 bytes.
    pub exit: Exit,
    /// When it ended, on the clock of the scheduler.
    pub(crate) at: u64,
}

/// The exits of one child.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildHistory {
    pub(crate) id: Option<Arc<str>>,
    /// The process that was started after the last exit, if one was.
    pub(crate) started: Option<Pid>,
    /// The number of all exits.
    pub(crate) count: u64,
    /// The last exits, the oldest first.
    pub(crate) exits: VecDeque<ChildExit>,
}

/// The children of one supervisor that have ended, by their keys.
type Histories = SortedMap<u64, ChildHistory>;

/// The last exits of the children of all supervisors of a scheduler.
#[derive(Debug, Default)]
pub(crate) struct SupervisionLog(Mutex<SortedMap<Pid, Histories>>);

impl SupervisionLog {
    /// Notes the end of a process of a child.
    pub(crate) fn note(
        &self,
        supervisor: Pid,
        (key, id): (u64, Option<&Arc<str>>),
        (pid, exit, at): (Pid, &Exit, u64),
    ) {
        let exit = ChildExit { pid, exit: cut_exit(exit), at };
        let mut log = self.0.lock();
        let child = log.get_or_default(supervisor).get_or_default(key);
        child.id = id.cloned();
        child.started = None;
        child.count += 1;
        let oldest = if child.exits.len() == EXITS_KEPT { child.exits.pop_front() } else { None };
        child.exits.push_back(exit);
        drop(log);
        drop(oldest);
    }

    /// Notes the start of a child that has ended before.
    pub(crate) fn note_start(&self, supervisor: Pid, key: u64, pid: Pid) {
        let mut log = self.0.lock();
        let child = log.get_mut(&supervisor).and_then(|children| children.get_mut(&key));
        if let Some(child) = child {
            child.started = Some(pid);
        }
    }

    /// Forgets a child.
    pub(crate) fn forget_child(&self, supervisor: Pid, key: u64) {
        let mut log = self.0.lock();
        let child = log.get_mut(&supervisor).and_then(|children| children.remove(&key));
        drop(log);
        drop(child);
    }

    /// Forgets a supervisor.
    pub(crate) fn forget(&self, supervisor: Pid) {
        let children = self.0.lock().remove(&supervisor);
        drop(children);
    }

    /// Returns the supervisors with children that have ended.
    pub(crate) fn supervisors(&self) -> Vec<Pid> {
        self.0.lock().keys().copied().collect()
    }

    /// Returns the children of a supervisor that have ended, as far as they are wanted. `is_wanted`
    /// runs under the lock that every supervisor takes in its steps.
    pub(crate) fn children(
        &self,
        supervisor: Pid,
        mut is_wanted: impl FnMut(&ChildHistory) -> bool,
    ) -> Vec<ChildHistory> {
        let log = self.0.lock();
        let Some(children) = log.get(&supervisor) else { return Vec::new() };
        children.values().filter(|child| is_wanted(child)).cloned().collect()
    }
}

/// The maximum number of labels that are counted apart. A label may be made of anything, such as
/// the name of a customer.
const LABELS_MAX: usize = 50;
/// Stands for the supervisors with labels that came later.
const OTHERS: &str = "(others)";

/// What supervisors with one label did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestartCounts {
    pub(crate) restarts: u64,
    /// The number of times that such a supervisor exceeded its restart limit.
    pub(crate) gave_up: u64,
}

/// The restarts by all supervisors of a scheduler, by their labels. Restarts by supervisors without
/// a label count under the empty label.
#[derive(Debug, Default)]
pub(crate) struct RestartTotals(Mutex<SortedMap<String, RestartCounts>>);

impl RestartTotals {
    /// Counts a restart, or a supervisor that gave up.
    pub(crate) fn count(&self, label: &str, gave_up: bool) {
        let mut totals = self.0.lock();
        let is_apart = totals.contains_key(label) || totals.len() < LABELS_MAX;
        let label = if is_apart { label } else { OTHERS };
        let counts = totals.get_or_default(label.to_owned());
        if gave_up {
            counts.gave_up += 1;
        } else {
            counts.restarts += 1;
        }
    }

    /// Returns all counts.
    #[cfg(any(feature = "door", feature = "metrics"))]
    pub(crate) fn all(&self) -> SortedMap<String, RestartCounts> {
        self.0.lock().clone()
    }
}

#[cfg(all(test, any(feature = "door", feature = "metrics")))]
mod tests {
    use super::{LABELS_MAX, OTHERS, RestartCounts, RestartTotals};

    #[test]
    fn labels_without_end_are_counted_together() {
        let totals = RestartTotals::default();
        for number in 0..LABELS_MAX + 7 {
            totals.count(&number.to_string(), false);
        }
        totals.count("3", true);
        let all = totals.all();
        assert_eq!(all.len(), LABELS_MAX + 1);
        assert_eq!(all["3"], RestartCounts { restarts: 1, gave_up: 1 });
        assert_eq!(all[OTHERS], RestartCounts { restarts: 7, gave_up: 0 });
    }
}
