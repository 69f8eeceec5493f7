//! What other nodes may do besides sending and monitoring.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use crate::node::Node;
use crate::node::connect::split;
use crate::term::Atom;
use crate::wire::control::SpawnRequest;

/// What other nodes may do to a node. By default, that is nothing of the below: they can send to
/// its processes and monitor them.
///
/// [`NodeBuilder::grant`](crate::NodeBuilder::grant) and [`Node::grant`] give grants to nodes. They
/// are checked at each operation, so that a change has an effect on nodes that are connected. To
/// know a PID permits nothing.
///
/// ```
/// use procession_cluster::Grants;
///
/// let operators = Grants::new().exits().look();
/// let workers = Grants::new().spawn("shop", "worker");
/// assert_ne!(operators, workers);
/// assert_eq!(Grants::default(), Grants::new());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    exits: bool,
    looks: bool,
    spawns_all: bool,
    spawns: BTreeSet<(String, String)>,
}

/// The error of a grant to something that names no nodes. It contains the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantError(String);

impl fmt::Display for GrantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} names no nodes as word@host, *@host and * do", self.0)
    }
}

impl Error for GrantError {}

impl Grants {
    /// Permits nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Permits links to processes of this node, and exit signals to them. Both can end a process.
    ///
    /// Links that a process of this node [makes](procession::relations::link) need no grant.
    pub fn exits(mut self) -> Self {
        self.exits = true;
        self
    }

    /// Permits to ask for the [status](Node::status) of this node.
    pub fn look(mut self) -> Self {
        self.looks = true;
        self
    }

    /// Permits to start processes by an [exported](Node::export) function, whatever its arity, or
    /// to call it, if it [returns](Node::export_function) a value.
    pub fn spawn(mut self, module: &str, function: &str) -> Self {
        self.spawns.insert((module.to_owned(), function.to_owned()));
        self
    }

    /// Permits to start processes by all [exported](Node::export) functions, and to call all that
    /// return a value.
    pub fn spawn_all(mut self) -> Self {
        self.spawns_all = true;
        self
    }

    /// Permits everything.
    pub fn all() -> Self {
        Self::new().exits().look().spawn_all()
    }

    fn permits_spawn(&self, module: &str, function: &str) -> bool {
        let is_named = |(m, f): &(String, String)| m == module && f == function;
        self.spawns_all || self.spawns.iter().any(is_named)
    }
}

/// The grants of a node, by the names of those that have them.
#[derive(Debug, Default)]
pub(super) struct AllGrants(BTreeMap<String, Grants>);

impl AllGrants {
    pub(super) fn set(&mut self, nodes: &str, grants: Grants) -> Result<(), GrantError> {
        let is_right = nodes == "*"
            || nodes.strip_prefix('*').is_some_and(|rest| split(&format!("all{rest}")).is_some())
            || split(nodes).is_some();
        if !is_right {
            return Err(GrantError(nodes.to_owned()));
        }
        self.0.insert(nodes.to_owned(), grants);
        Ok(())
    }

    fn permits(&self, node: &Atom, permits: impl Fn(&Grants) -> bool) -> bool {
        let name = node.as_str();
        let host = name.split_once('@').map(|(_, host)| format!("*@{host}"));
        let of_all = [Some(name), host.as_deref(), Some("*")];
        of_all.into_iter().flatten().filter_map(|nodes| self.0.get(nodes)).any(permits)
    }
}

impl Node {
    /// Gives grants to nodes from now on, in place of those that were given to the same `nodes`:
    /// one node, as `till@front.example`; those of a host, as `*@front.example`; or all nodes that
    /// can connect, as `*`. A node has the grants of all three together.
    ///
    /// With [TLS](crate::NodeBuilder::tls), a certificate proves the host, and not the word before
    /// it: nodes that share a host can claim each other's names. Without it, every node that knows
    /// the cookie can claim every name.
    ///
    /// # Errors
    /// [`GrantError`]: `nodes` names no nodes.
    pub fn grant(&self, nodes: &str, grants: Grants) -> Result<(), GrantError> {
        self.0.grants.lock().set(nodes, grants)
    }

    /// Takes back what was granted to these `nodes`, which are named as for [`grant`](Self::grant).
    /// Returns `false` if they had no grants. Links that were made before stay.
    pub fn revoke(&self, nodes: &str) -> bool {
        self.0.grants.lock().0.remove(nodes).is_some()
    }

    pub(crate) fn permits_exits(&self, node: &Atom) -> bool {
        self.0.grants.lock().permits(node, |grants| grants.exits)
    }

    pub(crate) fn permits_looks(&self, node: &Atom) -> bool {
        self.0.grants.lock().permits(node, |grants| grants.looks)
    }

    pub(crate) fn permits_spawn(&self, node: &Atom, request: &SpawnRequest) -> bool {
        let (module, function) = (request.module.as_str(), request.function.as_str());
        self.0.grants.lock().permits(node, |grants| grants.permits_spawn(module, function))
    }
}

#[cfg(test)]
mod tests {
    use super::{AllGrants, Grants};
    use crate::term::Atom;

    #[test]
    fn grants_of_a_node_its_host_and_all_add_up() {
        let mut all = AllGrants::default();
        all.set("till@front", Grants::new().exits()).expect("it names a node");
        all.set("*@front", Grants::new().spawn("shop", "worker")).expect("it names nodes");
        all.set("*", Grants::new().look()).expect("it names nodes");
        for (node, exits, spawns) in
            [("till@front", true, true), ("other@front", false, true), ("till@back", false, false)]
        {
            let node = Atom::known(node);
            assert_eq!(all.permits(&node, |grants| grants.exits), exits);
            assert_eq!(all.permits(&node, |g| g.permits_spawn("shop", "worker")), spawns);
            assert!(!all.permits(&node, |g| g.permits_spawn("shop", "other")));
            assert!(all.permits(&node, |grants| grants.looks));
        }
        // The latest replaces those before.
        all.set("till@front", Grants::new()).expect("it names a node");
        assert!(!all.permits(&Atom::known("till@front"), |grants| grants.exits));
    }

    #[test]
    fn what_names_no_nodes_is_refused() {
        for wrong in ["", "till", "@front", "*front", "*@", "**", "t*@front", "*@*"] {
            let refused = AllGrants::default().set(wrong, Grants::all()).expect_err(wrong);
            assert!(refused.to_string().contains(wrong));
        }
    }
}
