//! Letters: what a process receives from the cluster.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use procession::Exit;
use procession::mailbox::Recipient;
use procession::mailbox::relay::{self, DeadCause};
use procession::process::catch_panic;

use crate::error::SendTermError;
use crate::outbound::Lane;
use crate::remote::Remote;
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire::calls::{last, reference_of};

/// A message or a notice from the cluster, to a process that is [attached](crate::Node::attach).
#[derive(Debug)]
#[non_exhaustive]
pub enum Letter {
    /// A message: what a process of a BEAM node sends with `Pid ! Term`.
    Message {
        /// The sender, if the other node says so, and it is a process of that node. BEAM nodes do.
        from: Option<NodePid>,
        /// The message.
        term: Term,
    },
    /// A call, as `GenServer.call` and `gen_server:call` make it. The caller waits for a reply.
    Call {
        /// The request.
        request: Term,
        /// Answers the call.
        reply: TermReply,
    },
    /// A cast, as `GenServer.cast` and `gen_server:cast` make it.
    Cast(Term),
    /// A process of another node has ended, or its node cannot be reached any more.
    Down(RemoteDown),
    /// A node is connected. [Subscribers](crate::Node::subscribe) receive it.
    NodeUp {
        /// The name of the node.
        node: Atom,
        /// The number of the connection to this node. Later connections have greater numbers.
        connection: u64,
    },
    /// The connection to a node has ended. [Subscribers](crate::Node::subscribe) receive it.
    NodeDown {
        /// The name of the node.
        node: Atom,
        /// The number of the connection to this node. Later connections have greater numbers.
        connection: u64,
        /// Why it has ended.
        why: String,
        /// The messages that were accepted and that the node has not confirmed to have received,
        /// some of which may have arrived. `None` if it confirms none, as nodes of the BEAM.
        unconfirmed: Option<u64>,
    },
}

/// The notice that a monitored process of another node has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteDown {
    /// The monitor, as [`Member::monitor`](crate::Member::monitor) returned it.
    pub monitor: Reference,
    /// The process.
    pub process: Remote,
    /// How it ended. [`Exit::NoConnection`] means that its node cannot be reached: the process may
    /// be alive.
    pub exit: Exit,
}

/// The node that sends the replies to calls.
pub(crate) trait Replies: Send + Sync {
    /// Returns what a call holds until it is answered. A node that leaves waits for that.
    fn open_call(&self) -> Arc<()>;

    /// Sends the reply to a call.
    fn reply(
        &self,
        from: &NodePid,
        to: &NodePid,
        tag: &Term,
        reply: Term,
    ) -> Result<(), SendTermError>;

    /// Waits until the connection to a node may have room for so many bytes of the sender `lane`.
    /// Returns `false` if there is none.
    fn until_room<'a>(&'a self, lane: Lane, to: &'a Remote, length: usize) -> AwaitedRoom<'a>;
}

/// The wait for room in the queue of a connection.
pub(crate) type AwaitedRoom<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Answers a call of a process of another node.
///
/// Dropping it sends nothing. The caller then waits until its time limit. Clones answer the same
/// call, of which the first reply counts.
#[derive(Clone)]
pub struct TermReply {
    node: Arc<dyn Replies>,
    #[expect(dead_code, reason = "held for its count")]
    open: Arc<()>,
    pub(crate) from: NodePid,
    pub(crate) to: NodePid,
    pub(crate) tag: Term,
}

impl TermReply {
    pub(crate) fn new(node: Arc<dyn Replies>, from: NodePid, to: NodePid, tag: Term) -> Self {
        let open = node.open_call();
        Self { node, open, from, to, tag }
    }

    /// Sends the reply.
    ///
    /// # Errors
    /// [`SendTermError`] returns the reply if the caller's node is not connected, the queue of its
    /// connection is full, or the term cannot be sent. A reply that is too long or cannot be
    /// written ends the call, so that the caller does not wait for it.
    pub fn send(self, reply: Term) -> Result<(), SendTermError> {
        self.node.reply(&self.from, &self.to, &self.tag, reply)
    }

    /// Sends the reply, and waits while the queue of the connection is full.
    ///
    /// # Errors
    /// As for [`send`](Self::send), except for a full queue.
    ///
    /// # Cancellation
    /// If the future is dropped, there is no reply.
    pub async fn send_wait(self, reply: Term) -> Result<(), SendTermError> {
        let to = Remote::from(&self.to);
        let mut reply = reply;
        loop {
            match self.node.reply(&self.from, &self.to, &self.tag, reply) {
                Ok(()) => return Ok(()),
                Err(refused) => {
                    let Some(length) = refused.needs else { return Err(refused) };
                    if !self.node.until_room(self.from.number(), &to, length).await {
                        return Err(refused);
                    }
                    reply = refused.term;
                }
            }
        }
    }

    /// Returns the process that waits for the reply.
    pub fn caller(&self) -> &NodePid {
        &self.to
    }

    /// Returns about how many bytes of memory this takes. The tag counts, because the caller
    /// chooses it.
    pub fn memory_bytes(&self) -> usize {
        let names = self.from.node.as_str().len() + self.to.node.as_str().len();
        size_of::<Self>() + names + self.tag.memory_bytes()
    }

    /// Returns the reference in the tag of the call, if it has one as it should.
    pub(crate) fn reference(&self) -> Option<&Reference> {
        reference_of(&self.tag)
    }
}

impl fmt::Debug for TermReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermReply").field("to", &self.to).finish_non_exhaustive()
    }
}

/// Delivers a letter to a process, unless the function of the [`Recipient`], which is code of the
/// user, panics.
///
/// # Errors
/// If the process does not accept the letter, returns the reference of the call that it is, if any.
/// If the process has not ended, nobody else learns of the letter, so it is a dead letter.
pub(crate) fn post(recipient: &Recipient<Letter>, letter: Letter) -> Result<(), Option<Reference>> {
    let send = || {
        let Err(refused) = recipient.send(letter) else { return Ok(()) };
        if !refused.is_full() {
            // The end of the process is reported to its monitors anyway.
            return Err(None);
        }
        let letter = refused.into_inner();
        let call = match &letter {
            Letter::Call { reply, .. } => reply.reference().cloned(),
            _ => None,
        };
        relay::discard(recipient.pid(), DeadCause::Full, letter);
        Err(call)
    };
    catch_panic(send).unwrap_or(Err(None))
}

/// Sorts a message: calls and casts have forms of their own. `node` returns the node that sends
/// the reply to a call.
pub(crate) fn sort(
    node: impl FnOnce() -> Arc<dyn Replies>,
    own: &NodePid,
    from: Option<NodePid>,
    term: Term,
) -> Letter {
    let Term::Tuple(items) = &term else { return Letter::Message { from, term } };
    match &**items {
        [head, Term::Tuple(caller), _] if head.is_atom("$gen_call") => {
            if let [Term::Pid(to), tag] = &**caller {
                let (to, tag) = (to.clone(), tag.clone());
                let reply = TermReply::new(node(), own.clone(), to, tag);
                return Letter::Call { request: last(term), reply };
            }
        }
        [head, _] if head.is_atom("$gen_cast") => return Letter::Cast(last(term)),
        _ => {}
    }
    Letter::Message { from, term }
}
