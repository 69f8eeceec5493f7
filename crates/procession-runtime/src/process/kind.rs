//! The functions of a process kind that depend on its message type.

use std::any::TypeId;

use procession_queue::Closed;

use crate::machine::value::Value;
use crate::mailbox::deliver::{leave, push_message, wake_all};
use crate::mailbox::request;
use crate::process::body::Queued;
use crate::process::exit::OnCancel;
use crate::process::slot::{BoundedMailbox, Kind, Mailbox, Refused, Slot};
use crate::process::typed::Nothing;
use crate::process::unwind::{drop_each, drop_guarded};

impl Kind {
    /// Returns the name of the type of the messages, unless the process receives none.
    #[cold]
    pub(crate) fn receives(&self) -> Option<&'static str> {
        ((self.message)() != TypeId::of::<Nothing>()).then(self.message_name)
    }

    pub(crate) const fn of<M: Send + 'static>(
        name: &'static str,
        on_cancel: OnCancel,
        other: fn() -> &'static Self,
    ) -> Self {
        Self {
            name,
            message_bytes: size_of::<M>(),
            on_cancel,
            other,
            message: TypeId::of::<M>,
            message_name: std::any::type_name::<M>,
            push_any: |slot, message| match message.downcast::<M>() {
                // SAFETY: [typed] this kind is of M.
                Ok(message) => match push_message(slot, unsafe { slot.mailbox::<M>() }, *message) {
                    Ok(()) => Ok(()),
                    Err(Refused::Ended(message)) => Err(Refused::Ended(Box::new(message))),
                    Err(Refused::Full(message)) => Err(Refused::Full(Box::new(message))),
                },
                Err(message) => Err(Refused::Ended(message)),
            },
            take_over: |slot, message| {
                let message = message.downcast::<M>()?;
                // SAFETY: [typed] this kind is of M.
                let refused = match unsafe { slot.mailbox::<M>() } {
                    Mailbox::Unbounded(queue) => queue.push(*message).map(drop),
                    Mailbox::Headed(queue) => {
                        queue.push_headed(request::header(slot), *message).map(drop)
                    }
                    Mailbox::Bounded(ring) => {
                        ring.take_over(*message, request::header_for(slot)).map_err(Closed)
                    }
                };
                refused.map_err(|Closed(message)| Box::new(message) as Value)
            },
            push_system: |slot, entry, is_urgent| {
                // SAFETY: [typed] this kind is of M.
                let refused = match unsafe { slot.mailbox::<M>() } {
                    Mailbox::Unbounded(queue) | Mailbox::Headed(queue) => {
                        match queue.push_system(entry) {
                            Ok(_) => return true,
                            Err(Closed(entry)) => entry,
                        }
                    }
                    Mailbox::Bounded(ring) => match ring.push_exempt(entry, is_urgent) {
                        Ok(_) => return true,
                        Err(entry) => entry,
                    },
                };
                drop_guarded(refused);
                false
            },
            close: close::<M>,
            forget: |slot| {
                // SAFETY: [typed] this kind is of M.
                if let Mailbox::Bounded(ring) = unsafe { slot.mailbox::<M>() } {
                    drop_each(ring.take_returned().into_values());
                }
            },
            make_bounded: |capacity, when_full, takes_urgent| {
                Box::new(BoundedMailbox::<M>::with_urgent(capacity, when_full, takes_urgent))
            },
            // SAFETY: [typed] this kind is of M.
            bounded: |slot, received| match unsafe { slot.mailbox::<M>() } {
                Mailbox::Unbounded(_) | Mailbox::Headed(_) => None,
                Mailbox::Bounded(ring) => {
                    Some((ring.length(received), ring.high_water(), ring.figures()))
                }
            },
        }
    }

    /// Returns the same kind with this effect of a cancel.
    pub(crate) fn with_on_cancel(&'static self, on_cancel: OnCancel) -> &'static Self {
        if self.on_cancel == on_cancel { self } else { (self.other)() }
    }
}

/// `Kind::close` of a process that receives `M`.
fn close<M: Send + 'static>(slot: &Slot) -> u32 {
    let mut messages = 0;
    let mut dispose = |event: Queued<M>| match request::message_of(event) {
        Ok((request, message)) => messages += u32::from(leave(slot, request, message)),
        Err(entry) => drop_guarded(entry),
    };
    // SAFETY: [typed] this kind is of M.
    match unsafe { slot.mailbox::<M>() } {
        Mailbox::Unbounded(queue) | Mailbox::Headed(queue) => queue.close().for_each(dispose),
        Mailbox::Bounded(ring) => {
            let (entries, wakers) = ring.close();
            entries.into_iter().for_each(&mut dispose);
            wake_all(wakers);
        }
    }
    messages
}
