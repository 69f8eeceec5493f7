//! Typed messages between nodes: addresses of processes of other nodes, and processes of this node
//! that receive a Rust type.

use std::sync::Arc;

use procession::mailbox::relay::{Parcel, Relay, RelayCause, RelayError, RoomFuture};
use procession::mailbox::request::{RequestContext, context};
use procession::process::catch_panic;
use procession::{Address, Pid};
use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use super::scope::{self, Replies};
use crate::error::SendTermCause;
use crate::guarded::Guarded;
use crate::link::{Caller, Link, Waits};
use crate::node::member::Member;
use crate::node::messages::readable;
use crate::node::{Inlet, Node, TypedInlet};
use crate::outbound::{Lane, Unqueued};
use crate::remote::Remote;
use crate::remotes::Held;
use crate::serialize::convert::{from_term, to_term};
use crate::serialize::error::ConvertError;
use crate::serialize::message::Messages;
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire::calls::last;
use crate::wire::control::{Control, Target};

/// What a program may count on that has not known billions of nodes.
const NUMBERS_ARE_LEFT: &str = "not all numbers of nodes are taken";

type Write<M> = Box<dyn Fn(&M) -> Result<Term, ConvertError> + Send + Sync>;
type Read<M> = Box<dyn Fn(Term) -> Option<M> + Send + Sync>;

impl Node {
    /// Returns the address of a process of another node, for messages of a type that serde
    /// converts. It is used like the address of a process of this program: by
    /// [`send`](Address::send), [`send_wait`](Address::send_wait) and [`call`](Address::call), and
    /// its PID for monitors, links and exit signals.
    ///
    /// [`to_term`] makes the terms. With [`serialize::reply`](super::reply) and
    /// [`serialize::address`](super::address), there can be replies and addresses in the messages.
    /// A message with a reply as its last part goes as a call of a `GenServer`, and the request is
    /// what is left: `Job::Add(3, 4, reply)` is `GenServer.call(server, {:add, 3, 4})`. Any other
    /// is sent as it is. For messages with versions, see [`Messages::address`].
    ///
    /// A refused message returns in the [`SendError`](procession::SendError). Its
    /// [`relay_cause`](procession::SendError::relay_cause) says why: no connection, a full queue,
    /// too long, without a term, or not permitted by the other node.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use std::time::Duration;
    ///
    /// use procession::{Context, Reply, start};
    /// use procession_cluster::{Cookie, Node, Remote};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// #[serde(rename_all = "snake_case")]
    /// enum Job {
    ///     Add(u32, u32, #[serde(with = "procession_cluster::serialize::reply")] Reply<u32>),
    /// }
    ///
    /// async fn adder(mut cx: Context<Job>) {
    ///     while let Some(Job::Add(a, b, reply)) = cx.recv().await {
    ///         reply.send(a + b);
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// procession::run(async {
    ///     let cookie = Cookie::random()?;
    ///     let math = Node::builder("math@127.0.0.1")
    ///         .cookie(cookie.clone())
    ///         .listen((Ipv4Addr::LOCALHOST, 0).into())
    ///         .start()
    ///         .await?;
    ///     let adder = start(adder);
    ///     math.register("adder", &math.attach_as(adder.address()))?;
    ///
    ///     let desk = Node::builder("desk@127.0.0.1").cookie(cookie).start().await?;
    ///     desk.connect_at("math@127.0.0.1", math.local_addr().expect("it listens")).await?;
    ///     let adder = desk.address::<Job>(Remote::named("adder", "math@127.0.0.1"));
    ///     let sum = adder.call(|reply| Job::Add(3, 4, reply), Duration::from_secs(5)).await;
    ///     assert_eq!(sum.ok(), Some(7));
    ///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the program has known 4 294 967 295 incarnations of nodes.
    pub fn address<M>(&self, process: impl Into<Remote>) -> Address<M>
    where
        M: Serialize + Send + 'static,
    {
        self.try_address(process.into()).expect(NUMBERS_ARE_LEFT)
    }

    /// Returns the address of a process of another node, or `None` if there are no numbers for
    /// nodes any more.
    pub(super) fn try_address<M>(&self, process: Remote) -> Option<Address<M>>
    where
        M: Serialize + Send + 'static,
    {
        self.typed_address(process, true, Box::new(|message| to_term(message)))
    }

    /// Makes a process reachable for other nodes. It receives messages of a Rust type, which serde
    /// converts. Returns its membership.
    ///
    /// [`from_term`] reads the terms. A call of a `GenServer` is the request with the sender as its
    /// last part, so that it fits a variant with a last field that is a [reply](super::reply); a
    /// cast is the message in it. What is no message of the type is dropped and counted
    /// ([`PeerInfo::undelivered`](crate::PeerInfo::undelivered)). For messages with versions, see
    /// [`Messages::attach`].
    ///
    /// A process is attached in one way: if it is attached already, the membership is that.
    pub fn attach_as<M>(&self, address: &Address<M>) -> Member
    where
        M: DeserializeOwned + Send + 'static,
    {
        self.attach_typed(address, || Box::new(|term| from_term(term).ok()))
    }

    fn typed_address<M: Send + 'static>(
        &self,
        to: Remote,
        is_plain: bool,
        write: Write<M>,
    ) -> Option<Address<M>> {
        if to.node() == self.name()
            && let Ok(address) = Address::of(self.pid_of_remote(&to))
        {
            return Some(address);
        }
        let (node, process) = (self.clone(), to.clone());
        self.far_address(&process, |held| {
            Arc::new(TypedWay { node, to, is_plain, write, _held: held })
        })
    }

    fn attach_typed<M: Send + 'static>(
        &self,
        address: &Address<M>,
        read: impl Fn() -> Read<M>,
    ) -> Member {
        let inlet = || {
            Inlet::Typed(Guarded::new(Arc::new(Typed { address: address.clone(), read: read() })))
        };
        Member::new(self.clone(), self.number_for(address.pid(), Some(&inlet)))
    }
}

impl<M: Serialize + Send + 'static> Messages<M> {
    /// Returns the address of a process of another node that receives these messages. See
    /// [`Node::address`]; a message with a reply in it is sent as it is.
    ///
    /// # Panics
    /// As [`Node::address`].
    pub fn address(&self, node: &Node, process: impl Into<Remote>) -> Address<M> {
        let messages = self.clone();
        let write = Box::new(move |message: &M| messages.write(message));
        node.typed_address(process.into(), false, write).expect(NUMBERS_ARE_LEFT)
    }
}

impl<M: DeserializeOwned + Send + 'static> Messages<M> {
    /// Makes a process reachable for other nodes. It receives these messages, in this version or a
    /// known older version. See [`Node::attach_as`].
    pub fn attach(&self, node: &Node, address: &Address<M>) -> Member {
        node.attach_typed(address, || {
            let messages = self.clone();
            Box::new(move |term| messages.read(term).ok())
        })
    }
}

/// A process of this node that receives messages of type `M`.
struct Typed<M> {
    address: Address<M>,
    read: Read<M>,
}

impl<M: Send + 'static> TypedInlet for Typed<M> {
    fn take(&self, node: &Node, own: &NodePid, sender: &Atom, term: Term) -> bool {
        // Code of the type may panic, here in the process of the connection.
        catch_panic(|| {
            let read = || (self.read)(without_call(term));
            let (message, _) = scope::within(node, own, Some(sender), read);
            message.is_some_and(|message| self.address.send(message).is_ok())
        })
        .unwrap_or(false)
    }
}

/// Returns the message of a call or a cast of a `GenServer`, with the sender of a call as its last
/// part.
fn without_call(term: Term) -> Term {
    let is = |word: &str, count: usize| {
        let items = term.as_tuple().unwrap_or_default();
        items.len() == count && items[0].is_atom(word)
    };
    if is("$gen_cast", 2) {
        return last(term);
    }
    if !is("$gen_call", 3) {
        return term;
    }
    let Term::Tuple(mut items) = term else { return term };
    let (request, from) = (items.pop(), items.pop());
    let mut parts = match request {
        Some(Term::Tuple(parts)) => parts,
        other => other.into_iter().collect(),
    };
    parts.extend(from);
    Term::Tuple(parts)
}

/// The way of messages to a process of another node.
struct TypedWay<M> {
    node: Node,
    to: Remote,
    /// Set if a message with a reply as its last part goes as a call.
    is_plain: bool,
    write: Write<M>,
    /// Keeps the process known as long as there is the address.
    _held: Held,
}

impl<M: Send + 'static> Relay for TypedWay<M> {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        let sent = match parcel.message.downcast_ref() {
            Some(message) => self.send(parcel.from, message),
            None => Err(Unsent::Cause(RelayCause::NotPortable)),
        };
        // The message is dropped here, outside of all locks. Its replies are shared.
        sent.map_err(|why| match why {
            Unsent::Cause(cause) => parcel.refused(cause),
            Unsent::Unqueued(Unqueued::Full(bytes)) => {
                parcel.needing(bytes).refused(RelayCause::Full)
            }
            Unsent::Unqueued(why) => parcel.refused(SendTermCause::from(why).into()),
        })
    }

    fn room(&self, parcel: &Parcel) -> Option<RoomFuture> {
        let bytes = parcel.needs()?;
        let link = self.node.link_of(&self.to)?;
        let own = self.own(parcel.from);
        Some(Box::pin(async move { link.outbound.room(own.number(), bytes).await }))
    }
}

/// Hands a message to the queue of a connection.
pub(crate) type Push<'a> = &'a dyn Fn(&Term) -> Result<(), Unqueued>;

/// Why a message was not sent.
pub(crate) enum Unsent {
    Cause(RelayCause),
    Unqueued(Unqueued),
}

impl From<RelayCause> for Unsent {
    fn from(cause: RelayCause) -> Self {
        Self::Cause(cause)
    }
}

impl From<Unqueued> for Unsent {
    fn from(why: Unqueued) -> Self {
        Self::Unqueued(why)
    }
}

impl<M> TypedWay<M> {
    /// Returns the sender of a message, as other nodes know it.
    fn own(&self, from: Option<Pid>) -> NodePid {
        self.node.pid_of(from.map_or(0, |from| self.node.number_for(from, None)))
    }

    fn send(&self, from: Option<Pid>, message: &M) -> Result<(), Unsent> {
        let own = self.own(from);
        let write = || (self.write)(message);
        let from = (&own, own.number(), context());
        self.node.send_converted(from, &self.to, write, |term, calls, push| {
            push(&match (calls, self.is_plain) {
                ([call], true) => as_call(term, &own, call),
                _ => term,
            })
        })
    }
}

impl Node {
    /// Sends what `write` converts, in the lane of a sender, for a request. `frame` gets the term
    /// and the references of the replies in it, and hands what is sent to the queue of the
    /// connection.
    pub(crate) fn send_converted(
        &self,
        (own, lane, request): (&NodePid, Lane, Option<RequestContext>),
        to: &Remote,
        write: impl FnOnce() -> Result<Term, ConvertError>,
        frame: impl FnOnce(Term, &[Reference], Push<'_>) -> Result<(), Unqueued>,
    ) -> Result<(), Unsent> {
        let link = self.link_of(to).ok_or(RelayCause::NoConnection)?;
        let target = to.target();
        link.check_permitted(&target)?;
        let (term, replies) = scope::within(self, own, None, write);
        let term = term.map_err(|_| RelayCause::NotPortable)?;
        let (from, to) = (Some(own.clone()), target.clone());
        let control = readable(Control::Send { from, to, request }, &link);
        let calls = Calls::enter(&link, own, lane, &target, replies)?;
        frame(term, &calls.references, &|term| match calls.references.is_empty() {
            true => link.outbound.send(lane, &control, term),
            false => link.outbound.call(lane, &control, term),
        })?;
        calls.keep();
        Ok(())
    }

    /// Reads a message of the node `sender` to the process `own`. Returns `None` if the code of its
    /// type fails.
    pub(crate) fn read_converted<M: DeserializeOwned>(
        &self,
        own: &NodePid,
        sender: &Atom,
        term: Term,
    ) -> Option<M> {
        let read = || scope::within(self, own, Some(sender), || from_term(term)).0.ok();
        catch_panic(read).flatten()
    }
}

/// Makes a call of a `GenServer` of a message with the sender as its last part. Any other stays as
/// it is.
fn as_call(term: Term, own: &NodePid, call: &Reference) -> Term {
    let Term::Tuple(mut items) = term else { return term };
    let is_from = |from: &Term| {
        matches!(from.as_tuple(), Some([Term::Pid(pid), Term::Reference(tag)])
            if pid == own && **tag == *call)
    };
    // A tuple of one tuple and the sender is what a call with that tuple would not become again.
    let is_call = match &*items {
        [Term::Tuple(_), _] => false,
        [_, .., from] => is_from(from),
        _ => false,
    };
    if !is_call {
        return Term::Tuple(items);
    }
    let from = items.pop();
    let request = if items.len() == 1 { items.pop() } else { Some(Term::Tuple(items)) };
    Term::tuple([Some(Term::atom("$gen_call")), from, request].into_iter().flatten())
}

/// Calls of a message that is about to be sent. Unless they are kept, they are forgotten, and the
/// rights to reply in the message are as they were.
struct Calls<'a> {
    link: &'a Link,
    own: &'a NodePid,
    target: &'a Target,
    references: Vec<Reference>,
}

impl<'a> Calls<'a> {
    /// Enters the replies of a message, before the other node can reply, and monitors its process.
    fn enter(
        link: &'a Link,
        own: &'a NodePid,
        lane: Lane,
        target: &'a Target,
        replies: Replies,
    ) -> Result<Self, Unsent> {
        let mut calls = Self { link, own, target, references: Vec::new() };
        if !replies.is_empty() {
            // As for a call of a node.
            link.outbound.check_call(lane)?;
        }
        for (call, reply) in replies {
            let (from, to) = (own.clone(), target.clone());
            let waits = Waits::Reply(reply);
            let caller = Caller { from: from.clone(), target: to.clone(), waits };
            let mut caller = Some(caller);
            let entered = link.tables(|tables| {
                let gone = tables.take_abandoned();
                tables.calls.extend(caller.take().map(|caller| (call.clone(), caller)));
                gone
            });
            let Some(gone) = entered else { return Err(RelayCause::NoConnection.into()) };
            for (call, caller) in gone {
                link.tell_demonitor(&caller.from, &caller.target, &call);
            }
            if link.takes_monitors() {
                let monitor = Control::Monitor { from, to, monitor: call.clone() };
                link.outbound.signal(own.number(), &monitor, None);
            }
            calls.references.push(call);
        }
        Ok(calls)
    }

    fn keep(mut self) {
        self.references.clear();
    }
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        for call in &self.references {
            let forgotten = self.link.tables(|tables| tables.calls.remove(call));
            if let Some(Some(caller)) = forgotten {
                self.link.tell_demonitor(self.own, self.target, call);
                // Outside of the lock, because it has code of the user.
                drop(caller);
            }
        }
    }
}
