//! Sends clones of a message to many processes.
//!
//! The receivers are woken in batches of [`TOGETHER`] processes (`process/wake.rs`), within which
//! no code of the user may run. So the messages of a batch are cloned before it, and those that are
//! refused are dropped after it. A receiver with a bounded mailbox ends the batch: a full one may
//! call the user's code.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;

use procession_queue::{Closed, Pushed, SharedNodes};

use crate::Pid;
use crate::mailbox::address::{count_returned, send};
use crate::process::slot::{Mailbox, Pin};
use crate::process::unwind::drop_each;
use crate::process::wake::WakeBatch;
use crate::scheduler::budget::charge_send;
use crate::scheduler::current;
use crate::util::cost::{self, Access, Operation, SharedLine};

/// The number of messages that are cloned, sent and announced together.
const TOGETHER: usize = 64;

/// The number of receivers that the processor fetches while it serves the one before them.
const AHEAD: usize = 8;

/// Sends a clone of a message to each receiver, in their order, and the message itself to the last.
/// Returns the number of receivers that accepted it.
///
/// # Panics
/// Panics if the `Clone` of the message panics. The receivers before have it then.
pub(crate) fn send_clones<M: Clone + Send + 'static>(receivers: &[(Pid, ())], message: M) -> usize {
    let Some((last, others)) = receivers.split_last() else { return 0 };
    let mut accepted = 0;
    let mut clones = Vec::with_capacity(receivers.len().min(TOGETHER));
    let mut nodes = SharedNodes::for_messages(receivers.len());
    for part in others.chunks(TOGETHER) {
        let cloned = catch_unwind(AssertUnwindSafe(|| {
            part.iter().for_each(|_| clones.push(message.clone()));
        }));
        accepted += deliver(part, &mut clones, &mut nodes);
        if let Err(panic) = cloned {
            resume_unwind(panic);
        }
    }
    clones.push(message);
    accepted + deliver(slice::from_ref(last), &mut clones, &mut nodes)
}

/// Sends as many messages as there are, the first to the first receiver, and leaves none.
fn deliver<M: Send + 'static>(
    receivers: &[(Pid, ())],
    messages: &mut Vec<M>,
    nodes: &mut SharedNodes<M>,
) -> usize {
    let Some(shared) = current::here() else {
        let sent = receivers.iter().zip(messages.drain(..));
        let mut refused = Vec::new();
        refused.extend(sent.filter_map(|(&(pid, ()), message)| send(pid, message).err()));
        let accepted = receivers.len() - refused.len();
        drop_each(refused);
        return accepted;
    };
    let is_near = |pid: Pid| pid.node() == 0 && pid.scheduler() == shared.id();
    let fetch = |&(pid, ()): &(Pid, ())| {
        if is_near(pid) {
            shared.table().prefetch(pid.slot());
        }
    };
    receivers.iter().take(AHEAD).for_each(fetch);
    let (mut accepted, mut refused) = (0, Vec::new());
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
                    accepted += 1;
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
            Ok(()) => accepted += 1,
            Err(error) => refused.push(error.into_inner()),
        }
    }
    drop(batch);
    drop_each(refused);
    accepted
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
    slot: &Pin,
    message: M,
    nodes: &mut SharedNodes<M>,
    batch: &mut WakeBatch<'_>,
) -> Result<(), Unsent<M>> {
    let Some(Mailbox::Unbounded(queue)) = slot.mailbox_checked::<M>() else {
        return Err(Unsent::Special(message));
    };
    cost::work(Operation::Send);
    cost::touch(SharedLine::Process(slot.index()), Access::Exchange);
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
