//! Processes that are found by a key, on the nodes that share the keys.
//!
//! A program has one process for each account, room or device, and more of them than one machine
//! holds. [`Shards`] sends a message to a key, wherever its process is. The process starts at the
//! first message on the *home* of the key, ends when it is idle, and moves when nodes come and go.
//! For example, when a node joins, it becomes the home of some keys. Their processes end on the
//! other nodes, and the states that they return are handed to new processes on the new node.
//!
//! ```
//! use std::time::Duration;
//!
//! use procession::Reply;
//! use procession_cluster::shards::{KeyContext, Shards};
//! use procession_cluster::{Cookie, Node};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! enum Account {
//!     Pay(u64),
//!     Balance(#[serde(with = "procession_cluster::serialize::reply")] Reply<u64>),
//! }
//!
//! /// Returns its balance when it ends, so that it continues with that on another node.
//! async fn account(mut cx: KeyContext<String, Account, u64>) -> Option<u64> {
//!     let mut balance = cx.take_state().unwrap_or(0);
//!     while let Some(message) = cx.recv().await {
//!         match message {
//!             Account::Pay(amount) => balance += amount,
//!             Account::Balance(reply) => reply.send(balance),
//!         }
//!     }
//!     Some(balance)
//! }
//!
//! # type Error = Box<dyn std::error::Error + Send + Sync>;
//! # fn main() -> Result<(), Error> {
//! procession::run(async {
//!     let node = Node::builder("bank@127.0.0.1").cookie(Cookie::random()?).start().await?;
//!     let accounts = Shards::builder("accounts").start(&node, account)?;
//!     let ann = "ann".to_owned();
//!     accounts.send(&ann, Account::Pay(7))?;
//!     let balance = accounts.call(&ann, Account::Balance, Duration::from_secs(5)).await?;
//!     assert_eq!(balance, 7);
//!     Ok::<(), Error>(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! This program has one node, and needs no other. If several connected nodes start shards with the
//! same name and the same number of shards, a key has the same process on all of them.
//!
//! A process that ends because it is idle has no successor, so its state is dropped. For example,
//! the account above begins at zero again after a minute without a message. Write what must last to
//! a database.
//!
//! # What is promised
//!
//! - **Order**: of the messages that one node sends to one key, each that is received comes after
//!   all earlier ones. A message that would come too late is refused ([`Refusal::Late`]).
//! - **No silence**: if [`Shards::send`] does not accept a message, it returns it. Each accepted
//!   message is received once, or refused, or dead, or lost with a node, and is counted as such
//!   ([`ShardsStatus`]). If a message is refused after it was accepted, a call that waits returns
//!   it, and any other message goes to the function of [`ShardsBuilder::on_returned`]. Without such
//!   a function, it is a dead letter.
//! - **One process**: a key has one process in the cluster, while the nodes agree on which nodes
//!   there are. This is [`Eventual`]: while the nodes disagree, for example because a netsplit
//!   divides them, each part of the cluster has a process of the key. When the parts meet, the
//!   process at the home continues, and the state of the other process is dropped and counted.
//!
//! # Protocol
//!
//! ## Problem
//! A node joins, and becomes the home of a key that has a process on another node. Messages are on
//! their way to both. If the new home starts a process immediately, a key has two of them, and a
//! message that was sent later is received earlier. If it waits, it needs a bound. Nodes learn of
//! the new node one after the other, and meanwhile send to different homes.
//!
//! ## States
//! A key belongs to a shard, by a hash of its term that never changes. The home of a shard is the
//! node with the greatest weight of all members of the group (rendezvous hashing), so a node that
//! joins or leaves moves only its own shards. Each node has a router, which is a member of a group
//! of [`Node::share_groups`](crate::Node::share_groups). The router keeps for each shard: its home,
//! the routers that have not given it yet, and the slots of keys. A slot has the messages of a key,
//! and its process.
//!
//! ## Steps
//! - `Send`: the message gets the next number of this node for the shard, and goes to the home,
//!   under one lock and in one lane of the connection, so numbers arrive in order.
//! - `Accept`, at the home: refuses a number that is not greater than the latest of its origin.
//!   Otherwise the message is queued, and the process of the key is woken or started.
//! - `Forward`: a router that is not the home passes a message on, four times at most.
//! - `Move`: the home of a shard changes here. The old home forwards what comes. Its processes
//!   receive what was accepted and end. It sends the states that they return to the new home.
//! - `Ask`: a new home asks all routers that it knows, and later each router that joins, for each
//!   of its shards, in the lane of the shard. It repeats that until the other answers or ends.
//! - `Start`: when shards are started, they also wait for the nodes that are connected by then.
//!   Each names its router, which is asked next, or turns out to have none.
//! - `Moved`: a router that leaves asks all others, for each shard that was its own, to send no
//!   more. Each answers in the lane of the shard, behind its last message. An `Ask` says the same.
//! - `Given`: a router that has nothing left of a shard, or believes to be its home, answers. It
//!   says which numbers it has accepted, and which third node is the home, or was before. If the
//!   new home never knew the router of that node, because it joins, the new home waits for it, too.
//! - `Wait` and `Open`: until all have answered, messages wait at the new home, by origin in the
//!   order of their numbers. Beyond the [limit](ShardsBuilder::move_limit), they are refused.
//! - `Leave`: a node that drains gives all shards away, and says in all that it sends that it takes
//!   none, because that may arrive before the change of the group. It stays until all routers have
//!   said that they send elsewhere. If it leaves before connected nodes have named their routers,
//!   nobody names them to it any more. It then opens no shard at the limit, but refuses messages.
//! - `End`: a router that stops while its node continues refuses the messages of its node, and ends
//!   once the queues of the connections have nothing more of it. A late word does not make it a
//!   member again.
//!
//! ## Why it works
//! *Two processes*: a home starts none before `Open`, and each other router answers after its last
//! process of the shard has ended. There is one rule: a home has asked all routers that it knows.
//! The home before does not suffice. It may have crashed while the home before that still has
//! processes, and a router that joins may have been the home among other nodes.
//!
//! *Order*: messages to one home arrive in the order of their numbers. When the home changes, an
//! earlier message may go by the old home and be overtaken. If both arrive during `Wait`, they are
//! sorted. Otherwise `Accept` refuses the later arrival, also at later homes, because the numbers
//! move with the shard. The messages of the new home itself are never overtaken, because its `Ask`
//! follows them in the same lane.
//!
//! *Idle*: the process finds its queue empty and gives the slot up under the lock that `Accept`
//! takes. A message that comes later waits in the slot for the successor, which starts with the
//! state that the process returns.
//!
//! *States*: a router sends the states of a shard before it answers, in the same lane. Its end is
//! told in another lane, which could pass the states, and makes the new home open. So a router ends
//! after its lanes are empty. A process may end for a move although the shard is back by then. That
//! process was not idle, so it has a successor.
//!
//! *A circle*: each of two nodes believes that the other is the home, and forwards. The number of
//! hops ends that, and views agree within a round trip. A node never waits for the home itself, so
//! two nodes do not wait for each other. A longer circle of waiting nodes ends with the limit.
//!
//! *Loss*: each router counts what it hands to each other one, and is told what was received or
//! passed on. When the other ends, the difference was lost, at most.
//!
//! ## Allowed
//! - A message is received after a later one of its origin, if the home of its shard ends without a
//!   drain. The numbers that the home has accepted end with it. The next home then does not refuse
//!   an earlier message that a third node, the home before, passes on late.
//! - A message is refused as late although no later message of the same process to the same key was
//!   received, because numbers are those of a node and a shard.
//! - A node that connects to one other node and starts shards, and is not connected to a third
//!   within the limit of a move, may start processes that run on the third. So let nodes connect
//!   before they start shards. The third may also be a node that drains, which accepts no
//!   connection.
//! - A node that is connected and does not answer holds up all moves, up to the limit, and not only
//!   the moves of its own shards.
//! - If a node cannot be reached for a moment, the other nodes give its shards new homes, although
//!   its processes continue. When it is back, the states of these processes may be dropped, because
//!   a key at its new home may have a process already.
//!
//! ## Rejected
//! - *Markers*: a sender holds its messages back until a marker has gone by the old home to the new
//!   one. Nothing would be late. But each sender needs a queue of its own with limits of its own,
//!   and the markers of nodes with different views wait for each other.
//! - *Only the home before* is asked, and names the home before it. Fewer words are sent. But when
//!   it crashes, nobody names the others, and each exception needs a rule of its own.
//! - *Positions on a ring* instead of weights: the shares of nodes differ, unless each node has
//!   hundreds of positions.
//! - *Messages in the mailbox of the process*: a message there cannot be taken back when the
//!   process fails, and nobody can look and close the mailbox in one step.
//!
//! ## Checked by
//! `tests/it/shards.rs`, the tests of `table.rs`, and the simulated cluster
//! (`procession-sim/tests/cluster/shards.rs`).

mod ear;
mod error;
mod keeper;
mod key_context;
mod limits;
mod router;
mod slot;
mod status;
mod table;
mod view;
mod wire;

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::mailbox::relay;
use procession::process::{self, Groups, OnCancel};
use procession::sync::oneshot;
use procession::{Context, Reply, SpawnOptions};
use procession_sync::atomic::Ordering::Relaxed;
use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use self::ear::Ear;
pub use self::error::{CallKeyError, Refusal, Refused};
use self::keeper::{Membership, keep};
pub use self::key_context::KeyContext;
use self::key_context::{Ending, Place};
use self::limits::{KEY_MAX, Limits, SHARDS_MAX};
use self::router::{OnReturned, Router, Start};
use self::slot::Key;
pub use self::status::ShardsStatus;
use crate::error::RegisterError;
use crate::guarded::Guarded;
use crate::node::member::Member;
use crate::node::parts::Part;
use crate::node::{Inlet, NoMessage, Node};
use crate::serialize::{from_term, to_term};
use crate::term::decode::Reader;
use crate::term::encode::Writer;

/// The shards by default: enough for tens of nodes with equal shares.
const SHARDS: u32 = 256;

/// The consistency of shards without a store: each node computes the home of a shard from the nodes
/// that it is connected to. While the nodes do not agree, for example because a netsplit divides
/// them, a key may have a process in each part.
#[derive(Clone, Copy, Debug)]
pub enum Eventual {}

/// Processes that are found by keys of type `K` and receive messages of type `M`.
///
/// Clones refer to the same shards, which stop when the node stops. See the [module](self) for an
/// example and for what is promised.
pub struct Shards<K, M, C = Eventual> {
    router: Arc<Router<M>>,
    keys: PhantomData<fn(&K) -> C>,
}

impl<K, M, C> Clone for Shards<K, M, C> {
    fn clone(&self) -> Self {
        Self { router: Arc::clone(&self.router), keys: PhantomData }
    }
}

/// Sets the limits of [`Shards`], and starts them. [`Shards::builder`] returns it.
#[must_use = "it does nothing until it is started"]
pub struct ShardsBuilder<K, M> {
    name: Arc<str>,
    count: u32,
    limits: Limits,
    on_returned: Option<OnReturned<M>>,
    keys: PhantomData<fn(&K)>,
}

impl<K, M> Shards<K, M>
where
    K: Serialize + DeserializeOwned + Send + 'static,
    M: Serialize + DeserializeOwned + Send + 'static,
{
    /// Returns a builder for shards. Nodes with shards of the same name share the keys. If this
    /// node permits [only what is granted](crate::NodeBuilder::grants_only), other nodes need the
    /// grants that [`Node::share_groups`] names.
    pub fn builder(name: impl Into<Arc<str>>) -> ShardsBuilder<K, M> {
        let limits = Limits {
            idle: Duration::from_secs(60),
            queue: 10_000,
            keys: 1 << 20,
            moves: 1000,
            move_time: Duration::from_secs(5),
        };
        let (name, keys) = (name.into(), PhantomData);
        ShardsBuilder { name, count: SHARDS, limits, on_returned: None, keys }
    }

    /// Sends a message to the process of a key, which starts if there is none.
    ///
    /// It never waits. A message that is accepted may still be refused later: see
    /// [`ShardsBuilder::on_returned`].
    ///
    /// # Errors
    /// [`Refused`] returns the message, and says why it was not accepted.
    pub fn send(&self, key: &K, message: M) -> Result<(), Refused<M>> {
        match write_key(key) {
            Some(key) => self.router.submit(key, message, 0),
            None => Err(Refused::new(message, Refusal::Key)),
        }
    }

    /// Calls the process of a key, and returns its reply. `message` makes the message, and puts the
    /// [`Reply`] into it that the process answers with.
    ///
    /// # Errors
    /// [`CallKeyError`]: the message was refused, here or later, there is no reply, or `timeout`
    /// has passed.
    ///
    /// # Cancellation
    /// If the future is dropped, the message may have been sent already. The process still receives
    /// it, and the reply is dropped.
    pub async fn call<T: Send + 'static>(
        &self,
        key: &K,
        message: impl FnOnce(Reply<T>) -> M,
        timeout: Duration,
    ) -> Result<T, CallKeyError<M>> {
        let (replies, reply) = oneshot::channel();
        // Ignored: the caller may have given up.
        let right = Reply::from_fn(move |value: Option<T>| drop(replies.send(value)));
        let Some(key) = write_key(key) else {
            return Err(CallKeyError::Refused(Refused::new(message(right), Refusal::Key)));
        };
        let (call, refused) = self.router.enter_call();
        let mut entered = Entered { router: &self.router, key: key.clone(), call, refused };
        self.router.submit(key, message(right), call).map_err(CallKeyError::Refused)?;
        let mut reply = pin!(reply);
        let ends = poll_fn(|task| {
            // First, because the reply of a refused message is dropped with it.
            if let Poll::Ready(Ok(refused)) = Pin::new(&mut entered.refused).poll(task) {
                self.router.counts.returned.fetch_add(1, Relaxed);
                return Poll::Ready(Err(CallKeyError::Refused(refused)));
            }
            let reply = reply.as_mut().poll(task);
            reply.map(|reply| reply.ok().flatten().ok_or(CallKeyError::NoReply))
        });
        procession::timeout(timeout, ends).await.unwrap_or(Err(CallKeyError::Elapsed))
    }

    /// Returns the process of the shards on this node, as other nodes know it.
    pub fn member(&self) -> Member {
        Member::new(self.router.node.clone(), self.router.own.number())
    }

    /// Returns how many shards, keys and messages this node has, and what has become of messages.
    pub fn status(&self) -> ShardsStatus {
        ShardsStatus::of(&self.router)
    }

    /// Stops the shards of this node. Its keys move to other nodes, as when the node
    /// [drains](Node::drain). After that, this node refuses all messages ([`Refusal::Stopped`]).
    pub fn stop(&self) {
        process::cancel(self.router.process.pid());
    }
}

impl<K, M, C> fmt::Debug for Shards<K, M, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shards").field(&self.router.name).finish()
    }
}

/// A call that waits. Its drop forgets it.
struct Entered<'a, M: router::Portable> {
    router: &'a Router<M>,
    key: Key,
    call: u64,
    refused: oneshot::Receiver<Refused<M>>,
}

impl<M: router::Portable> Drop for Entered<'_, M> {
    fn drop(&mut self) {
        self.router.end_call(self.call);
        // The message may have come back while the caller gave up.
        self.refused.close();
        if let Ok(refused) = self.refused.try_recv() {
            let why = refused.why();
            self.router.returned(&self.key, 0, refused.into_inner(), why);
        }
    }
}

fn write_key<K: Serialize>(key: &K) -> Option<Key> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).term(&to_term(key).ok()?).ok()?;
    (bytes.len() <= KEY_MAX).then(|| bytes.into())
}

impl<K, M> ShardsBuilder<K, M>
where
    K: Serialize + DeserializeOwned + Send + 'static,
    M: Serialize + DeserializeOwned + Send + 'static,
{
    /// Sets the number of shards, from 1 to 4096. Default: 256. All nodes need the same number:
    /// nodes with another number do not share these keys.
    pub fn shards(mut self, count: u32) -> Self {
        self.count = count.clamp(1, SHARDS_MAX);
        self
    }

    /// Sets the time without a message after which the process of a key ends. Default: 60 s.
    pub fn idle(mut self, time: Duration) -> Self {
        self.limits.idle = time;
        self
    }

    /// Sets how many messages of a key may wait for its process. Default: 10 000.
    pub fn queue_limit(mut self, messages: usize) -> Self {
        self.limits.queue = messages;
        self
    }

    /// Sets how many keys this node may have. Default: 1 048 576.
    pub fn key_limit(mut self, keys: u64) -> Self {
        self.limits.keys = keys;
        self
    }

    /// Sets how many messages of a shard wait at its new home while the shard moves, and for how
    /// long. Beyond that, messages are refused ([`Refusal::MoveFull`], [`Refusal::MoveElapsed`]).
    /// Default: 1000, and 5 s.
    pub fn move_limit(mut self, messages: usize, time: Duration) -> Self {
        (self.limits.moves, self.limits.move_time) = (messages, time);
        self
    }

    /// Sets the function that gets the messages of this node that were refused after
    /// [`Shards::send`] had accepted them, and their keys. It must not block.
    pub fn on_returned<F>(mut self, function: F) -> Self
    where
        F: Fn(K, Refused<M>) + Send + Sync + 'static,
    {
        self.on_returned = Some(Box::new(move |key, refused| {
            let key = Reader::new(key, &[], usize::MAX).last_term().ok();
            if let Some(key) = key.and_then(|key| from_term(key).ok()) {
                function(key, refused);
            }
        }));
        self
    }

    /// Starts the shards of a node. `process` is the function of the process of a key, which runs
    /// in the scheduler of the node. It should return when [`KeyContext::recv`] returns `None`. The
    /// state that it returns is given to the next process of the key, if the key moves to another
    /// node or has messages. Otherwise the process was only idle, and the state is dropped. So
    /// write what must last to a database.
    ///
    /// If the process returns earlier, the next process receives the remaining messages. If the
    /// process fails, the remaining messages are refused ([`Refusal::Failed`]), and the next
    /// message starts a process without a state.
    ///
    /// # Errors
    /// [`RegisterError`]: the name is taken or not allowed, or the node has stopped.
    pub fn start<S, F, P>(self, node: &Node, process: F) -> Result<Shards<K, M>, RegisterError>
    where
        S: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(KeyContext<K, M, S>) -> P + Send + Sync + 'static,
        P: Future<Output = Option<S>> + Send + 'static,
    {
        let Self { name, count, limits, on_returned, .. } = self;
        let (groups, group) = (Groups::new(), Arc::<str>::from(format!("shards {count}")));
        let scope = node.share_groups(&name, &groups)?;
        let (gives, given) = oneshot::channel::<(Arc<Router<M>>, Membership)>();
        let label = format!("shards {name} of {}", node.name());
        let begin = move || {
            let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Ask);
            options.try_start(move |cx: Context<NoMessage>| async move {
                if let Ok((router, membership)) = given.await {
                    keep(cx, router, membership).await;
                }
            })
        };
        let started = node.0.scheduler.get().and_then(|own| relay::within(*own, begin));
        let Some(Ok(keeper)) = started else {
            scope.stop();
            return Err(RegisterError::NotAttached(name.to_string()));
        };
        let start = starts(Arc::clone(&name), process);
        let functions = (start, on_returned);
        let router = Router::new(node, &name, keeper.address(), (count, limits), functions);
        let nodes = router.await_nodes();
        let router = Arc::new(router);
        let inlet = || Inlet::Typed(Guarded::new(Arc::new(Ear(Arc::clone(&router)))));
        node.number_for(keeper.pid(), Some(&inlet));
        let part: Arc<dyn Part> = Arc::<Router<M>>::clone(&router);
        node.add_part(Arc::downgrade(&part));
        // Ignored: the end of the scheduler has ended both.
        let _ = groups.join(Arc::clone(&group), keeper.pid());
        let membership = Membership { scope, groups, group, nodes };
        let _ = gives.send((Arc::clone(&router), membership));
        Ok(Shards { router, keys: PhantomData })
    }
}

/// Returns what starts the process of a key.
fn starts<K, M, S, F, P>(name: Arc<str>, process: F) -> Start<M>
where
    K: DeserializeOwned + Send + 'static,
    M: Serialize + DeserializeOwned + Send + 'static,
    S: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(KeyContext<K, M, S>) -> P + Send + Sync + 'static,
    P: Future<Output = Option<S>> + Send + 'static,
{
    let process = Arc::new(process);
    Box::new(move |router, number, key, own, state| {
        let place = Place { router: Arc::clone(router), number, key, process: own };
        let (ending, process) = (Ending::new(place, state), Arc::clone(&process));
        let label = &*name;
        let begin = move || {
            let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Ask);
            // Ignored: a process that is refused ends here.
            drop(options.try_spawn(ending.run(move |cx| process(cx))));
        };
        let _ = router.node.0.scheduler.get().and_then(|own| relay::within(*own, begin));
    })
}

impl<K, M> fmt::Debug for ShardsBuilder<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardsBuilder").field(&self.name).field(&self.limits).finish()
    }
}
