//! What is built on a node, such as groups and names, and lists itself in the status of the node.

use crate::term::maps::{get, get_number, map, number, optional};
use crate::term::{NodePid, Term};

/// The rows of each list in a status, at most. With the longest names, they have some 4 MiB.
pub(crate) const LISTED_MAX: usize = 1024;

/// Something that is built on a node.
pub(crate) trait Part: Send + Sync {
    /// Adds at most [`LISTED_MAX`] rows to each list.
    fn list(&self, lists: &mut Lists);
}

/// What the parts of a node list.
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) groups: Vec<GroupInfo>,
    pub(crate) shared_names: Vec<NameInfo>,
    pub(crate) exclusive_names: Vec<ExclusiveNameInfo>,
}

/// A group of processes, in [`NodeStatus::groups`](crate::NodeStatus::groups).
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

/// A name that nodes share, in [`NodeStatus::shared_names`](crate::NodeStatus::shared_names).
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
/// [`NodeStatus::exclusive_names`](crate::NodeStatus::exclusive_names).
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
