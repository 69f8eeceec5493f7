//! What is built on a node, such as groups and names, and lists itself in the status of the node.

use std::sync::Weak;

use crate::node::Node;
use crate::node::status::NodeStatus;
use crate::term::maps::{get, get_number, map, number, optional};
use crate::term::{NodePid, Term};

/// The rows of each list in a status, at most. With the longest names, they have some 4 MiB.
pub(crate) const LISTED_MAX: usize = 1024;

/// Something that is built on a node.
pub(crate) trait Part: Send + Sync {
    /// Adds at most [`LISTED_MAX`] rows to each list in the status of its node.
    fn list(&self, node: &Node, status: &mut NodeStatus);
}

/// A group of processes, in [`NodeStatus::groups`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupInfo {
    /// The name of the scope.
    pub scope: String,
    /// The name of the group.
    pub name: String,
    /// The number of members on all nodes.
    pub members: usize,
    /// The number of members on this node.
    pub local: usize,
}

/// A name that nodes share, in [`NodeStatus::shared_names`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameInfo {
    /// The name of the scope.
    pub scope: String,
    /// The name.
    pub name: String,
    /// The owner, as far as is known at this node.
    pub owner: NodePid,
}

/// An exclusive name that a process of the node holds or waits for, in
/// [`NodeStatus::exclusive_names`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExclusiveNameInfo {
    /// The name.
    pub name: String,
    /// The process.
    pub pid: NodePid,
    /// The number of its [`Fence`](crate::exclusive::Fence). `None` if the process waits.
    pub fence: Option<u64>,
    /// The process belongs to a [`Singleton`](crate::exclusive::Singleton).
    pub is_singleton: bool,
}

impl Node {
    /// Lists a part in the status of the node, as long as somebody keeps the part.
    pub(crate) fn add_part(&self, part: Weak<dyn Part>) {
        let mut parts = self.0.parts.lock();
        parts.retain(|part| part.strong_count() > 0);
        parts.push(part);
    }

    pub(super) fn list_parts(&self, status: &mut NodeStatus) {
        let parts: Vec<_> = self.0.parts.lock().iter().filter_map(Weak::upgrade).collect();
        for part in parts {
            part.list(self, status);
        }
        status.groups.truncate(LISTED_MAX);
        status.shared_names.truncate(LISTED_MAX);
        status.exclusive_names.truncate(LISTED_MAX);
    }
}

fn text(term: &Term, key: &str) -> Option<String> {
    get(term, key)?.to_text()
}

impl GroupInfo {
    pub(super) fn to_term(&self) -> Term {
        map([
            ("scope", Term::from(self.scope.as_str())),
            ("name", Term::from(self.name.as_str())),
            ("members", number(self.members)),
            ("local", number(self.local)),
        ])
    }

    pub(super) fn from_term(term: &Term) -> Option<Self> {
        Some(Self {
            scope: text(term, "scope")?,
            name: text(term, "name")?,
            members: get_number(term, "members")?,
            local: get_number(term, "local")?,
        })
    }
}

impl NameInfo {
    pub(super) fn to_term(&self) -> Term {
        map([
            ("scope", Term::from(self.scope.as_str())),
            ("name", Term::from(self.name.as_str())),
            ("owner", Term::from(self.owner.clone())),
        ])
    }

    pub(super) fn from_term(term: &Term) -> Option<Self> {
        Some(Self {
            scope: text(term, "scope")?,
            name: text(term, "name")?,
            owner: get(term, "owner")?.as_pid()?.clone(),
        })
    }
}

impl ExclusiveNameInfo {
    pub(super) fn to_term(&self) -> Term {
        map([
            ("name", Term::from(self.name.as_str())),
            ("pid", Term::from(self.pid.clone())),
            ("fence", optional(self.fence)),
            ("singleton", Term::from(self.is_singleton)),
        ])
    }

    pub(super) fn from_term(term: &Term) -> Option<Self> {
        Some(Self {
            name: text(term, "name")?,
            pid: get(term, "pid")?.as_pid()?.clone(),
            fence: get_number(term, "fence"),
            is_singleton: get(term, "singleton")?.is_atom("true"),
        })
    }
}
