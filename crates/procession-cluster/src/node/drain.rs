//! The drain of a node: how it leaves the cluster without losing a request.
//!
//! ## Problem
//! A node that stops sends what it has accepted, and takes what other nodes have accepted for it.
//! But its replies to calls that arrive during that time are refused, because its connections
//! accept nothing more. The callers have accepted a call, and lose it.
//!
//! ## Steps
//! - `Leave`: the node accepts no further connection, refuses starts, and ends its scopes of groups
//!   and names, so that other nodes choose other processes.
//! - `Say`: each node of this crate receives the statement `leaving`.
//! - `Refuse`: that node refuses calls and starts to this one from now on, and hands them back to
//!   their callers ([`SendTermCause::Leaving`]). All other messages continue.
//! - `Settle`: when all that was in its queue at `Refuse` has left the queue, that node sends the
//!   statement `settled`.
//! - `Finish`: all calls that have arrived are answered, or will not be. The router of shards holds
//!   the count of a call until its keys have moved, and so does each [`NodeHold`] until its drop.
//! - `Stop`: the connections end in order. See [`farewell`](crate::connection).
//!
//! ## Why it works
//! `Refuse` marks the ends of all lanes under the lock of the queue, so no later call is accepted.
//! The statement `settled` is queued once everything before these marks has been written, the last
//! fragment of each large message included. The bytes of a connection stay in order, so this node
//! reads the statement after all calls and starts. A call is counted when it arrives, and holds a
//! count of the node until its right to reply is used or dropped. A called function holds one until
//! it returns. So after `Settle` and `Finish`, the other node waits for no reply of this one. The
//! replies are in the queues, which `Stop` empties.
//!
//! The kind of a node is known by its first answer. Until then, the connection counts as not
//! settled, because a node of this crate may have called already.
//!
//! For the other node, the end is [`Exit::Left`] only if this node has said that it has sent
//! everything. If the connection breaks before that, the end is [`Exit::NoConnection`].
//!
//! ## Allowed
//! - A node of the BEAM receives no statement. It learns from the groups that this node leaves, and
//!   its calls are answered until `Stop`. A call that arrives later ends with `noconnection`.
//! - A node of this crate that does not know the statement does not answer. After a patience, it
//!   counts as settled.
//!
//! ## Rejected
//! - To refuse all messages in `Refuse`: the replies to the calls of this node, and what its
//!   processes need to finish, are such messages.
//! - To wait until no call has arrived for a while: it is a guess of how busy the callers are.
//! - To answer `Refuse` with the number of messages that were accepted so far, and to wait for as
//!   many: messages that are accepted later pass the fragments of a large call. Starts are no
//!   messages.
//!
//! ## Checked by
//! `tests/it/drain.rs`, and the tests of the connection and of its queue.
//!
//! [`Exit::Left`]: procession::Exit::Left
//! [`Exit::NoConnection`]: procession::Exit::NoConnection
//! [`SendTermCause::Leaving`]: crate::SendTermCause::Leaving

use std::sync::Arc;
use std::time::Duration;

use procession::time::Instant;
use procession::{sleep, timeout};

use crate::link::Link;
use crate::node::Node;
use crate::outbound::PULSE_LANE;
use crate::release::Statement;
use crate::term::Atom;
use crate::wire::control::{Control, Target};
use crate::wire::names::PULSE;

/// How often a node that leaves looks whether it has finished. Nothing notifies it, because each
/// call would pay for that.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Holds the end of a node back, as long as it exists. [`Node::hold`] returns it.
#[derive(Clone, Debug)]
#[must_use = "the node is held as long as this exists"]
pub struct NodeHold(#[expect(dead_code, reason = "held for its count")] Arc<()>);

impl Node {
    /// Holds the end of this node back, for work that calls other nodes until it has finished. A
    /// [drain](Self::drain) and a shutdown of the scheduler leave the cluster immediately, but keep
    /// the connections and the shards until the result is dropped, or until their deadline.
    ///
    /// If the deadline of a shutdown is earlier, the shutdown ends the connections without order:
    /// other nodes see a lost connection, and what was queued for them may be lost. So limit the
    /// work to less than the deadline of the shutdown.
    ///
    /// For example, a server takes requests that need processes of other nodes. A shutdown asks the
    /// server and the node to end at the same time, and the server has requests to answer then:
    ///
    /// ```
    /// use procession::Context;
    /// use procession::supervisor::ChildSpec;
    /// use procession_cluster::Node;
    ///
    /// # async fn answer_all(_: &Node) {}
    /// fn serves(node: Node) -> ChildSpec {
    ///     let child = ChildSpec::new("server", move |cx: Context<()>| {
    ///         let node = node.clone();
    ///         async move {
    ///             let _held = node.hold();
    ///             cx.cancelled().await;
    ///             answer_all(&node).await;
    ///         }
    ///     });
    ///     child.untyped()
    /// }
    /// ```
    pub fn hold(&self) -> NodeHold {
        NodeHold(self.open_call())
    }

    /// Leaves the cluster in order, and [stops](Self::stop) the node. Returns the number of
    /// messages that may be lost.
    ///
    /// 1. The members and names of this node leave the [groups](Self::share_groups) and
    ///    [names](Self::share_names) of other nodes. Processes are not notified, and continue.
    /// 2. Starts by other nodes are refused, and so are new connections. Nodes of this crate hand
    ///    new calls back to their callers ([`SendTermCause::Leaving`](crate::SendTermCause)), so
    ///    that a caller can choose another node.
    /// 3. The calls that were accepted before are answered, called functions return, the keys of
    ///    shards move to other nodes, and each [hold](Self::hold) is dropped. The node waits for
    ///    that until `deadline` has passed. All other messages still arrive.
    /// 4. The node stops.
    ///
    /// Nodes of this crate report [`Exit::Left`](procession::Exit::Left) for the processes of this
    /// one, and not `NoConnection`. For nodes of the BEAM it is the usual end of a connection.
    ///
    /// An orderly end of the scheduler does the same: a [shutdown](procession::Scheduler::shutdown)
    /// or, after SIGTERM, `Scheduler::run_until_signal`. The connections stay until the calls are
    /// answered, and at most until the deadline of the shutdown. It cancels all processes at the
    /// same time, except for the children of supervisors, which stop in reverse order. So let the
    /// last child drain the node, because the servers before it still answer:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use procession::Context;
    /// use procession::supervisor::ChildSpec;
    /// use procession_cluster::Node;
    ///
    /// fn drains(node: Node) -> ChildSpec {
    ///     let child = ChildSpec::new("node", move |cx: Context<()>| {
    ///         let node = node.clone();
    ///         async move {
    ///             cx.cancelled().await;
    ///             node.drain(Duration::from_secs(10)).await;
    ///         }
    ///     });
    ///     child.untyped()
    /// }
    /// ```
    ///
    /// A node that is drained in the middle of a call answers it:
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use std::time::Duration;
    ///
    /// use procession::{Context, Exit, start};
    /// use procession_cluster::{Cookie, Letter, Node, Remote, Term};
    ///
    /// # type Error = Box<dyn std::error::Error + Send + Sync>;
    /// # fn main() -> Result<(), Error> {
    /// procession::run(async {
    ///     let cookie = Cookie::random()?;
    ///     let shop = Node::builder("shop@127.0.0.1")
    ///         .cookie(cookie.clone())
    ///         .listen((Ipv4Addr::LOCALHOST, 0).into())
    ///         .start()
    ///         .await?;
    ///     let leaves = shop.clone();
    ///     let slow = start(|mut cx: Context<Letter>| async move {
    ///         let Some(Letter::Call { reply, .. }) = cx.recv().await else { return None };
    ///         // The node is asked to leave before the reply.
    ///         let drained = start(|_: Context<()>| async move {
    ///             leaves.drain(Duration::from_secs(10)).await
    ///         });
    ///         reply.send(Term::atom("done")).ok()?;
    ///         Some(drained.await)
    ///     });
    ///     shop.register("slow", &shop.attach(&slow.address().map(|letter| letter)))?;
    ///
    ///     let till = Node::builder("till@127.0.0.1").cookie(cookie).start().await?;
    ///     till.connect_at("shop@127.0.0.1", shop.local_addr().expect("it listens")).await?;
    ///     let call = Remote::named("slow", "shop@127.0.0.1");
    ///     let answer = till.call(call, Term::atom("work"), Duration::from_secs(5)).await?;
    ///     assert_eq!(answer, Term::atom("done"));
    ///     assert_eq!(slow.await, Ok(Some(Ok(0))), "nothing is lost");
    ///     Ok::<(), Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// If the future is dropped, the node has left its groups, and stays as it is then. Stop it.
    pub async fn drain(&self, deadline: Duration) -> u64 {
        self.leave();
        let finishes = async {
            while !self.is_idle() {
                sleep(LOOK_EVERY).await;
            }
        };
        // Ignored: what takes longer is cut off.
        let _ = timeout(deadline, finishes).await;
        self.stop().await
    }

    /// `Leave` and `Say`.
    pub(crate) fn leave(&self) {
        let left = self.0.peers.lock().leave();
        let Some(links) = left else { return };
        for link in &links {
            self.tell_leaving(link);
        }
        self.0.changed.notify_waiters();
    }

    /// Returns what a call holds until it is answered.
    pub(crate) fn open_call(&self) -> Arc<()> {
        Arc::clone(&self.0.open_calls)
    }

    /// Returns `true` if the node leaves the cluster, or has stopped.
    pub(crate) fn is_leaving(&self) -> bool {
        self.0.peers.lock().is_leaving()
    }

    /// `Say`, if the other node is of this crate, as far as is known.
    pub(crate) fn tell_leaving(&self, link: &Link) {
        if link.is_of_own_kind() && link.told_leaving.set(()).is_ok() {
            self.state(link, &Statement::Leaving);
        }
    }

    /// `Say`, for a connection that turns out to lead to a node of this crate after this node has
    /// begun to leave.
    pub(crate) fn tell_if_leaving(&self, link: &Link) {
        let leaves = self.0.peers.lock().leaves_since().is_some();
        if leaves {
            self.tell_leaving(link);
        }
    }

    /// Returns `true` if this node leaves, and no other node waits for a reply of it.
    pub(crate) fn is_idle(&self) -> bool {
        let peers = self.0.peers.lock();
        let Some(since) = peers.leaves_since() else { return false };
        let is_late = Instant::now() >= since + self.patience();
        let is_settled =
            |link: &Arc<Link>| !link.may_be_of_own_kind() || link.settled.get().is_some();
        // In this order: a call that is settled has its count.
        (is_late || peers.links().all(is_settled)) && Arc::strong_count(&self.0.open_calls) == 1
    }

    /// Sends a statement about the connection to a node of this crate.
    pub(crate) fn state(&self, link: &Link, statement: &Statement) {
        let (to, monitor) = (link.peer_pid(), self.question());
        link.tell(PULSE_LANE, statement.to_term(), |reason| Control::Down {
            from: Target::Name(Atom::known(PULSE)),
            to,
            monitor,
            reason,
        });
    }
}
