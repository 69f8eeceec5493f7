//! Messages to the processes of other nodes.

use std::task::{Context as TaskContext, Poll, ready};

use crate::Pid;
use crate::mailbox::parcel::{Parcel, Relay, RelayCause, RelayError, RoomFuture};
use crate::mailbox::send_error::{SendError, SendErrorKind};
use crate::process::typed::FarProcess;
use crate::scheduler::current;
use crate::util::exclusive::Exclusive;

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
