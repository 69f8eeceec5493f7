//! Messages that leave their scheduler, and the interface that carries them.

use std::any::{Any, type_name};
use std::error::Error;
use std::fmt;
use std::pin::Pin;

use crate::Pid;
use crate::relations::signal::RemoteSignal;

/// A message to a process of another scheduler, or of another node.
#[non_exhaustive]
pub struct Parcel {
    /// The process that receives it.
    pub to: Pid,
    /// The process that sends it, if one does.
    pub from: Option<Pid>,
    /// The message.
    pub message: Box<dyn Any + Send>,
    /// The name of the message's type.
    pub type_name: &'static str,
    /// The number of bytes for which a relay had no room.
    needs: Option<usize>,
}

impl Parcel {
    /// Creates a parcel without a sender.
    pub fn new<M: Send + 'static>(to: Pid, message: M) -> Self {
        Self {
            to,
            from: None,
            message: Box::new(message),
            type_name: type_name::<M>(),
            needs: None,
        }
    }

    /// Sets the process that sends it.
    #[must_use]
    pub fn with_sender(mut self, from: Option<Pid>) -> Self {
        self.from = from;
        self
    }

    /// Notes the bytes for which a relay has no room. [`Relay::room`] gets the same parcel, so that
    /// it need not write the message once more to know them.
    #[must_use]
    pub fn needing(mut self, bytes: usize) -> Self {
        self.needs = Some(bytes);
        self
    }

    /// Returns the bytes that were [noted](Self::needing).
    pub fn needs(&self) -> Option<usize> {
        self.needs
    }

    /// Returns the error of a relay that refuses this parcel.
    pub fn refused(self, cause: RelayCause) -> RelayError {
        RelayError { parcel: self, cause }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel")
            .field("to", &self.to)
            .field("from", &self.from)
            .field("type_name", &self.type_name)
            .finish_non_exhaustive()
    }
}

/// The reason why a [`Relay`] refuses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RelayCause {
    /// The relay states no reason.
    Refused,
    /// The process has ended.
    Ended,
    /// The process receives messages of another type.
    WrongType {
        /// The type of the message.
        sent: &'static str,
        /// The type that the process receives, or `None` if it receives no messages.
        wanted: Option<&'static str>,
    },
    /// There is no connection to the node of the process.
    NoConnection,
    /// There is no room: in the mailbox, or in the queue of the connection.
    Full,
    /// A message of this type cannot leave the program.
    NotPortable,
    /// The message is longer than a message that leaves the program may be.
    TooLong,
    /// The node, or this program, does not allow it.
    NotAllowed,
}

impl Error for RelayCause {}

impl fmt::Display for RelayCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::Refused => "the relay did not take the message",
            Self::Ended => "the process has ended",
            Self::WrongType { sent, wanted } => {
                return MessageTypes { sent, wanted }.fmt(f);
            }
            Self::NoConnection => "there is no connection to its node",
            Self::Full => "there is no room for the message",
            Self::NotPortable => "a message of this type cannot leave the program",
            Self::TooLong => "the message is too long to leave the program",
            Self::NotAllowed => "it is not allowed",
        })
    }
}

/// The type of a message, and the type of the mailbox that refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageTypes {
    pub(crate) sent: &'static str,
    /// `None` if the process receives no messages.
    pub(crate) wanted: Option<&'static str>,
}

impl fmt::Display for MessageTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, wanted } = self;
        write!(f, "the message is of type {sent}, but the process receives ")?;
        f.write_str(wanted.unwrap_or("no messages"))
    }
}

/// The error of a [`Relay`] that refuses a message. It holds the message.
#[derive(Debug)]
#[non_exhaustive]
pub struct RelayError {
    /// The refused message.
    pub parcel: Parcel,
    /// The reason.
    pub cause: RelayCause,
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot send to {}: {}", self.parcel.to, self.cause)
    }
}

impl Error for RelayError {}

/// Carries messages by PID from the processes of a scheduler to other schedulers. See
/// [`Builder::relay`](crate::Builder::relay).
pub trait Relay: Send + Sync + 'static {
    /// Accepts a message. It runs on the sender's thread and must not block. An accepted message
    /// may still be lost.
    ///
    /// # Errors
    /// Returns the same message if it is refused. The sender gets it back.
    ///
    /// # Panics
    /// If the returned message has another type, the sender panics.
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError>;

    /// Returns a future that ends when there may be room for a message that was refused as
    /// [`Full`](RelayCause::Full). The sender tries again then.
    ///
    /// It is asked with the parcel of the refusal. By default, there is no such future, and a
    /// sender that waits gets its message back instead.
    fn room(&self, parcel: &Parcel) -> Option<RoomFuture> {
        let _ = parcel;
        None
    }
}

/// The future of [`Relay::room`].
pub type RoomFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for dyn Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relay")
    }
}

/// Carries messages and signals to the processes of one other node. See
/// [`RemoteNode`](crate::relay::RemoteNode).
pub trait NodeRelay: Relay {
    /// Accepts a signal to a process of the node. It runs on the sender's thread and must not
    /// block. Signals and messages from one process to another process must arrive in the order in
    /// which they were accepted.
    ///
    /// A signal cannot be refused. If there is no connection, or if it ends before the other node
    /// has answered, the relay hands the [answer](RemoteSignal::answer) to
    /// [`receive`](crate::relay::receive). It may do so before this method returns.
    fn signal(&self, signal: RemoteSignal);
}
