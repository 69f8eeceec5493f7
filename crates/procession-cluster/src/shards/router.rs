//! The router of a node: the way of messages to the homes of their keys, and back.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use procession::Address;
use procession::mailbox::relay::{self, DeadCause};
use procession::mailbox::request::context;
use procession::process::catch_panic;
use procession::sync::{Notify, oneshot};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use super::error::{Refusal, Refused};
use super::limits::{HOPS_MAX, Limits};
use super::slot::{Act, Counts, Ended, Envelope, Key, Taken};
use super::table::Shard;
use super::view::{View, shard_of};
use super::wire;
use super::wire::Speaker;
use crate::node::{NoMessage, Node};
use crate::outbound::{Lane, Unqueued};
use crate::remote::Remote;
use crate::serialize::{Unsent, to_term};
use crate::term::{Atom, NodePid, Term};

mod moves;

/// The messages of another router after which it is told that they were received.
const OWED_MAX: u64 = 64;
/// How often a message looks for its home before it is sent, at most.
const TRIES: usize = 4;
/// The states that a shard passes on and that wait, at most.
const OUTBOX_MAX: usize = 1 << 16;
/// The first lane of shards. A shard has a lane of its own, so that its messages stay in order and
/// a large one holds up no other shard.
const LANES: Lane = 1 << 63;

/// A message that nodes can send to each other.
pub(super) trait Portable: Serialize + DeserializeOwned + Send + 'static {}

impl<M: Serialize + DeserializeOwned + Send + 'static> Portable for M {}

/// Starts the process of a key, with the state of the last one.
pub(super) type Start<M> =
    Box<dyn Fn(&Arc<Router<M>>, u32, Key, Arc<Notify>, Option<Term>) + Send + Sync>;
/// Takes a message that was returned after it was accepted.
pub(super) type OnReturned<M> = Box<dyn Fn(&Key, Refused<M>) + Send + Sync>;

/// The messages between this router and another one.
#[derive(Debug, Default)]
struct Ledger {
    sent: u64,
    /// Of these, the messages that the other one has passed on.
    done: u64,
    /// The messages of the other one that were passed on, and that it does not know of.
    owed: u64,
}

pub(super) struct Router<M> {
    pub(super) node: Node,
    pub(super) name: Arc<str>,
    pub(super) own: NodePid,
    pub(super) process: Address<NoMessage>,
    pub(super) limits: Limits,
    pub(super) start: Start<M>,
    pub(super) on_returned: Option<OnReturned<M>>,
    /// Set once this node takes no shards any more.
    leaving: OnceLock<()>,
    /// Taken before the lock of a shard.
    view: Mutex<View>,
    shards: Box<[Mutex<Shard<M>>]>,
    /// One for each known router.
    ledgers: Mutex<BTreeMap<NodePid, Ledger>>,
    calls: Mutex<HashMap<u64, oneshot::Sender<Refused<M>>>>,
    last_call: AtomicU64,
    pub(super) counts: Counts,
    /// Wakes the process of the router.
    pub(super) changed: Notify,
}

impl<M: Portable> Router<M> {
    pub(super) fn new(
        node: &Node,
        name: &Arc<str>,
        process: &Address<NoMessage>,
        (count, limits): (u32, Limits),
        (start, on_returned): (Start<M>, Option<OnReturned<M>>),
    ) -> Self {
        let own = node.pid_of(node.number_for(process.pid(), None));
        let shards = (0..count).map(|number| Mutex::new(Shard::new(number, own.clone())));
        Self {
            node: node.clone(),
            name: Arc::clone(name),
            process: process.clone(),
            limits,
            start,
            on_returned,
            leaving: OnceLock::new(),
            view: Mutex::new(View::new(own.clone())),
            shards: shards.collect(),
            own,
            ledgers: Mutex::default(),
            calls: Mutex::default(),
            last_call: AtomicU64::new(0),
            counts: Counts::default(),
            changed: Notify::new(),
        }
    }

    /// Makes all shards wait for the connected nodes, which may have routers of these shards.
    /// Returns these nodes.
    pub(super) fn await_nodes(&self) -> Vec<NodePid> {
        let nodes: Vec<_> = {
            let peers = self.node.0.peers.lock();
            let links = peers.links().filter(|link| link.takes_monitors());
            links.map(|link| link.peer_pid()).collect()
        };
        for shard in &self.shards {
            let mut shard = shard.lock();
            nodes.iter().for_each(|node| shard.await_from(node, &self.limits));
        }
        nodes
    }

    pub(super) fn count(&self) -> u32 {
        self.shards.len() as u32
    }

    fn speaks(&self) -> Speaker<'_> {
        (&self.own, self.leaving.get().is_some())
    }

    fn lane(&self, shard: u32) -> Lane {
        LANES | (self.own.number() << 16 & !LANES) | u64::from(shard)
    }

    /// Changes a shard, sends what it has for other routers, and does the rest outside of its lock.
    fn change(self: &Arc<Self>, number: u32, change: impl FnOnce(&mut Shard<M>) -> Vec<Act<M>>) {
        let acts = {
            let mut shard = self.shards[number as usize].lock();
            let acts = change(&mut shard);
            self.flush(number, &mut shard);
            acts
        };
        self.act(number, acts);
    }

    fn act(self: &Arc<Self>, number: u32, acts: impl IntoIterator<Item = Act<M>>) {
        for act in acts {
            // Code of the message may panic, here in the process of a connection.
            let done = catch_panic(|| match act {
                Act::Start(key, process, state) => (self.start)(self, number, key, process, state),
                Act::Forward(key, envelope) => self.forward(number, key, envelope),
                Act::Refuse(key, envelope, why) => self.refuse(number, &key, envelope, why),
            });
            self.counts.dead.fetch_add(u64::from(done.is_none()), Relaxed);
        }
    }

    // Messages.

    /// `Send`: sends a message of this node.
    pub(super) fn submit(
        self: &Arc<Self>,
        key: Key,
        message: M,
        call: u64,
    ) -> Result<(), Refused<M>> {
        let number = shard_of(&key, self.count());
        let own = || self.own.clone();
        let (origin, via, request) = (own(), own(), context());
        let mut envelope = Envelope { origin, number: 0, call, hops: 0, via, request, message };
        // The home may change, or say that it leaves, between the look and the send.
        for _ in 0..TRIES {
            let home = {
                let mut shard = self.shards[number as usize].lock();
                if shard.is_closed {
                    return Err(Refused::new(envelope.message, Refusal::Stopped));
                }
                if shard.is_home() {
                    shard.sent += 1;
                    envelope.number = shard.sent;
                    let act = shard.accept(key, envelope, &self.limits, &self.counts);
                    drop(shard);
                    if let Some(Act::Refuse(_, envelope, why)) = act {
                        return Err(Refused::new(envelope.message, why));
                    }
                    self.counts.sent.fetch_add(1, Relaxed);
                    self.act(number, act);
                    return Ok(());
                }
                shard.home.clone()
            };
            match self.send_to(&home, number, &key, &envelope) {
                Ok(true) => {
                    self.counts.sent.fetch_add(1, Relaxed);
                    return Ok(());
                }
                Ok(false) => {}
                Err(Unsent::Unqueued(Unqueued::Leaving)) => self.left(&home),
                Err(why) => return Err(Refused::new(envelope.message, why.into())),
            }
        }
        Err(Refused::new(envelope.message, Refusal::NoConnection))
    }

    /// Sends a message to the home of its shard. If it has no number yet, it gets the next one of
    /// this node, under the lock that puts it into the queue of the connection. Returns `false` if
    /// the home has changed, because nothing may follow the word that this node sends elsewhere.
    fn send_to(
        &self,
        home: &NodePid,
        number: u32,
        key: &Key,
        envelope: &Envelope<M>,
    ) -> Result<bool, Unsent> {
        let write = || to_term(&envelope.message);
        let (lane, to) = (self.lane(number), Remote::from(home));
        let mut is_home = true;
        let from = (&self.own, lane, envelope.request.clone());
        let sent = self.node.send_converted(from, &to, write, |content, _, push| {
            let mut shard = self.shards[number as usize].lock();
            is_home = shard.home == *home;
            if !is_home {
                return Err(Unqueued::Closed);
            }
            let order = match envelope.number {
                0 => {
                    shard.sent += 1;
                    shard.sent
                }
                known => known,
            };
            let term = wire::message(self.speaks(), (number, key), envelope, order, content);
            self.counted(home, || push(&term))
        });
        if is_home {
            sent?;
        }
        Ok(is_home)
    }

    /// Counts a message to another router before it is sent, because the other one may end next.
    fn counted<E>(&self, to: &NodePid, send: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.with_ledger(to, |ledger| ledger.sent += 1);
        let sent = send();
        if sent.is_err() {
            self.with_ledger(to, |ledger| ledger.sent = ledger.sent.saturating_sub(1));
        }
        sent
    }

    /// Accesses the ledger of another router, if that is known and has not ended.
    fn with_ledger<R>(&self, router: &NodePid, access: impl FnOnce(&mut Ledger) -> R) -> Option<R> {
        self.ledgers.lock().get_mut(router).map(access)
    }

    /// Takes a message of another router: for a key of this node, or to pass it on.
    pub(super) fn arrive(self: &Arc<Self>, number: u32, key: Key, envelope: Envelope<M>) {
        let act = {
            let mut shard = self.shards[number as usize].lock();
            match shard.is_home() {
                true => shard.accept(key, envelope, &self.limits, &self.counts),
                false => Some(Act::Forward(key, envelope)),
            }
        };
        self.act(number, act);
    }

    /// `Forward`.
    fn forward(self: &Arc<Self>, number: u32, key: Key, mut envelope: Envelope<M>) {
        let home = self.shards[number as usize].lock().home.clone();
        if home == self.own {
            return self.arrive(number, key, envelope);
        }
        if envelope.hops >= HOPS_MAX {
            return self.refuse(number, &key, envelope, Refusal::Hops);
        }
        envelope.hops += 1;
        // Code of the message may panic.
        match catch_panic(|| self.send_to(&home, number, &key, &envelope)) {
            Some(Ok(true)) => {
                self.counts.forwarded.fetch_add(1, Relaxed);
                self.settle(&envelope.via);
            }
            Some(Ok(false)) => self.forward(number, key, envelope),
            Some(Err(Unsent::Unqueued(Unqueued::Leaving))) => {
                self.left(&home);
                self.forward(number, key, envelope);
            }
            Some(Err(why)) => self.refuse(number, &key, envelope, why.into()),
            None => self.unreadable(&envelope.via),
        }
    }

    /// `Refuse`: returns a message to its origin.
    fn refuse(&self, number: u32, key: &Key, envelope: Envelope<M>, why: Refusal) {
        self.settle(&envelope.via);
        let Envelope { origin, call, request, message, .. } = envelope;
        if origin == self.own {
            return self.returned(key, call, message, why);
        }
        let write = || to_term(&message);
        let (lane, to) = (self.lane(number), Remote::from(&origin));
        let from = (&self.own, lane, request);
        let sent = self.node.send_converted(from, &to, write, |content, _, push| {
            let term = wire::refused(self.speaks(), key, call, why, content);
            self.counted(&origin, || push(&term))
        });
        if sent.is_err() {
            self.discard(message);
        }
    }

    /// Takes a message of this node back. Its call gets it, or else the function of the user.
    pub(super) fn returned(&self, key: &Key, call: u64, message: M, why: Refusal) {
        let refused = Refused::new(message, why);
        let caller = self.calls.lock().remove(&call);
        let refused = match caller {
            Some(caller) => match caller.send(refused) {
                // The call counts it.
                Ok(()) => return,
                Err(refused) => refused.into_inner(),
            },
            None => refused,
        };
        match &self.on_returned {
            Some(on_returned) => {
                self.counts.returned.fetch_add(1, Relaxed);
                catch_panic(|| on_returned(key, refused));
            }
            None => self.discard(refused.into_inner()),
        }
    }

    fn discard(&self, message: M) {
        self.counts.dead.fetch_add(1, Relaxed);
        relay::discard(self.process.pid(), DeadCause::Full, message);
    }

    /// Notes a message that cannot be read or written.
    pub(super) fn unreadable(&self, via: &NodePid) {
        self.counts.dead.fetch_add(1, Relaxed);
        self.settle(via);
    }

    /// Enters a call, which gets its message back if that is refused.
    pub(super) fn enter_call(&self) -> (u64, oneshot::Receiver<Refused<M>>) {
        let (caller, refused) = oneshot::channel();
        let call = self.last_call.fetch_add(1, Relaxed) + 1;
        self.calls.lock().insert(call, caller);
        (call, refused)
    }

    pub(super) fn end_call(&self, call: u64) {
        let caller = self.calls.lock().remove(&call);
        // Outside of the lock, because there may be a message in it.
        drop(caller);
    }

    // The processes of keys.

    pub(super) fn take(
        &self,
        number: u32,
        key: &Key,
        process: &Arc<Notify>,
        (gives_up, is_cancelled): (bool, bool),
    ) -> Taken<M> {
        let mut shard = self.shards[number as usize].lock();
        let taken = shard.take(key, process, gives_up, is_cancelled);
        drop(shard);
        if let Taken::Message(envelope) = &taken {
            self.counts.handled.fetch_add(1, Relaxed);
            self.settle(&envelope.via);
        }
        taken
    }

    pub(super) fn end(
        self: &Arc<Self>,
        number: u32,
        key: &Key,
        process: &Arc<Notify>,
        ended: (Option<Term>, Ended),
    ) {
        self.change(number, |shard| shard.end(key, process, ended, &self.counts));
    }

    // What other routers say.

    /// A router has given a shard. If another one may have processes, and was never known here, it
    /// is waited for as well, because it joins later. A known router was asked when this node
    /// became the home, or when the router joined. The other node may not know that it is gone.
    pub(super) fn given<'a>(
        self: &Arc<Self>,
        router: &NodePid,
        number: u32,
        other: Option<&NodePid>,
        latest: impl Iterator<Item = (&'a NodePid, u64)>,
    ) {
        let is_new = |other: &&NodePid| {
            let is_own = other.node == self.own.node;
            !is_own && !self.view.lock().has_met(other) && !self.is_former(other)
        };
        let other = other.filter(is_new);
        self.change(number, |shard| {
            if !shard.awaits.contains(router) {
                return Vec::new();
            }
            shard.learn(latest);
            if let Some(other) = other {
                shard.await_from(other, &self.limits);
            }
            shard.given(router, &self.counts)
        });
    }

    pub(super) fn moved(self: &Arc<Self>, router: &NodePid, number: u32) {
        self.change(number, |shard| {
            shard.moved(router);
            Vec::new()
        });
    }

    pub(super) fn leaves(self: &Arc<Self>, router: &NodePid, number: u32) {
        self.change(number, |shard| {
            shard.tell_moved(router);
            Vec::new()
        });
    }

    pub(super) fn asked(self: &Arc<Self>, router: &NodePid, number: u32) {
        if self.is_ending() {
            // It may learn that before the process of this router does.
            self.leave();
        }
        self.change(number, |shard| {
            shard.asked(router);
            Vec::new()
        });
    }

    pub(super) fn restore(self: &Arc<Self>, number: u32, hops: u8, key: &Key, state: Term) {
        let mut is_dropped = false;
        self.change(number, |shard| {
            if shard.is_home() {
                let restored = shard.restore(key, state, &self.limits, &self.counts);
                is_dropped = restored.is_err();
                return restored.ok().flatten().into_iter().collect();
            }
            let waiting = shard.outbox.values().map(VecDeque::len).sum::<usize>();
            is_dropped = hops >= HOPS_MAX || waiting >= OUTBOX_MAX;
            if !is_dropped {
                let state = wire::state(self.speaks(), number, hops + 1, key, state);
                shard.outbox.entry(shard.home.clone()).or_default().push_back(state);
            }
            Vec::new()
        });
        self.counts.states_dropped.fetch_add(u64::from(is_dropped), Relaxed);
    }

    pub(super) fn done(&self, router: &NodePid, count: u64) {
        self.with_ledger(router, |ledger| ledger.done = ledger.done.saturating_add(count));
    }

    /// Notes that a message of a router was received by a process, passed on or returned.
    pub(super) fn settle(&self, via: &NodePid) {
        if *via == self.own {
            return;
        }
        let owed = self.with_ledger(via, |ledger| {
            ledger.owed += 1;
            ledger.owed
        });
        let Some(owed) = owed else { return };
        // A node that leaves may have no time for that later.
        if owed >= OWED_MAX || self.leaving.get().is_some() {
            self.pay(via);
        } else if owed == 1 {
            self.changed.notify_one();
        }
    }

    /// Tells a router how many of its messages were passed on.
    fn pay(&self, router: &NodePid) {
        let owed = self.with_ledger(router, |ledger| std::mem::take(&mut ledger.owed));
        let Some(owed) = owed.filter(|owed| *owed > 0) else { return };
        let done = wire::done(self.speaks(), owed);
        if self.node.send_from(self.own.number(), &router.into(), done).is_err() {
            // There was no room, so it is told later.
            self.with_ledger(router, |ledger| ledger.owed += owed);
        }
    }

    /// Returns the messages that other routers have not passed on, as far as is known.
    pub(super) fn outstanding(&self) -> u64 {
        let ledgers = self.ledgers.lock();
        ledgers.values().map(|ledger| ledger.sent.saturating_sub(ledger.done)).sum()
    }

    /// Returns the home of each shard, as far as is known here.
    pub(super) fn homes(&self) -> BTreeMap<Atom, Vec<u32>> {
        let mut homes = BTreeMap::<_, Vec<_>>::new();
        for (shard, number) in self.shards.iter().zip(0..) {
            let node = shard.lock().home.node.clone();
            homes.entry(node).or_default().push(number);
        }
        homes
    }

    /// Returns `true` if the shards have stopped.
    pub(super) fn is_closed(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_closed)
    }

    /// Returns the number of shards at home on this node, and of messages that wait for earlier
    /// homes.
    pub(super) fn held(&self) -> (usize, usize) {
        let shards = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (usize::from(shard.is_home()), shard.early())
        });
        shards.fold((0, 0), |sum, shard| (sum.0 + shard.0, sum.1 + shard.1))
    }
}
