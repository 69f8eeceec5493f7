//! The errors of sends, calls and names.

use std::error::Error;
use std::fmt;

use procession::Exit;
use procession::mailbox::relay::RelayCause;

use crate::outbound::Unqueued;
use crate::term::{EncodeError, Term};

/// The error of sending a term. It returns the term.
pub struct SendTermError {
    pub(crate) term: Term,
    cause: SendTermCause,
    /// The bytes for which a full queue has no room.
    pub(crate) needs: Option<usize>,
}

/// Why a term was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendTermCause {
    /// The node is not connected.
    NoConnection,
    /// The node is [leaving](crate::Node::drain) the cluster, and takes no more calls and starts.
    /// Messages that ask for no reply are still accepted.
    Leaving,
    /// The queue of the connection has no room. At most 4 MiB of messages of up to 64 KiB wait
    /// there, and 32 MiB of larger messages. One sender may use half of that room. A message that
    /// is longer waits alone.
    Full,
    /// The message is longer than the [limit](crate::NodeBuilder::message_limit) of this node.
    TooLong,
    /// The term cannot be written.
    NotPortable(EncodeError),
    /// The other node does not [permit](crate::Grants::send) this one to send to the process. Only
    /// nodes of this crate report this.
    NotAllowed,
}

impl SendTermError {
    pub(crate) fn new(term: Term, why: Unqueued) -> Self {
        let needs = match why {
            Unqueued::Full(length) => Some(length),
            _ => None,
        };
        Self { term, cause: why.into(), needs }
    }

    /// Returns the term.
    pub fn into_inner(self) -> Term {
        self.term
    }

    /// Returns the cause.
    pub fn cause(&self) -> SendTermCause {
        self.cause
    }
}

impl fmt::Debug for SendTermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendTermError").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl fmt::Display for SendTermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)
    }
}

impl fmt::Display for SendTermCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection => f.write_str("the node is not connected"),
            Self::Leaving => f.write_str("the node is leaving the cluster"),
            Self::Full => f.write_str("the queue of the connection is full"),
            Self::TooLong => f.write_str("the message is longer than the limit of this node"),
            Self::NotPortable(error) => write!(f, "the message cannot be sent: {error}"),
            Self::NotAllowed => f.write_str("the node does not permit to send to the process"),
        }
    }
}

impl Error for SendTermError {}

impl From<Unqueued> for SendTermCause {
    fn from(why: Unqueued) -> Self {
        match why {
            Unqueued::Full(_) => Self::Full,
            Unqueued::TooLong => Self::TooLong,
            Unqueued::Closed => Self::NoConnection,
            Unqueued::Leaving => Self::Leaving,
            Unqueued::Wrong(error) => Self::NotPortable(error),
            Unqueued::NotAllowed => Self::NotAllowed,
        }
    }
}

impl From<SendTermCause> for RelayCause {
    fn from(cause: SendTermCause) -> Self {
        match cause {
            SendTermCause::NoConnection | SendTermCause::Leaving => Self::NoConnection,
            SendTermCause::Full => Self::Full,
            SendTermCause::TooLong => Self::TooLong,
            SendTermCause::NotPortable(_) => Self::NotPortable,
            SendTermCause::NotAllowed => Self::NotAllowed,
        }
    }
}

/// The error of a call to a process of another node.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallTermError {
    /// The request was not sent. The error returns it.
    Send(SendTermError),
    /// The called process ended before it replied, does not exist, or cannot be reached any more.
    Ended(Exit),
    /// The called process has dropped the right to reply. Only nodes of this crate report this.
    NoReply,
    /// The time limit passed. A later reply is dropped.
    TimedOut,
}

impl fmt::Display for CallTermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(error) => write!(f, "the request was not sent: {error}"),
            Self::Ended(exit) => write!(f, "no reply: {exit}"),
            Self::NoReply => f.write_str("the process gave no reply"),
            Self::TimedOut => f.write_str("no reply within the time limit"),
        }
    }
}

impl Error for CallTermError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Send(error) => Some(error),
            Self::Ended(exit) => Some(exit),
            Self::NoReply | Self::TimedOut => None,
        }
    }
}

/// The error of giving a process a name. It contains the name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// Another process has the name.
    Taken(String),
    /// The name has more than 255 characters.
    TooLong(String),
    /// The name begins with `$procession`, which is reserved for messages between nodes.
    Reserved(String),
    /// The process has ended, or is a member of another node.
    NotAttached(String),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(name) => write!(f, "another process has the name {name:?}"),
            Self::TooLong(name) => write!(f, "the name {name:?} has more than 255 characters"),
            Self::Reserved(name) => write!(f, "the name {name:?} is one of the node's own"),
            Self::NotAttached(name) => {
                write!(f, "the process that should have the name {name:?} is not attached")
            }
        }
    }
}

impl Error for RegisterError {}
