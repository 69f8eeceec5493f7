//! Delivers messages into mailboxes. The invariants are those of `process/slot.rs`.

use std::task::Waker;

use procession_queue::{Closed, Entry, Pushed};

use crate::Exit;
use crate::machine::value::Value;
use crate::mailbox::bounded::Offered;
use crate::mailbox::dead_letter;
use crate::mailbox::dead_letter::DeadCause;
use crate::process::body::{Queued, System};
use crate::process::slot::{BoundedMailbox, Mailbox, Refused, Slot};
use crate::process::unwind::guarded;
use crate::relations::links;
use crate::scheduler::current;

/// Wakes the senders that waited for room. Waking runs user code.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        drop(guarded(|| waker.wake()));
    }
}

/// Pushes a message into a mailbox of its type, and wakes the process if it waits for one.
#[inline]
pub(crate) fn push_message<M: Send + 'static>(
    slot: &Slot,
    mailbox: Mailbox<'_, M>,
    message: M,
) -> Result<(), Refused<M>> {
    match mailbox {
        Mailbox::Unbounded(queue) => match queue.push(message) {
            Ok(Pushed::Wake) => {
                crate::process::wake::wake(slot);
                Ok(())
            }
            Ok(Pushed::Queued) => Ok(()),
            Err(Closed(message)) => Err(Refused::Ended(message)),
        },
        Mailbox::Bounded(ring) => finish_offer(slot, ring.offer(message)),
    }
}

/// Completes a push into a bounded mailbox: wakes the receiver, drops a message or ends the
/// process.
pub(crate) fn finish_offer<M: Send + 'static>(
    slot: &Slot,
    offered: Offered<M>,
) -> Result<(), Refused<M>> {
    let discard = |message| {
        current::count(slot.shared(), |stats| &stats.discarded, 1);
        dead_letter::bury(slot.shared().dead_letters(), slot.pid(), DeadCause::Full, message);
    };
    match offered {
        Offered::Queued { wake } => {
            if wake {
                crate::process::wake::wake(slot);
            }
        }
        Offered::Replaced(oldest) => discard(oldest),
        Offered::Dropped(newest) => discard(newest),
        Offered::Full(message) => return Err(Refused::Full(message)),
        Offered::Kills(message) => {
            links::end_by_itself(slot, Exit::MailboxFull);
            return Err(Refused::Full(message));
        }
        Offered::Closed(message) => return Err(Refused::Ended(message)),
    }
    Ok(())
}

/// Takes one entry out of a bounded mailbox, and admits senders that wait for room. Only the
/// process itself calls this.
#[cold]
pub(crate) fn take_bounded<M>(slot: &Slot, ring: &BoundedMailbox<M>) -> Option<Queued<M>> {
    let (entry, wakers) = ring.take();
    admit(slot, wakers);
    entry
}

/// Frees the room of messages that were taken out of a bounded mailbox and kept, and admits senders
/// that wait for room. Only the process itself calls this.
#[cold]
pub(crate) fn release_bounded<M>(slot: &Slot, ring: &BoundedMailbox<M>, messages: u32) {
    admit(slot, ring.release(messages));
}

/// Counts the admitted messages as sent, and wakes their senders.
fn admit(slot: &Slot, wakers: Vec<Waker>) {
    let admitted = wakers.len() as u32;
    if admitted > 0 {
        current::count(slot.shared(), |stats| &stats.sent, admitted.into());
        wake_all(wakers);
    }
}

impl Slot {
    /// Moves received messages that the word has no room for to the counters of the scheduler.
    #[cold]
    pub(crate) fn carry_received(&self, messages: u64) {
        current::count(self.shared(), |stats| &stats.received, messages);
    }

    /// Pushes a message of any type, and counts it.
    pub(crate) fn push_any(&self, message: Value) -> Result<(), Refused<Value>> {
        (self.kind().push_any)(self, message)?;
        crate::scheduler::budget::charge_send(self);
        Ok(())
    }

    /// Pushes an entry that is not a message, and wakes the process. Returns `true` if the process
    /// could still receive it.
    pub(crate) fn push_system(&self, entry: Entry<System>) -> bool {
        let pushed = (self.kind().push_system)(self, entry);
        if pushed {
            crate::process::wake::wake(self);
        }
        pushed
    }

    /// Closes the mailbox and drops its entries. Returns the number of messages among them.
    pub(crate) fn close_mailbox(&self) -> u32 {
        (self.kind().close)(self)
    }
}
