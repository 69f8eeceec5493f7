//! What a caller asks of a refused message, and the text of the error.

use std::error::Error;
use std::fmt;

use crate::Pid;
use crate::mailbox::parcel::{MessageTypes, RelayCause};
use crate::mailbox::send_error::{SendCause, SendError, SendErrorKind};

impl SendCause {
    /// Returns the types, if the process receives messages of another type.
    pub(crate) fn types(&self) -> Option<MessageTypes> {
        match self.kind {
            SendErrorKind::WrongType(types) => Some(types),
            SendErrorKind::NotRelayed(RelayCause::WrongType { sent, wanted }) => {
                Some(MessageTypes { sent, wanted })
            }
            _ => None,
        }
    }

    /// Returns the PID that the message was sent to. If it was sent to a name that no process has,
    /// this is [`Pid::NOBODY`].
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the name or the key that the message was sent to, if it was sent by a
    /// [`Named`](crate::relations::Named) or a `group::Registry`.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns `true` if the mailbox is full, or the queue of the connection to the other node.
    pub fn is_full(&self) -> bool {
        let is_relay_full = self.relay_cause() == Some(RelayCause::Full);
        is_relay_full || matches!(self.kind, SendErrorKind::Full | SendErrorKind::OwnFull)
    }

    /// Returns `true` if the process belongs to another scheduler or node, and the
    /// [`Relay`](crate::relay::Relay) refused the message.
    pub fn is_not_relayed(&self) -> bool {
        matches!(self.kind, SendErrorKind::NotRelayed(_) | SendErrorKind::OtherNode)
    }

    /// Returns the reason why the relay refused the message, if that is the cause.
    pub fn relay_cause(&self) -> Option<RelayCause> {
        match self.kind {
            SendErrorKind::NotRelayed(cause) => Some(cause),
            _ => None,
        }
    }

    /// Returns `true` if there is no connection to the node of the process.
    pub fn is_no_connection(&self) -> bool {
        self.relay_cause() == Some(RelayCause::NoConnection)
    }

    /// Returns `true` if the scheduler has reached its limit of timers.
    pub fn is_timer_limit(&self) -> bool {
        matches!(self.kind, SendErrorKind::TimerLimit)
    }

    /// Returns `true` if the message was urgent, and the process
    /// [takes no urgent messages](crate::SpawnOptions::urgent). An ordinary send may succeed.
    pub fn is_not_urgent(&self) -> bool {
        matches!(self.kind, SendErrorKind::NotUrgent)
    }

    /// Returns `true` if the process has ended or never existed, or no process has the name.
    pub fn is_ended(&self) -> bool {
        let is_ended_elsewhere = self.relay_cause() == Some(RelayCause::Ended);
        is_ended_elsewhere
            || matches!(self.kind, SendErrorKind::Ended | SendErrorKind::Unregistered)
    }

    /// Returns `true` if the process receives messages of another type.
    pub fn is_wrong_type(&self) -> bool {
        self.types().is_some()
    }
}

impl fmt::Display for SendCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = SentTo { pid: self.pid, name: self.name.as_deref() };
        match &self.kind {
            SendErrorKind::Unregistered => {
                let name = self.name().unwrap_or_default().escape_debug();
                write!(f, "cannot send: no process is registered as `{name}`")
            }
            SendErrorKind::OtherNode => {
                write!(f, "cannot send to {to}: it belongs to another node")
            }
            SendErrorKind::Ended => write!(f, "cannot send to {to}: the process has ended"),
            SendErrorKind::Full => write!(f, "cannot send to {to}: its mailbox is full"),
            SendErrorKind::OwnFull => write!(
                f,
                "cannot wait for room in the mailbox of {to}: it is the process's own, and full"
            ),
            SendErrorKind::Cycle => {
                write!(f, "cannot send to {to}: the process waits for a reply of the caller")
            }
            SendErrorKind::NotRelayed(cause) => write!(f, "cannot send to {to}: {cause}"),
            SendErrorKind::TimerLimit => write!(
                f,
                "cannot send to {to} later: the scheduler has reached its limit of timers"
            ),
            SendErrorKind::NotUrgent => {
                write!(f, "cannot send to {to}: it takes no urgent messages")
            }
            SendErrorKind::WrongType(types) => write!(f, "cannot send to {to}: {types}"),
        }
    }
}

/// The process that a message was sent to, for people.
struct SentTo<'a> {
    pid: Pid,
    name: Option<&'a str>,
}

impl fmt::Display for SentTo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "`{}` ({})", name.escape_debug(), self.pid),
            None => self.pid.fmt(f),
        }
    }
}

impl Error for SendCause {}

impl<M> SendError<M> {
    /// See [`SendCause::pid`].
    pub fn pid(&self) -> Pid {
        self.cause.pid
    }

    /// See [`SendCause::name`].
    pub fn name(&self) -> Option<&str> {
        self.cause.name()
    }

    /// See [`SendCause::is_full`].
    pub fn is_full(&self) -> bool {
        self.cause.is_full()
    }

    /// See [`SendCause::is_not_relayed`].
    pub fn is_not_relayed(&self) -> bool {
        self.cause.is_not_relayed()
    }

    /// See [`SendCause::relay_cause`].
    pub fn relay_cause(&self) -> Option<RelayCause> {
        self.cause.relay_cause()
    }

    /// See [`SendCause::is_no_connection`].
    pub fn is_no_connection(&self) -> bool {
        self.cause.is_no_connection()
    }

    /// Returns `true` if the scheduler has reached its limit of timers.
    pub fn is_timer_limit(&self) -> bool {
        self.cause.is_timer_limit()
    }

    /// See [`SendCause::is_not_urgent`].
    pub fn is_not_urgent(&self) -> bool {
        self.cause.is_not_urgent()
    }

    /// See [`SendCause::is_ended`].
    pub fn is_ended(&self) -> bool {
        self.cause.is_ended()
    }

    /// See [`SendCause::is_wrong_type`].
    pub fn is_wrong_type(&self) -> bool {
        self.cause.is_wrong_type()
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<M> Error for SendError<M> {}
