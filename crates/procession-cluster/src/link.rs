//! A connection to another node, as its users see it: the queue of what is sent, and the relations
//! between processes on its two sides.
//!
//! The relations end exactly once: by the signal of the other node, or by the end of the
//! connection, which closes the tables and tells all that is still in them. What comes too late
//! finds the tables closed, and is told [`Exit::NoConnection`] at once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

use procession::mailbox::Recipient;
use procession::relations::MonitorRef;
use procession::sync::oneshot;
use procession::time::Instant;
use procession::{Address, Exit};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::handshake::{Introduction, flags};
use crate::letter::{Letter, RemoteDown, post};
use crate::outbound::Outbound;
use crate::term::{Atom, NodePid, Reference, Term};
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
    /// If one of them has more than 255 characters.
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

/// A monitor of a process on the other side.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) process: Remote,
    /// The number of the process that watches.
    pub(crate) watcher: u32,
    pub(crate) recipient: Recipient<Letter>,
}

/// The result of a call: the reply, or the end of the called process.
pub(crate) type CallResult = Result<Term, Exit>;

/// A call that waits for its reply. It monitors the process that it calls.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) from: NodePid,
    pub(crate) target: Target,
    pub(crate) caller: oneshot::Sender<CallResult>,
}

/// The relations across a connection.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    is_closed: bool,
    pub(crate) watches: HashMap<Reference, Watch>,
    pub(crate) calls: HashMap<Reference, Caller>,
    /// The links: the number of a process on this side, and a process on the other.
    links: BTreeSet<(u32, NodePid)>,
    /// The monitors of linked processes on this side, which the process of the connection receives.
    /// A monitor stays if its last link goes, until the process ends.
    linked: HashMap<u32, MonitorRef>,
    linked_by: HashMap<MonitorRef, u32>,
}

impl Tables {
    /// Enters a link. `monitor` makes the process of the connection monitor the process on this
    /// side, and is called if there is no monitor yet. Returns `false` if they are linked already.
    pub(crate) fn link(
        &mut self,
        own: u32,
        other: NodePid,
        monitor: impl FnOnce() -> MonitorRef,
    ) -> bool {
        if !self.links.insert((own, other)) {
            return false;
        }
        if let Entry::Vacant(free) = self.linked.entry(own) {
            let monitor = *free.insert(monitor());
            self.linked_by.insert(monitor, own);
        }
        true
    }

    /// Removes a link. Returns `false` if there is none.
    pub(crate) fn unlink(&mut self, own: u32, other: NodePid) -> bool {
        self.links.remove(&(own, other))
    }

    /// Returns `true` if a monitor is that of a linked process.
    pub(crate) fn is_of_link(&self, monitor: MonitorRef) -> bool {
        self.linked_by.contains_key(&monitor)
    }

    /// Forgets the monitor of a process that has no links any more, and returns it.
    pub(crate) fn take_unneeded(&mut self, own: u32) -> Option<MonitorRef> {
        if self.links_of(own).next().is_some() {
            return None;
        }
        let monitor = self.linked.remove(&own)?;
        self.linked_by.remove(&monitor);
        Some(monitor)
    }

    /// Takes out the links of the process with a monitor, which has ended. Returns its number and
    /// the processes on the other side.
    pub(crate) fn take_ended(&mut self, monitor: MonitorRef) -> Option<(u32, Vec<NodePid>)> {
        let own = self.linked_by.remove(&monitor)?;
        self.linked.remove(&own);
        let others: Vec<_> = self.links_of(own).cloned().collect();
        for other in &others {
            self.links.remove(&(own, other.clone()));
        }
        Some((own, others))
    }

    fn links_of(&self, own: u32) -> impl Iterator<Item = &NodePid> {
        let least = NodePid { node: Atom::known(""), id: 0, serial: 0, creation: 0 };
        let from_own = self.links.range((own, least)..);
        from_own.take_while(move |(first, _)| *first == own).map(|(_, other)| other)
    }

    /// Returns the number of links.
    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Takes out the processes on this side that are linked, once for each link.
    pub(crate) fn take_linked(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(&mut self.links).into_iter().map(|(own, _)| own)
    }
}

/// What a process of this node asks of the process of a connection.
#[derive(Debug)]
pub(crate) enum Order {
    /// Ends the connection.
    Close(String),
}

/// A connection, which may have ended.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Introduction,
    /// Which connection to this node it is, counted from 1.
    pub(crate) number: u64,
    /// The number of the attempt that has made it. Later ones have greater numbers.
    pub(crate) attempt: u64,
    pub(crate) since: Instant,
    pub(crate) outbound: Outbound,
    pub(crate) orders: Address<Order>,
    tables: Mutex<Tables>,
    pub(crate) counts: Counts,
}

/// What was sent and received.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    /// Messages for processes that do not exist or did not accept them.
    pub(crate) undelivered: AtomicU64,
    /// Messages that were dropped because there was no room for them.
    pub(crate) too_large: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
}

/// Adds to a counter. Relaxed: the numbers are for people.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl Link {
    pub(crate) fn new(
        peer: Introduction,
        number: u64,
        attempt: u64,
        orders: Address<Order>,
    ) -> Self {
        let common = peer.flags & flags::OWN;
        Self {
            peer,
            number,
            attempt,
            since: Instant::now(),
            outbound: Outbound::new(common),
            orders,
            tables: Mutex::new(Tables::default()),
            counts: Counts::default(),
        }
    }

    /// Returns the process that is meant by a PID of the other node. A PID of an earlier
    /// incarnation means none.
    pub(crate) fn is_of_peer(&self, remote: &Remote) -> bool {
        match remote {
            Remote::Pid(pid) => pid.creation == self.peer.creation && pid.node == self.peer.name,
            Remote::Name { node, .. } => *node == self.peer.name,
        }
    }

    /// Accesses the tables. Returns `None` if the connection has ended.
    pub(crate) fn tables<R>(&self, access: impl FnOnce(&mut Tables) -> R) -> Option<R> {
        let mut tables = self.tables.lock();
        (!tables.is_closed).then(|| access(&mut tables))
    }

    /// Closes the tables and returns what was in them.
    pub(crate) fn close(&self) -> Tables {
        let closed = Tables { is_closed: true, ..Tables::default() };
        std::mem::replace(&mut self.tables.lock(), closed)
    }
}

impl Watch {
    /// Tells the process that watches.
    pub(crate) fn tell(self, monitor: Reference, exit: Exit) {
        let down = RemoteDown { monitor, process: self.process, exit };
        // Ignored: a process that has ended or takes no more learns nothing.
        post(&self.recipient, Letter::Down(down));
    }
}

#[cfg(test)]
mod tests {
    use super::Tables;
    use crate::term::{Atom, NodePid};

    #[test]
    fn the_end_of_a_process_takes_its_own_links() {
        let other = |node: &'static str, id| NodePid {
            node: Atom::known(node),
            id,
            serial: 0,
            creation: 7,
        };
        procession::run(async {
            let process = procession::spawn(async {});
            let watcher = procession::start(|mut cx: procession::Context<()>| async move {
                while cx.recv().await.is_some() {}
            });
            let monitor = || watcher.address().monitor(process.pid());
            let mut tables = Tables::default();
            let mut monitors = Vec::new();
            for own in [4, 5, 6] {
                for (node, id) in [("a@host", 9), ("b@host", 1), ("a@host", 2)] {
                    assert!(tables.link(own, other(node, id), || {
                        monitors.push(monitor());
                        *monitors.last().expect("it was pushed")
                    }));
                }
            }
            assert_eq!(monitors.len(), 3, "one for each process");
            let (own, others) = tables.take_ended(monitors[1]).expect("it is linked");
            assert_eq!((own, others.len()), (5, 3));
            assert!(tables.take_ended(monitors[1]).is_none());
            let left: Vec<_> = tables.take_linked().collect();
            assert_eq!(left, [4, 4, 4, 6, 6, 6]);
            watcher.cancel();
        });
    }
}
