//! Processes of other nodes as PIDs of this program, and the relay that carries signals to them.
//!
//! A link is entered twice: at the process of this program, as a link to the PID, and in the tables
//! of the connection. The tables only say what the end of the connection must answer, so that what
//! is in them may be out of date, but nothing that is open is missing: an entry is made before the
//! other node can learn of the relation.

use std::sync::{Arc, Weak};

#[cfg(feature = "serde")]
use procession::Address;
use procession::mailbox::relay::{
    NodeRelay, Parcel, Relay, RelayCause, RelayError, RemoteNode, RemoteSignal, receive,
};
use procession::{Exit, Pid};

use crate::link::{Link, Teller, Watch};
use crate::node::{Inner, MONITOR_KIND, Node};
use crate::reason;
use crate::remote::Remote;
use crate::remotes::Held;
use crate::term::{NodePid, Term};
use crate::wire::control::Control;

impl Node {
    /// Returns the PID by which processes of this program know a process of another node. With it,
    /// they [link](procession::process::link) to the process,
    /// [monitor](procession::Context::monitor) it, and [send it](procession::mailbox::send) a
    /// [`Term`]. For a process of this node, it is the own PID of the process.
    ///
    /// The PID is good for this incarnation of the other node, and for this node, as long as it
    /// lives. If the other node is not connected, links and monitors are answered with
    /// [`Exit::NoConnection`]. The sender of messages by PID is the running process, so they are in
    /// order with its signals.
    ///
    /// Of nodes that are neither connected nor have an [address](procession::Address) here, only
    /// the 1024 that were used last are sure to be remembered. The PIDs of a forgotten one stay
    /// out of reach, and its processes get others.
    ///
    /// Returns [`Pid::NOBODY`] for a process of this node that is not attached, or has ended, and
    /// for any if the program has known 4 294 967 295 incarnations of nodes.
    pub fn pid(&self, process: &NodePid) -> Pid {
        let own = &self.0.own;
        if process.node == own.name && process.creation == own.creation {
            let local = self.number_of(process).and_then(|number| self.local(number));
            return local.map_or(Pid::NOBODY, |(pid, _)| pid);
        }
        self.far_pid(&process.into())
    }

    /// Returns the PID of a process of another node that is known by its name, whichever process
    /// has the name then. It can be sent to and monitored; a link to it is answered with
    /// [`Exit::NoProcess`].
    ///
    /// For a name of this node, it is the PID of the process that has it, or [`Pid::NOBODY`]. Names
    /// are remembered like the nodes of [`pid`](Self::pid).
    pub fn pid_of_remote(&self, process: &Remote) -> Pid {
        let (name, node) = match process {
            Remote::Pid(pid) => return self.pid(pid),
            Remote::Name { name, node } => (name, node),
        };
        if *node == self.0.own.name {
            let local = self.whereis(name).and_then(|(number, _)| self.local(number));
            return local.map_or(Pid::NOBODY, |(pid, _)| pid);
        }
        self.far_pid(process)
    }

    fn far_pid(&self, process: &Remote) -> Pid {
        self.enter(process, |remote, [id, serial], _| remote.pid(id, serial)).unwrap_or(Pid::NOBODY)
    }

    /// Returns the address of a process of another node. `relay` makes the way of its messages,
    /// which has what keeps the process known. Returns `None` if there are no numbers for nodes any
    /// more.
    #[cfg(feature = "serde")]
    pub(crate) fn far_address<M: Send + 'static>(
        &self,
        process: &Remote,
        relay: impl FnOnce(Held) -> Arc<dyn Relay>,
    ) -> Option<Address<M>> {
        self.enter(process, |remote, [id, serial], held| remote.address(id, serial, relay(held)))
    }

    /// Enters a process of another node. `access` runs no code of the user, and drops nothing.
    fn enter<R>(
        &self,
        process: &Remote,
        access: impl FnOnce(&RemoteNode, [u32; 2], Held) -> R,
    ) -> Option<R> {
        let mut remotes = self.0.remotes.lock();
        let join = || RemoteNode::join(NodeWay { node: Arc::downgrade(&self.0) });
        let entered = remotes.enter(process, join);
        let result = entered.map(|(remote, numbers, held)| access(remote, numbers, held));
        let gone = remotes.sweep();
        drop(remotes);
        // Outside of the lock, because their relays are dropped.
        drop(gone);
        result
    }

    /// Returns the process of another node that is known here by a PID.
    pub(crate) fn remote_of(&self, pid: Pid) -> Option<Remote> {
        self.0.remotes.lock().find(pid).map(|(remote, _)| remote)
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
}

/// The way to the processes of another node.
struct NodeWay {
    /// Weak, because the node keeps it.
    node: Weak<Inner>,
}

impl NodeWay {
    /// Returns the node, and the process that is known here by this PID, with what keeps it known.
    fn target(&self, pid: Pid) -> Option<(Node, Remote, Held)> {
        let node = Node(self.node.upgrade()?);
        let (remote, held) = node.0.remotes.lock().find(pid)?;
        Some((node, remote, held))
    }
}

/// Hands a signal to a connection. Returns `None` if that has ended.
fn carry(
    node: &Node,
    link: &Link,
    remote: &Remote,
    held: Held,
    signal: &RemoteSignal,
) -> Option<()> {
    match (signal, remote) {
        (RemoteSignal::Monitor { .. } | RemoteSignal::Demonitor { .. }, _) => {
            carry_monitor(node, link, remote, held, signal)
        }
        (_, Remote::Pid(other)) => carry_to_pid(node, link, other.clone(), signal),
        // A link to whichever process has a name means none.
        (_, Remote::Name { .. }) => {
            answer(signal, Exit::NoProcess);
            Some(())
        }
    }
}

/// Answers a signal in the place of the other node.
fn answer(signal: &RemoteSignal, exit: Exit) {
    if let Some(answer) = signal.answer(exit) {
        receive(answer);
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
                let pair = (own, other.clone());
                tables.links.remove(&pair);
                tables.unlinking.insert(pair.clone(), *id);
                tables.unlinks.insert(*id, pair);
            })?;
            let control = Control::Unlink { id: *id, from: node.pid_of(own), to: other };
            link.outbound.signal(own, &control, None);
            Some(())
        }
        RemoteSignal::UnlinkAck { from, id, .. } => {
            let own = number(*from);
            // A link of the process may have been in the queue when the other process unlinked.
            // When the process answered, it was linked no more. A later link of the other process
            // is read only after this: `receive` hands over the answer before it returns.
            link.tables(|tables| tables.links.remove(&(own, other.clone())));
            let control = Control::UnlinkAck { id: *id, from: node.pid_of(own), to: other };
            link.outbound.signal(own, &control, None);
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
        // The process of the connection holds the monitors of other nodes.
        _ => Some(()),
    }
}

/// Hands a monitor, or the end of one, to the connection. Returns `None` if that has ended.
fn carry_monitor(
    node: &Node,
    link: &Link,
    remote: &Remote,
    held: Held,
    signal: &RemoteSignal,
) -> Option<()> {
    match signal {
        &RemoteSignal::Monitor { from, to, monitor } => {
            let (own, reference) = (node.number_for(from, None), node.reference(MONITOR_KIND));
            // It returns with the roles exchanged.
            let held = Some(held);
            let teller = Teller::Signal { from: to, to: from, monitor, held };
            let watch = Watch { process: remote.clone(), watcher: own, teller };
            link.tables(|tables| {
                tables.references.insert(monitor, reference.clone());
                tables.watches.insert(reference.clone(), watch);
            })?;
            // Otherwise the end of the connection is reported.
            if link.takes_monitors() {
                let from = node.pid_of(own);
                let control = Control::Monitor { from, to: remote.target(), monitor: reference };
                link.outbound.signal(own, &control, None);
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
    link.outbound.signal(own, &control, None);
}

impl Link {
    /// Enters a link of a process of this node, and sends it to the other node. Returns `None` if
    /// the connection has ended.
    fn tell_link(&self, node: &Node, own: u64, to: NodePid) -> Option<()> {
        self.tables(|tables| {
            let pair = (own, to.clone());
            tables.unlinking.remove(&pair);
            tables.links.insert(pair)
        })?;
        let control = Control::Link { from: node.pid_of(own), to };
        self.outbound.signal(own, &control, None);
        Some(())
    }

    /// Reports the end of a process of this node to the other node, if the two are linked.
    pub(crate) fn tell_exit(&self, node: &Node, own: u64, to: NodePid, exit: &Exit) {
        let link = (own, to);
        if self.tables(|tables| tables.links.remove(&link)) == Some(true) {
            let (from, to) = (node.pid_of(own), link.1);
            let reason = reason::to_term(exit);
            self.tell(own, reason, |reason| Control::Exit { from, to, reason });
        }
    }
}

impl Relay for NodeWay {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        let Some((node, remote, _)) = self.target(parcel.to) else {
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
        while let Some((node, remote, held)) = self.target(signal.to()) {
            if let Some(link) = node.link_of(&remote) {
                if carry(&node, &link, &remote, held, &signal).is_some() {
                    return;
                }
                // It was forgotten before its tables were closed, so the next look finds none or a
                // later one.
            } else if signal.answer(Exit::NoConnection).is_none() {
                return;
            } else if let Some(_refusal) = node.refuse(&remote) {
                return answer(&signal, Exit::NoConnection);
            }
        }
        // The process is not known any more, so that no connection brings anything from it.
        answer(&signal, Exit::NoConnection);
    }
}
