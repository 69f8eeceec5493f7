//! The node: its name, the processes that others can reach, and its connections.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use procession::mailbox::Recipient;
use procession::sync::Notify;
use procession::{Address, Pid};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub(crate) mod admission;
pub(crate) mod drain;
pub(crate) mod ended;
pub(crate) mod exports;
pub(crate) mod functions;
mod locals;
mod looks;
pub(crate) mod member;
pub(crate) mod messages;
pub(crate) mod names;
pub(crate) mod parts;
pub(crate) mod peers;
mod permits;
pub(crate) mod refusals;
mod relay;
mod shown;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
mod subscribers;

use crate::cookie::Cookie;
use crate::grants::AllGrants;
use crate::guarded::Guarded;
use crate::handshake::{Introduction, flags};
use crate::letter::Letter;
use crate::link::Link;
use crate::node::exports::Export;
use crate::node::parts::Part;
use crate::node::peers::Peers;
use crate::node::refusals::Refusals;
use crate::pulse::Beat;
use crate::remote::Remote;
use crate::remotes::Remotes;
use crate::term::{Atom, NodePid, Reference, Term};
use crate::tls::Tls;

/// The kinds of references that this node makes, which are the last word of each.
const MONITOR_KIND: u32 = 1;
const CALL_KIND: u32 = 2;
const QUESTION_KIND: u32 = 3;
const START_KIND: u32 = 4;

/// A node of an Erlang cluster. Its processes are the [attached](Self::attach) processes of this
/// program.
///
/// Clones are the same node. It ends with the processes of its scheduler, or by
/// [`stop`](Self::stop).
///
/// A node keeps its functions and recipients until its last clone is dropped. If such a function
/// needs the node itself, let it keep a [`WeakNode`](crate::WeakNode). Otherwise neither is ever
/// dropped.
///
/// See the [crate](crate) for an example.
#[derive(Clone)]
pub struct Node(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) own: Introduction,
    pub(crate) cookie: Cookie,
    pub(crate) tls: Option<Tls>,
    pub(crate) connect_timeout: Duration,
    pub(crate) patience: Duration,
    /// When connections ask for a sign of life.
    pub(crate) beat: Beat,
    pub(crate) accepts_plain_text: bool,
    /// The bytes of the longest message.
    pub(crate) message_limit: usize,
    pub(crate) epmd: SocketAddr,
    pub(crate) listens_at: Option<SocketAddr>,
    pub(crate) locals: Mutex<Locals>,
    /// How often a PID or a name of this node has lost its process, or the grants have changed.
    pub(crate) losses: AtomicU64,
    pub(crate) grants: Mutex<AllGrants>,
    /// Set if sends and monitors also need grants.
    pub(crate) grants_only: bool,
    pub(crate) exports: Mutex<HashMap<(Atom, Atom, i64), Export>>,
    /// Finds processes by names that are not registered.
    pub(crate) find_name: Mutex<Option<Guarded<Arc<FindName>>>>,
    pub(crate) peers: Mutex<Peers>,
    /// Held while a connection is admitted, and while a signal is answered because there is none.
    /// It is taken before all other locks of the node. See `node/peers.rs`.
    pub(crate) refusal: Mutex<()>,
    pub(crate) remotes: Mutex<Remotes>,
    /// Notified when the state of a peer changes.
    pub(crate) changed: Notify,
    /// What the status lists: groups, names and leases.
    pub(crate) parts: Mutex<Vec<Weak<dyn Part>>>,
    pub(crate) refusals: Refusals,
    /// The connections that could not be made in the background, for their reports only.
    pub(crate) dial_failures: Refusals,
    pub(crate) references: AtomicU64,
    /// Held by each call of other nodes that is not answered.
    pub(crate) open_calls: Arc<()>,
    /// The process that accepts connections and knows the ends of attached processes.
    pub(crate) keeper: Mutex<Option<Address<NoMessage>>>,
    /// The number of the scheduler of the keeper. The node does not keep the scheduler alive.
    pub(crate) scheduler: OnceLock<u32>,
}

/// Finds the process that has a name. See [`Node::find_names_with`].
pub(crate) type FindName = dyn Fn(&str) -> Option<Recipient<Letter>> + Send + Sync;

/// The messages of the keeper: there are none, because it only receives the ends of processes.
pub(crate) type NoMessage = std::convert::Infallible;

/// The number of a process that has ended already: no process has it.
pub(crate) const ENDED: u64 = 1;

pub(crate) struct Locals {
    /// The latest number. It is the identifier in a PID with the serial in its upper bits, so that
    /// no number is used twice.
    last: u64,
    by_number: HashMap<u64, Local>,
    by_pid: HashMap<Pid, u64>,
    by_name: HashMap<Atom, u64>,
    subscribers: BTreeMap<Pid, Guarded<Recipient<Letter>>>,
}

impl Default for Locals {
    fn default() -> Self {
        Self {
            last: ENDED,
            by_number: HashMap::new(),
            by_pid: HashMap::new(),
            by_name: HashMap::new(),
            subscribers: BTreeMap::new(),
        }
    }
}

/// A process of this program that other nodes know.
struct Local {
    pid: Pid,
    /// `None` if it is known by a link or a monitor, and takes no messages.
    inlet: Option<Inlet>,
    /// Set once it has monitored by letters.
    watches: bool,
}

/// The way in which an attached process takes messages.
#[derive(Clone)]
pub(crate) enum Inlet {
    Letters(Guarded<Recipient<Letter>>),
    Typed(Guarded<Arc<dyn TypedInlet>>),
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Letters(_) => "Letters",
            Self::Typed(_) => "Typed",
        })
    }
}

/// A process that takes messages of a type of its own.
pub(crate) trait TypedInlet: Send + Sync {
    /// Delivers a message of the node `sender` to the process, which other nodes know as `own`.
    /// Returns `false` if the message has another form, or the process does not accept it.
    fn take(&self, node: &Node, own: &NodePid, sender: &Atom, term: Term) -> bool;
}

impl Node {
    /// Returns the name of the node.
    pub fn name(&self) -> &Atom {
        &self.0.own.name
    }

    /// Returns the address at which the node listens, if it does.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.listens_at
    }
}

// What connections and members need.
impl Node {
    /// Returns `true` if nodes of the BEAM count this one among all nodes.
    pub(crate) fn is_visible(&self) -> bool {
        self.0.own.flags & flags::PUBLISHED != 0
    }

    fn keeper(&self) -> Option<Address<NoMessage>> {
        self.0.keeper.lock().clone()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.peers.lock().is_stopped()
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.0.connect_timeout
    }

    pub(crate) fn patience(&self) -> Duration {
        self.0.patience
    }

    pub(crate) fn beat(&self) -> &Beat {
        &self.0.beat
    }

    /// Returns the PID that others know a process by. Number 0 is the node itself.
    pub(crate) fn pid_of(&self, number: u64) -> NodePid {
        let own = &self.0.own;
        let (id, serial) = (number as u32, (number >> 32) as u32);
        NodePid { node: own.name.clone(), id, serial, creation: own.creation }
    }

    /// Returns the number of a process of this node and this incarnation.
    pub(crate) fn number_of(&self, pid: &NodePid) -> Option<u64> {
        let own = &self.0.own;
        let is_own = pid.creation == own.creation && pid.node == own.name;
        (is_own && pid.number() != 0).then_some(pid.number())
    }

    /// Notes, under the lock of the table that changes, that a PID or a name loses its process, or
    /// a node its grants.
    fn note_loss(&self) {
        // Ordering: Release pairs with the Acquire of `losses`: a thread that sees it finds the
        // table changed, because it takes the lock.
        self.0.losses.fetch_add(1, Release);
    }

    /// Returns how often a PID or a name has lost its process, or the grants have changed. While
    /// this stays the same, what was found by a PID or a name, and permitted, is right.
    pub(crate) fn losses(&self) -> u64 {
        // Ordering: Acquire pairs with the Release of `note_loss`.
        self.0.losses.load(Acquire)
    }

    /// Returns the reference of a call.
    #[cfg(feature = "serde")]
    pub(crate) fn call_reference(&self) -> Reference {
        self.reference(CALL_KIND)
    }

    /// Returns a number that no other call returns.
    pub(crate) fn draw(&self) -> u64 {
        // Relaxed: the numbers only have to differ.
        self.0.references.fetch_add(1, Relaxed)
    }

    fn reference(&self, kind: u32) -> Reference {
        let (number, own) = (self.draw(), &self.0.own);
        let words = [number as u32 & 0x3_ffff, (number >> 18) as u32, kind];
        Reference::new(own.name.clone(), own.creation, &words).expect("it has three words")
    }

    /// Returns the reference of a question to another node.
    pub(crate) fn question(&self) -> Reference {
        self.reference(QUESTION_KIND)
    }

    /// Returns the call of this node that a message answers, if it has the form of a reply.
    pub(crate) fn answered_call(&self, term: &Term) -> Option<Reference> {
        let Some([Term::Reference(call), _]) = term.as_tuple() else { return None };
        let own = &self.0.own;
        let is_own = call.creation == own.creation && call.node == own.name;
        (is_own && call.words().last() == Some(&CALL_KIND)).then(|| (**call).clone())
    }

    pub(crate) fn link_to(&self, node: &str) -> Option<Arc<Link>> {
        let node = Atom::new(node)?;
        self.0.peers.lock().link(&node).cloned()
    }

    /// Returns the connection by which a process is reached.
    pub(crate) fn link_of(&self, remote: &Remote) -> Option<Arc<Link>> {
        self.0.link_of(remote)
    }
}

impl Inner {
    fn link_of(&self, remote: &Remote) -> Option<Arc<Link>> {
        let peers = self.peers.lock();
        let link = peers.link(remote.node())?;
        link.is_of_peer(remote).then(|| Arc::clone(link))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.0.own.name).finish()
    }
}

#[cfg(test)]
mod tests;
