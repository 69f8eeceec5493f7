//! Processes of other nodes as PIDs of this program, and the relay that carries signals to them.
//!
//! A link is entered twice: at the process of this program, as a link to the PID, and in the tables
//! of the connection. The tables only say what the end of the connection must answer, so that what
//! is in them may be out of date, but nothing that is open is missing: an entry is made before the
//! other node can learn of the relation.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use procession::relay::{
    NodeRelay, Parcel, Relay, RelayCause, RelayError, RemoteNode, RemoteSignal, receive,
};
use procession::{Exit, Pid};

use crate::link::{Link, Remote, Teller, Watch};
use crate::node::{Inner, MONITOR_KIND, Node, SendTermCause};
use crate::reason;
use crate::term::{Atom, NodePid, Term};
use crate::wire::control::Control;

/// The incarnations of other nodes that have PIDs here.
#[derive(Default)]
pub(super) struct Remotes {
    /// By name and creation.
    by_name: HashMap<(Atom, u32), RemoteNode>,
    by_number: HashMap<u32, (Atom, u32)>,
}

impl Node {
    /// Returns the PID by which processes of this program know a process of another node. With it,
    /// they [link](procession::relations::link) to the process,
    /// [monitor](procession::Context::monitor) it, and [send it](procession::mailbox::send) a
    /// [`Term`]. For a process of this node, it is the own PID of the process.
    ///
    /// The PID is good for this incarnation of the other node, and for this node, as long as it
    /// lives. If the other node is not connected, links and monitors are answered with
    /// [`Exit::NoConnection`]. Messages that this node sends by PID are those of the running
    /// process, so they are in order with its signals.
    ///
    /// Returns [`Pid::NOBODY`] for a process of this node that is not attached, or has ended.
    ///
    /// # Panics
    /// If the program has known 4 294 967 295 incarnations of nodes.
    pub fn pid(&self, process: &NodePid) -> Pid {
        let own = &self.0.own;
        if process.node == own.name && process.creation == own.creation {
            let local = self.number_of(process).and_then(|number| self.local(number));
            return local.map_or(Pid::NOBODY, |(pid, _)| pid);
        }
        let mut remotes = self.0.remotes.lock();
        let Remotes { by_name, by_number } = &mut *remotes;
        let key = (process.node.clone(), process.creation);
        let remote = by_name.entry(key).or_insert_with_key(|(name, creation)| {
            let (node, name) = (Arc::downgrade(&self.0), name.clone());
            let relay = NodeWay { node, name: name.clone(), creation: *creation };
            let remote = RemoteNode::join(relay).expect("not all numbers are taken");
            by_number.insert(remote.number(), (name, *creation));
            remote
        });
        remote.pid(process.id, process.serial)
    }

    /// Returns the PID by which other nodes know a process: the reverse of [`pid`](Self::pid).
    /// `None` if it is of a node that this one does not know.
    ///
    /// A process of this program that is not [attached](Self::attach) can be monitored by others,
    /// and linked to if that is allowed. Messages to it are dropped.
    pub fn node_pid(&self, pid: Pid) -> Option<NodePid> {
        let Some((id, serial)) = pid.remote_parts() else {
            return Some(self.pid_of(self.number_for(pid, None)));
        };
        let remotes = self.0.remotes.lock();
        let (node, creation) = remotes.by_number.get(&pid.node())?.clone();
        Some(NodePid { node, id, serial, creation })
    }

    /// Forgets the PIDs of other incarnations of a node than this one.
    pub(super) fn forget_incarnations(&self, name: &Atom, creation: u32) {
        let mut remotes = self.0.remotes.lock();
        let Remotes { by_name, by_number } = &mut *remotes;
        let is_other = |(of, other): &(Atom, u32)| of == name && *other != creation;
        let gone: Vec<_> = by_name.extract_if(|key, _| is_other(key)).collect();
        by_number.retain(|_, key| !is_other(key));
        drop(remotes);
        // Outside of the lock, since their relays are dropped.
        drop(gone);
    }
}

/// The way to one incarnation of another node.
struct NodeWay {
    /// Weak, since the node keeps it.
    node: Weak<Inner>,
    name: Atom,
    creation: u32,
}

impl NodeWay {
    /// Returns the node, and the process that is known here by this PID.
    fn target(&self, pid: Pid) -> Option<(Node, NodePid)> {
        let node = Node(self.node.upgrade()?);
        let (id, serial) = pid.remote_parts()?;
        Some((node, NodePid { node: self.name.clone(), id, serial, creation: self.creation }))
    }

    /// Hands a signal to the connection. Returns `None` if there is none.
    fn carry(&self, signal: &RemoteSignal) -> Option<()> {
        let (node, other) = self.target(signal.to())?;
        let link = node.link_of(&Remote::Pid(other.clone()))?;
        let number = |pid| node.number_for(pid, None);
        match signal {
            RemoteSignal::Link { from, .. } => link.tell_link(&node, number(*from), other),
            RemoteSignal::Unlink { from, id, .. } => {
                let own = number(*from);
                link.tables(|tables| {
                    tables.links.remove(&(own, other.clone()));
                    tables.unlinks.insert(*id, (own, other.clone()));
                })?;
                let control = Control::Unlink { id: *id, from: node.pid_of(own), to: other };
                link.outbound.signal(own.into(), &control, None);
                Some(())
            }
            RemoteSignal::UnlinkAck { from, id, .. } => {
                let own = number(*from);
                let control = Control::UnlinkAck { id: *id, from: node.pid_of(own), to: other };
                link.outbound.signal(own.into(), &control, None);
                Some(())
            }
            RemoteSignal::Exit { from, exit, .. } => {
                link.tell_exit(&node, number(*from), other, exit);
                Some(())
            }
            RemoteSignal::SendExit { from, exit, .. } => {
                send_exit(&node, &link, *from, other, reason::to_term(exit));
                Some(())
            }
            RemoteSignal::Kill { from, .. } => {
                send_exit(&node, &link, *from, other, Term::atom("kill"));
                Some(())
            }
            &RemoteSignal::Monitor { from, to, monitor } => {
                let (own, reference) = (number(from), node.reference(MONITOR_KIND));
                // It comes back with the roles exchanged.
                let teller = Teller::Signal { from: to, to: from, monitor };
                let watch = Watch { process: Remote::Pid(other.clone()), watcher: own, teller };
                link.tables(|tables| {
                    tables.references.insert(monitor, reference.clone());
                    tables.watches.insert(reference.clone(), watch);
                })?;
                let (from, to) = (node.pid_of(own), Remote::Pid(other).target());
                let control = Control::Monitor { from, to, monitor: reference };
                link.outbound.signal(own.into(), &control, None);
                Some(())
            }
            RemoteSignal::Demonitor { from, monitor, .. } => {
                let own = number(*from);
                let taken = link.tables(|tables| {
                    let reference = tables.references.get(monitor).cloned();
                    reference.inspect(|reference| drop(tables.take_watch(reference)))
                });
                if let Some(reference) = taken? {
                    let (from, to) = (node.pid_of(own), Remote::Pid(other).target());
                    let control = Control::Demonitor { from, to, monitor: reference };
                    link.outbound.signal(own.into(), &control, None);
                }
                Some(())
            }
            // The monitors of other nodes are those of the process of the connection.
            _ => Some(()),
        }
    }
}

fn send_exit(node: &Node, link: &Link, from: Option<Pid>, to: NodePid, reason: Term) {
    let own = from.map_or(0, |from| node.number_for(from, None));
    let from = node.pid_of(own);
    let control = Control::Exit2 { from, to, reason: Some(reason) };
    link.outbound.signal(own.into(), &control, None);
}

impl Link {
    /// Enters a link of a process of this node, and tells the other node. Returns `None` if the
    /// connection has ended.
    fn tell_link(&self, node: &Node, own: u32, to: NodePid) -> Option<()> {
        self.tables(|tables| tables.links.insert((own, to.clone())))?;
        let control = Control::Link { from: node.pid_of(own), to };
        self.outbound.signal(own.into(), &control, None);
        Some(())
    }

    /// Tells the other node of the end of a process of this one, if the two are linked.
    pub(crate) fn tell_exit(&self, node: &Node, own: u32, to: NodePid, exit: &Exit) {
        let link = (own, to);
        if self.tables(|tables| tables.links.remove(&link)) == Some(true) {
            let (from, to) = (node.pid_of(own), link.1);
            let reason = reason::to_term(exit);
            self.tell(own.into(), reason, |reason| Control::Exit { from, to, reason });
        }
    }
}

impl Relay for NodeWay {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        let Some((node, other)) = self.target(parcel.to) else {
            return Err(parcel.refused(RelayCause::NoConnection));
        };
        let (to, from) = (parcel.to, parcel.from);
        let mut parcel = parcel;
        let term = match parcel.message.downcast::<Term>() {
            Ok(term) => *term,
            Err(message) => {
                parcel.message = message;
                return Err(parcel.refused(RelayCause::NotPortable));
            }
        };
        let number = from.map_or(0, |from| node.number_for(from, None));
        node.send_from(number, &Remote::Pid(other), term).map_err(|error| {
            let cause = match error.cause() {
                SendTermCause::NoConnection => RelayCause::NoConnection,
                SendTermCause::Full => RelayCause::Full,
                SendTermCause::TooLong => RelayCause::TooLong,
                SendTermCause::NotPortable(_) => RelayCause::NotPortable,
            };
            Parcel::new(to, error.into_inner()).with_sender(from).refused(cause)
        })
    }
}

impl NodeRelay for NodeWay {
    fn signal(&self, signal: RemoteSignal) {
        if self.carry(&signal).is_none()
            && let Some(answer) = signal.answer(Exit::NoConnection)
        {
            receive(answer);
        }
    }
}
