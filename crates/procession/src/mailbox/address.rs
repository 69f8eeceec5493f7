//! Addresses: how messages get to a process, and the errors of a refused message.

use std::any::type_name;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin as StdPin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use crate::mailbox::bounded::{Offered, Standing, Stood, WhenFull};
use crate::mailbox::dead_letter;
use crate::mailbox::dead_letter::DeadCause;
use crate::mailbox::deliver::push_message;
use crate::mailbox::parcel::Parcel;
use crate::process::slot::{BoundedMailbox, Mailbox, Pin, Refused};
use crate::process::unwind::drop_guarded;
use crate::scheduler::{block_on, current};
use crate::sys::nanoseconds;
use crate::time::action::Action;
use crate::time::arm;
use crate::variance::Typed;
use crate::{Pid, Waiting};

/// Where to send messages to a process. Clones are of the same process. It does not keep the
/// process alive.
pub struct Address<M> {
    /// `None` for a process that was refused.
    slot: Option<Pin>,
    message: Typed<M>,
}

impl<M> Address<M> {
    /// The PID of the process; that of nobody, `p0.0.1`, if it was refused
    /// ([`Exit::Refused`](crate::Exit::Refused)).
    pub fn pid(&self) -> Pid {
        self.slot.as_ref().map_or(Pid::NOBODY, |slot| slot.pid())
    }
}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn new(slot: Pin) -> Self {
        Self { slot: Some(slot), message: PhantomData }
    }

    /// The address of a process, if it receives messages of this type.
    pub(crate) fn of(slot: Pin) -> Option<Self> {
        slot.mailbox_checked::<M>()?;
        Some(Self::new(slot))
    }

    pub(crate) fn nobody() -> Self {
        Self { slot: None, message: PhantomData }
    }

    /// Whether the process has not ended, as far as this thread can see.
    pub fn is_alive(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| !slot.state.see().is_complete())
    }

    /// Puts a message into the mailbox. Messages of one sender arrive in their order.
    ///
    /// Never blocks. A mailbox is unbounded unless it was [bounded](crate::SpawnOptions::mailbox)
    /// at the start; what a bounded one does when it is full is its [policy](WhenFull).
    ///
    /// # Errors
    /// [`SendError`] gives the message back if the process has ended, or its mailbox is full. A
    /// message that was taken by the mailbox is discarded if the process ends before it receives
    /// it.
    #[inline]
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        let Some(slot) = &self.slot else {
            return Err(SendError::ended(message, self.pid()));
        };
        // SAFETY: [typed] an address is made for a process of this message type.
        #[expect(unsafe_code, reason = "the address is typed, its slot is not")]
        let mailbox = unsafe { slot.mailbox::<M>() };
        finish_send(slot, push_message(slot, mailbox, message))
    }

    /// As [`send`](Self::send), but whatever the policy of a full mailbox, the message comes back:
    /// nothing is dropped, and nobody ended.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn try_send(&self, message: M) -> Result<(), SendError<M>> {
        if let Some((slot, ring)) = self.bounded() {
            return finish_send(
                slot,
                crate::mailbox::deliver::finish_offer(slot, ring.offer_politely(message)),
            );
        }
        self.send(message)
    }

    /// Puts a message into the mailbox; if that is full and its policy is [`WhenFull::Wait`], waits
    /// for room, first come, first served. With any other policy it is as [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError`] gives the message back if the process has ended or ends meanwhile; or if the
    /// process waits for room in its own full mailbox, which it would do for ever.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it takes the message back, unless the mailbox has just taken
    /// it.
    pub fn send_wait(&self, message: M) -> SendWait<'_, M> {
        SendWait { address: self, message: Some(message), number: None }
    }

    /// As [`send_wait`](Self::send_wait), for plain threads.
    ///
    /// # Errors
    /// As for [`send_wait`](Self::send_wait).
    ///
    /// # Blocking
    /// Blocks the thread while the mailbox is full; in a process, await instead.
    pub fn send_blocking(&self, message: M) -> Result<(), SendError<M>> {
        match self.slot.as_ref().map(|slot| slot.shared().arc()) {
            Some(shared) => block_on::block_on(&shared, self.send_wait(message)),
            None => self.send(message),
        }
    }

    /// The slot and mailbox, if that is bounded.
    fn bounded(&self) -> Option<(&Pin, &BoundedMailbox<M>)> {
        let slot = self.slot.as_ref()?;
        // SAFETY: [typed] an address is made for a process of this message type.
        #[expect(unsafe_code, reason = "the address is typed, its slot is not")]
        match unsafe { slot.mailbox::<M>() } {
            Mailbox::Unbounded(_) => None,
            Mailbox::Bounded(ring) => Some((slot, ring)),
        }
    }

    /// Sends the message after `delay`, which is counted from now. If it is refused then, it is a
    /// [dead letter](crate::DeadLetter). The timer is one of the scheduler's, and is not cancelled
    /// with the calling process.
    ///
    /// # Errors
    /// [`SendError`] gives the message back if the process has ended, or the scheduler has reached
    /// its limit of timers.
    pub fn send_after(&self, delay: Duration, message: M) -> Result<(), SendError<M>> {
        let Some(slot) = self.slot.as_ref().filter(|slot| !slot.state.see().is_complete()) else {
            return Err(SendError::ended(message, self.pid()));
        };
        let shared = slot.shared();
        let when = shared.world.now().saturating_add(nanoseconds(delay));
        // By PID: a pin in a timer would keep the scheduler that keeps the timer.
        let pid = slot.pid();
        let message = Arc::new(procession_sync::Mutex::new(Some(message)));
        let fired = Arc::clone(&message);
        let take = |cell: &procession_sync::Mutex<Option<M>>| {
            cell.lock().expect("nothing that can panic runs under this lock").take()
        };
        let me = shared.weak();
        let action = Action::Call(Arc::new(move || {
            if let Some(message) = take(&fired)
                && let Err(error) = send(pid, message)
                && let Some(shared) = me.upgrade()
            {
                dead_letter::bury(shared.dead_letters(), pid, DeadCause::Late, error.message);
            }
        }));
        match arm(shared, when, None, action) {
            Ok(_) => Ok(()),
            Err(_) => {
                let message = take(&message).expect("the timer was refused, so it has not fired");
                Err(SendError { message, pid, kind: SendErrorKind::TimerLimit })
            }
        }
    }
}

/// Charges and counts a message that was taken.
#[inline]
fn finish_send<M>(slot: &Pin, pushed: Result<(), Refused<M>>) -> Result<(), SendError<M>> {
    match pushed {
        Ok(()) => {
            crate::scheduler::budget::charge_send(slot);
            Ok(())
        }
        Err(Refused::Ended(message)) => Err(SendError::ended(message, slot.pid())),
        Err(Refused::Full(message)) => {
            Err(SendError { message, pid: slot.pid(), kind: SendErrorKind::Full })
        }
    }
}

/// The future of [`Address::send_wait`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct SendWait<'a, M: Send + 'static> {
    address: &'a Address<M>,
    /// Until it has been offered.
    message: Option<M>,
    /// While it waits.
    number: Option<u64>,
}

impl<M: Send + 'static> Unpin for SendWait<'_, M> {}

impl<M: Send + 'static> SendWait<'_, M> {
    /// Whether the message waits for room.
    pub(crate) fn stands(&self) -> bool {
        self.number.is_some()
    }
}

impl<M: Send + 'static> Future for SendWait<'_, M> {
    type Output = Result<(), SendError<M>>;

    /// # Panics
    /// If it is polled again after it was complete.
    fn poll(self: StdPin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let wait = self.get_mut();
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let Some((slot, ring)) =
            wait.address.bounded().filter(|(_, ring)| ring.when_full() == WhenFull::Wait)
        else {
            let message = wait.message.take().expect("a future is not polled after it is complete");
            return Poll::Ready(wait.address.send(message));
        };
        // Cloned and dropped outside the mailbox's lock: both are the user's code.
        let waker = task.waker().clone();
        if let Some(number) = wait.number {
            let (standing, old) = ring.standing(number, waker);
            drop_guarded(old);
            if !matches!(standing, Standing::Waits) {
                wait.number = None;
            }
            return match standing {
                Standing::Waits => {
                    current::note_waiting(Waiting::ROOM);
                    Poll::Pending
                }
                Standing::Taken => Poll::Ready(Ok(())),
                Standing::Closed(message) => {
                    Poll::Ready(Err(SendError::ended(message, slot.pid())))
                }
            };
        }
        let message = wait.message.take().expect("a future is not polled after it is complete");
        if current::is_current(slot) {
            let sent = wait.address.try_send(message);
            return Poll::Ready(
                sent.map_err(|error| SendError { kind: SendErrorKind::OwnFull, ..error }),
            );
        }
        match ring.stand(message, waker) {
            Stood::Queued { wake } => Poll::Ready(finish_send(
                slot,
                crate::mailbox::deliver::finish_offer(slot, Offered::Queued { wake }),
            )),
            Stood::Closed(message) => Poll::Ready(Err(SendError::ended(message, slot.pid()))),
            Stood::Waits(number) => {
                wait.number = Some(number);
                current::note_waiting(Waiting::ROOM);
                Poll::Pending
            }
        }
    }
}

impl<M: Send + 'static> Drop for SendWait<'_, M> {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && let Some((_, ring)) = self.address.bounded()
        {
            let (message, waker) = ring.withdraw(number);
            drop_guarded(message);
            drop_guarded(waker);
        }
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { slot: self.slot.clone(), message: PhantomData }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.slot).finish()
    }
}

/// The error of a send; it holds the refused message.
#[derive(Clone, PartialEq, Eq)]
pub struct SendError<M> {
    /// The refused message.
    pub message: M,
    pid: Pid,
    kind: SendErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendErrorKind {
    Ended,
    Full,
    /// A process waits for room in its own mailbox.
    OwnFull,
    TimerLimit,
    /// The relay did not take it.
    NotRelayed,
    WrongType {
        sent: &'static str,
        wanted: &'static str,
    },
}

impl<M> SendError<M> {
    pub(crate) fn ended(message: M, pid: Pid) -> Self {
        Self { message, pid, kind: SendErrorKind::Ended }
    }

    /// The process that it was sent to.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether the mailbox is full.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, SendErrorKind::Full | SendErrorKind::OwnFull)
    }

    /// Whether the process is of another scheduler, and this one's [`Relay`](crate::Relay) did not
    /// take the message; or of another node, and there is no relay.
    pub fn is_not_relayed(&self) -> bool {
        matches!(self.kind, SendErrorKind::NotRelayed)
    }

    /// Whether the scheduler has reached its limit of timers.
    pub fn is_timer_limit(&self) -> bool {
        matches!(self.kind, SendErrorKind::TimerLimit)
    }

    /// Whether the process has ended, or never was.
    pub fn is_ended(&self) -> bool {
        matches!(self.kind, SendErrorKind::Ended)
    }

    /// Whether the process receives messages of another type.
    pub fn is_wrong_type(&self) -> bool {
        matches!(self.kind, SendErrorKind::WrongType { .. })
    }
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError")
            .field("pid", &self.pid)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SendErrorKind::Ended => write!(f, "cannot send to {}: the process has ended", self.pid),
            SendErrorKind::Full => write!(f, "cannot send to {}: its mailbox is full", self.pid),
            SendErrorKind::OwnFull => {
                write!(
                    f,
                    "cannot wait for room in the mailbox of {}: it is the process's own, and full",
                    self.pid
                )
            }
            SendErrorKind::NotRelayed => {
                write!(f, "cannot send to {}: the relay did not take the message", self.pid)
            }
            SendErrorKind::TimerLimit => {
                write!(
                    f,
                    "cannot send to {} later: the scheduler has reached its limit of timers",
                    self.pid
                )
            }
            SendErrorKind::WrongType { sent, wanted } => {
                write!(
                    f,
                    "cannot send to {}: the message is of type {sent}, but the process receives {wanted}",
                    self.pid
                )
            }
        }
    }
}

impl<M> Error for SendError<M> {}

/// Sends a message to the process of a PID. Its type is checked against what the process receives.
///
/// # Errors
/// [`SendError`] gives the message back if the process has ended or receives another type.
///
/// ```
/// procession::run(async {
///     let mut child = procession::start(|mut cx: procession::Context<u32>| async move { cx.receive().await });
///     let error = procession::send(child.pid(), "text").unwrap_err();
///     assert!(error.is_wrong_type());
///     procession::send(child.pid(), 7_u32)?;
///     assert_eq!((&mut child).await, Ok(Some(7)));
///     assert!(procession::send(child.pid(), 8_u32).unwrap_err().is_ended());
///     Ok::<(), procession::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::SendError<u32>>(())
/// ```
pub fn send<M: Send + 'static>(pid: Pid, message: M) -> Result<(), SendError<M>> {
    if let Some(relay) = current::relay_to(pid) {
        return relay.relay(Parcel::new(pid, message)).map_err(|parcel| {
            let message = parcel.message.downcast().expect("a relay gives back what it was given");
            SendError { message: *message, pid, kind: SendErrorKind::NotRelayed }
        });
    }
    if pid.node() != 0 {
        return Err(SendError { message, pid, kind: SendErrorKind::NotRelayed });
    }
    let Some(slot) = crate::scheduler::reach::find(pid) else {
        return Err(SendError::ended(message, pid));
    };
    let Some(mailbox) = slot.mailbox_checked::<M>() else {
        let wanted = (slot.kind().message_name)();
        return Err(SendError {
            message,
            pid,
            kind: SendErrorKind::WrongType { sent: type_name::<M>(), wanted },
        });
    };
    finish_send(&slot, push_message(&slot, mailbox, message))
}
