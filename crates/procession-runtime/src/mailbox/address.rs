//! Addresses, through which messages are sent to a process.

mod blocking;

use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use procession_protocols::mailbox::bounded::{FullPolicy, Offered, Standing, Stood, mutation};

use crate::Pid;
use crate::mailbox::deliver::{
    FarWait, deliver_made, push_message, push_urgent, relayed, tell_full,
};
use crate::mailbox::parcel::RelayCause;
use crate::mailbox::request;
use crate::mailbox::send_error::{SendCause, SendError, SendErrorKind};
use crate::process::slot::{BoundedMailbox, Mailbox, Refused, Slot, SlotRef};
use crate::process::typed::{FarProcess, Route, TypedPin};
use crate::process::unwind::drop_guarded;
use crate::process::wait_edge::WaitProof;
use crate::process::wait_reason::Waiting;
use crate::process::waker;
use crate::scheduler::reach::{find, relay_to};
use crate::scheduler::{current, nodes};

/// The address of a process that receives messages of type `M`.
///
/// Clones are addresses of the same process. An address does not keep its process alive, so a send
/// can fail. Addresses are compared, ordered and hashed by their PIDs.
///
/// The process may run on another node, if the address was made by a
/// [`RemoteNode`](crate::relay::RemoteNode). Such an address is used like any other, but its
/// messages go to a relay, which may refuse them.
///
/// ```
/// use std::collections::HashMap;
/// use procession::{Address, Context};
///
/// procession::run(async {
///     let echo = procession::start(|mut cx: Context<u32>| async move { cx.recv().await });
///     let mut names: HashMap<Address<u32>, &str> = HashMap::new();
///     names.insert(echo.address().clone(), "echo");
///
///     echo.send(7)?;
///     assert_eq!(names[echo.address()], "echo");
///     assert_eq!(echo.await, Ok(Some(7)));
///     Ok::<(), procession::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::SendError<u32>>(())
/// ```
pub struct Address<M> {
    route: Route<M>,
}

impl<M> crate::Outcome for Address<M> {}

impl<M> PartialEq for Address<M> {
    fn eq(&self, other: &Self) -> bool {
        self.seen_pid() == other.seen_pid()
    }
}

impl<M> Eq for Address<M> {}

impl<M> PartialOrd for Address<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Address<M> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.seen_pid().cmp(&other.seen_pid())
    }
}

impl<M> Hash for Address<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen_pid().hash(state);
    }
}

impl<M> Address<M> {
    /// Returns the PID of the process, or [`Pid::NOBODY`] if it was refused
    /// ([`Exit::Refused`](crate::Exit::Refused)).
    #[inline]
    pub fn pid(&self) -> Pid {
        match self.route.pin() {
            Some(slot) => slot.pid(),
            None => self.far_process().map_or(Pid::NOBODY, |process| process.pid),
        }
    }

    /// Returns the PID as `Slot::seen_pid` does.
    #[inline]
    pub(crate) fn seen_pid(&self) -> Pid {
        self.route.pin().map_or_else(|| self.pid(), |slot| slot.seen_pid())
    }

    /// Returns the process, if it is one of another node.
    pub(crate) fn far_process(&self) -> Option<&FarProcess> {
        self.route.far_process()
    }
}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn new(slot: TypedPin<M>) -> Self {
        Self { route: Route::new(slot) }
    }

    pub(crate) fn far(process: Arc<FarProcess>) -> Self {
        Self { route: Route::far(process) }
    }

    /// Returns the address of the process with a PID. The message type is checked.
    ///
    /// The process belongs to any scheduler of this program. Messages that are sent through the
    /// address do not pass the [`Relay`](crate::relay::Relay), because a relay carries only
    /// messages that are sent by PID.
    ///
    /// # Errors
    /// [`SendCause`]: the process has ended, receives messages of another type, or belongs to
    /// another node.
    ///
    /// ```
    /// use procession::{Address, Context};
    ///
    /// procession::run(async {
    ///     let child = procession::start(|mut cx: Context<u32>| async move { cx.recv().await });
    ///     let address: Address<u32> = Address::of(child.pid())?;
    ///     let wrong = Address::<String>::of(child.pid()).unwrap_err();
    ///     assert!(wrong.is_wrong_type());
    ///     address.send(7).map_err(procession::mailbox::SendCause::from)?;
    ///     assert_eq!(child.await, Ok(Some(7)));
    ///     assert!(Address::<u32>::of(address.pid()).unwrap_err().is_ended());
    ///     Ok::<(), procession::mailbox::SendCause>(())
    /// })?;
    /// # Ok::<(), procession::mailbox::SendCause>(())
    /// ```
    pub fn of(pid: Pid) -> Result<Self, SendCause> {
        if pid.node() != 0 {
            return Err(SendCause::new(pid, SendErrorKind::OtherNode));
        }
        let slot = find(pid).ok_or_else(|| SendCause::new(pid, SendErrorKind::Ended))?;
        Self::of_pin(slot).map_err(|slot| SendCause::wrong_type::<M>(&slot))
    }

    /// Returns the address of a process, or its pin if it receives messages of another type.
    pub(crate) fn of_pin(slot: SlotRef) -> Result<Self, SlotRef> {
        TypedPin::of(slot).map(Self::new)
    }

    /// Returns the pin of the process, unless it was refused or is of another node.
    pub(crate) fn into_pin(self) -> Option<SlotRef> {
        self.route.into_pin().map(TypedPin::into_pin)
    }

    pub(crate) fn nobody() -> Self {
        Self { route: Route::nobody() }
    }

    /// Returns `true` if the process has not ended, as far as this thread can see. For a process of
    /// another node, this does not notice the end of the process: use a
    /// [monitor](crate::Context::monitor) of its [PID](Self::pid) instead.
    pub fn is_alive(&self) -> bool {
        match self.route.pin() {
            Some(slot) => !slot.state.see().is_complete(),
            None => self.far_process().is_some(),
        }
    }

    /// Puts a message into the mailbox. Messages of one sender arrive in the order in which they
    /// were sent.
    ///
    /// It never blocks. A mailbox is unbounded unless
    /// [`SpawnOptions::mailbox`](crate::SpawnOptions::mailbox) bounds it. The
    /// [policy](crate::mailbox::WhenFull) of a bounded mailbox decides what happens when it is
    /// full. For example, [`WhenFull::DropOldest`](crate::mailbox::WhenFull::DropOldest) makes room
    /// for the new message.
    ///
    /// # Errors
    /// [`SendError`] returns the message if the process has ended, or its mailbox is full. If the
    /// process ends before it receives an accepted message, the message is discarded. For a process
    /// of another node, it also returns the message if the relay refuses it:
    /// [`SendError::relay_cause`] returns the reason.
    #[inline]
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        let Some(slot) = self.route.pin() else {
            return self.send_far(message);
        };
        finish_send(slot, push_message(slot, slot.mailbox(), message))
    }

    /// Sends a message to a process without a slot.
    #[cold]
    fn send_far(&self, message: M) -> Result<(), SendError<M>> {
        match self.far_process() {
            Some(process) => process.send(message),
            None => Err(SendError::ended(message, Pid::NOBODY)),
        }
    }

    /// Sends a message, or returns it if the mailbox is full, whatever the policy of the mailbox.
    /// No message is dropped, and no process ends. A message to a process of another node is sent
    /// like with [`send`](Self::send), because the policy is applied on that node.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn try_send(&self, message: M) -> Result<(), SendError<M>> {
        if let Some((slot, ring)) = self.bounded() {
            return finish_send(
                slot,
                crate::mailbox::deliver::finish_offer(
                    slot,
                    ring.offer_politely(message, request::header_for(slot)),
                ),
            );
        }
        self.send(message)
    }

    /// Puts an urgent message into the mailbox of a process that takes such messages
    /// ([`SpawnOptions::urgent`](crate::SpawnOptions::urgent)). The process receives it before all
    /// ordinary messages, and after the urgent messages before it. The order among the ordinary
    /// messages is kept.
    ///
    /// A bounded mailbox has one place more for urgent messages than for ordinary ones. If that
    /// place is occupied as well, the message is refused, whatever the policy of the mailbox: no
    /// message is dropped for it, and no process ends.
    ///
    /// ```
    /// use procession::mailbox::Urgent;
    /// use procession::{Context, SpawnOptions};
    ///
    /// procession::run(async {
    ///     let options = SpawnOptions::new().urgent(Urgent::messages());
    ///     let process = options.start(|mut cx: Context<&str>| async move {
    ///         [cx.recv().await, cx.recv().await, cx.recv().await]
    ///     });
    ///     process.send("row 1")?;
    ///     process.send_urgent("pause")?;
    ///     process.send_urgent("stop")?;
    ///     assert_eq!(process.await, Ok([Some("pause"), Some("stop"), Some("row 1")]));
    ///
    ///     let other = procession::start(|mut cx: Context<&str>| async move { cx.recv().await });
    ///     let error = other.send_urgent("stop").unwrap_err();
    ///     assert!(error.is_not_urgent());
    ///     other.send(error.into_inner())?;
    ///     Ok::<(), procession::SendError<&str>>(())
    /// })?;
    /// # Ok::<(), procession::SendError<&str>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError`] returns the message as for [`send`](Self::send), and if the process takes no
    /// urgent messages or is of another node ([`SendError::is_not_urgent`]).
    pub fn send_urgent(&self, message: M) -> Result<(), SendError<M>> {
        match self.route.pin() {
            Some(slot) => push_urgent_to(slot, slot.mailbox(), message),
            None if self.far_process().is_some() => {
                Err(SendError::new(message, self.pid(), SendErrorKind::NotUrgent))
            }
            None => Err(SendError::ended(message, Pid::NOBODY)),
        }
    }

    /// Puts a message into the mailbox. If the mailbox is full and its policy is
    /// [`WhenFull::Wait`](crate::mailbox::WhenFull::Wait), waits for room, first come, first
    /// served. With any other policy it acts like [`send`](Self::send). For a process of another
    /// node, it waits for room in the queue of the connection, if the relay reports when there is
    /// room.
    ///
    /// # Errors
    /// [`SendError`] returns the message if the process has ended, or ends while the caller waits.
    /// It also returns the message if a process would wait for room in its own full mailbox,
    /// because that wait would never end.
    ///
    /// # Cancellation
    /// If the future is dropped, the message is not sent, unless the mailbox had accepted it
    /// already.
    ///
    /// ```
    /// use procession::mailbox::WhenFull;
    /// use procession::{Context, SpawnOptions};
    ///
    /// procession::run(async {
    ///     let options = SpawnOptions::new().mailbox(1, WhenFull::Wait);
    ///     let counter = options.start(|mut cx: Context<()>| async move {
    ///         let mut count = 0;
    ///         while cx.recv().await.is_some() {
    ///             count += 1;
    ///         }
    ///         count
    ///     });
    ///     for _ in 0..100 {
    ///         counter.send_wait(()).await?; // Never more than one message waits.
    ///     }
    ///     counter.cancel();
    ///     assert_eq!(counter.await, Ok(100));
    ///     Ok::<(), procession::SendError<()>>(())
    /// })?;
    /// # Ok::<(), procession::SendError<()>>(())
    /// ```
    #[track_caller]
    pub fn send_wait(&self, message: M) -> SendWait<'_, M> {
        let place = Location::caller();
        SendWait { address: self, message: Some(message), stand: Stand::None, place }
    }

    /// Sends the message that `make` makes. If the process does not accept one, `make` is not
    /// called. A process of another node accepts none: its relay decides about a message that is
    /// made. If `make` makes none, the message is refused like one without room.
    pub(crate) fn send_made(&self, make: impl FnOnce() -> Option<M>) -> Result<(), SendCause> {
        let refused = |kind| Err(SendCause::new(self.pid(), kind));
        let Some(slot) = self.route.pin() else {
            let is_far = self.far_process().is_some();
            return refused(if is_far { SendErrorKind::OtherNode } else { SendErrorKind::Ended });
        };
        match deliver_made(slot, slot.mailbox(), make) {
            Ok(()) => {
                crate::scheduler::budget::charge_send(slot);
                Ok(())
            }
            Err(Refused::Ended(())) => {
                count_returned(slot);
                refused(SendErrorKind::Ended)
            }
            Err(Refused::Full(())) => {
                count_returned(slot);
                refused(SendErrorKind::Full)
            }
        }
    }

    /// Returns the slot of the process, unless it was refused or is of another node.
    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.route.pin().map(|slot| &***slot)
    }

    /// Returns the slot and the mailbox, if that is bounded.
    fn bounded(&self) -> Option<(&SlotRef, &BoundedMailbox<M>)> {
        let slot = self.route.pin()?;
        match slot.mailbox() {
            Mailbox::Unbounded(_) | Mailbox::Headed(_) => None,
            Mailbox::Bounded(ring) => Some((slot, ring)),
        }
    }
}

/// Charges the budget and counts the message, if it was accepted.
#[inline]
fn finish_send<M>(slot: &SlotRef, pushed: Result<(), Refused<M>>) -> Result<(), SendError<M>> {
    match pushed {
        Ok(()) => {
            crate::scheduler::budget::charge_send(slot);
            Ok(())
        }
        Err(Refused::Ended(message)) => Err(ended(slot, message)),
        Err(Refused::Full(message)) => {
            count_returned(slot);
            Err(SendError::new(message, slot.pid(), SendErrorKind::Full))
        }
    }
}

/// Sends an urgent message.
fn push_urgent_to<M: Send + 'static>(
    slot: &SlotRef,
    mailbox: Mailbox<'_, M>,
    message: M,
) -> Result<(), SendError<M>> {
    match mailbox {
        Mailbox::Bounded(ring) if ring.takes_urgent() => {
            finish_send(slot, push_urgent(slot, ring, message))
        }
        _ if slot.state.see().is_complete() => Err(ended(slot, message)),
        _ => {
            count_returned(slot);
            Err(SendError::new(message, slot.pid(), SendErrorKind::NotUrgent))
        }
    }
}

/// Returns the error for a message to a process that has ended, and counts the message.
fn ended<M>(slot: &SlotRef, message: M) -> SendError<M> {
    count_returned(slot);
    SendError::ended(message, slot.pid())
}

/// Counts a message that goes back to its sender.
#[cold]
pub(crate) fn count_returned(slot: &Slot) {
    current::count(slot.shared(), |stats| &stats.returned, 1);
}

/// The future of [`Address::send_wait`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct SendWait<'a, M: Send + 'static> {
    address: &'a Address<M>,
    /// `None` once the message was offered.
    message: Option<M>,
    stand: Stand,
    /// The place of the call.
    place: &'static Location<'static>,
}

/// The place where a message waits for room.
#[derive(Debug)]
enum Stand {
    None,
    /// In the queue of the mailbox, with this number.
    Queue(u64),
    /// At the relay of another node.
    Far(FarWait),
}

impl<M: Send + 'static> Unpin for SendWait<'_, M> {}

impl<M: Send + 'static> SendWait<'_, M> {
    fn note_waiting(&self, slot: &SlotRef, task: &TaskContext<'_>) {
        let target = current::target_of(slot);
        let lender = waker::lender(task.waker());
        current::note_waiting_for(lender, Waiting::ROOM, target, WaitProof::Sole);
        current::note_place(self.place);
    }

    /// Returns `true` if the message waits for room.
    pub(crate) fn stands(&self) -> bool {
        !matches!(self.stand, Stand::None)
    }

    /// Returns `true` if the message is in the queue of the mailbox.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.stand, Stand::Queue(_))
    }

    /// Returns the result of a message that is in the queue of the mailbox and is no longer waited
    /// for.
    pub(crate) fn result(&mut self) -> Poll<Result<(), SendError<M>>> {
        match (&self.stand, self.address.bounded()) {
            (&Stand::Queue(number), Some((slot, ring))) => {
                self.look(slot, ring, number, Waker::noop().clone())
            }
            _ => Poll::Pending,
        }
    }

    /// Looks for a message that is in the queue of the mailbox with this number.
    fn look(
        &mut self,
        slot: &SlotRef,
        ring: &BoundedMailbox<M>,
        number: u64,
        waker: Waker,
    ) -> Poll<Result<(), SendError<M>>> {
        let (standing, old) = ring.standing(number, waker);
        drop_guarded(old);
        if !matches!(standing, Standing::Waits) {
            self.stand = Stand::None;
        }
        match standing {
            Standing::Waits => Poll::Pending,
            Standing::Taken => {
                crate::scheduler::budget::trace_sent(slot);
                Poll::Ready(Ok(()))
            }
            Standing::Closed(message) => Poll::Ready(Err(ended(slot, message))),
        }
    }

    fn poll_far(
        &mut self,
        process: &FarProcess,
        task: &mut TaskContext<'_>,
    ) -> Poll<Result<(), SendError<M>>> {
        let mut wait = match std::mem::replace(&mut self.stand, Stand::None) {
            Stand::Far(wait) => Some(wait),
            _ => None,
        };
        let sent = FarWait::poll(process, &mut self.message, &mut wait, task);
        self.stand = wait.map_or(Stand::None, Stand::Far);
        if sent.is_pending() {
            current::note_waiting_for_some(Waiting::ROOM);
            current::note_place(self.place);
        }
        sent
    }
}

impl<M: Send + 'static> Future for SendWait<'_, M> {
    type Output = Result<(), SendError<M>>;

    /// # Panics
    /// Panics if it is polled again after it was complete.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let wait = self.get_mut();
        // A message that waits for room was charged before.
        let may_act =
            !matches!(wait.stand, Stand::None) || crate::scheduler::budget::charge_act(task);
        let waits = wait.address.bounded().filter(|(_, ring)| ring.when_full() == FullPolicy::Wait);
        let must_wait = |(slot, ring): (&SlotRef, &BoundedMailbox<M>)| {
            !current::is_current(slot) && ring.must_wait()
        };
        if !may_act && !waits.is_some_and(must_wait) {
            return Poll::Pending;
        }
        if let Some(process) = wait.address.far_process() {
            return wait.poll_far(process, task);
        }
        let Some((slot, ring)) = waits else {
            let message = wait.message.take().expect("a future is not polled after it is complete");
            return Poll::Ready(wait.address.send(message));
        };
        // Cloned and dropped outside the lock of the mailbox, since both run user code.
        let waker = waker::another(task.waker());
        if let Stand::Queue(number) = wait.stand {
            let sent = wait.look(slot, ring, number, waker);
            if sent.is_pending() {
                wait.note_waiting(slot, task);
            }
            return sent;
        }
        let message = wait.message.take().expect("a future is not polled after it is complete");
        if current::is_current(slot) && !mutation::is(mutation::BUILT, mutation::WAIT_FOR_ITSELF) {
            let sent = wait.address.try_send(message);
            return Poll::Ready(sent.map_err(|error| error.in_own_mailbox()));
        }
        match ring.stand(message, request::header_for(slot), waker) {
            Stood::Queued { wake } => Poll::Ready(finish_send(
                slot,
                crate::mailbox::deliver::finish_offer(slot, Offered::Queued { wake }),
            )),
            Stood::Closed(message) => Poll::Ready(Err(ended(slot, message))),
            Stood::Waits(number) => {
                tell_full::<M>(slot);
                wait.stand = Stand::Queue(number);
                wait.note_waiting(slot, task);
                Poll::Pending
            }
        }
    }
}

impl<M: Send + 'static> Drop for SendWait<'_, M> {
    fn drop(&mut self) {
        if let Stand::Queue(number) = self.stand
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
        Self { route: self.route.clone() }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.route).finish()
    }
}

/// Sends a message to the process with a PID. The type of the message is checked.
///
/// A process of another node gets the message by the relay of its
/// [node](crate::relay::RemoteNode).
///
/// # Errors
/// [`SendError`] returns the message if the process has ended or receives another type, or if a
/// relay refuses it: [`SendCause::relay_cause`] returns the reason.
///
/// ```
/// procession::run(async {
///     let mut child = procession::start(|mut cx: procession::Context<u32>| async move {
///         cx.recv().await
///     });
///     let error = procession::mailbox::send(child.pid(), "text").unwrap_err();
///     assert!(error.is_wrong_type());
///     procession::mailbox::send(child.pid(), 7_u32)?;
///     assert_eq!((&mut child).await, Ok(Some(7)));
///     assert!(procession::mailbox::send(child.pid(), 8_u32).unwrap_err().is_ended());
///     Ok::<(), procession::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::SendError<u32>>(())
/// ```
pub fn send<M: Send + 'static>(pid: Pid, message: M) -> Result<(), SendError<M>> {
    if let Some(relay) = relay_to(pid) {
        return relayed(&*relay, pid, message);
    }
    if pid.node() != 0 {
        return match nodes::relay_to(pid) {
            Some(relay) => relayed(&*relay, pid, message),
            None => {
                let kind = SendErrorKind::NotRelayed(RelayCause::NoConnection);
                Err(SendError::new(message, pid, kind))
            }
        };
    }
    let Some(slot) = find(pid) else {
        return Err(SendError::ended(message, pid));
    };
    let Some(mailbox) = slot.mailbox_checked::<M>() else {
        return Err(SendError::of(message, SendCause::wrong_type::<M>(&slot)));
    };
    finish_send(&slot, push_message(&slot, mailbox, message))
}

/// Sends an urgent message to the process with a PID. See [`Address::send_urgent`].
///
/// # Errors
/// As [`Address::send_urgent`], and if the process receives another type. A process behind a
/// [`Relay`](crate::relay::Relay) or of another node takes no urgent messages.
pub fn send_urgent<M: Send + 'static>(pid: Pid, message: M) -> Result<(), SendError<M>> {
    if pid.node() != 0 || relay_to(pid).is_some() {
        return Err(SendError::new(message, pid, SendErrorKind::NotUrgent));
    }
    let Some(slot) = find(pid) else {
        return Err(SendError::ended(message, pid));
    };
    match slot.mailbox_checked::<M>() {
        Some(mailbox) => push_urgent_to(&slot, mailbox, message),
        None => Err(SendError::of(message, SendCause::wrong_type::<M>(&slot))),
    }
}
