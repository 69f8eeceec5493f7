//! The errors of refused messages.

mod shown;

use std::any::type_name;
use std::fmt;
use std::sync::Arc;

use crate::Pid;
use crate::mailbox::parcel::{MessageTypes, RelayCause};
use crate::process::slot::Slot;
use crate::util::exclusive::Exclusive;

/// The error of a send. It holds the refused message and the [`SendCause`].
pub struct SendError<M> {
    message: Exclusive<M>,
    cause: SendCause,
}

impl<M: Clone + Sync> Clone for SendError<M> {
    fn clone(&self) -> Self {
        Self { message: self.message.clone(), cause: self.cause.clone() }
    }
}

impl<M: PartialEq + Sync> PartialEq for SendError<M> {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message && self.cause == other.cause
    }
}

impl<M: Eq + Sync> Eq for SendError<M> {}

/// The reason why a message was refused, without the message.
///
/// Your error type needs only one variant for it, whatever the messages are:
///
/// ```
/// use procession::mailbox::SendCause;
/// use procession::{Address, SendError};
///
/// enum MyError {
///     Send(SendCause),
/// }
///
/// impl<M> From<SendError<M>> for MyError {
///     fn from(error: SendError<M>) -> Self {
///         Self::Send(error.into())
///     }
/// }
///
/// fn notify(text: &Address<String>, number: &Address<u32>) -> Result<(), MyError> {
///     text.send("it is done".into())?;
///     number.send(1)?;
///     Ok(())
/// }
/// ```
///
/// It is an error type itself:
///
/// ```
/// use procession::mailbox::SendCause;
///
/// fn notify(address: &procession::Address<String>) -> Result<(), SendCause> {
///     Ok(address.send("it is done".into())?)
/// }
/// # procession::run(async {
/// let ended = procession::start(|_: procession::Context<String>| async {});
/// let address = ended.address().clone();
/// ended.await.expect("it returns at once");
/// assert!(notify(&address).unwrap_err().is_ended());
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendCause {
    pid: Pid,
    /// The name to which the message was sent, if it was sent to a name.
    name: Option<Arc<str>>,
    kind: SendErrorKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendErrorKind {
    Ended,
    /// No process has the name.
    Unregistered,
    Full,
    /// The process would wait for room in its own mailbox.
    OwnFull,
    /// A call would close a cycle of calls.
    Cycle,
    TimerLimit,
    /// The mailbox takes no urgent messages.
    NotUrgent,
    /// The relay refused the message.
    NotRelayed(RelayCause),
    /// The process belongs to another node, and the message was to go to a mailbox of this program.
    OtherNode,
    WrongType(MessageTypes),
}

impl SendCause {
    pub(crate) fn new(pid: Pid, kind: SendErrorKind) -> Self {
        Self { pid, name: None, kind }
    }

    /// The cause for a process with the messages of another type.
    #[cold]
    pub(crate) fn wrong_type<M>(slot: &Slot) -> Self {
        let types = MessageTypes { sent: type_name::<M>(), wanted: slot.kind().receives() };
        Self::new(slot.pid(), SendErrorKind::WrongType(types))
    }

    /// The cause for a name that no process has.
    #[cold]
    pub(crate) fn unregistered(name: Arc<str>) -> Self {
        Self::new(Pid::NOBODY, SendErrorKind::Unregistered).to(name)
    }

    /// Sets the name that the message was sent to.
    #[cold]
    pub(crate) fn to(self, name: Arc<str>) -> Self {
        Self { name: Some(name), ..self }
    }
}

impl<M> From<SendError<M>> for SendCause {
    fn from(error: SendError<M>) -> Self {
        error.cause
    }
}

impl<M> SendError<M> {
    pub(crate) fn ended(message: M, pid: Pid) -> Self {
        Self::new(message, pid, SendErrorKind::Ended)
    }

    pub(crate) fn new(message: M, pid: Pid, kind: SendErrorKind) -> Self {
        Self::of(message, SendCause::new(pid, kind))
    }

    pub(crate) fn of(message: M, cause: SendCause) -> Self {
        Self { message: Exclusive::new(message), cause }
    }

    /// Records that the full mailbox belongs to the waiting process itself.
    pub(crate) fn in_own_mailbox(self) -> Self {
        Self { cause: SendCause { kind: SendErrorKind::OwnFull, ..self.cause }, ..self }
    }

    /// Sets the name that the message was sent to.
    #[cold]
    pub(crate) fn to(self, name: Arc<str>) -> Self {
        Self { cause: self.cause.to(name), ..self }
    }

    /// Returns the refused message.
    pub fn into_inner(self) -> M {
        self.message.into_inner()
    }

    /// Returns the refused message and the cause.
    pub fn into_parts(self) -> (M, SendCause) {
        (self.message.into_inner(), self.cause)
    }

    /// Returns a reference to the refused message.
    pub fn message(&self) -> &M
    where
        M: Sync,
    {
        self.message.get()
    }

    /// Returns the cause, which is `Send`, `Sync` and `'static` whatever the message is.
    pub fn cause(&self) -> SendCause {
        self.cause.clone()
    }
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("cause", &self.cause).finish_non_exhaustive()
    }
}
