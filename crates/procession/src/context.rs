//! What a process with a mailbox has: its context; and what others have of it: its address.

use std::any::type_name;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin as StdPin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_queue::{Batch, Closed};

use crate::action::Action;
use crate::body::{Event, drop_guarded};
use crate::call::{CallError, Reply, call};
use crate::shared;
use crate::slot::{Pin, push_message};
use crate::time::{Timeout, arm};
use crate::world::nanoseconds;
use crate::{Pid, TimerLimit, Waiting, here};

/// What a process with a mailbox works with: [`receive`](Self::receive), and what it is.
///
/// It belongs to its process: receiving elsewhere panics.
pub struct Context<M> {
    slot: Pin,
    /// Taken out of the mailbox, not received yet; behind `skipped`.
    taken: Batch<Event<M>>,
    /// Looked at by `receive_matching`, and left; oldest first. Boxed, since few processes have any, and each pays for the field.
    #[expect(clippy::box_collection, reason = "three words less in every process with a mailbox")]
    skipped: Option<Box<VecDeque<M>>>,
}

impl<M: Send + 'static> Context<M> {
    pub(crate) fn new(slot: Pin) -> Self {
        Self { slot, taken: Batch::new(), skipped: None }
    }

    /// The PID of this process.
    pub fn pid(&self) -> Pid {
        self.slot.pid()
    }

    /// The process that spawned this one, if one of the same scheduler did.
    pub fn parent(&self) -> Option<Pid> {
        self.slot.parent()
    }

    /// The address of this process, to be given to others.
    pub fn address(&self) -> Address<M> {
        Address::new(self.slot.clone())
    }

    /// Receives the next message, the oldest first. `None` only after this process was cancelled, once its mailbox is empty.
    ///
    /// # Cancellation
    /// A receive that is dropped before it is complete has taken no message.
    pub fn receive(&mut self) -> Receive<'_, M> {
        Receive { context: self, waits: false }
    }

    /// Receives the next message if it comes within `patience`.
    ///
    /// # Errors
    /// [`Elapsed`](crate::Elapsed) if none came.
    pub fn receive_timeout(&mut self, patience: Duration) -> Timeout<Receive<'_, M>> {
        crate::time::timeout(patience, self.receive())
    }

    /// Receives the oldest message that `wanted` accepts. The others stay, in their order, for later receives; each is looked at once.
    /// `None` only after this process was cancelled, once nothing in the mailbox is wanted.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has taken no message.
    pub async fn receive_matching(&mut self, mut wanted: impl FnMut(&M) -> bool) -> Option<M> {
        if let Some(skipped) = &mut self.skipped
            && let Some(found) = skipped.iter().position(&mut wanted)
        {
            return skipped.remove(found);
        }
        loop {
            let message = Receive { context: &mut *self, waits: false }.newest_end().await?;
            if wanted(&message) {
                return Some(message);
            }
            self.skipped.get_or_insert_default().push_back(message);
        }
    }

    /// Receives the next message if there is one.
    pub fn try_receive(&mut self) -> Option<M> {
        here::spend();
        self.take_skipped().or_else(|| self.take_next())
    }

    /// Whether this process was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.slot.state.is_cancelled()
    }

    /// Waits until this process is asked to end.
    pub async fn cancelled(&self) {
        poll_fn(|task| {
            if !here::charge(task) {
                return Poll::Pending;
            }
            if self.is_cancelled() {
                return Poll::Ready(());
            }
            self.slot.leave_foreign_waker(task.waker());
            if self.is_cancelled() {
                return Poll::Ready(());
            }
            here::note_waiting(Waiting::CANCEL);
            Poll::Pending
        })
        .await;
    }

    fn take_skipped(&mut self) -> Option<M> {
        let skipped = self.skipped.as_mut()?;
        let message = skipped.pop_front();
        if skipped.is_empty() {
            self.skipped = None;
        }
        message
    }

    /// The next message that is in the mailbox, behind what was skipped.
    #[inline]
    fn take_next(&mut self) -> Option<M> {
        loop {
            match self.taken.next() {
                Some(Event::Message(message)) => {
                    self.slot.count_received(1);
                    return Some(message);
                }
                // An async process yields no commands.
                Some(Event::System(_)) => {}
                None => {
                    // SAFETY: [typed] a context is made for a process of this message type.
                    #[expect(unsafe_code, reason = "the context is typed, its slot is not")]
                    let more = unsafe { self.slot.mailbox::<M>() }.take();
                    if more.len() == 0 {
                        return None;
                    }
                    self.slot.note_length();
                    self.taken = more;
                }
            }
        }
    }
}

impl<M> Drop for Context<M> {
    fn drop(&mut self) {
        // Each by itself: a `Drop` that panics must not keep the others from being dropped, nor meet another panic.
        let mut messages = 0;
        for event in std::mem::take(&mut self.taken) {
            messages += u64::from(matches!(event, Event::Message(_)));
            drop_guarded(event);
        }
        for message in self.skipped.take().into_iter().flat_map(|skipped| *skipped) {
            drop_guarded(message);
        }
        here::count(self.slot.shared(), |stats| &stats.discarded, messages);
    }
}

impl<M> fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.slot).finish()
    }
}

/// The future of [`Context::receive`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Receive<'a, M: Send + 'static> {
    context: &'a mut Context<M>,
    /// Whether the mailbox may be armed on behalf of this future.
    waits: bool,
}

impl<M: Send + 'static> Receive<'_, M> {
    /// As the future, but passes over what was skipped.
    async fn newest_end(mut self) -> Option<M> {
        poll_fn(|task| self.poll_mailbox(task)).await
    }

    #[inline]
    fn poll_mailbox(&mut self, task: &mut TaskContext<'_>) -> Poll<Option<M>> {
        if !here::charge(task) {
            return Poll::Pending;
        }
        loop {
            if let Some(message) = self.context.take_next() {
                self.waits = false;
                return Poll::Ready(Some(message));
            }
            let slot = &self.context.slot;
            assert!(here::is_current(slot), "a context receives in its own process only");
            if slot.state.is_cancelled() {
                return Poll::Ready(None);
            }
            // SAFETY: [typed] a context is made for a process of this message type.
            #[expect(unsafe_code, reason = "the context is typed, its slot is not")]
            if unsafe { slot.mailbox::<M>() }.arm() {
                self.waits = true;
                slot.note_waiting(Waiting::MESSAGE);
                slot.leave_foreign_waker(task.waker());
                return Poll::Pending;
            }
        }
    }
}

impl<M: Send + 'static> Future for Receive<'_, M> {
    type Output = Option<M>;

    fn poll(self: StdPin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<M>> {
        let receive = self.get_mut();
        if let Some(message) = receive.context.take_skipped() {
            return Poll::Ready(Some(message));
        }
        receive.poll_mailbox(task)
    }
}

impl<M: Send + 'static> Drop for Receive<'_, M> {
    fn drop(&mut self) {
        if self.waits {
            // The process waits for messages no longer, so none may wake it.
            // SAFETY: [typed] a context is made for a process of this message type.
            #[expect(unsafe_code, reason = "the context is typed, its slot is not")]
            unsafe { self.context.slot.mailbox::<M>() }.disarm();
            self.context.slot.forget_waiting(Waiting::MESSAGE);
        }
    }
}

/// Where to send messages to a process. Clones are of the same process. It does not keep the process alive.
pub struct Address<M> {
    /// `None` for a process that was refused.
    slot: Option<Pin>,
    message: PhantomData<fn(M)>,
}

impl<M> Address<M> {
    /// The PID of the process; that of nobody, `p0.0.1`, if it was refused ([`Exit::Refused`](crate::Exit::Refused)).
    pub fn pid(&self) -> Pid {
        self.slot.as_ref().map_or_else(|| Pid::local(0, 0, 1), |slot| slot.pid())
    }
}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn new(slot: Pin) -> Self {
        Self { slot: Some(slot), message: PhantomData }
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
    /// Never blocks. The mailbox is unbounded; see [`Snapshot`](crate::Snapshot) for its length.
    ///
    /// # Errors
    /// [`SendError`] gives the message back if the process has ended. A message that was taken by the mailbox is discarded if the process
    /// ends before it receives it.
    #[inline]
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        let Some(slot) = &self.slot else {
            return Err(SendError { message, pid: self.pid(), kind: SendErrorKind::Ended });
        };
        // SAFETY: [typed] an address is made for a process of this message type.
        #[expect(unsafe_code, reason = "the address is typed, its slot is not")]
        let mailbox = unsafe { slot.mailbox::<M>() };
        match push_message(slot, mailbox, message) {
            Ok(()) => {
                here::charge_send(slot);
                Ok(())
            }
            Err(Closed(message)) => Err(SendError { message, pid: slot.pid(), kind: SendErrorKind::Ended }),
        }
    }

    /// Sends the message after `delay`, which is counted from now; nothing happens if the process has ended by then. The timer is one of
    /// the scheduler's, and is not cancelled with the calling process.
    ///
    /// # Errors
    /// [`TimerLimit`] gives the message back if the scheduler has reached its limit of timers.
    pub fn send_after(&self, delay: Duration, message: M) -> Result<(), TimerLimit<M>> {
        let Some(slot) = &self.slot else {
            return Ok(());
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
        let action = Action::Call(Arc::new(move || {
            if let Some(message) = take(&fired) {
                // Ignored: nobody waits to be told that the process has ended.
                drop(send(pid, message));
            }
        }));
        match arm(shared, when, None, action) {
            Ok(_) => Ok(()),
            Err(_) => Err(TimerLimit(take(&message).expect("the timer was refused, so it has not fired"))),
        }
    }

    /// Sends a message with a [`Reply`] in it, and waits for the reply, at most for `patience`.
    ///
    /// # Errors
    /// [`CallError`]: the process has ended, it ended or dropped the reply without using it, or the time is over.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has sent the message; the reply is discarded.
    pub async fn call<T: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<T>) -> M,
        patience: Duration,
    ) -> Result<T, CallError> {
        call(patience, |reply| self.send(message(reply)).is_ok()).await
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
pub struct SendError<M> {
    /// The refused message.
    pub message: M,
    pid: Pid,
    kind: SendErrorKind,
}

#[derive(Debug)]
enum SendErrorKind {
    Ended,
    WrongType { sent: &'static str, wanted: &'static str },
}

impl<M> SendError<M> {
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
        f.debug_struct("SendError").field("pid", &self.pid).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SendErrorKind::Ended => write!(f, "cannot send to {}: the process has ended", self.pid),
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
    let Some(slot) = shared::find(pid) else {
        return Err(SendError { message, pid, kind: SendErrorKind::Ended });
    };
    let Some(mailbox) = slot.mailbox_checked::<M>() else {
        let wanted = (slot.kind().message_name)();
        return Err(SendError { message, pid, kind: SendErrorKind::WrongType { sent: type_name::<M>(), wanted } });
    };
    match push_message(&slot, mailbox, message) {
        Ok(()) => {
            here::charge_send(&slot);
            Ok(())
        }
        Err(Closed(message)) => Err(SendError { message, pid, kind: SendErrorKind::Ended }),
    }
}
