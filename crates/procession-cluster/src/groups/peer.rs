//! The scope of another node, and what it has to be told.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use procession::Pid;

use crate::error::SendTermCause;
use crate::node::member::Member;
use crate::remote::Remote;
use crate::term::{NodePid, Reference, Term};

/// The messages after a `sync` that may wait when a change is added to them. A further change leads
/// to another `sync`.
const REST_MAX: usize = 1 << 16;

/// A process in a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    /// It is kept, because a node forgets the PIDs of an incarnation when it meets the next one.
    pub(super) pid: Pid,
    /// How often the process is in the group.
    pub(super) count: usize,
    /// How often more than the latest `sync` and the joins after it have said so far.
    pub(super) surplus: usize,
}

/// The scope of another node.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pid: NodePid,
    pub(super) monitor: Reference,
    /// It has taken the place of another one.
    pub(super) has_replaced: bool,
    pub(super) members: BTreeMap<(Arc<str>, NodePid), Entries>,
    /// How many entries these are.
    pub(super) count: usize,
    /// It lacks changes, because they had no room.
    pub(super) is_behind: bool,
    /// What is left of the latest `sync`, and the changes after it.
    pub(super) rest: VecDeque<Term>,
    /// It was not asked for its members, because there was no room.
    pub(super) is_unasked: bool,
}

impl Peer {
    pub(super) fn is_waiting(&self) -> bool {
        self.is_behind || self.is_unasked || !self.rest.is_empty()
    }

    /// Returns the processes in a group, in their order.
    pub(super) fn members_of(&self, name: &Arc<str>) -> impl Iterator<Item = &NodePid> {
        // All are of this incarnation.
        let first = NodePid { id: 0, serial: 0, ..self.pid.clone() };
        let rows = self.members.range((Arc::clone(name), first)..);
        rows.map(|(member, _)| member)
            .take_while(move |(group, _)| group == name)
            .map(|(_, pid)| pid)
    }

    /// Notes which members are surplus, because the node does not name them any more.
    pub(super) fn compare(&mut self, wanted: &Members) {
        for (member, entries) in &mut self.members {
            let wanted = wanted.get(member).copied().unwrap_or_default();
            entries.surplus = entries.count.saturating_sub(wanted);
        }
    }

    /// Returns the surplus members, and how often they are in their groups. They are surplus no
    /// more, because the caller removes them.
    pub(super) fn take_surplus(&mut self) -> Vec<((Arc<str>, NodePid), usize)> {
        let surplus = self.members.iter_mut().filter(|(_, entries)| entries.surplus > 0);
        surplus.map(|(member, entries)| (member.clone(), mem::take(&mut entries.surplus))).collect()
    }

    /// Tells a change, now or later.
    pub(super) fn tell_change(&mut self, own: &Member, term: &Term) {
        if self.is_behind {
            return;
        }
        if self.rest.is_empty() {
            self.is_behind = tell(own, &self.pid, term.clone()).is_err();
        } else if self.rest.len() < REST_MAX {
            self.rest.push_back(term.clone());
        } else {
            self.is_behind = true;
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn tell_rest(&mut self, own: &Member) {
        while let Some(term) = self.rest.pop_front() {
            if let Err(term) = tell(own, &self.pid, term) {
                self.rest.push_front(term);
                return;
            }
        }
    }
}

/// How often the processes of another node are in a group.
pub(super) type Members = BTreeMap<(Arc<str>, NodePid), usize>;

/// Returns how often each item is there.
pub(super) fn counted<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    counts
}

/// Returns `true` if two processes are of the same incarnation of a node.
pub(super) fn is_of_node(pid: &NodePid, other: &NodePid) -> bool {
    pid.node == other.node && pid.creation == other.creation
}

/// Sends a message. Returns it if it has no room, or is not permitted.
pub(super) fn tell(own: &Member, to: impl Into<Remote>, term: Term) -> Result<(), Term> {
    let Err(refused) = own.send(to, term) else { return Ok(()) };
    match refused.cause() {
        SendTermCause::Full | SendTermCause::NotAllowed => Err(refused.into_inner()),
        // The end of a connection is told by the monitor, and all messages can be sent.
        _ => Ok(()),
    }
}
