//! Mailboxes that outlive their process, until the next process of a supervised child takes over.
//!
//! The messages that a process leaves go into the [`KeptMailbox`] of its child instead of the hands
//! of the dead-letter hook. The next process gets them before anybody can send to it, so the order
//! of the messages of each sender stays.
//!
//! A kept mailbox belongs to one process at a time. A message of an earlier process, for example of
//! a context that was moved out of its process and is dropped late, is not kept.

use procession_sync::Mutex;

use crate::Pid;
use crate::machine::value::Value;
use crate::mailbox::header::RequestContext;

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

impl std::fmt::Debug for KeptMailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeptMailbox(..)")
    }
}
