//! Messages that were accepted and that no process received: dead letters, and mailboxes that
//! outlive their process.
//!
//! A supervised child may keep its mailbox until its next process takes over. The messages that a
//! process leaves then go into the [`KeptMailbox`] of its child instead of the hands of the
//! dead-letter hook. The next process gets them before anybody can send to it, so the order of the
//! messages of each sender stays.
//!
//! A kept mailbox belongs to one process at a time. A message of an earlier process, for example of
//! a context that was moved out of its process and is dropped late, is not kept.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use procession_sync::Mutex;

use crate::Pid;
use crate::machine::value::Value;
use crate::mailbox::header::RequestContext;
use crate::process::unwind::{drop_guarded, guarded};

/// The reason why a message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadCause {
    /// The message was in the mailbox when its process ended, or a
    /// [`Statem`](crate::behaviour::Statem) had put it off. If the mailbox is
    /// [kept](crate::supervisor::ChildSpec::keep_mailbox), no other process took it over.
    Ended,
    /// The mailbox was full, and its policy is to drop messages. Or the message came from another
    /// node, and the process refused it.
    Full,
    /// The message was sent with a delay, for example by
    /// [`Address::send_after`](crate::Address::send_after), and was refused after it.
    Late,
}

impl fmt::Display for DeadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the process ended before it received the message",
            Self::Full => "the mailbox was full",
            Self::Late => "the message was refused after its delay",
        })
    }
}

/// A message that was accepted and that no process received. A message that is returned to its
/// sender is no dead letter.
#[non_exhaustive]
pub struct DeadLetter<'a> {
    /// The process that it was sent to.
    pub to: Pid,
    /// The reason why no process received it.
    pub cause: DeadCause,
    /// The name of its type.
    pub type_name: &'static str,
    /// The message. It is dropped afterwards.
    pub message: &'a mut (dyn Any + Send),
}

impl fmt::Debug for DeadLetter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("to", &self.to)
            .field("cause", &self.cause)
            .field("type_name", &self.type_name)
            .finish_non_exhaustive()
    }
}

/// The function that observes dead letters before they are dropped.
#[derive(Clone)]
pub(crate) struct Observer(pub(crate) Arc<dyn Fn(DeadLetter<'_>) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer(..)")
    }
}

/// Shows a dead letter to the observer, and drops it, outside all locks.
pub(crate) fn bury<M: Send + 'static>(
    observer: Option<&Observer>,
    to: Pid,
    cause: DeadCause,
    mut message: M,
) {
    show(observer, DeadLetter { to, cause, type_name: type_name::<M>(), message: &mut message });
    drop_guarded(message);
}

/// Like [`bury`], for a message that a process has left and that was kept for the next process.
pub(crate) fn bury_kept(observer: Option<&Observer>, kept: KeptMessage) {
    let KeptMessage { to, request: _, type_name, mut message } = kept;
    let cause = DeadCause::Ended;
    show(observer, DeadLetter { to, cause, type_name, message: &mut *message });
    drop_guarded(message);
}

fn show(observer: Option<&Observer>, letter: DeadLetter<'_>) {
    if let Some(observer) = observer {
        drop(guarded(|| observer.0(letter)));
    }
}

/// A message that a process has left in its mailbox.
pub(crate) struct KeptMessage {
    pub(crate) to: Pid,
    pub(crate) request: Option<RequestContext>,
    pub(crate) type_name: &'static str,
    pub(crate) message: Value,
}

/// The messages that the processes of one child leave in their mailboxes.
#[derive(Default)]
pub(crate) struct KeptMailbox(Mutex<KeptContent>);

#[derive(Default)]
struct KeptContent {
    owner: Option<Pid>,
    messages: Vec<KeptMessage>,
}

impl KeptMailbox {
    /// Keeps a message, or returns it if the mailbox does not belong to its process any more.
    pub(crate) fn keep(&self, message: KeptMessage) -> Result<(), KeptMessage> {
        let mut kept = self.0.lock();
        if kept.owner != Some(message.to) {
            return Err(message);
        }
        kept.messages.push(message);
        Ok(())
    }

    /// Assigns the mailbox to a new process, or to none. Returns the messages, the oldest first.
    pub(crate) fn hand_over(&self, to: Option<Pid>) -> Vec<KeptMessage> {
        let mut kept = self.0.lock();
        kept.owner = to;
        std::mem::take(&mut kept.messages)
    }
}

impl fmt::Debug for KeptMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptMailbox(..)")
    }
}
