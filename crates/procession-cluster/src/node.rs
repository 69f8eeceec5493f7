//! The node: its name, the processes that others can reach, and its connections.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use procession::mailbox::Recipient;
use procession::relations::MonitorRef;
use procession::sync::Notify;
use procession::{Address, Context, Outcome, Pid, SpawnOptions};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::{Mutex, MutexGuard};

mod builder;
mod connect;
mod error;
mod find;
mod functions;
mod grants;
mod handshakes;
mod member;
mod messages;
mod names;
mod peers;
mod ping;
mod remote;
mod remotes;
mod shown;
mod start;
mod status;
mod stop;

pub use self::builder::{NodeBuilder, StartError};
pub use self::connect::ConnectError;
pub use self::error::{CallTermError, RegisterError, SendTermCause, SendTermError};
pub use self::find::{Find, Found};
pub use self::functions::ApplyError;
pub(crate) use self::functions::{Applied, Returned};
use self::grants::AllGrants;
pub(crate) use self::grants::{GRANTS_NAME, Permitted, Reach};
pub use self::grants::{GrantError, Grants};
use self::handshakes::Refusals;
pub use self::member::Member;
#[cfg(feature = "serde")]
pub(crate) use self::messages::{NO_REPLY, without_sender};
use self::names::FindName;
pub use self::names::WeakNode;
pub(crate) use self::peers::Attempt;
use self::peers::{Admission, Event, PeerEvent, Peers};
pub use self::ping::PingError;
pub(crate) use self::remotes::Held;
use self::remotes::Remotes;
#[cfg(test)]
pub(crate) use self::start::STARTS_MAX;
pub use self::start::StartTermError;
pub(crate) use self::status::STATUS_NAME;
pub use self::status::{NodeStatus, PeerInfo, StatusError};
pub use self::stop::Stopping;

use crate::connection::pulse::Beat;
use crate::cookie::Cookie;
use crate::guarded::Guarded;
use crate::handshake::Introduction;
use crate::letter::{Letter, post};
use crate::link::{Link, Order, Remote};
use crate::term::{Atom, NodePid, Reference, Term};
use crate::tls::Tls;
use crate::wire::control::SpawnRequest;

/// The kinds of references that this node makes, which are the last word of each.
const MONITOR_KIND: u32 = 1;
const CALL_KIND: u32 = 2;
const QUESTION_KIND: u32 = 3;
const START_KIND: u32 = 4;

/// A process that was started for another node, and the monitor of the connection, if it could
/// make one.
pub(crate) struct Spawned {
    pub(crate) recipient: Recipient<Letter>,
    pub(crate) monitor: Option<MonitorRef>,
}

impl Spawned {
    /// Starts a process. `None` if it is refused.
    fn start<F, P>(options: SpawnOptions, process: F) -> Option<Self>
    where
        F: FnOnce(Context<Letter>) -> P + Send + 'static,
        P: Future + Send + 'static,
        P::Output: Outcome + Send + 'static,
    {
        let child = options.monitor().try_start(process).ok()?;
        let recipient = child.address().map(|letter: Letter| letter);
        Some(Self { recipient, monitor: child.monitor_ref() })
    }
}

/// Starts a process with the arguments of another node, and with what takes the value that it
/// returns, if that is asked for. `None` if it is refused.
pub(crate) type Start = dyn Fn(Vec<Term>, Option<Returned>) -> Option<Spawned> + Send + Sync;

/// What other nodes may start.
#[derive(Clone)]
pub(crate) struct Export {
    pub(crate) start: Guarded<Arc<Start>>,
    /// `true` if it returns a value.
    pub(crate) returns: bool,
}

/// A node of an Erlang cluster. Its processes are those of this program that are
/// [attached](Self::attach).
///
/// Clones are the same node. It ends with the processes of its scheduler, or by
/// [`stop`](Self::stop).
///
/// What a node is given, such as functions and recipients, it keeps until its last clone is
/// dropped. If one of these needs the node itself, let it keep a [`WeakNode`]. Otherwise, the two
/// keep each other for as long as the program runs.
///
/// See the [crate](crate) for an example.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    own: Introduction,
    cookie: Cookie,
    tls: Option<Tls>,
    connect_timeout: Duration,
    patience: Duration,
    /// When connections ask for a sign of life.
    beat: Beat,
    accepts_plain_text: bool,
    epmd: SocketAddr,
    listens_at: Option<SocketAddr>,
    locals: Mutex<Locals>,
    /// How often a PID or a name of this node has lost its process, or the grants have changed.
    losses: AtomicU64,
    grants: Mutex<AllGrants>,
    /// Set if sends and monitors need grants, too.
    grants_only: bool,
    exports: Mutex<HashMap<(Atom, Atom, i64), Export>>,
    /// Finds processes by names that are not registered.
    find_name: Mutex<Option<Guarded<Arc<FindName>>>>,
    peers: Mutex<Peers>,
    /// Held while a connection is admitted, and while a signal is answered because there is none.
    /// It is taken before all other locks of the node. See `node/peers.rs`.
    refusal: Mutex<()>,
    remotes: Mutex<Remotes>,
    /// Told when the state of a peer changes.
    changed: Notify,
    refusals: Refusals,
    /// The connections that could not be made in the background, for their reports only.
    dial_failures: Refusals,
    references: AtomicU64,
    /// The process that accepts connections and knows the ends of attached processes.
    keeper: Mutex<Option<Address<NoMessage>>>,
    /// The number of the scheduler of the keeper. The node does not keep the scheduler alive.
    scheduler: OnceLock<u32>,
}

/// The messages of the keeper: there are none, since it only receives the ends of processes.
pub(crate) type NoMessage = std::convert::Infallible;

/// The number of a process that has ended already: no process has it.
pub(crate) const ENDED: u64 = 1;

struct Locals {
    /// The latest number. It is the identifier in a PID with the serial in its upper bits, so that
    /// no number comes twice.
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
    #[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "its messages need serde"))]
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
    /// Gives a message of the node `sender` to the process, which other nodes know as `own`.
    /// Returns `false` if it is of another form, or the process does not accept it.
    fn take(&self, node: &Node, own: &NodePid, sender: &Atom, term: Term) -> bool;
}

impl Node {
    /// Returns a builder of a node with this name, such as `shop@127.0.0.1`.
    pub fn builder(name: impl Into<Arc<str>>) -> NodeBuilder {
        NodeBuilder::new(name.into())
    }

    /// Returns the name of the node.
    pub fn name(&self) -> &Atom {
        &self.0.own.name
    }

    /// Returns the address at which the node listens, if it does.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.listens_at
    }

    /// Makes a process reachable for other nodes. Returns its membership, by which it sends.
    ///
    /// A process has one PID in the cluster, so that attaching it again returns the same
    /// membership. It ends with the process.
    pub fn attach(&self, recipient: &Recipient<Letter>) -> Member {
        Member::new(self.clone(), self.attach_number(recipient))
    }

    pub(crate) fn attach_number(&self, recipient: &Recipient<Letter>) -> u64 {
        let inlet = || Inlet::Letters(Guarded::new(recipient.clone()));
        self.number_for(recipient.pid(), Some(&inlet))
    }

    /// Returns the number by which other nodes know a process, and makes one if there is none.
    pub(crate) fn number_for(&self, pid: Pid, inlet: Option<&dyn Fn() -> Inlet>) -> u64 {
        let number = {
            let mut locals = self.0.locals.lock();
            let locals = &mut *locals;
            match locals.by_pid.entry(pid) {
                Entry::Occupied(known) => {
                    if let Some(local) = locals.by_number.get_mut(known.get())
                        && local.inlet.is_none()
                    {
                        local.inlet = inlet.map(|make| make());
                    }
                    return *known.get();
                }
                Entry::Vacant(new) => {
                    locals.last += 1;
                    new.insert(locals.last);
                    let local = Local { pid, inlet: inlet.map(|make| make()), watches: false };
                    locals.by_number.insert(locals.last, local);
                    locals.last
                }
            }
        };
        self.notice_end(pid);
        number
    }

    /// Gives an attached process a name, by which other nodes reach it. A process may have several
    /// names.
    ///
    /// # Errors
    /// [`RegisterError`]: another process has the name, it is too long or one of the names by which
    /// nodes talk to each other, or the process has ended or is a member of another node.
    pub fn register(&self, name: &str, member: &Member) -> Result<(), RegisterError> {
        let atom = Atom::new(name).ok_or_else(|| RegisterError::TooLong(name.to_owned()))?;
        if name.starts_with(STATUS_NAME) {
            return Err(RegisterError::Reserved(name.to_owned()));
        }
        let number = member.number();
        let mut locals = self.0.locals.lock();
        // Under the lock, so that the end of the process takes the name with it.
        let is_member =
            Arc::ptr_eq(&self.0, &member.node().0) && locals.by_number.contains_key(&number);
        if !is_member {
            return Err(RegisterError::NotAttached(name.to_owned()));
        }
        match *locals.by_name.entry(atom).or_insert(number) {
            owner if owner == number => Ok(()),
            _ => Err(RegisterError::Taken(name.to_owned())),
        }
    }

    /// Takes a name back. Returns `true` if a process had it.
    pub fn unregister(&self, name: &str) -> bool {
        Atom::new(name).is_some_and(|name| {
            let mut locals = self.0.locals.lock();
            let had_process = locals.by_name.remove(&name).is_some();
            self.note_loss();
            had_process
        })
    }

    /// Sends [`NodeUp`](Letter::NodeUp) to a process for each node that is connected, and from then
    /// on `NodeUp` and [`NodeDown`](Letter::NodeDown) as connections begin and end, in order.
    ///
    /// A process that subscribes again gets nothing twice: its new recipient takes the place of the
    /// one before. The end of the process ends its subscription.
    ///
    /// # Blocking
    /// A function of the recipient ([`Address::map`]) must not block. The other subscribers are
    /// told once it has returned, and a node that connects again is connected then.
    pub fn subscribe(&self, recipient: &Recipient<Letter>) {
        self.0.peers.lock().subscribe(Guarded::new(recipient.clone()));
        self.publish();
    }

    fn subscribed(&self, recipient: Guarded<Recipient<Letter>>, connected: Vec<PeerEvent>) {
        let pid = recipient.pid();
        let (is_attached, replaced) = {
            let mut locals = self.0.locals.lock();
            let replaced = locals.subscribers.insert(pid, recipient.clone());
            (locals.by_pid.contains_key(&pid), replaced)
        };
        if replaced.is_none() {
            for event in connected {
                // Ignored: it has ended, or takes no more.
                drop(post(&recipient, event.letter()));
            }
            if !is_attached {
                self.notice_end(pid);
            }
        }
        // Outside of the lock, since it has code of the user.
        drop(replaced);
    }

    /// Lets other nodes start processes with a function: by
    /// `spawn(Node, Module, Function, Arguments)`, in all its forms.
    ///
    /// `function` receives the context of the new process and the arguments, of which there are
    /// `arity`. What is not exported cannot be started, and only nodes that have the
    /// [grant](Grants::spawn) can start what is. A function that returns a value to its caller is
    /// exported by [`export_function`](Self::export_function).
    ///
    /// # Panics
    /// If a name has more than 255 characters.
    pub fn export<F, P>(&self, module: &str, function: &str, arity: u8, start: F)
    where
        F: Fn(Context<Letter>, Vec<Term>) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Outcome + Send + 'static,
    {
        let start = Arc::new(start);
        let start = move |arguments, _| {
            let start = Arc::clone(&start);
            let process = move |cx: Context<Letter>| start(cx, arguments);
            Spawned::start(SpawnOptions::new(), process)
        };
        self.export_as(
            module,
            function,
            arity,
            Export { start: Guarded::new(Arc::new(start)), returns: false },
        );
    }

    fn export_as(&self, module: &str, function: &str, arity: u8, export: Export) {
        let atom = |text| Atom::new(text).expect("a name has at most 255 characters");
        let key = (atom(module), atom(function), i64::from(arity));
        let replaced = self.0.exports.lock().insert(key, export);
        // Outside of the lock, since it has code of the user.
        drop(replaced);
    }

    pub(crate) fn exported(&self, request: &SpawnRequest) -> Option<Export> {
        let key = (request.module.clone(), request.function.clone(), request.arity);
        self.0.exports.lock().get(&key).cloned()
    }

    /// Ends the connection to a node. Returns `true` if there was one.
    ///
    /// All that monitor or are linked across it are told
    /// [`Exit::NoConnection`](procession::Exit::NoConnection), on both sides.
    ///
    /// From now on, sends by the connection fail. What it has accepted before is sent first. The
    /// connection ends once the other node has taken that, or after the
    /// [patience](NodeBuilder::patience). [`Letter::NodeDown`] tells when. Messages that are left
    /// then are counted ([`NodeStatus::lost`]), and the process of the connection fails with their
    /// number, which is [reported](procession::report).
    pub fn disconnect(&self, node: &str) -> bool {
        let link = self.link_to(node);
        link.is_some_and(|link| end(&link, "it was disconnected by this node"))
    }
}

/// Ends a connection in order. Returns `false` if it has ended.
fn end(link: &Link, why: &str) -> bool {
    // Before the order is taken, so that no later message is accepted.
    link.outbound.drain();
    link.orders.send(Order::End(why.to_owned())).is_ok()
}

// What connections and members need.
impl Node {
    /// Makes the keeper detach a process when it ends. Without a keeper, the node has stopped.
    fn notice_end(&self, pid: Pid) {
        if let Some(keeper) = self.keeper() {
            keeper.monitor(pid);
        }
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

    pub(crate) fn local(&self, number: u64) -> Option<(Pid, Option<Inlet>)> {
        let locals = self.0.locals.lock();
        locals.by_number.get(&number).map(|local| (local.pid, local.inlet.clone()))
    }

    /// Notes, under the lock of the table that changes, that a PID or a name loses its process, or
    /// a node its grants.
    fn note_loss(&self) {
        // Ordering: Release pairs with the Acquire of `losses`: a thread that sees it finds the
        // table changed, since it takes the lock.
        self.0.losses.fetch_add(1, Release);
    }

    /// Returns how often a PID or a name has lost its process, or the grants have changed. While
    /// this stays the same, what was found by a PID or a name, and permitted, is right.
    pub(crate) fn losses(&self) -> u64 {
        // Ordering: Acquire pairs with the Release of `note_loss`.
        self.0.losses.load(Acquire)
    }

    /// Forgets a process that has ended.
    pub(crate) fn detach(&self, pid: Pid) {
        let (number, local, subscriber) = {
            let mut locals = self.0.locals.lock();
            self.note_loss();
            let number = locals.by_pid.remove(&pid);
            if let Some(number) = number {
                locals.by_name.retain(|_, owner| *owner != number);
            }
            let local = number.and_then(|number| locals.by_number.remove(&number));
            (number, local, locals.subscribers.remove(&pid))
        };
        if let Some(number) = number.filter(|_| local.as_ref().is_some_and(|local| local.watches)) {
            self.end_watches_of(number);
        }
        // User code may run here, so it runs outside of the lock.
        drop((local, subscriber));
    }

    /// Notes that a process has monitors that are told by letters. Returns `false` if it has ended.
    fn note_watch(&self, number: u64) -> bool {
        let mut locals = self.0.locals.lock();
        let local = locals.by_number.get_mut(&number);
        local.map(|local| local.watches = true).is_some()
    }

    /// Ends the monitors of a process that has ended, as far as they are told by letters. The
    /// others end with the relations of the process.
    fn end_watches_of(&self, number: u64) {
        let links: Vec<_> = self.0.peers.lock().links().cloned().collect();
        for link in links {
            let gone = link.tables(|tables| tables.take_watches_of(number)).unwrap_or_default();
            for (monitor, watch) in gone {
                link.tell_demonitor(&self.pid_of(number), &watch.process.target(), &monitor);
            }
        }
    }

    /// Returns the reference of a call.
    #[cfg(feature = "serde")]
    pub(crate) fn call_reference(&self) -> Reference {
        self.reference(CALL_KIND)
    }

    fn reference(&self, kind: u32) -> Reference {
        // Relaxed: the numbers only have to differ.
        let number = self.0.references.fetch_add(1, Relaxed);
        let own = &self.0.own;
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

    fn link_to(&self, node: &str) -> Option<Arc<Link>> {
        let node = Atom::new(node)?;
        self.0.peers.lock().link(&node).cloned()
    }

    /// Returns the connection by which a process is reached.
    pub(crate) fn link_of(&self, remote: &Remote) -> Option<Arc<Link>> {
        let peers = self.0.peers.lock();
        let link = peers.link(remote.node())?;
        link.is_of_peer(remote).then(|| Arc::clone(link))
    }

    /// Lets a signal to a process be answered as one that cannot be reached. No connection is
    /// admitted until the result is dropped. Returns `None` if the process is connected.
    pub(crate) fn refuse(&self, remote: &Remote) -> Option<MutexGuard<'_, ()>> {
        let refusal = self.0.refusal.lock();
        self.link_of(remote).is_none().then_some(refusal)
    }

    /// Makes a connection known, once all was told of the end of the one before it. Returns the
    /// reason if it is not wanted.
    pub(crate) async fn connected(
        &self,
        attempt: &Attempt,
        peer: &Introduction,
        orders: &Address<Order>,
    ) -> Result<Arc<Link>, &'static str> {
        let mut is_waiting = false;
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            match self.admit(attempt, peer, orders) {
                Admission::Made(link) => {
                    self.publish();
                    self.0.changed.notify_waiters();
                    return Ok(link);
                }
                Admission::Waits(replaced) => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        // Others that wait may be unwanted now.
                        self.0.changed.notify_waiters();
                    }
                    if let Some(old) = replaced {
                        let why = "a newer connection has replaced it".to_owned();
                        // Ignored: it has ended.
                        drop(old.orders.send(Order::Close(why)));
                    }
                }
                Admission::Unwanted(why) => return Err(why),
            }
            changed.await;
        }
    }

    /// Waits until the subscribers were told that a connection is there, which another thread may
    /// be doing. What the connection brings comes after that.
    pub(crate) async fn until_up(&self, link: &Link) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if self.0.peers.lock().is_up(link) {
                return;
            }
            changed.await;
        }
    }

    fn admit(&self, attempt: &Attempt, peer: &Introduction, orders: &Address<Order>) -> Admission {
        let mut gone = Vec::new();
        let make = |connection| {
            gone = self.0.remotes.lock().connected(&peer.name, peer.creation);
            Link::new(peer.clone(), connection, attempt.number, orders.clone())
        };
        let attempt = (attempt.side, attempt.number);
        let refusal = self.0.refusal.lock();
        let admission = self.0.peers.lock().admit(self.name(), &peer.name, attempt, make);
        drop(refusal);
        // Outside of the locks, since their relays are dropped.
        drop(gone);
        admission
    }

    /// Forgets a connection that has ended, so that there can be another one.
    pub(crate) fn forget(&self, link: &Arc<Link>) {
        self.0.peers.lock().forget(link);
    }

    /// Makes the end of a connection known.
    pub(crate) fn disconnected(&self, link: &Arc<Link>, why: String) {
        self.0.remotes.lock().disconnected(&link.peer.name);
        self.0.peers.lock().ended(link, why);
        self.publish();
        self.0.changed.notify_waiters();
    }

    /// Tells the subscribers of connections. One thread does so at a time, so that they are told in
    /// order, and no lock is held.
    fn publish(&self) {
        struct Telling<'a>(&'a Node);
        impl Drop for Telling<'_> {
            fn drop(&mut self) {
                self.0.0.peers.lock().end_telling();
            }
        }

        /// An event that the subscribers are told. Its drop notes that, also if it was cut short.
        struct Told<'a>(&'a Node, PeerEvent);
        impl Drop for Told<'_> {
            fn drop(&mut self) {
                self.0.0.peers.lock().was_told(&self.1);
                // A connection may wait for that.
                self.0.0.changed.notify_waiters();
            }
        }

        loop {
            if !self.0.peers.lock().begin_to_tell() {
                return;
            }
            let telling = Telling(self);
            while let Some(event) = self.next_event() {
                let told = match event {
                    Event::Changed(event) => Told(self, event),
                    Event::Subscribed(recipient, connected) => {
                        self.subscribed(recipient, connected);
                        continue;
                    }
                };
                let subscribers: Vec<_> =
                    self.0.locals.lock().subscribers.values().cloned().collect();
                for subscriber in subscribers {
                    // Ignored: it has ended, or takes no more.
                    drop(post(&subscriber, told.1.letter()));
                }
            }
            drop(telling);
            // One that came since the last look found a thread that tells.
            if !self.0.peers.lock().has_events() {
                return;
            }
        }
    }

    fn next_event(&self) -> Option<Event> {
        self.0.peers.lock().next_event()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(&self.0.own.name).finish()
    }
}

#[cfg(test)]
mod tests;
