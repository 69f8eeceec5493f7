//! The processes of this node that the other node monitors.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use procession::process::MonitorRef;

use crate::node::functions::Applied;
use crate::term::{NodePid, Reference};
use crate::wire::control::Target;

/// A process of this node that the other node monitors.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) watcher: NodePid,
    pub(super) target: Target,
    /// The reference of the other node.
    pub(super) monitor: Reference,
    /// Set if it is the process of a call. Then the end of the process has the result.
    pub(super) applied: Option<Applied>,
}

/// The monitored processes, by the monitor of this node and by the reference of the other node.
///
/// The other node may use one reference twice. It stands for the latest monitor then.
#[derive(Debug, Default)]
pub(super) struct WatchedProcesses {
    all: HashMap<MonitorRef, Watched>,
    by_reference: HashMap<Reference, MonitorRef>,
}

impl WatchedProcesses {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn insert(&mut self, own: MonitorRef, watched: Watched) {
        self.by_reference.insert(watched.monitor.clone(), own);
        self.all.insert(own, watched);
    }

    pub(super) fn remove(&mut self, own: MonitorRef) -> Option<Watched> {
        let watched = self.all.remove(&own)?;
        if self.by_reference.get(&watched.monitor) == Some(&own) {
            self.by_reference.remove(&watched.monitor);
        }
        Some(watched)
    }

    pub(super) fn remove_by_reference(
        &mut self,
        monitor: &Reference,
    ) -> Option<(MonitorRef, Watched)> {
        let own = self.by_reference.remove(monitor)?;
        Some((own, self.all.remove(&own)?))
    }
}

/// Links of the other node that end nothing here: by the monitor of this node, and by the number of
/// the process on this side and the process on the other.
#[derive(Debug, Default)]
pub(super) struct HalfLinks {
    by_monitor: HashMap<MonitorRef, (u64, NodePid)>,
    by_link: HashMap<(u64, NodePid), MonitorRef>,
}

impl HalfLinks {
    pub(super) fn len(&self) -> usize {
        self.by_link.len()
    }

    /// Enters a link, unless it is there.
    pub(super) fn insert(&mut self, link: (u64, NodePid), monitor: impl FnOnce() -> MonitorRef) {
        if let Entry::Vacant(new) = self.by_link.entry(link) {
            let monitor = monitor();
            self.by_monitor.insert(monitor, new.key().clone());
            new.insert(monitor);
        }
    }

    /// Removes the link of a monitor.
    pub(super) fn remove(&mut self, monitor: MonitorRef) -> Option<(u64, NodePid)> {
        let link = self.by_monitor.remove(&monitor)?;
        self.by_link.remove(&link);
        Some(link)
    }

    /// Removes a link. Returns its monitor.
    pub(super) fn remove_link(&mut self, own: u64, other: &NodePid) -> Option<MonitorRef> {
        let monitor = self.by_link.remove(&(own, other.clone()))?;
        self.by_monitor.remove(&monitor);
        Some(monitor)
    }
}

#[cfg(test)]
mod tests {
    use procession::mailbox::relay::draw_monitor;

    use super::{Watched, WatchedProcesses};
    use crate::term::{Atom, NodePid, Reference};
    use crate::wire::control::Target;

    /// Goal: nothing is left of what was removed, by whichever key. Method: the other node uses one
    /// of two references twice.
    #[test]
    fn what_is_removed_by_one_key_is_gone_by_the_other() {
        let node = Atom::known("b@127.0.0.1");
        let pid = NodePid { node: node.clone(), id: 9, serial: 0, creation: 7 };
        let reference = |id| Reference::new(node.clone(), 7, &[id]).expect("it has a word");
        let mut all = WatchedProcesses::default();
        let own = [1, 1, 2].map(|id| {
            let own = draw_monitor();
            let (watcher, monitor) = (pid.clone(), reference(id));
            let target = Target::Pid(pid.clone());
            all.insert(own, Watched { watcher, target, monitor, applied: None });
            own
        });
        assert!(all.remove(own[0]).is_some());
        let (latest, _) = all.remove_by_reference(&reference(1)).expect("the latest is there");
        assert_eq!(latest, own[1]);
        assert!(all.remove(own[1]).is_none());
        assert!(all.remove(own[2]).is_some());
        assert!(all.all.is_empty() && all.by_reference.is_empty(), "{all:?}");
    }
}
