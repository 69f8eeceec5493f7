//! The context of a process with a mailbox: its side of the mailbox, its PID and its relations, the
//! events that it receives, and the events that it has left for another kind of receive.

mod down;
pub(crate) mod inspecting;
mod mark;
mod take;
mod timed;

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use procession_protocols::util::block_queue::BlockQueue;
use procession_protocols::util::sorted_map::SortedMap;
use procession_queue::Batch;

use crate::Pid;
use crate::machine::value::CommandResult;
use crate::mailbox::address::Address;
use crate::mailbox::header::Header;
use crate::mailbox::request;
use crate::process::body::System;
use crate::process::slot::{Slot, SlotRef};
use crate::process::typed::TypedPin;
use crate::process::wait_reason::Waiting;
use crate::relations::links;
use crate::relations::signal::{Down, ExitSignal, MonitorRef, Signal};
use crate::scheduler::current;
use crate::scheduler::placed::placed;
use crate::util::exclusive::Exclusive;
use crate::util::recv_error::RecvError;

/// The context of a process with a mailbox: it receives messages ([`recv`](Self::recv)), knows the
/// process's PID and address, and manages its relations to other processes.
///
/// A context belongs to its process. To receive or to wait in another process panics, because a
/// message wakes only the owner of the mailbox. In the `Drop` of the process's result, after the
/// process has ended, there is nothing to receive.
///
/// ```
/// use procession::{Context, start};
///
/// procession::run(async {
///     let adder = start(|mut cx: Context<u32>| async move {
///         let mut sum = 0;
///         // `None` is a cancel. The messages that were sent before it come first.
///         while let Some(number) = cx.recv().await {
///             sum += number;
///         }
///         (cx.pid(), sum)
///     });
///     let pid = adder.pid();
///     adder.send(1)?;
///     adder.send(2)?;
///     adder.cancel();
///     assert_eq!(adder.await, Ok((pid, 3)));
///     Ok::<(), procession::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::SendError<u32>>(())
/// ```
pub struct Context<M: Send + 'static> {
    slot: TypedPin<M>,
    /// Events taken out of an unbounded mailbox that are not received yet. They come after `aside`.
    taken: Batch<M, System>,
    /// Events that were looked at and left for another kind of receive. Boxed, since few processes
    /// have any, and each process pays for the field.
    aside: Option<Box<Exclusive<Aside<M>>>>,
}

// No pointer refers into the context.
impl<M: Send + 'static> Unpin for Context<M> {}

impl<M: Send + 'static> Context<M> {
    pub(crate) fn new(slot: TypedPin<M>) -> Self {
        Self { slot, taken: Batch::new(), aside: None }
    }

    /// Returns the events that were put aside, if there are any.
    #[inline]
    fn aside(&mut self) -> Option<&mut Aside<M>> {
        self.aside.as_deref_mut().map(Exclusive::get_mut)
    }

    /// Returns the place for events that are put aside.
    fn make_aside(&mut self) -> &mut Aside<M> {
        self.aside.get_or_insert_with(|| Box::new(Exclusive::new(Aside::default()))).get_mut()
    }

    pub(crate) fn slot(&self) -> &SlotRef {
        &self.slot
    }

    /// Returns the PID of this process.
    pub fn pid(&self) -> Pid {
        self.slot.pid()
    }

    /// Returns the PID of the process that spawned this process, if it belongs to the same
    /// scheduler.
    pub fn parent(&self) -> Option<Pid> {
        self.slot.parent()
    }

    /// Returns the address of this process, to be passed to others.
    pub fn address(&self) -> Address<M> {
        Address::new(self.slot.clone())
    }

    /// Receives the next message, the oldest first. Returns `None` only after this process was
    /// cancelled, once its mailbox is empty.
    ///
    /// Signals about other processes stay in the mailbox, in their order, for
    /// [`recv_event`](Self::recv_event) and [`down`](Self::down).
    ///
    /// ```
    /// use procession::{Context, start};
    ///
    /// procession::run(async {
    ///     let mut adder = start(|mut cx: Context<u32>| async move {
    ///         let mut sum = 0;
    ///         while let Some(n) = cx.recv().await {
    ///             sum += n;
    ///         }
    ///         sum // The process was cancelled, and has received everything before.
    ///     });
    ///     adder.send(1)?;
    ///     adder.send(2)?;
    ///     adder.cancel();
    ///     assert_eq!(adder.await, Ok(3));
    ///     Ok::<(), procession::SendError<u32>>(())
    /// })?;
    /// # Ok::<(), procession::SendError<u32>>(())
    /// ```
    ///
    /// # Panics
    /// If it has to wait outside its own process.
    ///
    /// # Cancellation
    /// If the future is dropped before it is complete, it has taken no message.
    #[inline]
    #[track_caller]
    pub fn recv(&mut self) -> Recv<'_, M> {
        // Noted now and not when it waits, which saves the future a field and the wait a load.
        self.slot.waited_at.set(Location::caller());
        Recv { context: self, waits: false }
    }

    /// Polls like [`recv`](Self::recv). While it is pending, the mailbox stays armed.
    #[cfg(feature = "stream")]
    pub(crate) fn poll_recv(&mut self, task: &mut TaskContext<'_>) -> Poll<Option<M>> {
        let mut recv = self.recv();
        let polled = Pin::new(&mut recv).poll(task);
        recv.waits = false;
        polled
    }

    /// Receives the next event: a message, or a signal about another process, in the order in which
    /// they arrived. Returns `None` only after this process was cancelled, once its mailbox is
    /// empty.
    ///
    /// # Cancellation
    /// If the future is dropped before it is complete, it has taken nothing.
    #[track_caller]
    pub fn recv_event(&mut self) -> impl Future<Output = Option<Event<M>>> {
        self.recv().first(false, Self::take_any)
    }

    /// Receives the next event, as [`recv_event`](Self::recv_event) does, but a cancel does not end
    /// the wait. For processes that continue after they were cancelled.
    #[track_caller]
    pub(crate) fn recv_event_to_the_end(&mut self) -> impl Future<Output = Option<Event<M>>> {
        self.recv().first(true, Self::take_any)
    }

    /// Receives the answer of one monitor, and leaves all other events. Returns `None` only after
    /// this process was cancelled, if the answer is not in the mailbox. A monitor that is not
    /// pending is never answered.
    ///
    /// Messages that were in an unbounded mailbox before the monitor was made are skipped, as on
    /// the BEAM. If several monitors are pending, this holds for the messages that arrived before
    /// the first monitor.
    ///
    /// # Cancellation
    /// If the future is dropped before it is complete, it has taken nothing.
    #[track_caller]
    pub fn down(&mut self, monitor: MonitorRef) -> impl Future<Output = Option<Down>> {
        placed(self.recv_down(monitor))
    }

    /// Receives the oldest message that `wanted` accepts. Messages that `wanted` refuses stay in
    /// the mailbox, in their order, for later receives. One call of this method passes each message
    /// to `wanted` once. Returns `None` only after this process was cancelled, once the mailbox
    /// holds no message that `wanted` accepts.
    ///
    /// # Cancellation
    /// If the future is dropped before it is complete, it has taken no message.
    #[track_caller]
    pub fn recv_matching(
        &mut self,
        wanted: impl FnMut(&M) -> bool,
    ) -> impl Future<Output = Option<M>> {
        placed(self.recv_wanted(wanted))
    }

    async fn recv_wanted(&mut self, mut wanted: impl FnMut(&M) -> bool) -> Option<M> {
        let mut looks_aside = true;
        let pick = |context: &mut Self| {
            if std::mem::take(&mut looks_aside)
                && let Some(message) = context.take_wanted_aside(&mut wanted)
            {
                return Some(message);
            }
            while let Some(event) = context.take_charged() {
                let Event::Message(message) = event else {
                    context.put_aside(event);
                    continue;
                };
                if let Some(message) = context.receive_if(message, &mut wanted) {
                    return Some(message);
                }
            }
            None
        };
        self.recv().first(false, pick).await
    }

    /// Receives the next message if there is one, without waiting.
    ///
    /// # Errors
    /// [`RecvError::Empty`]: there is no message now, or there are more signals before the message
    /// than one step may take. A later call then continues behind these signals.
    /// [`RecvError::Closed`]: this process was cancelled, and its mailbox is empty.
    pub fn try_recv(&mut self) -> Result<M, RecvError> {
        crate::scheduler::budget::spend();
        if let Some(message) = self.take_next() {
            return Ok(message);
        }
        // One look, as in a receive that waits.
        let seen = self.slot.state.see();
        if !seen.is_cancelled() || seen.is_terminated() {
            return Err(RecvError::Empty);
        }
        // Once more: messages that were sent before the cancel may have come since.
        let there_may_be_more = crate::scheduler::budget::is_spent;
        let error = || if there_may_be_more() { RecvError::Empty } else { RecvError::Closed };
        self.take_next().ok_or_else(error)
    }

    /// Takes the oldest message, whether it was put aside before or not.
    #[inline]
    fn take_next(&mut self) -> Option<M> {
        self.take_message_aside().or_else(|| self.take_message())
    }

    /// Monitors another process: when that process ends, for whatever reason, this process is
    /// notified once ([`Event::Down`], [`down`](Self::down)). If the process has ended already, the
    /// notice arrives immediately, with [`Exit::NoProcess`](crate::Exit::NoProcess). One process
    /// may have many monitors. A monitor of this process itself is never answered.
    ///
    /// ```
    /// use procession::{Context, Exit, start};
    ///
    /// procession::run(async {
    ///     let watcher = start(|mut cx: Context<()>| async move {
    ///         let worker = start(|mut cx: Context<()>| async move {
    ///             cx.recv().await;
    ///             panic!("broken")
    ///         });
    ///         let monitor = cx.monitor(worker.pid());
    ///         worker.send(()).expect("it waits for it");
    ///         cx.down(monitor).await.map(|down| down.exit)
    ///     });
    ///     assert_eq!(watcher.await, Ok(Some(Exit::Panicked("broken".into()))));
    /// });
    /// ```
    pub fn monitor(&mut self, pid: Pid) -> MonitorRef {
        crate::scheduler::budget::spend();
        if !self.is_mailbox_long() {
            return crate::relations::monitors::monitor(&self.slot, pid);
        }
        // Before the monitor is made, because its answer may arrive immediately.
        self.gather();
        let monitor = crate::relations::monitors::monitor(&self.slot, pid);
        self.set_mark(monitor);
        monitor
    }

    /// Ends a monitor. Returns `true` if the monitor had not been answered yet. It is then never
    /// answered, even if the answer is on its way.
    pub fn demonitor(&mut self, monitor: MonitorRef) -> bool {
        crate::scheduler::budget::spend();
        self.note_answered(monitor);
        if let Some(aside) = self.aside() {
            // The answer was accepted from the mailbox, but the process has not seen it.
            let answer = aside.signals.remove_first(
                |(_, signal)| matches!(signal, Signal::Down(down) if down.monitor == monitor),
            );
            if answer.is_some() {
                return true;
            }
        }
        crate::relations::monitors::demonitor(&self.slot, monitor)
    }

    /// Links this process and another, as [`link`](crate::relations::links::link()) does.
    pub fn link(&mut self, pid: Pid) {
        crate::scheduler::budget::spend();
        links::link_to(&self.slot, pid);
    }

    /// Removes the link to another process.
    pub fn unlink(&mut self, pid: Pid) {
        crate::scheduler::budget::spend();
        links::unlink_from(&self.slot, pid);
    }

    /// Sets whether exit signals arrive as [`Event::Exit`] from now on, instead of ending this
    /// process. For example, a process traps exits to restart the processes that it is linked to.
    /// Returns the previous setting. [`process::kill`](crate::relations::kill()) cannot
    /// be trapped.
    pub fn trap_exits(&mut self, traps: bool) -> bool {
        links::trap_exits(&self.slot, traps)
    }

    /// Returns `true` if this process was asked to end, or will be terminated after this step.
    pub fn is_cancelled(&self) -> bool {
        self.slot.state.is_cancelled()
    }

    /// Waits until this process is asked to end. It never completes in a process that is
    /// terminated, or that a cancel [drops](crate::OnCancel::Drop): such a process ends after the
    /// step. See [`cancelled`](crate::cancelled()) for a wait without a context.
    ///
    /// # Panics
    /// If it has to wait outside its own process, because this process's cancel cannot wake another
    /// process. The other process can [monitor](Self::monitor) this process instead.
    #[track_caller]
    pub fn cancelled(&self) -> impl Future<Output = ()> {
        crate::scheduler::placed::placed(async move {
            poll_fn(|task| {
                if !crate::scheduler::budget::charge(task) {
                    return Poll::Pending;
                }
                poll_cancelled(&self.slot, task)
            })
            .await;
        })
    }

    /// Ends the wait for messages: no message wakes the process any more.
    #[cold]
    fn wait_no_longer(&self) {
        self.slot.mailbox().disarm();
        self.slot.waiting.forget(Waiting::MESSAGE);
    }
}

/// Polls for the cancel of `slot`, which runs on this thread. A terminated process never sees a
/// cancel: it ends after the step, with the reason that was set for it.
pub(crate) fn poll_cancelled(slot: &Slot, task: &TaskContext<'_>) -> Poll<()> {
    if slot.state.see().may_end_itself() {
        return Poll::Ready(());
    }
    assert!(current::is_current(slot), "a process waits for its own cancel only");
    slot.leave_foreign_waker(task.waker());
    slot.waiting.note(Waiting::CANCEL);
    Poll::Pending
}

impl<M: Send + 'static> crate::Outcome for Context<M> {}

impl<M: Send + 'static> Drop for Context<M> {
    fn drop(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        if let Some(mut aside) = self.aside.take().map(|aside| aside.into_inner()) {
            self.discard_aside(&mut aside);
            if let Some(marked) = aside.marked {
                taken.append(marked.into_batch());
            }
        }
        if taken.len() > 0 {
            self.discard(taken);
        }
    }
}

impl<M: Send + 'static> fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.slot).finish()
    }
}

/// The future of [`Context::recv`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Recv<'a, M: Send + 'static> {
    context: &'a mut Context<M>,
    /// Set if the mailbox may be armed on behalf of this future.
    waits: bool,
}

impl<M: Send + 'static> Recv<'_, M> {
    /// Waits as the future does, for what `pick` takes out of the mailbox. `pick` returns `None`
    /// once the mailbox holds nothing for it, or the step's budget is spent. With `to_the_end`,
    /// waits even if the process was cancelled.
    async fn first<R>(
        mut self,
        to_the_end: bool,
        mut pick: impl FnMut(&mut Context<M>) -> Option<R>,
    ) -> Option<R> {
        poll_fn(|task| self.poll_mailbox(task, to_the_end, &mut pick)).await
    }

    #[inline]
    fn poll_mailbox<R>(
        &mut self,
        task: &mut TaskContext<'_>,
        to_the_end: bool,
        mut pick: impl FnMut(&mut Context<M>) -> Option<R>,
    ) -> Poll<Option<R>> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        loop {
            if let Some(picked) = pick(self.context) {
                self.waits = false;
                return Poll::Ready(Some(picked));
            }
            let slot = &self.context.slot;
            let Some(budget) = crate::scheduler::budget::budget_of(slot) else {
                panic!("a context receives in its own process only")
            };
            // One look: a process that is terminated between two looks would seem to be cancelled.
            let seen = slot.state.see();
            if seen.is_terminated() {
                // The process is ended right after this step. Its exit must not be taken for a
                // normal end.
                return Poll::Pending;
            }
            if budget == 0 {
                // There may be more.
                if crate::scheduler::budget::search_on(|| self.context.unsearched()) {
                    continue;
                }
                crate::scheduler::budget::yield_step(task);
                return Poll::Pending;
            }
            if seen.is_cancelled() && !to_the_end {
                // Once more: messages that were sent before the cancel may have come since.
                let picked = pick(self.context);
                if picked.is_none() && crate::scheduler::budget::is_spent() {
                    // There may be more.
                    crate::scheduler::budget::yield_step(task);
                    return Poll::Pending;
                }
                self.waits &= picked.is_none();
                return Poll::Ready(picked);
            }
            let mailbox = slot.mailbox();
            if request::arm(slot, mailbox) {
                self.waits = true;
                slot.waiting.note(Waiting::MESSAGE);
                slot.leave_foreign_waker(task.waker());
                return Poll::Pending;
            }
            if mailbox.is_closed() {
                // The process is at its end, and this is the `Drop` of its result or of a message.
                return Poll::Ready(None);
            }
        }
    }
}

impl<M: Send + 'static> Future for Recv<'_, M> {
    type Output = Option<M>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<M>> {
        self.get_mut().poll_mailbox(task, false, Context::take_next)
    }
}

impl<M: Send + 'static> Drop for Recv<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.context.wait_no_longer();
        }
    }
}

/// An event that a state machine receives in a step.
///
/// ```
/// use procession::mailbox::Event;
///
/// /// Adds a message to the sum. Returns `false` if the process is to end.
/// fn handle(event: Event<u32>, sum: &mut u32) -> bool {
///     match event {
///         Event::Message(number) => *sum += number,
///         Event::Cancel => return false,
///         // This process yields no commands, and monitors no other process.
///         _ => {}
///     }
///     true
/// }
///
/// let mut sum = 0;
/// assert!(handle(Event::Message(2), &mut sum));
/// assert!(!handle(Event::Cancel, &mut sum));
/// assert_eq!(sum, 2);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<M> {
    /// A message.
    Message(M),
    /// A yielded command is complete.
    Completion {
        /// The tag of the command.
        tag: u64,
        /// The result of the command.
        result: CommandResult,
    },
    /// The process is asked to end.
    Cancel,
    /// A monitored process has ended.
    Down(Down),
    /// A trapped exit signal.
    Exit(ExitSignal),
    /// The mailbox of this process is full, if it has
    /// [asked to be told](crate::mailbox::Urgent::with_full_mailbox).
    MailboxFull,
}

impl<M> From<Signal> for Event<M> {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Down(down) => Self::Down(down),
            Signal::Exit(exit) => Self::Exit(exit),
            Signal::MailboxFull => Self::MailboxFull,
        }
    }
}

/// The numbers of urgent events are smaller than this number, and the numbers of others larger.
const ORDINARY: u64 = 1 << 63;

/// The events that were left, each kind urgent ones first, then the oldest. Their numbers order the
/// two kinds.
struct Aside<M> {
    messages: BlockQueue<(u64, M)>,
    signals: BlockQueue<(u64, Signal)>,
    last: u64,
    /// The number of urgent events that were left.
    urgent: u64,
    /// Set if the event that a receive looks at is urgent.
    is_urgent: bool,
    /// The headers of the messages, by number.
    headers: SortedMap<u64, Header>,
    /// The header of the message that a receive looks at.
    looked_at: Option<Header>,
    marked: Option<Mark<M>>,
}

impl<M> Default for Aside<M> {
    fn default() -> Self {
        Self {
            messages: BlockQueue::new(),
            signals: BlockQueue::new(),
            last: ORDINARY,
            urgent: 0,
            is_urgent: false,
            headers: SortedMap::new(),
            looked_at: None,
            marked: None,
        }
    }
}

/// Inserts an event behind all with smaller numbers.
fn insert_in_order<T>(events: &mut BlockQueue<(u64, T)>, number: u64, event: T) {
    if number > ORDINARY {
        return events.push_back((number, event));
    }
    let place = events.partition_point(|(other, _)| *other < number);
    events.insert(place, (number, event));
}

impl<M> Aside<M> {
    /// Leaves an event, which is not received.
    fn leave(&mut self, event: Event<M>, header: Option<Header>) {
        let last =
            if std::mem::take(&mut self.is_urgent) { &mut self.urgent } else { &mut self.last };
        *last += 1;
        let number = *last;
        if let Some(header) = header {
            self.headers.insert(number, header);
        }
        match event {
            Event::Message(message) => insert_in_order(&mut self.messages, number, message),
            Event::Down(down) => insert_in_order(&mut self.signals, number, Signal::Down(down)),
            Event::Exit(exit) => insert_in_order(&mut self.signals, number, Signal::Exit(exit)),
            Event::MailboxFull => insert_in_order(&mut self.signals, number, Signal::MailboxFull),
            Event::Completion { .. } | Event::Cancel => {
                unreachable!("a state machine is told these")
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.signals.is_empty() && self.marked.is_none()
    }
}

/// The events that came after a monitor was made while the mailbox was long. `Context::taken` is
/// older. The answer of this monitor, or of a later monitor, can only be here or still in the
/// queue.
struct Mark<M> {
    since: MonitorRef,
    /// Set if the process no longer waits for the answer of that monitor. The next monitor may then
    /// set a new mark.
    is_answered: bool,
    /// The events that were searched for the answer of `looked_for`. They are older than `rest`.
    looked: Batch<M, System>,
    looked_for: MonitorRef,
    rest: Batch<M, System>,
}

impl<M> Mark<M> {
    fn new(since: MonitorRef) -> Self {
        Self {
            since,
            is_answered: false,
            looked: Batch::new(),
            looked_for: since,
            rest: Batch::new(),
        }
    }

    /// Returns all events, oldest first.
    fn into_batch(self) -> Batch<M, System> {
        let mut all = self.looked;
        all.append(self.rest);
        all
    }
}
