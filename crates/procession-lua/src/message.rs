//! Messages to guests, and how they are sent: each takes room in the mailbox of its receiver.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use procession::mailbox::relay::{self, DeadCause};
use procession::{Exit, Pid, SendError};

use crate::account::{self, Account, Charge};
use crate::arguments;
use crate::program::Upgrade;
use crate::value::Value;

/// A message to a guest.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// A message for `process.receive`.
    Plain(Value),
    /// A request for `process.receive`, which returns a second value for the reply.
    Call {
        /// The calling process.
        from: Pid,
        /// The caller's number for this call.
        tag: u64,
        /// The request.
        value: Value,
    },
    /// A call of a process of another node, for `process.receive`.
    RemoteCall {
        /// The call, for `process.reply`.
        call: Value,
        /// The request.
        value: Value,
    },
    /// The answer to a call that this process made. If the process no longer waits for it, it is
    /// dropped.
    Answer {
        /// The number of the answered call.
        tag: u64,
        /// The answer.
        value: Value,
    },
    /// The end of an operation that ran on behalf of this process, such as a read.
    Done {
        /// The number of the operation.
        tag: u64,
        /// The result of the operation.
        result: Result<Value, Box<str>>,
    },
    /// A request to continue with another version of the program. A
    /// [`Deployment`](crate::Deployment) sends it.
    Upgrade(Upgrade),
    /// The exit that another guest sends to this one. It is received if the process traps exits,
    /// and ends the process otherwise.
    Exit {
        /// The sending process.
        from: Pid,
        /// The exit.
        exit: Exit,
    },
    /// A message of another guest, which counts against the limits of the mailbox.
    Charged(Charged),
}

/// A message between guests. It takes room in the mailbox of its receiver until that receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Charged {
    pub(crate) content: Content,
    pub(crate) charge: Charge,
}

/// The content of a message between guests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Plain(Value),
    Call {
        from: Pid,
        tag: u64,
        value: Value,
    },
    Answer {
        tag: u64,
        value: Value,
    },
    /// A call of a process of another node.
    RemoteCall {
        call: Value,
        value: Value,
    },
    /// A report of another node, which `process.receive` returns with its kind. No process can send
    /// it.
    #[cfg(feature = "cluster")]
    News {
        kind: &'static str,
        value: Value,
    },
    /// The result of an operation that ran on behalf of the process.
    Done {
        tag: u64,
        value: Value,
    },
    /// An exit for a process that traps exits.
    Exit {
        from: Pid,
        exit: Exit,
    },
}

impl Content {
    /// Returns the bytes that this takes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Plain(value)
            | Self::Call { value, .. }
            | Self::Answer { value, .. }
            | Self::RemoteCall { value, .. }
            | Self::Done { value, .. } => value.size(),
            #[cfg(feature = "cluster")]
            Self::News { value, .. } => value.size(),
            Self::Exit { exit, .. } => account::end_bytes(exit),
        }
    }

    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Answer { .. })
    }

    pub(crate) fn charged(self, charge: Charge) -> Charged {
        Charged { content: self, charge }
    }
}

impl From<Content> for Message {
    fn from(content: Content) -> Self {
        match content {
            Content::Plain(value) => Self::Plain(value),
            Content::Call { from, tag, value } => Self::Call { from, tag, value },
            Content::Answer { tag, value } => Self::Answer { tag, value },
            Content::RemoteCall { call, value } => Self::RemoteCall { call, value },
            // For a process of the host, which asks for none.
            #[cfg(feature = "cluster")]
            Content::News { value, .. } => Self::Plain(value),
            Content::Done { tag, value } => Self::Done { tag, result: Ok(value) },
            Content::Exit { from, exit } => Self::Exit { from, exit },
        }
    }
}

impl From<Value> for Message {
    fn from(value: Value) -> Self {
        Self::Plain(value)
    }
}

/// The cause of a message that was refused because the mailbox of its receiver is full.
const FULL: &str = "the mailbox of the process is full";

/// The cause of a refusal because the mailbox of the acting process is full.
pub(crate) const OWN_FULL: &str = "the mailbox of this process is full";

/// Checks that the exits of two processes that are to be linked have room. The second may not exist
/// yet.
///
/// # Errors
/// Returns an error if one of the processes traps exits and its mailbox is full.
pub(crate) fn check_link(own: Pid, to: Option<Pid>) -> Result<(), &'static str> {
    let refuses = |pid| Account::of(pid).is_some_and(|account| account.refuses_links());
    if refuses(own) {
        return Err(OWN_FULL);
    }
    if to.is_some_and(refuses) { Err(FULL) } else { Ok(()) }
}

/// Sends an exit to a process. To a guest that traps exits it is a message, which counts as others
/// do, unless it is a kill. Returns `false` if the process has ended.
///
/// # Errors
/// Returns an error if the mailbox of the process is full.
pub(crate) fn send_exit(to: Pid, exit: Exit) -> Result<bool, String> {
    if exit.is_killed() {
        return Ok(procession::process::kill(to));
    }
    match Account::of(to).filter(|account| account.traps()) {
        Some(_) => Ok(send(to, Content::Exit { from: arguments::own_pid()?, exit })?),
        None => Ok(procession::process::send_exit(to, exit)),
    }
}

/// Sends to a process. Returns `false` if it does not accept the message, such as because it has
/// ended.
///
/// # Errors
/// Returns an error if the mailbox of the process is full.
pub(crate) fn send(to: Pid, content: Content) -> Result<bool, &'static str> {
    send_charged(to, Account::of(to).as_ref(), content)
}

/// Sends like [`send`] to a process with a known account.
///
/// # Errors
/// Returns an error if the mailbox of the process is full.
pub(crate) fn send_charged(
    to: Pid,
    account: Option<&Arc<Account>>,
    content: Content,
) -> Result<bool, &'static str> {
    // A refused message is dropped: as in Erlang, a send to a process that has ended does nothing.
    // Lua gets the result.
    Ok(procession::mailbox::send(to, charge(to, account, content).map_err(|_| FULL)?).is_ok())
}

/// Sends to a process on behalf of a process that no longer waits for the result. A refused message
/// is a dead letter.
pub(crate) fn send_late(to: Pid, content: Content) {
    let refused = match charge(to, Account::of(to).as_ref(), content) {
        Ok(message) => procession::mailbox::send(to, message).err().map(SendError::into_inner),
        Err(content) => Some(content.into()),
    };
    if let Some(message) = refused {
        relay::discard(to, DeadCause::Late, message);
    }
}

/// Returns a message that takes room in the mailbox of its receiver.
///
/// # Errors
/// Returns the content if the mailbox of the process is full.
fn charge(to: Pid, account: Option<&Arc<Account>>, content: Content) -> Result<Message, Content> {
    let (bytes, is_answer) = (content.size(), content.is_answer());
    let Some(account) = account else {
        return match Account::check_host(to, bytes, is_answer) {
            Ok(()) => Ok(content.into()),
            Err(_) => Err(content),
        };
    };
    match account.charge(bytes, is_answer) {
        Some(charge) => Ok(Message::Charged(content.charged(charge))),
        None => Err(content),
    }
}

/// Returns the part of a call that shows that it was received.
pub(crate) fn call_proof(from: Pid, tag: u64) -> Value {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    Value::Integer(KEY.hash_one((from, tag)).cast_signed())
}
