//! Processes of other nodes as PIDs of this program, and the relay that carries signals to them.
//!
//! A link is entered twice: at the process of this program, as a link to the PID, and in the tables
//! of the connection. The tables only say what the end of the connection must answer, so that what
//! is in them may be out of date, but nothing that is open is missing: an entry is made before the
//! other node can learn of the relation.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

#[cfg(feature = "serde")]
use procession::Address;
use procession::relay::{
    NodeRelay, Parcel, Relay, RelayCause, RelayError, RemoteNode, RemoteSignal, receive,
};
use procession::{Exit, Pid};

use crate::link::{Link, Remote, Teller, Watch};
use crate::node::{Inner, MONITOR_KIND, Node};
use crate::reason;
use crate::term::{Atom, NodePid, Term};
use crate::wire::control::Control;

/// The other nodes with processes that have PIDs here.
#[derive(Default)]
pub(super) struct Remotes {
    by_name: HashMap<Place, RemoteNode>,
    by_number: HashMap<u32, Place>,
    /// The names of processes that have PIDs here. The first number of such a PID is the place of
    /// the name.
    names: Vec<Atom>,
    name_numbers: HashMap<Atom, u32>,
}

/// Another node, as a place of processes: one incarnation of it, or any, whose processes are known
/// by their names.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    node: Atom,
    creation: Option<u32>,
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
        let place = Place { node: process.node.clone(), creation: Some(process.creation) };
        let mut remotes = self.0.remotes.lock();
        self.remote_node(&mut remotes, place).pid(process.id, process.serial)
    }

    /// Returns the PID of a process of another node that is known by its name, whichever process
    /// has the name then. It can be sent to and monitored; a link to it is answered with
    /// [`Exit::NoProcess`].
    ///
    /// For a name of this node, it is the PID of the process that has it, or [`Pid::NOBODY`].
    ///
    /// # Panics
    /// As [`pid`](Self::pid).
    pub fn pid_of_remote(&self, process: &Remote) -> Pid {
        let (name, node) = match process {
            Remote::Pid(pid) => return self.pid(pid),
            Remote::Name { name, node } => (name, node),
        };
        if *node == self.0.own.name {
            let local = self.whereis(name).and_then(|number| self.local(number));
            return local.map_or(Pid::NOBODY, |(pid, _)| pid);
        }
        let mut remotes = self.0.remotes.lock();
        let number = remotes.number_of_name(name);
        self.remote_node(&mut remotes, Place { node: node.clone(), creation: None }).pid(number, 0)
    }

    /// Returns the address of a process of another node. `relay` carries its messages.
    #[cfg(feature = "serde")]
    pub(crate) fn far_address<M: Send + 'static>(
        &self,
        process: &Remote,
        relay: Arc<dyn Relay>,
    ) -> Address<M> {
        let mut remotes = self.0.remotes.lock();
        let (place, id, serial) = match process {
            Remote::Pid(pid) => {
                let place = Place { node: pid.node.clone(), creation: Some(pid.creation) };
                (place, pid.id, pid.serial)
            }
            Remote::Name { name, node } => {
                let number = remotes.number_of_name(name);
                (Place { node: node.clone(), creation: None }, number, 0)
            }
        };
        self.remote_node(&mut remotes, place).address(id, serial, relay)
    }

    /// Returns the process of another node that is known here by a PID.
    pub(crate) fn remote_of(&self, pid: Pid) -> Option<Remote> {
        let (id, serial) = pid.remote_parts()?;
        let remotes = self.0.remotes.lock();
        let Place { node, creation } = remotes.by_number.get(&pid.node())?.clone();
        Some(match creation {
            Some(creation) => Remote::Pid(NodePid { node, id, serial, creation }),
            None => Remote::Name { name: remotes.names.get(id as usize)?.clone(), node },
        })
    }

    /// Returns the number of a place, and makes one if there is none.
    fn remote_node<'a>(&self, remotes: &'a mut Remotes, place: Place) -> &'a RemoteNode {
        let Remotes { by_name, by_number, .. } = remotes;
        by_name.entry(place).or_insert_with_key(|place| {
            let relay = NodeWay { node: Arc::downgrade(&self.0) };
            let remote = RemoteNode::join(relay).expect("not all numbers are taken");
            by_number.insert(remote.number(), place.clone());
            remote
        })
    }

    /// Returns the PID by which other nodes know a process: the reverse of [`pid`](Self::pid).
    /// `None` if it is of a node that this one does not know, or stands for a name.
    ///
    /// A process of this program that is not [attached](Self::attach) can be monitored by others,
    /// and linked to if that is allowed. Messages to it are dropped.
    pub fn node_pid(&self, pid: Pid) -> Option<NodePid> {
        if pid.remote_parts().is_none() {
            return Some(self.pid_of(self.number_for(pid, None)));
        }
        match self.remote_of(pid)? {
            Remote::Pid(pid) => Some(pid),
            Remote::Name { .. } => None,
        }
    }

    /// Forgets the PIDs of other incarnations of a node than this one.
    pub(super) fn forget_incarnations(&self, name: &Atom, creation: u32) {
        let mut remotes = self.0.remotes.lock();
        let Remotes { by_name, by_number, .. } = &mut *remotes;
        let is_other = |place: &Place| {
            place.node == *name && place.creation.is_some_and(|other| other != creation)
        };
        let gone: Vec<_> = by_name.extract_if(|place, _| is_other(place)).collect();
        by_number.retain(|_, place| !is_other(place));
        drop(remotes);
        // Outside of the lock, since their relays are dropped.
        drop(gone);
    }
}

impl Remotes {
    /// Returns the number of a name, and gives one if it has none.
    fn number_of_name(&mut self, name: &Atom) -> u32 {
        if let Some(number) = self.name_numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("not all numbers are taken");
        self.names.push(name.clone());
        self.name_numbers.insert(name.clone(), number);
        number
    }
}

/// The way to the processes of another node.
struct NodeWay {
    /// Weak, since the node keeps it.
    node: Weak<Inner>,
}

impl NodeWay {
    /// Returns the node, and the process that is known here by this PID.
    fn target(&self, pid: Pid) -> Option<(Node, Remote)> {
        let node = Node(self.node.upgrade()?);
        let remote = node.remote_of(pid)?;
        Some((node, remote))
    }

    /// Hands a signal to the connection. Returns the exit that answers it if that is not possible.
    fn carry(&self, signal: &RemoteSignal) -> Result<(), Exit> {
        let lost = || Exit::NoConnection;
        let (node, remote) = self.target(signal.to()).ok_or_else(lost)?;
        let link = node.link_of(&remote).ok_or_else(lost)?;
        let carried = match (signal, &remote) {
            (RemoteSignal::Monitor { .. } | RemoteSignal::Demonitor { .. }, _) => {
                carry_monitor(&node, &link, &remote, signal)
            }
            (_, Remote::Pid(other)) => carry_to_pid(&node, &link, other.clone(), signal),
            // A link to whichever process has a name means none.
            (_, Remote::Name { .. }) => return Err(Exit::NoProcess),
        };
        carried.ok_or_else(lost)
    }
}

/// Hands a signal to the connection that goes to a process by its PID. Returns `None` if the
/// connection has ended.
fn carry_to_pid(node: &Node, link: &Link, other: NodePid, signal: &RemoteSignal) -> Option<()> {
    let number = |pid| node.number_for(pid, None);
    match signal {
        RemoteSignal::Link { from, .. } => link.tell_link(node, number(*from), other),
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
            link.tell_exit(node, number(*from), other, exit);
            Some(())
        }
        RemoteSignal::SendExit { from, exit, .. } => {
            send_exit(node, link, *from, other, reason::to_term(exit));
            Some(())
        }
        RemoteSignal::Kill { from, .. } => {
            send_exit(node, link, *from, other, Term::atom("kill"));
            Some(())
        }
        // The monitors of other nodes are those of the process of the connection.
        _ => Some(()),
    }
}

/// Hands a monitor, or the end of one, to the connection. Returns `None` if that has ended.
fn carry_monitor(node: &Node, link: &Link, remote: &Remote, signal: &RemoteSignal) -> Option<()> {
    match signal {
        &RemoteSignal::Monitor { from, to, monitor } => {
            let (own, reference) = (node.number_for(from, None), node.reference(MONITOR_KIND));
            // It comes back with the roles exchanged.
            let teller = Teller::Signal { from: to, to: from, monitor };
            let watch = Watch { process: remote.clone(), watcher: own, teller };
            link.tables(|tables| {
                tables.references.insert(monitor, reference.clone());
                tables.watches.insert(reference.clone(), watch);
            })?;
            // Otherwise the end of the connection is told.
            if link.takes_monitors() {
                let from = node.pid_of(own);
                let control = Control::Monitor { from, to: remote.target(), monitor: reference };
                link.outbound.signal(own.into(), &control, None);
            }
        }
        RemoteSignal::Demonitor { from, monitor, .. } => {
            let own = node.number_for(*from, None);
            let taken = link.tables(|tables| {
                let reference = tables.references.get(monitor).cloned();
                reference.inspect(|reference| drop(tables.take_watch(reference)))
            });
            if let Some(reference) = taken? {
                link.tell_demonitor(&node.pid_of(own), &remote.target(), &reference);
            }
        }
        _ => {}
    }
    Some(())
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
        let Some((node, remote)) = self.target(parcel.to) else {
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
        node.send_from(number, &remote, term).map_err(|error| {
            let cause = error.cause().into();
            Parcel::new(to, error.into_inner()).with_sender(from).refused(cause)
        })
    }
}

impl NodeRelay for NodeWay {
    fn signal(&self, signal: RemoteSignal) {
        if let Err(exit) = self.carry(&signal)
            && let Some(answer) = signal.answer(exit)
        {
            receive(answer);
        }
    }
}
