//! How a message gets into a mailbox. The invariants are those of `process/slot.rs`.

use std::task::Waker;

use procession_queue::{Closed, Entry, Pushed};

use crate::Exit;
use crate::machine::value::Value;
use crate::mailbox::bounded::Offered;
use crate::mailbox::dead_letter;
use crate::mailbox::dead_letter::DeadCause;
use crate::process::body::{Event, System};
use crate::process::slot::{BoundedMailbox, Mailbox, Refused, Slot};
use crate::process::unwind::guarded;
use crate::relations::links;
use crate::scheduler::current;

/// Wakes who waits for room. The wakers are the user's.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        drop(guarded(|| waker.wake()));
    }
}

/// Pushes a message into a mailbox of its type, and wakes its process if it waits for one.
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

/// What is to be done after a message was offered to a bounded mailbox.
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
            links::end_by(slot, Exit::MailboxFull);
            return Err(Refused::Full(message));
        }
        Offered::Closed(message) => return Err(Refused::Ended(message)),
    }
    Ok(())
}

/// Takes one entry out of a bounded mailbox, and lets who waits for the room in. Only the process
/// itself does.
#[cold]
pub(crate) fn take_bounded<M>(slot: &Slot, ring: &BoundedMailbox<M>) -> Option<Event<M>> {
    let (entry, wakers) = ring.take();
    admit(slot, wakers);
    entry
}

/// Frees the room of messages that were taken out of a bounded mailbox and kept, and lets who waits
/// for it in. Only the process itself does.
#[cold]
pub(crate) fn release_bounded<M>(slot: &Slot, ring: &BoundedMailbox<M>, messages: u32) {
    admit(slot, ring.release(messages));
}

/// What waited has been sent, whether its sender notices or not.
fn admit(slot: &Slot, wakers: Vec<Waker>) {
    let admitted = wakers.len() as u32;
    if admitted > 0 {
        current::count(slot.shared(), |stats| &stats.sent, admitted.into());
        wake_all(wakers);
    }
}

impl Slot {
    /// The scheduler counts what this word has no room for.
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

    /// Pushes something that is no message, and wakes the process for it; says whether the process
    /// was there to receive it.
    pub(crate) fn push_system(&self, entry: Entry<System>) -> bool {
        let pushed = (self.kind().push_system)(self, entry);
        if pushed {
            crate::process::wake::wake(self);
        }
        pushed
    }

    /// Closes the mailbox, drops what is in it, and says how many messages that were.
    pub(crate) fn close_mailbox(&self) -> u32 {
        (self.kind().close)(self)
    }
}
