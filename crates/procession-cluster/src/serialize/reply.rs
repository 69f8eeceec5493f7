//! Rights to reply in messages between nodes, for `#[serde(with)]`.
//!
//! A field of type [`Reply`] in a message to a process of another node is the
//! `from` of a `GenServer`: `{Pid, Tag}`. A process of the BEAM replies to it by
//! `GenServer.reply(from, value)`, and a process of this crate has a `Reply` again.
//!
//! It is written and read only in messages to and from typed processes: see
//! [`Node::address`](crate::Node::address) and [`Node::attach_as`](crate::Node::attach_as). The
//! value of the reply is converted by serde as well.
//!
//! The call ends with [`NoReply`](procession::CallError::NoReply) when the process that was sent
//! the message ends, and with [`NoConnection`](procession::CallError::NoConnection) when the
//! connection does. If a process of this crate drops the right, that is reported as well, once both
//! nodes know that the other is of this crate. A reply that is too long, or for which 64 MiB of
//! replies in the queue leave no room, is dropped like the right. A process of the BEAM that does
//! not reply keeps the caller waiting until its time limit.

use procession::process::catch_panic;
use procession::{Exit, Reply};
use serde_core::de::{self, Deserialize, DeserializeOwned, Deserializer};
use serde_core::ser::{self, Serialize, Serializer};

use crate::link::{AwaitedReply, CallResult};
use crate::node::Node;
use crate::node::messages::NO_REPLY;
use crate::serialize::convert::{from_term, to_term};
use crate::serialize::scope;
use crate::term::{NodePid, Term};

/// The right to a reply from another node.
struct Awaited<T> {
    node: Node,
    /// The process that has sent the message.
    own: NodePid,
    right: Reply<T>,
}

impl<T: DeserializeOwned + Send> AwaitedReply for Awaited<T> {
    fn is_abandoned(&self) -> bool {
        self.right.is_abandoned()
    }

    fn end(self: Box<Self>, result: CallResult) {
        let Self { node, own, right } = *self;
        // The type's own code may panic, here in the process of the connection.
        catch_panic(move || match result {
            Ok(term) if term.is_atom(NO_REPLY) => drop(right),
            Ok(term) => match scope::within(&node, &own, None, || from_term(term)).0 {
                Ok(value) => right.send(value),
                // The caller learns that there is no reply.
                Err(_) => drop(right),
            },
            Err(Exit::NoConnection | Exit::Left) => right.disconnected(),
            Err(_) => drop(right),
        });
    }
}

/// Writes a right to reply. The other node then sends the reply.
///
/// # Errors
/// The error of the serializer: it is not in a message to a process of another node, or the right
/// is in another such message.
pub fn serialize<T, S>(reply: &Reply<T>, serializer: S) -> Result<S::Ok, S::Error>
where
    T: DeserializeOwned + Send + 'static,
    S: Serializer,
{
    let outside = || ser::Error::custom("a reply is written only in a message to another node");
    let (node, own) =
        scope::with(|scope| (scope.node.clone(), scope.own.clone())).ok_or_else(outside)?;
    let call = node.call_reference();
    match reply.share() {
        Some(right) => {
            let awaited = Box::new(Awaited { node, own: own.clone(), right });
            scope::with(|scope| scope.replies.push((call.clone(), awaited)));
        }
        // Its reply will find nobody.
        None if reply.is_abandoned() => {}
        None => return Err(ser::Error::custom("the reply is in another message already")),
    }
    Term::tuple([own.into(), call.into()]).serialize(serializer)
}

/// Reads a right to reply. The reply goes to the other node.
///
/// # Errors
/// The error of the deserializer: the term has another form, or it is not in a message to a typed
/// process.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Reply<T>, D::Error>
where
    T: Serialize + 'static,
    D: Deserializer<'de>,
{
    let term = Term::deserialize(deserializer)?;
    let outside = || de::Error::custom("a reply is read only in a message to a typed process");
    let parts = scope::with(|scope| (scope.node.clone(), scope.own.clone(), scope.sender.clone()));
    let (node, own, sender) = parts.ok_or_else(outside)?;
    let Some([Term::Pid(to), tag]) = term.as_tuple() else {
        let came = crate::reason::bounded(&term);
        return Err(de::Error::custom(format_args!("{came} came, and not the sender of a call")));
    };
    let (to, tag) = (to.clone(), tag.clone());
    // One to a third node has the room of messages. Otherwise the sender could fill the room of
    // that node's replies.
    let is_to_sender = sender.is_some_and(|sender| sender == to.node);
    let open = node.open_call();
    Ok(Reply::from_fn(move |value: Option<T>| {
        let (term, replies) =
            scope::within(&node, &own, None, || value.and_then(|value| to_term(&value).ok()));
        // A reply has no room for another reply.
        drop(replies);
        node.reply_typed(&own, &to, &tag, term, is_to_sender);
        // A node that leaves has waited for this.
        drop(open);
    }))
}
