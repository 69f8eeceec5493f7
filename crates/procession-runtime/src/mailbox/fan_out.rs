//! Sends a message to each of many processes.
//!
//! The receivers are woken in batches of [`TOGETHER`] processes (`process/wake.rs`), within which
//! no code of the user may run. So the messages of a batch are made before it, and refused messages
//! are dropped after it. A receiver with a bounded mailbox ends the batch: a full one may
//! call the user's code.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use procession_queue::{Closed, Pushed, SharedNodes};

use crate::Pid;
use crate::mailbox::address::{count_returned, send};
use crate::mailbox::send_error::SendError;
use crate::process::slot::{Mailbox, SlotRef};
use crate::process::unwind::{drop_each, drop_guarded};
use crate::process::wake::WakeBatch;
use crate::scheduler::budget::charge_send;
use crate::scheduler::current;

/// The number of messages that are made, sent and announced together.
const TOGETHER: usize = 64;

/// The number of receivers that the processor fetches while it serves an earlier receiver.
const AHEAD: usize = 8;

/// What became of the messages to many processes.
pub(crate) struct FannedOut<M> {
    /// The number of receivers that accepted their message.
    pub(crate) accepted: usize,
    /// The first refusal by a process that receives messages of another type.
    pub(crate) wrong_type: Option<SendError<M>>,
}

impl<M> FannedOut<M> {
    /// Notes a refusal. Leaves the messages that nobody asks for in `refused`.
    fn refuse(&mut self, error: SendError<M>, refused: &mut Vec<M>) {
        if self.wrong_type.is_none() && error.is_wrong_type() {
            self.wrong_type = Some(error);
        } else {
            refused.push(error.into_inner());
        }
    }
}

/// Sends a message to each receiver, in their order. `make` makes each message. Its argument is
/// `true` for the last receiver.
///
/// # Panics
/// Panics if `make` panics. The receivers before have their messages then.
pub(crate) fn send_each<M: Send + 'static>(
    receivers: &[(Pid, ())],
    mut make: impl FnMut(bool) -> M,
) -> FannedOut<M> {
    let mut fanned = FannedOut { accepted: 0, wrong_type: None };
    let mut messages = Vec::with_capacity(receivers.len().min(TOGETHER));
    let mut nodes = SharedNodes::for_messages(receivers.len());
    let mut left = receivers.len();
    for part in receivers.chunks(TOGETHER) {
        let made = catch_unwind(AssertUnwindSafe(|| {
            for _ in part {
                left -= 1;
                messages.push(make(left == 0));
            }
        }));
        deliver(part, &mut messages, &mut nodes, &mut fanned);
        if let Err(panic) = made {
            drop_guarded(fanned.wrong_type);
            resume_unwind(panic);
        }
    }
    fanned
}

/// Sends as many messages as there are, the first to the first receiver, and leaves none.
fn deliver<M: Send + 'static>(
    receivers: &[(Pid, ())],
    messages: &mut Vec<M>,
    nodes: &mut SharedNodes<M>,
    fanned: &mut FannedOut<M>,
) {
    let mut refused = Vec::new();
    let Some(shared) = current::here() else {
        for (&(pid, ()), message) in receivers.iter().zip(messages.drain(..)) {
            match send(pid, message) {
                Ok(()) => fanned.accepted += 1,
                Err(error) => fanned.refuse(error, &mut refused),
            }
        }
        drop_each(refused);
        return;
    };
    let is_near = |pid: Pid| pid.node() == 0 && pid.scheduler() == shared.id();
    let fetch = |&(pid, ()): &(Pid, ())| {
        if is_near(pid) {
            shared.table().prefetch(pid.slot());
        }
    };
    receivers.iter().take(AHEAD).for_each(fetch);
    // As for a single wake-up.
    let _stopped = shared.stop_clock();
    let mut batch = WakeBatch::new(&shared, receivers.len());
    for (index, message) in messages.drain(..).enumerate() {
        let (pid, ()) = receivers[index];
        receivers.get(index + AHEAD).into_iter().for_each(fetch);
        let slot =
            if is_near(pid) { shared.table().pin(pid.slot(), pid.generation()) } else { None };
        let message = match slot {
            Some(slot) => match push(&slot, message, nodes, &mut batch) {
                Ok(()) => {
                    fanned.accepted += 1;
                    continue;
                }
                Err(Unsent::Refused(message)) => {
                    refused.push(message);
                    continue;
                }
                Err(Unsent::Special(message)) => {
                    batch.queue();
                    message
                }
            },
            None => {
                batch.queue();
                message
            }
        };
        match send(pid, message) {
            Ok(()) => fanned.accepted += 1,
            Err(error) => fanned.refuse(error, &mut refused),
        }
    }
    drop(batch);
    drop_each(refused);
}

/// A message that was not pushed.
enum Unsent<M> {
    /// The process has ended.
    Refused(M),
    /// The process receives messages of another type, or its mailbox is bounded, or its messages
    /// have headers.
    Special(M),
}

/// Pushes a message into an unbounded mailbox. If the process waits for one, wakes it with the
/// batch.
#[inline]
fn push<M: Send + 'static>(
    slot: &SlotRef,
    message: M,
    nodes: &mut SharedNodes<M>,
    batch: &mut WakeBatch<'_>,
) -> Result<(), Unsent<M>> {
    let Some(Mailbox::Unbounded(queue)) = slot.mailbox_checked::<M>() else {
        return Err(Unsent::Special(message));
    };
    match queue.push_in(nodes, message) {
        Ok(Pushed::Wake) => {
            batch.wake(slot);
        }
        Ok(Pushed::Queued) => {}
        Err(Closed(message)) => {
            count_returned(slot);
            return Err(Unsent::Refused(message));
        }
    }
    charge_send(slot);
    Ok(())
}
