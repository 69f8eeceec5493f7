//! Delivers messages into mailboxes, or to the relay of another node. `process/slot.rs` lists the
//! invariants.

use std::any::type_name;
use std::task::{Context as TaskContext, Poll, Waker, ready};

use procession_protocols::mailbox::bounded::{Offered, Reserved, Taken};
use procession_protocols::util::block_queue::BlockQueue;
use procession_queue::{Closed, Entry, EventQueue, Pushed};

use crate::machine::value::Value;
use crate::mailbox::bounds::Urgent;
use crate::mailbox::dead_letter::{DeadCause, KeptMessage};
use crate::mailbox::header::RequestContext;
use crate::mailbox::parcel::{Parcel, Relay, RelayCause, RelayError, RoomFuture};
use crate::mailbox::send_error::{SendError, SendErrorKind};
use crate::mailbox::{dead_letter, request};
use crate::process::body::{Queued, System};
use crate::process::slot::{BoundedMailbox, Mailbox, Refused, Slot};
use crate::process::typed::FarProcess;
use crate::process::unwind::guarded;
use crate::relations::links;
use crate::relations::signal::Signal;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::util::exclusive::Exclusive;
use crate::{Exit, Pid};

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
        Mailbox::Unbounded(queue) => finish_push(slot, queue.push(message)),
        Mailbox::Headed(queue) => push_headed(slot, queue, message),
        Mailbox::Bounded(ring) => {
            finish_offer(slot, ring.offer(message, request::header_for(slot)))
        }
    }
}

#[inline]
fn finish_push<M>(slot: &Slot, pushed: Result<Pushed, Closed<M>>) -> Result<(), Refused<M>> {
    match pushed {
        Ok(Pushed::Wake) => {
            crate::process::wake::wake(slot);
            Ok(())
        }
        Ok(Pushed::Queued) => Ok(()),
        Err(Closed(message)) => Err(Refused::Ended(message)),
    }
}

/// Pushes a message with a header into an unbounded mailbox.
#[cold]
fn push_headed<M>(
    slot: &Slot,
    queue: &EventQueue<M, System>,
    message: M,
) -> Result<(), Refused<M>> {
    finish_push(slot, queue.push_headed(request::header(slot), message))
}

/// Completes a push into a bounded mailbox: wakes the receiver, drops a message or ends the
/// process.
pub(crate) fn finish_offer<M: Send + 'static>(
    slot: &Slot,
    offered: Offered<M>,
) -> Result<(), Refused<M>> {
    let discard = |message| {
        current::count(slot.shared(), |stats| &stats.discarded, 1);
        dead_letter::bury(
            slot.shared().extensions.dead_letters(),
            slot.pid(),
            DeadCause::Full,
            message,
        );
    };
    if !matches!(offered, Offered::Queued { .. } | Offered::Closed(_)) {
        tell_full::<M>(slot);
    }
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

/// Delivers the message that `make` makes. If the process does not accept one, `make` is not
/// called. If `make` makes none, the message is refused like one without room.
///
/// If the process ends while the message is made, the message counts as accepted and discarded, as
/// if it had been accepted just before the end.
pub(crate) fn deliver_made<M: Send + 'static>(
    slot: &Slot,
    mailbox: Mailbox<'_, M>,
    make: impl FnOnce() -> Option<M>,
) -> Result<(), Refused<()>> {
    let made = || make().ok_or(Refused::Full(()));
    let delivered = match mailbox {
        Mailbox::Unbounded(_) | Mailbox::Headed(_) if slot.state.see().is_complete() => {
            return Err(Refused::Ended(()));
        }
        Mailbox::Unbounded(_) | Mailbox::Headed(_) => push_message(slot, mailbox, made()?),
        Mailbox::Bounded(ring) => match ring.reserve() {
            Reserved::Room => {
                let room = Room { slot, ring };
                let message = made()?;
                std::mem::forget(room);
                match ring.fill(message, request::header_for(slot)) {
                    Ok(wake) => finish_offer(slot, Offered::Queued { wake }),
                    Err(message) => Err(Refused::Ended(message)),
                }
            }
            Reserved::Needless => {
                finish_offer(slot, ring.offer(made()?, request::header_for(slot)))
            }
            Reserved::Full => {
                tell_full::<M>(slot);
                return Err(Refused::Full(()));
            }
            Reserved::Kills => {
                links::end_by_itself(slot, Exit::MailboxFull);
                return Err(Refused::Full(()));
            }
            Reserved::Closed => return Err(Refused::Ended(())),
        },
    };
    if let Err(Refused::Ended(message) | Refused::Full(message)) = delivered {
        current::count(slot.shared(), |stats| &stats.discarded, 1);
        dead_letter::bury(
            slot.shared().extensions.dead_letters(),
            slot.pid(),
            DeadCause::Ended,
            message,
        );
    }
    Ok(())
}

/// The room of a message that is being made. Dropping it releases the room.
struct Room<'a, M> {
    slot: &'a Slot,
    ring: &'a BoundedMailbox<M>,
}

impl<M> Drop for Room<'_, M> {
    fn drop(&mut self) {
        admit(self.slot, self.ring.give_up());
    }
}

/// Takes one entry out of a bounded mailbox, and admits senders that wait for room. Only the
/// process itself calls this.
#[cold]
pub(crate) fn take_bounded<M>(slot: &Slot, ring: &BoundedMailbox<M>) -> (Option<Queued<M>>, bool) {
    let Taken { entry, is_urgent, wakers } = ring.take();
    admit(slot, wakers);
    (entry, is_urgent)
}

/// Takes all urgent entries out of a bounded mailbox, as [`take_bounded`] does.
#[cold]
pub(crate) fn take_urgent<M>(slot: &Slot, ring: &BoundedMailbox<M>) -> BlockQueue<Queued<M>> {
    let (entries, wakers) = ring.take_urgent();
    admit(slot, wakers);
    entries
}

/// Puts an urgent message into a bounded mailbox that takes urgent messages.
#[cold]
pub(crate) fn push_urgent<M: Send + 'static>(
    slot: &Slot,
    ring: &BoundedMailbox<M>,
    message: M,
) -> Result<(), Refused<M>> {
    finish_offer(slot, ring.offer_urgent(message, request::urgent_header_for(slot)))
}

/// Tells a process that its mailbox is full, if it has asked for that and was not told already.
#[cold]
pub(crate) fn tell_full<M: Send + 'static>(slot: &Slot) {
    if !slot.extra().is_some_and(|extra| extra.urgent.is_some_and(Urgent::has_full)) {
        return;
    }
    let Some(Mailbox::Bounded(ring)) = slot.mailbox_checked::<M>() else { return };
    if let Ok(true) = ring.tell_full(Entry::new(System::Signal(Signal::MailboxFull))) {
        crate::process::wake::wake(slot);
    }
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

/// Keeps a message that a process has not received and that nobody else will, or shows and drops it
/// as a dead letter. Returns `true` if it is a dead letter.
#[cold]
pub(crate) fn leave<M: Send + 'static>(
    slot: &Slot,
    request: Option<RequestContext>,
    message: M,
) -> bool {
    let observer = slot.shared().extensions.dead_letters();
    let Some(kept) = slot.extra().and_then(|extra| extra.kept.as_ref()) else {
        dead_letter::bury(observer, slot.pid(), DeadCause::Ended, message);
        return true;
    };
    let (to, type_name) = (slot.pid(), type_name::<M>());
    let refused = kept.keep(KeptMessage { to, request, type_name, message: Box::new(message) });
    refused.map_err(|message| dead_letter::bury_kept(observer, message)).is_err()
}

/// Puts the messages that the previous process has left into the mailbox of a process that does not
/// run yet.
#[cold]
pub(crate) fn take_over(slot: &Slot) {
    let Some(kept) = slot.extra().and_then(|extra| extra.kept.as_ref()) else { return };
    for KeptMessage { to, request, type_name, message } in kept.hand_over(Some(slot.pid())) {
        let push = || (slot.kind().take_over)(slot, message);
        // A message without a request must not get the request of the supervisor.
        let pushed =
            if slot.bound.has_headers() { request::within(request.clone(), push) } else { push() };
        if let Err(message) = pushed {
            discard_kept(slot.shared(), [KeptMessage { to, request, type_name, message }]);
        }
    }
}

/// Drops messages that were kept for a process that does not come.
#[cold]
pub(crate) fn discard_kept(shared: &Shared, messages: impl IntoIterator<Item = KeptMessage>) {
    for message in messages {
        current::count(shared, |stats| &stats.discarded, 1);
        dead_letter::bury_kept(shared.extensions.dead_letters(), message);
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

    /// Pushes an entry that is not a message, perhaps urgently, and wakes the process. Returns
    /// `true` if the process could still receive it.
    pub(crate) fn push_system(&self, entry: Entry<System>, is_urgent: bool) -> bool {
        let pushed = (self.kind().push_system)(self, entry, is_urgent);
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

impl FarProcess {
    /// Sends a message.
    #[cold]
    pub(crate) fn send<M: Send + 'static>(&self, message: M) -> Result<(), SendError<M>> {
        relayed(&*self.relay, self.pid, message)
    }
}

/// A message that waits for room at a relay.
#[derive(Debug)]
pub(crate) struct FarWait(Box<Exclusive<RoomFuture>>);

impl FarWait {
    /// Sends a message, or waits for room and tries again. `wait` is the state between two polls.
    pub(crate) fn poll<M: Send + 'static>(
        process: &FarProcess,
        message: &mut Option<M>,
        wait: &mut Option<Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Result<(), SendError<M>>> {
        if let Some(Self(room)) = wait {
            ready!(room.get_mut().as_mut().poll(task));
            *wait = None;
        }
        let parcel = parcel_from_here(
            process.pid,
            message.take().expect("a future is not polled after its end"),
        );
        let Err(refused) = process.relay.relay(parcel) else { return Poll::Ready(Ok(())) };
        let room = match refused.cause {
            RelayCause::Full => process.relay.room(&refused.parcel),
            _ => None,
        };
        let (back, cause) = given_back(refused);
        let Some(mut room) = room else {
            let kind = SendErrorKind::NotRelayed(cause);
            return Poll::Ready(Err(SendError::new(back, process.pid, kind)));
        };
        *message = Some(back);
        if room.as_mut().poll(task).is_ready() {
            // It tries again in the next step, so that a faulty relay does not hold the worker.
            task.waker().wake_by_ref();
        } else {
            *wait = Some(Self(Box::new(Exclusive::new(room))));
        }
        Poll::Pending
    }
}

/// Returns a parcel of the running process.
fn parcel_from_here<M: Send + 'static>(to: Pid, message: M) -> Parcel {
    let from = current::current().map(|slot| slot.pid());
    Parcel::new(to, message).with_sender(from)
}

/// Sends a message by a relay.
#[cold]
pub(crate) fn relayed<M: Send + 'static>(
    relay: &dyn Relay,
    pid: Pid,
    message: M,
) -> Result<(), SendError<M>> {
    relay.relay(parcel_from_here(pid, message)).map_err(|refused| {
        let (message, cause) = given_back(refused);
        SendError::new(message, pid, SendErrorKind::NotRelayed(cause))
    })
}

/// Returns the message that a relay has refused, and the reason.
fn given_back<M: 'static>(refused: RelayError) -> (M, RelayCause) {
    let RelayError { parcel, cause, .. } = refused;
    let message = parcel.message.downcast().expect("a relay gives back what it was given");
    (*message, cause)
}
