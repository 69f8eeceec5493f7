//! What other nodes may do.
//!
//! A node that [permits only what is granted](crate::NodeBuilder::grants_only) announces to other
//! nodes of this crate to which of its processes they may send. Therefore a message that it would
//! refuse returns to its sender immediately. It does so when such a node asks for the first sign of
//! life, which is when the connection begins, and after changes: a change marks each connection,
//! and the process of a connection sends one statement of what is permitted by then. At most one
//! statement waits in its queue, and a statement without a change is left out. A statement has at
//! most [`NAMES_MAX`] names. If there are more, or a long name has no room, the statement says that
//! the permissions are unknown.
//!
//! The statement has the form of the end of a monitored process, with a reference of the node that
//! sends it, so nodes that do not know the statement ignore it. Each message is checked where it
//! arrives, whatever a statement said.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::handshake::split;
use crate::term::maps::{get, get_list, map};
use crate::term::{Atom, Term};
use crate::wire::control::Target;
use crate::wire::names::is_answered_by_node;

/// The names in a statement. If there are more, the other node does not know what is permitted.
const NAMES_MAX: usize = 4096;

/// What other nodes may do to a node. By default, they may send and monitor, and nothing else. If
/// the node [permits only what is granted](crate::NodeBuilder::grants_only), they need grants for
/// these as well.
///
/// [`NodeBuilder::grant`](crate::NodeBuilder::grant) and [`Node::grant`](crate::Node::grant) grant
/// permissions to nodes. They are checked at each operation, so that a change has an effect on
/// nodes that are connected. To know a PID permits nothing.
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
    pub(crate) reach: Reach,
    pub(crate) monitors: bool,
    pub(crate) exits: bool,
    pub(crate) looks: bool,
    spawns_all: bool,
    spawns: BTreeSet<(String, String)>,
}

/// The processes to which a node may send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    all: bool,
    by_pid: bool,
    names: BTreeSet<String>,
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

    /// Permits to send to the process with this name, by the name, and to monitor it so, as each
    /// call does.
    ///
    /// It matters only if the node [permits only what is granted](crate::NodeBuilder::grants_only),
    /// and so do the other grants to send and to monitor. Replies to what a process of this node
    /// has called need no grant.
    pub fn send(mut self, name: &str) -> Self {
        self.reach.names.insert(name.to_owned());
        self
    }

    /// Permits to send to each process that other nodes know, by its PID, and to monitor it. A
    /// process that was started by a grant is reached so, and the address in a message.
    pub fn send_by_pid(mut self) -> Self {
        self.reach.by_pid = true;
        self
    }

    /// Permits to send to all processes that other nodes know, by their names and PIDs, and to
    /// monitor them.
    pub fn send_all(mut self) -> Self {
        self.reach.all = true;
        self
    }

    /// Permits to monitor processes, whether the node may send to them or not.
    pub fn monitor(mut self) -> Self {
        self.monitors = true;
        self
    }

    /// Permits links to processes of this node, and exit signals to them. Both can end a process.
    ///
    /// Links that a process of this node [makes](procession::process::link) need no grant.
    pub fn exits(mut self) -> Self {
        self.exits = true;
        self
    }

    /// Permits to ask for the [status](crate::Node::status) of this node.
    pub fn look(mut self) -> Self {
        self.looks = true;
        self
    }

    /// Permits to start processes by an [exported](crate::Node::export) function, whatever its
    /// arity, or to call it, if it [returns](crate::Node::export_function) a value.
    pub fn spawn(mut self, module: &str, function: &str) -> Self {
        self.spawns.insert((module.to_owned(), function.to_owned()));
        self
    }

    /// Permits to start processes by all [exported](crate::Node::export) functions, and to call all
    /// that return a value.
    pub fn spawn_all(mut self) -> Self {
        self.spawns_all = true;
        self
    }

    /// Permits everything.
    pub fn all() -> Self {
        Self::new().send_all().monitor().exits().look().spawn_all()
    }

    pub(crate) fn permits_spawn(&self, module: &str, function: &str) -> bool {
        let is_named = |(m, f): &(String, String)| m == module && f == function;
        self.spawns_all || self.spawns.iter().any(is_named)
    }
}

impl Reach {
    pub(crate) fn permits(&self, target: &Target) -> bool {
        self.all
            || match target {
                Target::Pid(_) => self.by_pid,
                Target::Name(name) => self.names.contains(name.as_str()),
            }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.all |= other.all;
        self.by_pid |= other.by_pid;
        self.names.extend(other.names.iter().cloned());
    }

    /// Returns the statement that announces this to another node.
    pub(crate) fn to_term(&self) -> Term {
        if !self.all && self.names.len() > NAMES_MAX {
            return Term::atom("too_large");
        }
        let names = self.names.iter().filter_map(|name| Atom::new(name.as_str()));
        let to = if self.all { Term::atom("all") } else { Term::list(names.map(Term::from)) };
        map([("send", to), ("send_by_pid", Term::atom(&self.by_pid.to_string()))])
    }

    /// Reads the statement of another node. `None` means that its permissions are unknown.
    pub(crate) fn from_term(term: &Term) -> Option<Self> {
        let name = |term: &Term| match term {
            Term::Atom(name) => Some(name.as_str().to_owned()),
            _ => None,
        };
        let by_pid = get(term, "send_by_pid")?.is_atom("true");
        if get(term, "send")?.is_atom("all") {
            return Some(Self { all: true, by_pid, names: BTreeSet::new() });
        }
        let names = get_list(term, "send", NAMES_MAX, name)?;
        Some(Self { all: false, by_pid, names: names.into_iter().collect() })
    }
}

/// What the other node of a connection permits to send, as far as is known, and whether it learns
/// what this one permits.
#[derive(Debug, Default)]
pub(crate) struct Permitted {
    /// Set if `reach` is known and is not everything.
    is_limited: AtomicBool,
    reach: Mutex<Option<Reach>>,
    /// Set if the permissions may have changed since the last statement. The process of the
    /// connection then sends a new one.
    is_due: AtomicBool,
}

impl Permitted {
    /// Notes the statement of the other node.
    pub(crate) fn told(&self, reach: Option<Reach>) {
        let mut known = self.reach.lock();
        // Relaxed: the other node checks each message, so that one may be late to learn it.
        self.is_limited.store(reach.as_ref().is_some_and(|reach| !reach.all), Relaxed);
        *known = reach;
    }

    /// Returns `false` if the other node is known to refuse messages to this process.
    pub(crate) fn permits(&self, target: &Target) -> bool {
        // Relaxed: as in `told`.
        !self.is_limited.load(Relaxed)
            || is_answered_by_node(target)
            || self.reach.lock().as_ref().is_none_or(|reach| reach.permits(target))
    }

    /// Notes that a statement of what this node permits is due.
    pub(crate) fn make_due(&self) {
        // Release: pairs with the Acquire in `take_due`, which then sees the change before it.
        self.is_due.store(true, Release);
    }

    /// Returns `true` if a statement is due.
    pub(crate) fn is_due(&self) -> bool {
        // Relaxed: if it is late, the notice behind `make_due` wakes the reader for another look.
        self.is_due.load(Relaxed)
    }

    /// Notes that a statement is sent now.
    pub(crate) fn take_due(&self) {
        // Acquire: pairs with the Release in `make_due`, so that the statement contains the change.
        self.is_due.swap(false, Acquire);
    }
}

/// The grants of a node, by their holders: a node by its name, the nodes of a host by `@host`, and
/// all nodes by the empty text.
#[derive(Debug, Default)]
pub(crate) struct AllGrants(BTreeMap<String, Grants>);

impl AllGrants {
    pub(crate) fn set(&mut self, nodes: &str, grants: Grants) -> Result<(), GrantError> {
        let key = Self::key(nodes).ok_or_else(|| GrantError(nodes.to_owned()))?;
        self.0.insert(key.to_owned(), grants);
        Ok(())
    }

    /// Returns `false` if these nodes had no grants.
    pub(crate) fn remove(&mut self, nodes: &str) -> bool {
        Self::key(nodes).is_some_and(|key| self.0.remove(key).is_some())
    }

    /// Returns the key of what names nodes.
    fn key(nodes: &str) -> Option<&str> {
        let names_nodes = |text: &str| split(text).is_some();
        match nodes.strip_prefix('*') {
            Some(host) => (host.is_empty() || names_nodes(&format!("all{host}"))).then_some(host),
            None => names_nodes(nodes).then_some(nodes),
        }
    }

    /// Returns the grants to a node, to its host and to all.
    pub(crate) fn of(&self, node: &Atom) -> impl Iterator<Item = &Grants> {
        let name = node.as_str();
        let of_host = name.find('@').and_then(|at| self.0.get(&name[at..]));
        [self.0.get(name), of_host, self.0.get("")].into_iter().flatten()
    }

    pub(crate) fn permits(&self, node: &Atom, permits: impl Fn(&Grants) -> bool) -> bool {
        self.of(node).any(permits)
    }
}

#[cfg(test)]
mod tests {
    use super::{AllGrants, Grants, NAMES_MAX, Permitted, Reach};
    use crate::release::corpus;
    use crate::term::maps::{get_list, map};
    use crate::term::{Atom, NodePid, Term};
    use crate::wire::control::Target;

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
        // The latest replaces its predecessors.
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

    fn name(text: &str) -> Target {
        Target::Name(Atom::new(text).expect("it is short"))
    }

    fn pid() -> Target {
        Target::Pid(NodePid { node: Atom::known("a@front"), id: 9, serial: 0, creation: 7 })
    }

    #[test]
    fn sends_are_granted_by_name_by_pid_or_all() {
        for (grants, by_name, by_other_name, by_pid) in [
            (Grants::new().monitor(), false, false, false),
            (Grants::new().send("orders"), true, false, false),
            (Grants::new().send_by_pid(), false, false, true),
            (Grants::new().send_all(), true, true, true),
        ] {
            let (told, expected) = (Permitted::default(), [by_name, by_other_name, by_pid]);
            let permitted = |permits: &dyn Fn(&Target) -> bool| {
                [permits(&name("orders")), permits(&name("other")), permits(&pid())]
            };
            assert_eq!(permitted(&|to| told.permits(to)), [true; 3], "it is not known");
            assert_eq!(permitted(&|to| grants.reach.permits(to)), expected);
            // The other node reads the same.
            let read = Reach::from_term(&grants.reach.to_term());
            assert_eq!(read.as_ref(), Some(&grants.reach));
            told.told(read);
            assert_eq!(permitted(&|to| told.permits(to)), expected);
            assert!(told.permits(&name("net_kernel")), "it is answered by the node");
            told.told(None);
            assert_eq!(permitted(&|to| told.permits(to)), [true; 3], "it is not known any more");
        }
    }

    #[test]
    fn statements_on_sends_are_those_of_the_protocol() {
        let some = Grants::new().send("orders").send_by_pid();
        let words = [Grants::all(), some].map(|grants| grants.reach.to_term());
        corpus::check("grants", &words, |word| Reach::from_term(&word).is_some());
    }

    #[test]
    fn what_is_no_statement_on_sends_is_not_known() {
        let with = |count: usize| {
            let names = (0..count).map(|n| n.to_string());
            Grants { reach: Reach { names: names.collect(), ..Reach::default() }, ..Grants::new() }
        };
        let read = |grants: &Grants| Reach::from_term(&grants.reach.to_term());
        assert!(read(&with(NAMES_MAX)).is_some());
        let long = Reach { names: with(NAMES_MAX + 1).reach.names, ..Reach::default() };
        assert!(long.to_term().is_atom("too_large"), "it is not told");
        let names = Term::list((0..=NAMES_MAX).map(|_| Term::atom("orders")));
        let told = map([("send", names), ("send_by_pid", Term::atom("false"))]);
        assert!(Reach::from_term(&told).is_none());
        let read = get_list::<()>(&told, "send", NAMES_MAX, |_| panic!("a name is read"));
        assert!(read.is_none());
        assert!(Reach::from_term(&Term::atom("too_large")).is_none());
        assert!(Reach::from_term(&Term::Map(Vec::new())).is_none());
    }
}
