//! Why a message of shards was refused.

use std::error::Error;
use std::fmt;

use procession::mailbox::relay::RelayCause;

use super::limits::{HOPS_MAX, KEY_MAX};
use crate::error::SendTermCause;
use crate::serialize::Unsent;

/// Why a message to a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The key has no term, or takes more than 1024 bytes.
    Key,
    /// The home of the key is not connected.
    NoConnection,
    /// The queue of the connection to the home of the key is full.
    ConnectionFull,
    /// The message is longer than the [limit](crate::NodeBuilder::message_limit) of this node.
    TooLong,
    /// The message has no term.
    NotPortable,
    /// The home of the key does not permit this node to send to its shards.
    NotAllowed,
    /// The queue of the key has the [limit](super::ShardsBuilder::queue_limit) of messages.
    QueueFull,
    /// The shard moves to another node, and the [limit](super::ShardsBuilder::move_limit) of
    /// messages waits there.
    MoveFull,
    /// The shard moves to another node, and that takes longer than the
    /// [limit](super::ShardsBuilder::move_limit).
    MoveElapsed,
    /// The node has the [limit](super::ShardsBuilder::key_limit) of keys.
    Keys,
    /// Routers of more than 4096 incarnations of nodes have sent to the shard.
    Senders,
    /// The message was forwarded four times, because nodes do not agree on the home of the key.
    Hops,
    /// A later message of the same node was accepted before, so this message would be out of order.
    Late,
    /// The process of the key failed, or could not be started, before it received the message.
    Failed,
    /// The shards, or their node, have stopped.
    Stopped,
}

const WORDS: &[(Refusal, &str)] = &[
    (Refusal::Key, "key"),
    (Refusal::NoConnection, "no_connection"),
    (Refusal::ConnectionFull, "connection_full"),
    (Refusal::TooLong, "too_long"),
    (Refusal::NotPortable, "not_portable"),
    (Refusal::NotAllowed, "not_allowed"),
    (Refusal::QueueFull, "queue_full"),
    (Refusal::MoveFull, "move_full"),
    (Refusal::MoveElapsed, "move_elapsed"),
    (Refusal::Keys, "keys"),
    (Refusal::Senders, "senders"),
    (Refusal::Hops, "hops"),
    (Refusal::Late, "late"),
    (Refusal::Failed, "failed"),
    (Refusal::Stopped, "stopped"),
];

impl Refusal {
    /// Returns the atom that stands for it between nodes.
    pub(super) fn word(self) -> &'static str {
        let known = WORDS.iter().find(|(why, _)| *why == self);
        known.map_or("stopped", |(_, word)| word)
    }

    /// Reads such an atom. A later release may have more of them.
    pub(super) fn of_word(word: &str) -> Self {
        let known = WORDS.iter().find(|(_, known)| *known == word);
        known.map_or(Self::Stopped, |(why, _)| *why)
    }
}

impl From<SendTermCause> for Refusal {
    fn from(cause: SendTermCause) -> Self {
        match cause {
            SendTermCause::NoConnection | SendTermCause::Leaving => Self::NoConnection,
            SendTermCause::Full => Self::ConnectionFull,
            SendTermCause::TooLong => Self::TooLong,
            SendTermCause::NotPortable(_) => Self::NotPortable,
            SendTermCause::NotAllowed => Self::NotAllowed,
        }
    }
}

impl From<Unsent> for Refusal {
    fn from(why: Unsent) -> Self {
        match why {
            Unsent::Unqueued(why) => SendTermCause::from(why).into(),
            Unsent::Cause(RelayCause::NotPortable) => Self::NotPortable,
            Unsent::Cause(_) => Self::NoConnection,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => return write!(f, "the key has no term of at most {KEY_MAX} bytes"),
            Self::NoConnection => "the home of the key is not connected",
            Self::ConnectionFull => "the queue of the connection is full",
            Self::TooLong => "the message is longer than the limit of this node",
            Self::NotPortable => "the message has no term",
            Self::NotAllowed => "the home of the key does not permit the message",
            Self::QueueFull => "the queue of the key is full",
            Self::MoveFull => "the shard moves, and too many messages wait",
            Self::MoveElapsed => "the shard moves, and that takes too long",
            Self::Keys => "the node has the greatest number of keys",
            Self::Senders => "too many nodes have sent to the shard",
            Self::Hops => return write!(f, "the message was forwarded {HOPS_MAX} times"),
            Self::Late => "a later message was accepted before",
            Self::Failed => "the process of the key failed before it received the message",
            Self::Stopped => "the shards have stopped",
        })
    }
}

impl Error for Refusal {}

/// A message to a key that was refused. It returns the message.
pub struct Refused<M> {
    message: M,
    why: Refusal,
}

impl<M> Refused<M> {
    pub(super) fn new(message: M, why: Refusal) -> Self {
        Self { message, why }
    }

    /// Returns why the message was refused.
    pub fn why(&self) -> Refusal {
        self.why
    }

    /// Returns the message.
    pub fn into_inner(self) -> M {
        self.message
    }
}

impl<M> fmt::Debug for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for Refused<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.why, f)
    }
}

impl<M> Error for Refused<M> {}

/// Why a call of a key has no result.
#[non_exhaustive]
pub enum CallKeyError<M> {
    /// The message was refused, here or by another node. Its reply will never be used.
    Refused(Refused<M>),
    /// The process of the key dropped the reply, the process has ended, or the connection to its
    /// node has ended.
    NoReply,
    /// No reply came before the time limit.
    Elapsed,
}

impl<M> fmt::Debug for CallKeyError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => f.debug_tuple("Refused").field(&refused.why).finish(),
            Self::NoReply => f.write_str("NoReply"),
            Self::Elapsed => f.write_str("Elapsed"),
        }
    }
}

impl<M> fmt::Display for CallKeyError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => fmt::Display::fmt(refused, f),
            Self::NoReply => f.write_str("the process of the key gave no reply"),
            Self::Elapsed => f.write_str("no reply came before the time limit"),
        }
    }
}

impl<M> Error for CallKeyError<M> {}

#[cfg(test)]
mod tests {
    use super::{Refusal, WORDS};

    #[test]
    fn each_refusal_has_its_word() {
        for (why, word) in WORDS {
            assert_eq!((why.word(), Refusal::of_word(word)), (*word, *why));
        }
        assert_eq!(Refusal::of_word("of a later release"), Refusal::Stopped);
    }
}
