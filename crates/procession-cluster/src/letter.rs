//! Letters: what a process receives from the cluster.

use std::fmt;

use procession::Exit;
use procession::mailbox::Recipient;
use procession::relay::{self, DeadCause};
use procession::report::catch_panic;

use crate::link::Remote;
use crate::node::Node;
use crate::term::{Atom, NodePid, Reference, Term};

/// A message or a notice from the cluster, to a process that is [attached](crate::Node::attach).
#[derive(Debug)]
#[non_exhaustive]
pub enum Letter {
    /// A message: what a process of a BEAM node sends with `Pid ! Term`.
    Message {
        /// The sender, if the other node says so. BEAM nodes do.
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
    /// A node is connected. It comes to [subscribers](crate::Node::subscribe).
    NodeUp {
        /// The name of the node.
        node: Atom,
        /// Which connection to this node it is. Later ones have greater numbers.
        connection: u64,
    },
    /// The connection to a node has ended. It comes to [subscribers](crate::Node::subscribe).
    NodeDown {
        /// The name of the node.
        node: Atom,
        /// Which connection to this node it was. Later ones have greater numbers.
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

/// Answers a call of a process of another node.
///
/// Dropping it sends nothing. The caller then waits until its time limit. Clones answer the same
/// call, of which the first reply counts.
#[derive(Clone)]
pub struct TermReply {
    pub(crate) node: Node,
    pub(crate) from: NodePid,
    pub(crate) to: NodePid,
    pub(crate) tag: Term,
}

impl TermReply {
    /// Sends the reply.
    ///
    /// # Errors
    /// [`SendTermError`](crate::SendTermError) returns the reply if the caller's node is not
    /// connected, the queue of its connection is full, or the term cannot be sent.
    pub fn send(self, reply: Term) -> Result<(), crate::SendTermError> {
        self.node.reply(&self.from, &self.to, &self.tag, reply)
    }

    /// Sends the reply, and waits while the queue of the connection is full.
    ///
    /// # Errors
    /// As for [`send`](Self::send), except for a full queue.
    ///
    /// # Cancellation
    /// If the future is dropped, there is no reply.
    pub async fn send_wait(self, reply: Term) -> Result<(), crate::SendTermError> {
        let to = Remote::from(&self.to);
        let mut reply = reply;
        loop {
            match self.node.reply(&self.from, &self.to, &self.tag, reply) {
                Ok(()) => return Ok(()),
                Err(refused) => {
                    reply = self.node.until_room(self.from.number(), &to, refused).await?
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

/// Returns the reference in the tag of a call, if it has one as it should.
pub(crate) fn reference_of(tag: &Term) -> Option<&Reference> {
    match tag {
        Term::Reference(reference) => Some(reference),
        tag => alias_of(tag),
    }
}

/// Returns the alias at which a caller that may give up asks for the reply. It takes it back then.
pub(crate) fn alias_of(tag: &Term) -> Option<&Reference> {
    match tag {
        Term::Improper(items, tail) => match (&**items, &**tail) {
            ([word], Term::Reference(alias)) if word.is_atom("alias") => Some(alias),
            _ => None,
        },
        _ => None,
    }
}

impl fmt::Debug for TermReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermReply").field("to", &self.to).finish_non_exhaustive()
    }
}

/// Gives a letter to a process. It is not given if the function of the [`Recipient`] panics, which
/// is code of the user.
///
/// # Errors
/// If the process does not accept the letter, returns the reference of the call that it is, if any.
/// If the process has not ended, nobody else learns of the letter, so it is a dead letter.
pub(crate) fn post(recipient: &Recipient<Letter>, letter: Letter) -> Result<(), Option<Reference>> {
    let send = || {
        let Err(refused) = recipient.send(letter) else { return Ok(()) };
        if !refused.is_full() {
            // The end of the process reports itself to those that monitor it.
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

/// Sorts a message: calls and casts have forms of their own.
pub(crate) fn sort(node: &Node, own: &NodePid, from: Option<NodePid>, term: Term) -> Letter {
    let Term::Tuple(items) = &term else { return Letter::Message { from, term } };
    match &**items {
        [head, Term::Tuple(caller), _] if head.is_atom("$gen_call") => {
            if let [Term::Pid(to), tag] = &**caller {
                let (to, tag) = (to.clone(), tag.clone());
                let reply = TermReply { node: node.clone(), from: own.clone(), to, tag };
                return Letter::Call { request: last(term), reply };
            }
        }
        [head, _] if head.is_atom("$gen_cast") => return Letter::Cast(last(term)),
        _ => {}
    }
    Letter::Message { from, term }
}

/// Returns the last item of a tuple that has items.
pub(crate) fn last(term: Term) -> Term {
    match term {
        Term::Tuple(mut items) => items.pop().unwrap_or(Term::Tuple(items)),
        other => other,
    }
}
