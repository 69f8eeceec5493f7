//! Calls: a message that carries the right to one reply.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::Duration;

use procession_protocols::mailbox::answer::{Answer, CallLooked, NoReply, mutation};

use crate::Pid;
use crate::mailbox::address::{Address, SendWait, send};
use crate::mailbox::reply::Reply;
use crate::mailbox::send_error::{SendCause, SendError, SendErrorKind};
use crate::process::slot::Slot;
use crate::process::unwind::drop_guarded;
use crate::process::wait_edge::WaitProof;
use crate::process::wait_reason::Waiting;
use crate::process::waker;
use crate::scheduler::{budget, current, lending, reach};
use crate::time;

/// The error of a call.
///
/// ```
/// use std::time::Duration;
/// use procession::{CallError, Context, Reply, start};
///
/// procession::run(async {
///     // The process receives one call and drops its reply.
///     let mut server = start(|mut cx: Context<Reply<u32>>| async move { drop(cx.recv().await) });
///     let error = server.call(|reply| reply, Duration::from_secs(9)).await.unwrap_err();
///     assert!(matches!(error, CallError::NoReply));
///
///     // Once the process has ended, the message is refused and comes back.
///     assert_eq!((&mut server).await, Ok(()));
///     let error = server.call(|reply| reply, Duration::from_secs(9)).await.unwrap_err();
///     assert!(error.is_refused());
///     assert!(error.into_inner().is_some());
/// });
/// ```
#[non_exhaustive]
pub enum CallError<M> {
    /// The message was refused. It is in the error. Its reply will never be used.
    Refused(SendError<M>),
    /// The process dropped the reply, or ended before it replied.
    NoReply,
    /// The connection to the node of the process ended before the reply came. The process may have
    /// received the message. If there was no connection at first, the message was
    /// [`Refused`](Self::Refused).
    NoConnection,
    /// No reply came before the timeout.
    Elapsed,
    /// The callee waits, directly or through others, for a reply of the calling process. The
    /// message, which is in the error, was not sent. Only a scheduler with
    /// [`refuse_call_cycles`](crate::Builder::refuse_call_cycles) refuses such a call.
    Cycle(SendError<M>),
}

/// The reason why a call failed, without the message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallCause {
    /// The message was refused.
    Refused(SendCause),
    /// The process dropped the reply, or ended before it replied.
    NoReply,
    /// The connection to the node of the process ended before the reply came. The process may have
    /// received the message. If there was no connection at first, the message was
    /// [`Refused`](Self::Refused).
    NoConnection,
    /// No reply came before the timeout.
    Elapsed,
    /// The callee waits, directly or through others, for a reply of the calling process. The
    /// message was not sent.
    Cycle,
}

impl<M> CallError<M> {
    /// Returns the message if it was refused. Otherwise the process has it.
    pub fn into_inner(self) -> Option<M> {
        match self {
            Self::Refused(error) | Self::Cycle(error) => Some(error.into_inner()),
            Self::NoReply | Self::NoConnection | Self::Elapsed => None,
        }
    }

    /// Returns the message, if it was refused, and the cause.
    pub fn into_parts(self) -> (Option<M>, CallCause) {
        let cause = self.cause();
        (self.into_inner(), cause)
    }

    /// Returns the cause, which is `Send`, `Sync` and `'static` whatever the message is.
    pub fn cause(&self) -> CallCause {
        match self {
            Self::Refused(error) => CallCause::Refused(error.cause()),
            Self::NoReply => CallCause::NoReply,
            Self::NoConnection => CallCause::NoConnection,
            Self::Elapsed => CallCause::Elapsed,
            Self::Cycle(_) => CallCause::Cycle,
        }
    }

    /// Returns `true` if the call would have closed a cycle of calls.
    pub fn is_cycle(&self) -> bool {
        matches!(self, Self::Cycle(_))
    }

    /// Returns `true` if the message was refused.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Returns `true` if the process dropped the reply, or ended before it replied.
    pub fn is_no_reply(&self) -> bool {
        matches!(self, Self::NoReply)
    }

    /// Returns `true` if there is no connection to the node of the process, or it ended before the
    /// reply came.
    pub fn is_no_connection(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_no_connection(),
            other => matches!(other, Self::NoConnection),
        }
    }

    /// Returns `true` if no reply came before the timeout.
    pub fn is_elapsed(&self) -> bool {
        matches!(self, Self::Elapsed)
    }
}

impl<M> fmt::Debug for CallError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => f.debug_tuple("Refused").field(error).finish(),
            Self::NoReply => f.write_str("NoReply"),
            Self::NoConnection => f.write_str("NoConnection"),
            Self::Elapsed => f.write_str("Elapsed"),
            Self::Cycle(error) => f.debug_tuple("Cycle").field(error).finish(),
        }
    }
}

impl<M> fmt::Display for CallError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause().fmt(f)
    }
}

impl<M: 'static> Error for CallError<M> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(error) | Self::Cycle(error) => Some(error),
            _ => None,
        }
    }
}

impl<M> From<NoReply> for CallError<M> {
    fn from(why: NoReply) -> Self {
        match why {
            NoReply::Dropped => Self::NoReply,
            NoReply::NoConnection => Self::NoConnection,
        }
    }
}

impl<M> From<CallError<M>> for CallCause {
    fn from(error: CallError<M>) -> Self {
        error.cause()
    }
}

impl fmt::Display for CallCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(cause) => write!(f, "cannot call: the message was refused: {cause}"),
            Self::NoReply => f.write_str("the process gave no reply"),
            Self::NoConnection => {
                f.write_str("the connection to its node ended before the reply came")
            }
            Self::Elapsed => f.write_str("no reply came in time"),
            Self::Cycle => f.write_str("cannot call: the process waits for a reply of the caller"),
        }
    }
}

impl Error for CallCause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(cause) => Some(cause),
            _ => None,
        }
    }
}

/// The side of a call that waits for the reply. Dropping it abandons the call.
pub(crate) struct Caller<'a, T> {
    answer: Arc<Answer<T>>,
    /// The process that is called, if it is known.
    callee: Option<Callee<'a>>,
}

/// Creates the right to reply, and the side that waits for the reply.
pub(crate) fn pair<T>() -> (Reply<T>, Caller<'static, T>) {
    pair_with(None)
}

/// Creates a [`pair`] for a call of a process that is known.
pub(super) fn pair_with<T>(callee: Option<Callee<'_>>) -> (Reply<T>, Caller<'_, T>) {
    let answer = Arc::new(Answer::new());
    (Reply(Some(Arc::clone(&answer))), Caller { answer, callee })
}

impl<T> Drop for Caller<'_, T> {
    fn drop(&mut self) {
        let (late, waker) = self.answer.give_up();
        if waker.is_some()
            && let Some(callee) = self.callee
        {
            lending::take_back_loan(current::target_of(callee.slot));
        }
        // Dropped outside the lock: a late reply belongs to the user, and its drop may panic.
        drop_guarded((late, waker));
    }
}

/// Sends a message with a [`Reply`] in it to the process with a PID, and waits for the reply, for
/// at most `timeout`. The type of the message is checked.
///
/// If the process belongs to this program, this is [`Address::call`]. Otherwise the scheduler's
/// [`Relay`](crate::relay::Relay) carries the message, as with [`send`](crate::mailbox::send()).
///
/// # Errors
/// Returns [`CallError`] as [`Address::call`] does. It also returns [`CallError`] if the process
/// receives messages of another type, or the relay refuses the message.
///
/// # Cancellation
/// See [`Address::call`].
///
/// ```
/// use std::time::Duration;
/// use procession::{Context, Reply, start};
/// use procession::mailbox::call;
///
/// procession::run(async {
///     let server = start(|mut cx: Context<Reply<u32>>| async move {
///         if let Some(reply) = cx.recv().await {
///             reply.send(7);
///         }
///     });
///     let pid = server.pid();
///     let second = Duration::from_secs(1);
///     let error = call(pid, |_: Reply<u32>| "text", second).await.unwrap_err();
///     assert!(error.is_refused());
///     assert_eq!(call(pid, |reply: Reply<u32>| reply, second).await?, 7);
///     Ok::<(), procession::CallError<Reply<u32>>>(())
/// })?;
/// # Ok::<(), procession::CallError<Reply<u32>>>(())
/// ```
#[track_caller]
pub fn call<M: Send + 'static, T: Send + 'static>(
    pid: Pid,
    message: impl FnOnce(Reply<T>) -> M,
    timeout: Duration,
) -> impl Future<Output = Result<T, CallError<M>>> {
    crate::scheduler::placed::placed(async move {
        if reach::relay_to(pid).is_none() {
            return match Address::of(pid) {
                Ok(address) => address.call(message, timeout).await,
                Err(cause) => Err(refused(message, cause)),
            };
        }
        let (reply, caller) = pair();
        send(pid, message(reply)).map_err(CallError::Refused)?;
        caller.replied_within(timeout).await
    })
}

/// Returns the error of a call without a process to send to. It holds the message.
pub(crate) fn refused<M, T>(message: impl FnOnce(Reply<T>) -> M, cause: SendCause) -> CallError<M> {
    CallError::Refused(SendError::of(message(pair().0), cause))
}

/// Calls the process that has a name or a key, if there is one. An error has the name.
pub(crate) async fn call_by_name<M: Send + 'static, T: Send + 'static>(
    name: &Arc<str>,
    pid: Option<Pid>,
    message: impl FnOnce(Reply<T>) -> M,
    timeout: Duration,
) -> Result<T, CallError<M>> {
    let address = pid.ok_or_else(|| SendCause::unregistered(Arc::clone(name)));
    let called = match address.and_then(Address::of) {
        Ok(address) => address.call(message, timeout).await,
        Err(cause) => Err(refused(message, cause)),
    };
    called.map_err(|error| match error {
        CallError::Refused(refused) => CallError::Refused(refused.to(Arc::clone(name))),
        other => other,
    })
}

/// Sends to the process that has a name or a key, if there is one. An error has the name.
pub(crate) fn send_by_name<M: Send + 'static>(
    name: &Arc<str>,
    pid: Option<Pid>,
    message: M,
) -> Result<(), SendError<M>> {
    match pid {
        Some(pid) => send(pid, message).map_err(|refused| refused.to(Arc::clone(name))),
        None => Err(SendError::of(message, SendCause::unregistered(Arc::clone(name)))),
    }
}

/// Returns the time limit of a call, which a planted defect takes away.
fn limited(timeout: Duration) -> Duration {
    if mutation::is(mutation::BUILT, mutation::WITHOUT_LIMIT) { Duration::MAX } else { timeout }
}

impl<T> Caller<'_, T> {
    /// Waits for the reply to an accepted message, for at most `timeout`.
    pub(crate) async fn replied_within<M>(&self, timeout: Duration) -> Result<T, CallError<M>> {
        let replied = time::timeout(timeout, self.replied(Waiting::REPLY)).await;
        replied.map_or(Err(CallError::Elapsed), |reply| reply.map_err(CallError::from))
    }

    /// Waits for the reply. Returns the reason if there will be none.
    pub(crate) async fn replied(&self, waiting: Waiting) -> Result<T, NoReply> {
        poll_fn(|task| {
            if !budget::charge(task) {
                return Poll::Pending;
            }
            match self.answer.look(waker::another(task.waker())) {
                CallLooked::Waits(before) => {
                    drop_guarded(before);
                    match (waiting, self.callee) {
                        (Waiting::REPLY, Some(callee)) => callee.note(task),
                        (Waiting::REPLY, None) => current::note_waiting_for_some(waiting),
                        (other, _) => current::note_waiting(other),
                    }
                    Poll::Pending
                }
                CallLooked::Replied(value) => Poll::Ready(Ok(value)),
                CallLooked::Ended(why) => Poll::Ready(Err(why)),
            }
        })
        .await
    }
}

/// The process that is called, and what it was sent before.
#[derive(Clone, Copy)]
pub(crate) struct Callee<'a> {
    slot: &'a Slot,
    /// The number of messages that it was sent before, modulo 2^32.
    sent: u32,
}

/// Returns `true` if a call of the running process would close a cycle of calls, and is refused.
fn closes_cycle(callee: &Slot) -> bool {
    let shared = callee.shared();
    shared.processes.refuses_call_cycles && current::is_called_back(shared, callee)
}

/// Returns the error of a call that would close a cycle of calls.
#[cold]
fn cycle<M>(message: M, callee: Pid) -> CallError<M> {
    CallError::Cycle(SendError::new(message, callee, SendErrorKind::Cycle))
}

impl<'a> Callee<'a> {
    /// Must be called before the message is sent.
    pub(super) fn of(slot: &'a Slot) -> Self {
        Self { slot, sent: slot.sent() }
    }

    fn note(self, task: &TaskContext<'_>) {
        let (target, proof) = (current::target_of(self.slot), WaitProof::Unreceived(self.sent));
        current::note_waiting_for(waker::lender(task.waker()), Waiting::REPLY, target, proof);
    }
}

/// Calls several processes concurrently, and waits for all replies. Returns one result per address,
/// in the order of the addresses.
///
/// `timeout` is the limit for all calls together. When it has passed, each call without a reply
/// has an error, and the replies that came in time are returned.
///
/// # Cancellation
/// Each call is like [`Address::call`].
///
/// ```
/// use std::time::Duration;
/// use procession::{Context, Reply, start};
/// use procession::mailbox::call_all;
///
/// procession::run(async {
///     let servers: Vec<_> = (1..=3)
///         .map(|n| {
///             let server = start(move |mut cx: Context<Reply<u32>>| async move {
///                 if let Some(reply) = cx.recv().await {
///                     reply.send(n);
///                 }
///             });
///             server.detach()
///         })
///         .collect();
///     let answers = call_all(&servers, |reply| reply, Duration::from_secs(1)).await;
///     assert_eq!(answers.into_iter().flatten().sum::<u32>(), 6);
/// });
/// ```
#[track_caller]
pub fn call_all<M: Send + 'static, T: Send + 'static>(
    addresses: &[Address<M>],
    message: impl Fn(Reply<T>) -> M,
    timeout: Duration,
) -> impl Future<Output = Vec<Result<T, CallError<M>>>> {
    crate::scheduler::placed::placed(async move {
        let mut calls: Vec<_> =
            addresses.iter().map(|address| PendingCall::new(address, &message)).collect();
        // The first call that was not begun, and the calls before it that wait at a relay.
        let (mut next, mut far) = (0, Vec::new());
        let all = async {
            // Each message is sent or queued before any reply is awaited, and all are sent
            // concurrently, so a full mailbox or relay delays only its own call.
            poll_fn(|task| {
                while let Some(call) = calls.get_mut(next) {
                    let begun = call.begin(task);
                    let is_spent = budget::is_spent();
                    if begun.is_ready() || call.stands() || !is_spent {
                        far.extend(begun.is_pending().then_some(next));
                        next += 1;
                    }
                    if is_spent {
                        // The next step goes on here, because the budget may refuse all others.
                        budget::yield_step(task);
                        return Poll::Pending;
                    }
                }
                far.retain(|&at: &usize| calls[at].begin(task).is_pending());
                if far.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            for call in &mut calls {
                call.end().await;
            }
        };
        // Ignored: the replies that came in time are kept.
        let _elapsed = time::timeout(timeout, all).await;
        calls.into_iter().map(PendingCall::answer).collect()
    })
}

/// One of several calls.
struct PendingCall<'a, M: Send + 'static, T> {
    /// Until the message is accepted or refused.
    send: Option<SendWait<'a, M>>,
    caller: Caller<'a, T>,
    answer: Option<Result<T, CallError<M>>>,
}

impl<'a, M: Send + 'static, T> PendingCall<'a, M, T> {
    fn new(address: &'a Address<M>, message: impl FnOnce(Reply<T>) -> M) -> Self {
        let (reply, caller) = pair_with(address.slot().map(Callee::of));
        let message = message(reply);
        if address.slot().is_some_and(closes_cycle) {
            let answer = Some(Err(cycle(message, address.pid())));
            return Self { send: None, caller, answer };
        }
        current::record_call(address.seen_pid());
        Self { send: Some(address.send_wait(message)), caller, answer: None }
    }

    /// Sends the message, or puts it into the queue of its mailbox. A message that waits for room
    /// at a relay is in no queue: only another poll sends it.
    fn begin(&mut self, task: &mut TaskContext<'_>) -> Poll<()> {
        if self.is_queued() {
            return Poll::Ready(());
        }
        let sent = self.poll_send(task);
        if self.is_queued() { Poll::Ready(()) } else { sent }
    }

    fn stands(&self) -> bool {
        self.send.as_ref().is_some_and(SendWait::stands)
    }

    fn is_queued(&self) -> bool {
        self.send.as_ref().is_some_and(SendWait::is_queued)
    }

    async fn end(&mut self) {
        poll_fn(|task| self.poll_send(task)).await;
        if self.answer.is_none() {
            let replied = self.caller.replied(Waiting::REPLY).await;
            self.answer = Some(replied.map_err(CallError::from));
        }
    }

    fn poll_send(&mut self, task: &mut TaskContext<'_>) -> Poll<()> {
        let Some(send) = &mut self.send else { return Poll::Ready(()) };
        let sent = ready!(Pin::new(send).poll(task));
        self.note_sent(sent);
        Poll::Ready(())
    }

    fn note_sent(&mut self, sent: Result<(), SendError<M>>) {
        self.send = None;
        self.answer = sent.err().map(|refused| Err(CallError::Refused(refused)));
    }

    /// Returns the result once the timeout is over or all calls have ended.
    fn answer(mut self) -> Result<T, CallError<M>> {
        // The process may have ended since, without room for the message.
        if let Some(Poll::Ready(sent)) = self.send.as_mut().map(SendWait::result) {
            self.note_sent(sent);
        }
        let Some(answer) = self.answer else {
            return match self.caller.answer.look(Waker::noop().clone()) {
                CallLooked::Replied(value) => Ok(value),
                CallLooked::Ended(why) => Err(why.into()),
                CallLooked::Waits(before) => {
                    drop_guarded(before);
                    Err(CallError::Elapsed)
                }
            };
        };
        answer
    }
}

impl<M: Send + 'static> Address<M> {
    /// Sends a message with a [`Reply`] in it, and waits for the reply, for at most `timeout`. The
    /// timeout includes the wait for room in a bounded mailbox with the policy
    /// [`Wait`](crate::mailbox::bounds::WhenFull::Wait).
    ///
    /// # Errors
    /// Returns [`CallError`] if the message was refused, the process ended or dropped the reply, or
    /// the timeout is over. A refused message is in the error. With
    /// [`refuse_call_cycles`](crate::Builder::refuse_call_cycles), also if the callee waits for a
    /// reply of the caller, or is the caller.
    ///
    /// Without that option, a process that calls itself waits for its own reply until the timeout.
    /// Such a call is not refused, because another part of the process may receive it, for example
    /// by `join!`, and nothing shows in advance whether one does.
    ///
    /// # Cancellation
    /// If the future is dropped, the message may or may not have been sent. A later reply is
    /// discarded, and never enters a mailbox.
    #[track_caller]
    pub fn call<T: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<T>) -> M, // Makes the message from the reply: `Message::Get`.
        timeout: Duration,
    ) -> impl Future<Output = Result<T, CallError<M>>> {
        crate::scheduler::placed::placed(async move {
            let (reply, caller) = pair_with(self.slot().map(Callee::of));
            let message = message(reply);
            if self.slot().is_some_and(closes_cycle) {
                return Err(cycle(message, self.pid()));
            }
            current::record_call(self.seen_pid());
            let replied = async {
                self.send_wait(message).await.map_err(CallError::Refused)?;
                caller.replied(Waiting::REPLY).await.map_err(CallError::from)
            };
            time::timeout(limited(timeout), replied).await.unwrap_or(Err(CallError::Elapsed))
        })
    }
}
