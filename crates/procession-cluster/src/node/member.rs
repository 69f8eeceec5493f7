//! Members: processes that other nodes know.

use std::time::Duration;

use procession::Exit;
use procession::mailbox::Recipient;

use crate::error::{CallTermError, SendTermError};
use crate::guarded::Guarded;
use crate::letter::Letter;
use crate::link::{Teller, Watch};
use crate::node::{Inlet, MONITOR_KIND, Node};
use crate::remote::Remote;
use crate::term::{NodePid, Reference, Term};
use crate::wire::control::Control;

/// A process of this program as a member of the cluster: what it does there, it does by this.
///
/// For links and exit signals, use [`procession::process`] with the PID that [`Node::pid`]
/// returns.
///
/// [`Node::attach`] makes it. Clones are the same member. It can be used in any process and thread.
#[derive(Clone, Debug)]
pub struct Member {
    node: Node,
    number: u64,
}

impl Member {
    pub(crate) fn new(node: Node, number: u64) -> Self {
        Self { node, number }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the PID by which other nodes know the process.
    pub fn pid(&self) -> NodePid {
        self.node.pid_of(self.number)
    }

    /// Returns the node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Sends a term to a process of another node, with this process as the sender.
    ///
    /// It never blocks, and never connects. Messages and signals of one sender to one process
    /// arrive in order. A message that was accepted arrives, unless the connection ends before.
    ///
    /// # Errors
    /// [`SendTermError`] returns the term: if the node is not connected, if the queue of its
    /// connection is full, or if the term cannot be sent.
    pub fn send(&self, to: impl Into<Remote>, term: Term) -> Result<(), SendTermError> {
        self.node.send_from(self.number, &to.into(), term)
    }

    /// Sends a term like [`send`](Self::send), and waits while the queue is full.
    ///
    /// # Errors
    /// [`SendTermError`] returns the term, for every cause but a full queue.
    ///
    /// # Cancellation
    /// If the future is dropped, the term is not sent.
    pub async fn send_wait(&self, to: impl Into<Remote>, term: Term) -> Result<(), SendTermError> {
        let to = to.into();
        let mut term = term;
        loop {
            match self.send(to.clone(), term) {
                Ok(()) => return Ok(()),
                Err(refused) => term = self.node.until_room(self.number, &to, refused).await?,
            }
        }
    }

    /// Calls a process of another node and waits for its reply. See [`Node::call`].
    ///
    /// # Errors
    /// See [`Node::call`].
    pub async fn call(
        &self,
        to: impl Into<Remote>,
        request: Term,
        timeout: Duration,
    ) -> Result<Term, CallTermError> {
        self.node.call_from(self.number, to.into(), request, timeout).await
    }

    /// Monitors a process of another node. This process receives exactly one [`Down`](Letter::Down)
    /// with the returned reference: when the other process ends, or its node cannot be reached,
    /// which is immediate if the process does not exist or the node is not connected. A process
    /// that takes no letters receives nothing: it monitors the [PID](Node::pid). The monitor ends
    /// with this process.
    pub fn monitor(&self, process: impl Into<Remote>) -> Reference {
        match self.node.local(self.number) {
            Some((_, Some(Inlet::Letters(recipient)))) => {
                self.monitor_by(process.into(), recipient)
            }
            _ => self.node.reference(MONITOR_KIND),
        }
    }

    /// Monitors like [`monitor`](Self::monitor), for a recipient of this process.
    pub(crate) fn monitor_by(
        &self,
        process: Remote,
        recipient: Guarded<Recipient<Letter>>,
    ) -> Reference {
        let monitor = self.node.reference(MONITOR_KIND);
        let watch = Watch { process, watcher: self.number, teller: Teller::Letter(recipient) };
        let link = self.node.link_of(&watch.process);
        let target = watch.process.target();
        let mut watch = Some(watch);
        let entered = link.as_ref().and_then(|link| {
            link.tables(|tables| {
                if let Some(watch) = watch.take() {
                    tables.watch_by_letter(monitor.clone(), watch);
                }
            })
        });
        match (entered, link) {
            // Otherwise the end of the connection is reported.
            (Some(()), Some(link)) if !link.takes_monitors() => {}
            (Some(()), Some(link)) => {
                let from = self.pid();
                let control = Control::Monitor { from, to: target, monitor: monitor.clone() };
                link.outbound.signal(self.number, &control, None);
            }
            _ => {
                if let Some(watch) = watch {
                    watch.tell(monitor.clone(), Exit::NoConnection);
                }
            }
        }
        // A process that has ended by now may have been detached before the monitor was entered.
        if !self.node.note_watch(self.number) {
            self.node.end_watches_of(self.number);
        }
        monitor
    }

    /// Ends a monitor. Returns `false` if its [`Down`](Letter::Down) was sent, or it is not one of
    /// this process. After `true`, there will be none.
    pub fn demonitor(&self, process: impl Into<Remote>, monitor: &Reference) -> bool {
        let process = process.into();
        let Some(link) = self.node.link_of(&process) else { return false };
        let is_own = |watch: &Watch| watch.watcher == self.number;
        let removed = link.tables(|tables| match tables.watches.get(monitor).is_some_and(is_own) {
            true => tables.take_watch(monitor),
            false => None,
        });
        let Some(Some(watch)) = removed else { return false };
        link.tell_demonitor(&self.pid(), &watch.process.target(), monitor);
        true
    }
}
