//! Waits for the first of several things.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use procession_protocols::sync::channel::core::{NotReceived, NotSent};
use procession_protocols::sync::wait_list::{Another, Choice, Place};

use crate::process::served::wake;
use crate::process::wait_reason::Waiting;
use crate::scheduler::chance::chance;
use crate::scheduler::{budget, current};
use crate::sync::channel::{Receiver, Sender, cancel_receiver, look_receiver};
use crate::sync::error::SendError;
use crate::time::sleep;

/// Number of rounds after which a select yields. In each round an arm was ready when it was tried,
/// and another process had taken what it was ready for. The value is a guess; each round means that
/// others made progress.
const ROUNDS: u32 = 8;

/// Waits for the first of several *arms* to become ready, and acts on that arm alone.
///
/// Each arm has a function, and awaiting the select returns the result of the one function that
/// runs. If several arms are ready, the select chooses one at random, each with the same
/// probability. This also applies to several arms that wait for one channel. All other arms are
/// left as if they had not been tried: no message is taken from or put into another channel.
///
/// ```
/// use std::time::Duration;
/// use procession::sync::{Select, channel};
/// use procession::Context;
///
/// procession::run(async {
///     let (orders, incoming) = channel::bounded(1);
///     let (results, _kept) = channel::bounded(1);
///     let child = procession::start(move |mut cx: Context<&'static str>| async move {
///         let mut seen = Vec::new();
///         for _ in 0..3 {
///             let first = Select::new()
///                 .recv(&incoming, |order: Option<u32>| format!("order {order:?}"))
///                 .wait_for(cx.recv(), |message| format!("message {message:?}"))
///                 .timeout(Duration::from_secs(60), || "silence".to_owned());
///             seen.push(first.await);
///         }
///         let sent = Select::new().send(&results, 7, |sent| sent.is_ok()).await;
///         seen.sort();
///         (seen, sent)
///     });
///     orders.send(1).await?;
///     child.send("hello").expect("it waits");
///     orders.send(2).await?;
///     let seen = ["message Some(\"hello\")", "order Some(1)", "order Some(2)"].map(String::from);
///     assert_eq!(child.await, Ok((seen.to_vec(), true)));
///     Ok::<_, procession::sync::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::sync::SendError<u32>>(())
/// ```
///
/// With [`or_else`](Self::or_else), the select does not wait:
///
/// ```
/// use procession::coroutine::Wait;
/// use procession::sync::{Select, channel};
///
/// let (sender, receiver) = channel::bounded(1);
/// let poll = || Select::new().recv(&receiver, |message| message).or_else(|| None).wait();
/// assert_eq!(poll(), None);
/// sender.try_send(1)?;
/// assert_eq!(poll(), Some(1));
/// # Ok::<(), procession::sync::SendError<u32>>(())
/// ```
///
/// # State that arms share
/// The functions of all arms exist at the same time, so two functions cannot borrow one value by
/// `&mut`. Let the arms return what happened, and change the value afterwards:
///
/// ```
/// use procession::coroutine::Wait;
/// use procession::sync::{Select, channel};
///
/// enum Next {
///     Add(Option<u64>),
///     Subtract(Option<u64>),
/// }
///
/// let (add, adds) = channel::bounded(1);
/// let (_subtract, subtracts) = channel::bounded(1);
/// add.try_send(7)?;
/// let mut sum = 0;
/// match Select::new().recv(&adds, Next::Add).recv(&subtracts, Next::Subtract).wait() {
///     Next::Add(number) => sum += number.unwrap_or(0),
///     Next::Subtract(number) => sum -= number.unwrap_or(0),
/// }
/// assert_eq!(sum, 7);
/// # Ok::<(), procession::sync::SendError<u64>>(())
/// ```
///
/// The functions and futures of a select are `Send`, because the processes that use a select are
/// `Send`. In a [local process](crate::SpawnOptions::spawn_local), or for handlers that share
/// `&mut` and await, use `select!` of tokio (feature `macros`), which needs no runtime of tokio's.
/// The macro waits for futures of this crate as for futures of any other. A receive that loses has
/// taken no message, as in the table of [`wait_for`](Self::wait_for). There are two differences: a
/// branch that sends drops its message if it loses, and each wake-up polls all branches, which
/// costs more if there are many.
///
/// ```
/// use std::cell::RefCell;
/// use std::rc::Rc;
/// use std::time::Duration;
/// use procession::{Context, SpawnOptions};
///
/// let lines = procession::run(async {
///     let logs = SpawnOptions::new().start_local(|mut cx: Context<&str>| async move {
///         let lines = Rc::new(RefCell::new(Vec::new()));
///         let mut beat = procession::time::interval(Duration::from_secs(3600));
///         loop {
///             tokio::select! {
///                 biased;
///                 _ = beat.tick() => lines.borrow_mut().push("beat"),
///                 message = cx.recv() => match message {
///                     Some(line) => lines.borrow_mut().push(line),
///                     None => break lines.take(),
///                 },
///             }
///         }
///     });
///     logs.send("line").expect("it waits");
///     logs.cancel();
///     logs.await
/// });
/// assert_eq!(lines?, ["beat", "line"]);
/// # Ok::<(), procession::Exit>(())
/// ```
///
/// A select without arms waits forever, and so does a select that is polled again after completion.
///
/// # Cancellation
/// If the select is dropped before it completes, it has acted on no arm, with one exception: since
/// the last poll, a receiver may have chosen a sending arm and taken its message. The messages of
/// all other sending arms are dropped with the select.
#[must_use = "futures do nothing unless awaited"]
pub struct Select<'a, R> {
    arms: Vec<Box<dyn Arm<R> + Send + 'a>>,
    /// `true` if some arms wait in no list, and so can be ready without a claim.
    polls: bool,
    /// Runs if no arm is ready.
    default: Option<Box<dyn FnOnce() -> R + Send + 'a>>,
    /// Present while the select waits in lists.
    choice: Option<Arc<Choice>>,
    /// The place where the select was made.
    call: &'static Location<'static>,
}

/// How a select ends.
enum SelectEnd {
    /// With this arm, which has acted or was chosen.
    Arm(u32),
    /// Without an arm.
    Default,
}

/// One thing that a select waits for.
trait Arm<R> {
    /// Acts, if that is possible now, and stores the outcome until it is fetched. Returns `true` if
    /// it has acted.
    fn act(&mut self, task: &mut TaskContext<'_>) -> bool;

    /// Waits in a list. Returns `false` if the arm could act now.
    fn enlist(&mut self, choice: &Arc<Choice>, arm: u32) -> bool;

    /// Leaves the list. The choice has not fallen on this arm.
    fn withdraw(&mut self);

    /// Returns the result, since the arm has acted or the choice has fallen on it.
    fn fetch(&mut self) -> Option<R>;
}

impl<'a, R> Select<'a, R> {
    /// Creates a select without arms.
    #[track_caller]
    pub fn new() -> Self {
        let call = Location::caller();
        Self { arms: Vec::new(), polls: false, default: None, choice: None, call }
    }

    /// Adds an arm that receives from a channel. `then` gets the message, or `None` if the channel
    /// is closed and empty.
    pub fn recv<T: Send>(
        mut self,
        receiver: &'a Receiver<T>,
        then: impl FnOnce(Option<T>) -> R + Send + 'a,
    ) -> Self {
        let (then, place, received) = (Some(then), None, None);
        self.arms.push(Box::new(ReceiveArm { receiver, then, place, received }));
        self
    }

    /// Adds an arm that sends to a channel. If the channel is closed, `then` gets an error with the
    /// message.
    pub fn send<T: Send + 'a>(
        mut self,
        sender: &'a Sender<T>,
        message: T,
        then: impl FnOnce(Result<(), SendError<T>>) -> R + Send + 'a,
    ) -> Self {
        self.arms.push(Box::new(SendArm {
            sender,
            message: Some(message),
            then: Some(then),
            place: None,
            sent: None,
        }));
        self
    }

    /// Adds an arm that waits for a future: the mailbox
    /// ([`Context::recv`](crate::Context::recv)), a handle, a lock, or a timer.
    ///
    /// If another arm acts, the future is dropped. Futures of the runtime are then as if they had
    /// not been polled. The exceptions are futures with other rules under *Cancellation*, and
    /// futures that own their data:
    ///
    /// | future | what is lost |
    /// |---|---|
    /// | [`JoinHandle`] or [`Child`] by value | the result, since the process is detached |
    /// | [`JoinHandle`] or [`Child`] by `&mut` | nothing |
    /// | [`Address::call`] | the reply; the message may have been received |
    /// | [`Sender::send`], [`Address::send_wait`] | the message; the arm [`send`] keeps it |
    /// | [`Condvar::wait`] | the lock; the mutex stays unlocked |
    /// | [`Barrier::wait`] | a round in which all had arrived |
    /// | [`OnceCell::get_or_init`] | the work that `make` has done |
    /// | `read_exact`, `write_all` of streams | the part that was transferred |
    ///
    /// [`send`]: Self::send
    /// [`JoinHandle`]: crate::JoinHandle
    /// [`Child`]: crate::Child
    /// [`Address::call`]: crate::Address::call
    /// [`Address::send_wait`]: crate::Address::send_wait
    /// [`Condvar::wait`]: crate::sync::Condvar::wait
    /// [`Barrier::wait`]: crate::sync::Barrier::wait
    /// [`OnceCell::get_or_init`]: crate::sync::OnceCell::get_or_init
    pub fn wait_for<F>(mut self, future: F, then: impl FnOnce(F::Output) -> R + Send + 'a) -> Self
    where
        F: IntoFuture<Output: Send, IntoFuture: Send + 'a>,
    {
        self.polls = true;
        let (future, then) = (Some(Box::pin(future.into_future())), Some(then));
        self.arms.push(Box::new(FutureArm { future, output: None, then }));
        self
    }

    /// Makes the select return immediately. If no arm is ready when the arms are tried, `then`
    /// runs, like the `default` case in Go. If this is called several times, the first `then`
    /// counts.
    pub fn or_else(mut self, then: impl FnOnce() -> R + Send + 'a) -> Self {
        self.default.get_or_insert_with(|| Box::new(then));
        self
    }

    /// Adds an arm that becomes ready after `timeout`, counted from now.
    pub fn timeout(self, timeout: Duration, then: impl FnOnce() -> R + Send + 'a) -> Self {
        self.wait_for(sleep(timeout), |()| then())
    }

    /// Lets the first arm act that can, in random order, each order with the same probability. This
    /// also decides between arms that wait for one channel.
    fn act(&mut self, task: &mut TaskContext<'_>) -> Option<u32> {
        let count = self.arms.len();
        for arm in 0..count {
            self.arms.swap(arm, arm + chance(count - arm));
            if self.arms[arm].act(task) {
                return Some(arm as u32);
            }
        }
        None
    }

    /// Fetches the result of the chosen arm, and ends the select.
    fn fetch(&mut self, chosen: u32) -> Option<R> {
        self.choice = None;
        self.default = None;
        for (arm, other) in self.arms.iter_mut().enumerate() {
            if arm != chosen as usize {
                other.withdraw();
            }
        }
        let mut arms = std::mem::take(&mut self.arms);
        arms.get_mut(chosen as usize).and_then(|arm| arm.fetch())
    }

    /// `Withdraw`. Returns the arm that a server has claimed, if there is one.
    fn withdraw(&mut self) -> Option<u32> {
        let choice = self.choice.take()?;
        // This claim is for no arm, so no later claim can succeed. It fails if an arm has claimed
        // before.
        if choice.claim(self.arms.len() as u32) {
            self.arms.iter_mut().for_each(|arm| arm.withdraw());
            return None;
        }
        choice.chosen()
    }
}

impl<R> Select<'_, R> {
    /// Waits for an arm, or lets one act.
    fn poll_ending(&mut self, task: &mut TaskContext<'_>) -> Poll<SelectEnd> {
        let may_act = budget::charge_act(task);
        if let Some(choice) = &self.choice {
            if let Some(chosen) = choice.chosen() {
                return Poll::Ready(SelectEnd::Arm(chosen));
            }
            if !self.polls {
                if !choice.will_wake(task.waker()) {
                    crate::process::unwind::drop_guarded(
                        choice.set_waker(crate::process::waker::another(task.waker())),
                    );
                    // A server may have claimed in between, and woken the earlier waker.
                    if let Some(chosen) = choice.chosen() {
                        return Poll::Ready(SelectEnd::Arm(chosen));
                    }
                }
                current::note_waiting_at(Waiting::CHANNEL, self.call);
                return Poll::Pending;
            }
            if let Some(chosen) = self.withdraw() {
                return Poll::Ready(SelectEnd::Arm(chosen));
            }
        }
        if !may_act && self.default.is_some() {
            return Poll::Pending;
        }
        for _ in 0..ROUNDS {
            let acted = match self.default {
                _ if !may_act => None,
                None => self.act(task),
                Some(_) => budget::with_fresh(|| self.act(task)),
            };
            if let Some(arm) = acted {
                return Poll::Ready(SelectEnd::Arm(arm));
            }
            if self.default.is_some() {
                self.arms.clear();
                return Poll::Ready(SelectEnd::Default);
            }
            let choice = Arc::new(Choice::new(crate::process::waker::another(task.waker())));
            let waits = self
                .arms
                .iter_mut()
                .enumerate()
                .all(|(number, arm)| arm.enlist(&choice, number as u32));
            self.choice = Some(choice);
            if waits {
                current::note_waiting_at(Waiting::CHANNEL, self.call);
                return Poll::Pending;
            }
            if let Some(chosen) = self.withdraw() {
                return Poll::Ready(SelectEnd::Arm(chosen));
            }
            if !may_act {
                return Poll::Pending;
            }
        }
        budget::yield_step(task);
        Poll::Pending
    }
}

impl<R> Default for Select<'_, R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> Future for Select<'_, R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<R> {
        let select = self.get_mut();
        match ready!(select.poll_ending(task)) {
            SelectEnd::Arm(arm) => select.fetch(arm),
            SelectEnd::Default => select.default.take().map(|default| default()),
        }
        .map_or(Poll::Pending, Poll::Ready)
    }
}

impl<R> fmt::Debug for Select<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select").field("arms", &self.arms.len()).finish_non_exhaustive()
    }
}

struct ReceiveArm<'a, T, F> {
    receiver: &'a Receiver<T>,
    then: Option<F>,
    place: Option<Place>,
    /// What was received, until it is fetched. `None` inside for the end of the channel.
    received: Option<Option<T>>,
}

impl<T, F> ReceiveArm<'_, T, F> {
    fn leave(&mut self) {
        let channel = self.receiver.channel();
        if let Some(place) = self.place.take() {
            cancel_receiver(channel, place);
        }
        if let Some(message) = self.received.take().flatten() {
            wake(channel.core.pass_on(message));
        }
    }
}

impl<T, R, F: FnOnce(Option<T>) -> R> Arm<R> for ReceiveArm<'_, T, F> {
    fn act(&mut self, _: &mut TaskContext<'_>) -> bool {
        self.received = match self.receiver.channel().core.try_recv() {
            Ok((message, waiter)) => {
                wake(waiter);
                Some(Some(message))
            }
            Err(NotReceived::Closed) => Some(None),
            Err(NotReceived::Empty) => None,
        };
        self.received.is_some()
    }

    fn enlist(&mut self, choice: &Arc<Choice>, arm: u32) -> bool {
        self.place = self.receiver.channel().core.enlist_receiver(choice, arm);
        self.place.is_some()
    }

    fn withdraw(&mut self) {
        self.leave();
    }

    fn fetch(&mut self) -> Option<R> {
        let message = match self.received.take() {
            Some(received) => received,
            None => {
                let channel = self.receiver.channel();
                look_receiver(channel, &mut self.place, &mut Another::none())?
            }
        };
        self.then.take().map(|then| then(message))
    }
}

impl<T, F> Drop for ReceiveArm<'_, T, F> {
    fn drop(&mut self) {
        self.leave();
    }
}

struct SendArm<'a, T, F> {
    sender: &'a Sender<T>,
    message: Option<T>,
    then: Option<F>,
    place: Option<Place>,
    /// The result of the send, until it is fetched.
    sent: Option<Result<(), SendError<T>>>,
}

impl<T, R, F: FnOnce(Result<(), SendError<T>>) -> R> Arm<R> for SendArm<'_, T, F> {
    fn act(&mut self, _: &mut TaskContext<'_>) -> bool {
        let Some(message) = self.message.take() else { return false };
        match self.sender.channel().core.try_send(message) {
            Ok(waiter) => {
                wake(waiter);
                self.sent = Some(Ok(()));
            }
            Err(NotSent::Closed(message)) => self.sent = Some(Err(SendError::Closed(message))),
            Err(NotSent::Full(message)) => self.message = Some(message),
        }
        self.sent.is_some()
    }

    fn enlist(&mut self, choice: &Arc<Choice>, arm: u32) -> bool {
        let Some(message) = self.message.take() else { return true };
        match self.sender.channel().core.enlist_sender(message, choice, arm) {
            Ok(place) => self.place = Some(place),
            Err(message) => self.message = Some(message),
        }
        self.place.is_some()
    }

    fn withdraw(&mut self) {
        if let Some(place) = self.place.take() {
            let (message, own) = self.sender.channel().core.cancel_sender(place);
            self.message = message;
            drop(own);
        }
    }

    fn fetch(&mut self) -> Option<R> {
        let sent = match self.sent.take() {
            Some(sent) => sent,
            None => {
                let core = &self.sender.channel().core;
                core.look_sender(&mut self.place, &mut Another::none())?.map_err(SendError::Closed)
            }
        };
        self.then.take().map(|then| then(sent))
    }
}

impl<T, F> Drop for SendArm<'_, T, F> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            drop(self.sender.channel().core.cancel_sender(place));
        }
    }
}

struct FutureArm<F: Future, T> {
    /// Present until it completes.
    future: Option<Pin<Box<F>>>,
    /// What it has returned, until it is fetched.
    output: Option<F::Output>,
    then: Option<T>,
}

impl<F: Future, R, T: FnOnce(F::Output) -> R> Arm<R> for FutureArm<F, T> {
    fn act(&mut self, task: &mut TaskContext<'_>) -> bool {
        let Some(future) = &mut self.future else { return false };
        if let Poll::Ready(output) = future.as_mut().poll(task) {
            self.output = Some(output);
            self.future = None;
        }
        self.output.is_some()
    }

    fn enlist(&mut self, _: &Arc<Choice>, _: u32) -> bool {
        true
    }

    fn withdraw(&mut self) {}

    fn fetch(&mut self) -> Option<R> {
        let output = self.output.take()?;
        self.then.take().map(|then| then(output))
    }
}
