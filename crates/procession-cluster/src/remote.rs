//! Processes of other nodes.

use std::fmt;

use crate::term::{Atom, NodePid};
use crate::wire::control::Target;

/// A process of another node, by its PID or by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remote {
    /// By its PID.
    Pid(NodePid),
    /// By the name that it has on its node.
    Name {
        /// The name of the process.
        name: Atom,
        /// The name of the node.
        node: Atom,
    },
}

impl Remote {
    /// Names the process `name` of the node `node`.
    ///
    /// # Panics
    /// If a name has more than 255 characters.
    pub fn named(name: &str, node: &str) -> Self {
        let atom = |text| Atom::new(text).expect("a name has at most 255 characters");
        Self::Name { name: atom(name), node: atom(node) }
    }

    /// Returns the name of the node.
    pub fn node(&self) -> &Atom {
        match self {
            Self::Pid(pid) => &pid.node,
            Self::Name { node, .. } => node,
        }
    }

    pub(crate) fn target(&self) -> Target {
        match self {
            Self::Pid(pid) => Target::Pid(pid.clone()),
            Self::Name { name, .. } => Target::Name(name.clone()),
        }
    }
}

impl From<NodePid> for Remote {
    fn from(pid: NodePid) -> Self {
        Self::Pid(pid)
    }
}

impl From<&NodePid> for Remote {
    fn from(pid: &NodePid) -> Self {
        Self::Pid(pid.clone())
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "{pid}"),
            Self::Name { name, node } => write!(f, "{{{name},{node}}}"),
        }
    }
}
