//! Names of processes that functions of the user find, and references to nodes for what these
//! functions keep.

use std::fmt;
use std::sync::{Arc, Weak};

use procession::mailbox::{Recipient, relay};
use procession::process::{catch_panic, registered};

use crate::guarded::Guarded;
use crate::letter::Letter;
use crate::node::{Inner, Node};
use crate::remote::Remote;
use crate::term::Atom;

/// The names of the scheduler that a status asks the function about. If the processes of a node
/// have more names, the status must still fit into a message.
const FOUND_MAX: usize = 1 << 14;

/// A reference to a [`Node`] that does not keep it. [`Node::downgrade`] makes it.
///
/// What a node keeps, such as the function of a [`Recipient`], refers to the node by this, because
/// otherwise neither is ever dropped.
#[derive(Clone)]
pub struct WeakNode(Weak<Inner>);

impl WeakNode {
    /// Returns the node, unless it was dropped.
    pub fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(Node)
    }
}

impl fmt::Debug for WeakNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakNode")
    }
}

impl Node {
    /// Sets the function that finds processes by names that are not [registered](Self::register),
    /// such as the names of another registry. It replaces the previous function. A process that it
    /// finds is [attached](Self::attach).
    ///
    /// The process of a connection calls it for each message and each monitor by such a name, so it
    /// must not block. If it panics, no process has the name. The [status](Self::status) of the
    /// node also asks it about the names of the scheduler in which the node was started
    /// ([`registered`]).
    pub fn find_names_with<F>(&self, find: F)
    where
        F: Fn(&str) -> Option<Recipient<Letter>> + Send + Sync + 'static,
    {
        let replaced = self.0.find_name.lock().replace(Guarded::new(Arc::new(find)));
        // Outside of the lock, because it has code of the user.
        drop(replaced);
    }

    /// Returns the names of the processes that other nodes can reach, in order.
    pub(super) fn names(&self) -> Vec<Atom> {
        let mut names: Vec<_> = self.0.locals.lock().by_name.keys().cloned().collect();
        let find = self.0.find_name.lock().clone();
        if let Some(find) = find {
            let is_found = |name: &str| {
                catch_panic(|| find(name).map(Guarded::new)).is_some_and(|found| found.is_some())
            };
            let others = || {
                let others = registered().into_iter().take(FOUND_MAX);
                others.filter(|name| is_found(name)).filter_map(Atom::new).collect::<Vec<_>>()
            };
            // Whichever thread asks, the names and the function belong to one scheduler.
            let others = self.0.scheduler.get().and_then(|own| relay::within(*own, others));
            names.extend(others.into_iter().flatten());
        }
        names.sort();
        names.dedup();
        names
    }

    /// Returns `true` if the node of a process is connected: in the same incarnation, if the
    /// process is known by its PID.
    pub fn reaches(&self, process: &Remote) -> bool {
        self.link_of(process).is_some()
    }

    /// Returns a reference to the node that does not keep it.
    pub fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.0))
    }

    /// Returns the number of the process that has a name, and whether the name is registered here.
    pub(crate) fn whereis(&self, name: &Atom) -> Option<(u64, bool)> {
        let known = self.0.locals.lock().by_name.get(name).copied();
        known.map(|number| (number, true)).or_else(|| {
            let find = self.0.find_name.lock().clone()?;
            let found = catch_panic(|| find(name.as_str()).map(Guarded::new))??;
            Some((self.attach_number(&found), false))
        })
    }
}
