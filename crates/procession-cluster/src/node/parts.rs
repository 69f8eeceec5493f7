//! What is built on a node, such as groups, names and shards, and lists itself in the status of the
//! node.

use crate::term::maps::{get, get_atom, get_list, get_number, map, number, optional};
use crate::term::{Atom, NodePid, Term};

/// The rows of each list in a status, at most. With the longest names, they have some 4 MiB.
pub(crate) const LISTED_MAX: usize = 1024;

/// The shards that a status lists, at most. With the homes of all, they have some 2 MiB.
pub(crate) const SHARDS_LISTED_MAX: usize = 64;
/// The shards of one name that are read of another node. A node has fewer.
const SHARDS_MAX: usize = 1 << 12;

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
    pub(crate) shards: Vec<ShardsInfo>,
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

/// Shards on the node, in [`NodeStatus::shards`](crate::NodeStatus::shards).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardsInfo {
    /// The name of the shards.
    pub name: String,
    /// The keys of the node.
    pub keys: u64,
    /// The messages that wait at the node while their shard moves.
    pub waiting: usize,
    /// How often a shard has moved to the node or away from it.
    pub moves: u64,
    /// The homes of all shards, as far as is known at the node: each node, with the numbers of its
    /// shards.
    pub homes: Vec<(Atom, Vec<u32>)>,
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

impl ShardsInfo {
    pub(super) fn to_term(&self) -> Term {
        let homes = self.homes.iter().map(|(node, shards)| {
            let shards = Term::list(shards.iter().copied().map(Term::from));
            map([("node", node.clone().into()), ("shards", shards)])
        });
        map([
            ("name", Term::from(self.name.as_str())),
            ("keys", number(self.keys)),
            ("waiting", number(self.waiting)),
            ("moves", number(self.moves)),
            ("homes", Term::list(homes)),
        ])
    }

    pub(super) fn from_term(term: &Term) -> Option<Self> {
        let shard = |shard: &Term| u32::try_from(shard.as_integer()?).ok();
        let home = |home: &Term| {
            Some((get_atom(home, "node")?, get_list(home, "shards", SHARDS_MAX, shard)?))
        };
        Some(Self {
            name: text(term, "name")?,
            keys: get_number(term, "keys")?,
            waiting: get_number(term, "waiting")?,
            moves: get_number(term, "moves")?,
            homes: get_list(term, "homes", SHARDS_MAX, home)?,
        })
    }
}
