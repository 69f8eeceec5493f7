//! State machines with states that events change, as `gen_statem` of OTP.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::Exit;
use crate::behaviour::info::Info;
use crate::mailbox::context::{Context, Event};
use crate::mailbox::header::RequestContext;
use crate::mailbox::request;
use crate::scheduler::budget;
use crate::time::{Instant, timeout};

/// A state machine: a value that handles each event in one of its states.
///
/// The value holds the data of the machine. [`run`](Self::run) runs it in a process with a mailbox.
/// A message that is a call has a [`Reply`](crate::Reply) in it.
///
/// After each event, in this order:
/// 1. If the state has changed, the state timeout ends, and the
///    [postponed](StatemContext::postpone) events are handled next, the oldest first. If the event
///    itself was postponed, it is the last postponed event.
/// 2. If the state has changed or is repeated, [`enter`](Self::enter) is called.
/// 3. The events of [`StatemContext::next_event`] come before all others, in the order of the
///    calls.
///
/// A message is received once no event is left and no timeout is due.
///
/// ```
/// use std::time::Duration;
/// use procession::behaviour::{Statem, StatemContext, StatemEvent, Transition};
/// use procession::{Context, Reply, Scheduler, start};
///
/// #[derive(PartialEq)]
/// enum Door {
///     Locked,
///     Open,
/// }
///
/// enum Act {
///     Enter(Reply<&'static str>),
///     Unlock,
/// }
///
/// /// Opens for a second, and counts.
/// struct Lock(u32);
///
/// impl Statem for Lock {
///     type State = Door;
///     type Message = Act;
///
///     async fn handle(
///         &mut self,
///         event: StatemEvent<Act>,
///         cx: &mut StatemContext<Self>,
///     ) -> Transition<Door> {
///         match (cx.state(), event) {
///             (Door::Locked, StatemEvent::Message(Act::Unlock)) => {
///                 self.0 += 1;
///                 cx.set_state_timeout(Duration::from_secs(1));
///                 Transition::Next(Door::Open)
///             }
///             (Door::Locked, event) => {
///                 // A caller waits until the door is open.
///                 cx.postpone(event);
///                 Transition::Keep
///             }
///             (Door::Open, StatemEvent::Message(Act::Enter(reply))) => {
///                 reply.send("welcome");
///                 Transition::Keep
///             }
///             (Door::Open, StatemEvent::StateTimeout) => Transition::Next(Door::Locked),
///             (Door::Open, _) => Transition::Keep,
///         }
///     }
/// }
///
/// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     let door = start(|cx: Context<Act>| Lock(0).run(Door::Locked, cx));
///     door.send_after(Duration::from_secs(5), Act::Unlock).expect("it is alive");
///     let answer = door.call(Act::Enter, Duration::from_secs(9)).await;
///     assert_eq!(answer.ok(), Some("welcome"));
/// });
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub trait Statem: Send + Sized + 'static {
    /// The state. Equal states are the same state.
    type State: PartialEq + Send + 'static;
    /// The messages of the process.
    type Message: Send + 'static;

    /// Handles an event in the state [`cx.state()`](StatemContext::state), and returns what becomes
    /// of the state.
    ///
    /// While it waits, the machine handles nothing else. If it panics, the process ends.
    fn handle(
        &mut self,
        event: StatemEvent<Self::Message>,
        cx: &mut StatemContext<Self>,
    ) -> impl Future<Output = Transition<Self::State>> + Send;

    /// Enters the state [`cx.state()`](StatemContext::state). It is called for the first state, for
    /// a state that differs from the previous state, and for a state that is
    /// [repeated](Transition::Repeat). By default, does nothing.
    fn enter(
        &mut self,
        from: EnteredFrom<Self::State>,
        cx: &mut StatemContext<Self>,
    ) -> impl Future<Output = ()> + Send {
        let _ = (from, cx);
        std::future::ready(())
    }

    /// Cleans up at the end of the machine: when it stops, and after a cancel, once no event and no
    /// message is left. It is not called if the process panics or is terminated. By default, does
    /// nothing.
    fn terminate(
        &mut self,
        exit: &Exit,
        cx: &mut StatemContext<Self>,
    ) -> impl Future<Output = ()> + Send {
        let _ = (exit, cx);
        std::future::ready(())
    }

    /// Runs the machine with the mailbox of a process, until it stops or is cancelled. Returns how
    /// the process is to end: with [`Exit::Normal`] after a cancel.
    ///
    /// Messages that are postponed or inserted at the end, whatever the exit, become
    /// [dead letters](crate::Builder::on_dead_letter), and their callers get no answer.
    ///
    /// # Cancellation
    /// A cancel of the process ends the machine in order: it handles the events and the messages
    /// that are left, and terminates. If the future is dropped before it completes, the machine,
    /// its events and its mailbox are dropped: [`terminate`](Self::terminate) is not called, a
    /// method that waits does not go on, and callers get no answer.
    fn run(
        self,
        initial: Self::State,
        context: Context<Self::Message>,
    ) -> impl Future<Output = Exit> + Send {
        run_reporting(self, initial, context, || ())
    }
}

/// Runs a state machine. Calls `ready` once it has entered its first state.
pub(crate) async fn run_reporting<S: Statem>(
    mut machine: S,
    initial: S::State,
    context: Context<S::Message>,
    ready: impl FnOnce() + Send,
) -> Exit {
    let mut cx = StatemContext::new(initial, context);
    machine.enter(EnteredFrom::Start, &mut cx).await;
    ready();
    let exit = loop {
        let Some(event) = cx.next().await else { break Exit::Normal };
        let transition = machine.handle(event, &mut cx).await;
        // What is postponed from here on is another event.
        cx.is_counted = false;
        match transition {
            Transition::Keep => {}
            Transition::Next(state) if state == cx.state => {}
            Transition::Next(state) => {
                let old = cx.change(state);
                machine.enter(EnteredFrom::State(old), &mut cx).await;
            }
            Transition::Repeat => machine.enter(EnteredFrom::Repeat, &mut cx).await,
            Transition::Stop(exit) => break exit,
        }
    };
    machine.terminate(&exit, &mut cx).await;
    exit
}

/// An event of a [`Statem`].
#[derive(Debug)]
#[non_exhaustive]
pub enum StatemEvent<M> {
    /// A message, or an event that was [inserted](StatemContext::next_event).
    Message(M),
    /// The timeout of the state ([`StatemContext::set_state_timeout`]).
    StateTimeout,
    /// The timeout for the next event ([`StatemContext::set_event_timeout`]).
    EventTimeout,
    /// A timeout with a name ([`StatemContext::set_timeout`]).
    Timeout(&'static str),
    /// A notice about another process.
    Info(Info),
}

/// What becomes of the state of a [`Statem`] after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition<S> {
    /// The state stays.
    Keep,
    /// The state stays, and is entered once more. Postponed events stay postponed, and the state
    /// timeout continues.
    Repeat,
    /// The next state is this state. If it equals the present state, the state stays.
    Next(S),
    /// The machine ends, and the process with this exit.
    Stop(Exit),
}

/// Where a [`Statem`] enters a state from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnteredFrom<S> {
    /// It is the first state.
    Start,
    /// This was the state before.
    State(S),
    /// The state is repeated.
    Repeat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeoutKind {
    State,
    Event,
    Named(&'static str),
}

#[derive(Debug)]
struct StatemTimer {
    kind: TimeoutKind,
    due: Instant,
    /// The number of the event that was being handled when it was set.
    set_in: u64,
}

/// An event that waits in a machine.
struct HeldEvent<M> {
    event: StatemEvent<M>,
    /// Set for a message that counts as received. The machine itself has made all other events.
    is_counted: bool,
    /// The request that the process worked for when it put the event off or inserted it.
    request: Option<RequestContext>,
}

impl<M> HeldEvent<M> {
    fn new(event: StatemEvent<M>, is_counted: bool) -> Self {
        Self { event, is_counted, request: request::context() }
    }
}

/// The context of a [`Statem`]. It dereferences to the [`Context`] of its process.
pub struct StatemContext<S: Statem> {
    context: Context<S::Message>,
    state: S::State,
    /// The events that come before the mailbox.
    queue: VecDeque<HeldEvent<S::Message>>,
    postponed: Vec<HeldEvent<S::Message>>,
    inserted: Vec<HeldEvent<S::Message>>,
    /// Set if the event that is handled counts as received, and was not postponed. If the machine
    /// postpones a message that it has made instead, that message counts in its place.
    is_counted: bool,
    /// In the order in which they were set.
    timers: Vec<StatemTimer>,
    /// The number of events that were handled, including the present one.
    events: u64,
}

impl<S: Statem> StatemContext<S> {
    fn new(state: S::State, context: Context<S::Message>) -> Self {
        Self {
            context,
            state,
            queue: VecDeque::new(),
            postponed: Vec::new(),
            inserted: Vec::new(),
            is_counted: false,
            timers: Vec::new(),
            events: 0,
        }
    }

    /// Returns the present state.
    pub fn state(&self) -> &S::State {
        &self.state
    }

    /// Puts an event off until the state has changed. When the event is handled again, the process
    /// works for the same [request](crate::request) as now.
    pub fn postpone(&mut self, event: StatemEvent<S::Message>) {
        let is_message = matches!(event, StatemEvent::Message(_));
        let is_counted = is_message && mem::take(&mut self.is_counted);
        self.postponed.push(HeldEvent::new(event, is_counted));
    }

    /// Inserts an event before all others. If it is called several times for one event, they are
    /// handled in the order of the calls, for the same [request](crate::request) as now.
    pub fn next_event(&mut self, event: StatemEvent<S::Message>) {
        self.inserted.push(HeldEvent::new(event, false));
    }

    /// Sets the timeout of the state, counted from now: the machine gets
    /// [`StatemEvent::StateTimeout`] unless the state changes before. If the state changes after
    /// the event that is handled, the timeout applies to the new state.
    ///
    /// Replaces the state timeout that was set before. A timeout of zero ends before the next
    /// message.
    pub fn set_state_timeout(&mut self, timeout: Duration) {
        self.set(TimeoutKind::State, timeout);
    }

    /// Sets the timeout for the next event, counted from now: the machine gets
    /// [`StatemEvent::EventTimeout`] unless any other event occurs before.
    pub fn set_event_timeout(&mut self, timeout: Duration) {
        self.set(TimeoutKind::Event, timeout);
    }

    /// Sets a timeout with a name, counted from now: the machine gets [`StatemEvent::Timeout`] in
    /// whatever state it is then. Replaces the timeout of that name.
    pub fn set_timeout(&mut self, name: &'static str, timeout: Duration) {
        self.set(TimeoutKind::Named(name), timeout);
    }

    /// Cancels the timeout of the state. Returns `true` if there was one.
    pub fn cancel_state_timeout(&mut self) -> bool {
        self.cancel(TimeoutKind::State)
    }

    /// Cancels the timeout for the next event. Returns `true` if there was one.
    pub fn cancel_event_timeout(&mut self) -> bool {
        self.cancel(TimeoutKind::Event)
    }

    /// Cancels the timeout with a name. Returns `true` if there was one.
    pub fn cancel_timeout(&mut self, name: &'static str) -> bool {
        self.cancel(TimeoutKind::Named(name))
    }

    fn set(&mut self, kind: TimeoutKind, timeout: Duration) {
        self.cancel(kind);
        let due = Instant::now() + timeout;
        self.timers.push(StatemTimer { kind, due, set_in: self.events });
    }

    fn cancel(&mut self, kind: TimeoutKind) -> bool {
        let place = self.timers.iter().position(|timer| timer.kind == kind);
        place.map(|place| self.timers.remove(place)).is_some()
    }

    /// Changes the state, and returns the previous state.
    fn change(&mut self, state: S::State) -> S::State {
        self.timers.retain(|timer| timer.kind != TimeoutKind::State || timer.set_in == self.events);
        for event in self.postponed.drain(..).rev() {
            self.queue.push_front(event);
        }
        mem::replace(&mut self.state, state)
    }

    /// Returns the next event, or `None` once the process was cancelled and no event is left.
    async fn next(&mut self) -> Option<StatemEvent<S::Message>> {
        for event in self.inserted.drain(..).rev() {
            self.queue.push_front(event);
        }
        // A machine that inserts events forever receives nothing, but lets others run.
        budget::charged().await;
        let (event, is_counted) = match self.queue.pop_front() {
            Some(HeldEvent { event, is_counted, request }) => {
                request::resume(self.context.slot(), request);
                (event, is_counted)
            }
            None => {
                let event = self.receive().await?;
                let is_counted = matches!(event, StatemEvent::Message(_));
                (event, is_counted)
            }
        };
        self.is_counted = is_counted;
        self.events += 1;
        self.cancel(TimeoutKind::Event);
        Some(event)
    }

    /// Returns the timeout that is due, or receives a message.
    async fn receive(&mut self) -> Option<StatemEvent<S::Message>> {
        loop {
            // If several timeouts are due at the same time, the timeout that was set first is
            // handled first.
            let first = (0..self.timers.len()).min_by_key(|&place| self.timers[place].due);
            let now = Instant::now();
            if let Some(place) = first.filter(|&place| self.timers[place].due <= now) {
                return Some(match self.timers.remove(place).kind {
                    TimeoutKind::State => StatemEvent::StateTimeout,
                    TimeoutKind::Event => StatemEvent::EventTimeout,
                    TimeoutKind::Named(name) => StatemEvent::Timeout(name),
                });
            }
            let next = self.context.recv_event();
            let received = match first {
                Some(place) => {
                    let left = self.timers[place].due.saturating_duration_since(now);
                    let Ok(received) = timeout(left, next).await else { continue };
                    received
                }
                None => next.await,
            };
            match received? {
                Event::Message(message) => return Some(StatemEvent::Message(message)),
                other => {
                    if let Some(info) = Info::of(other) {
                        return Some(StatemEvent::Info(info));
                    }
                }
            }
        }
    }
}

impl<S: Statem> Drop for StatemContext<S> {
    fn drop(&mut self) {
        // The oldest first, because another process may take the messages over.
        let postponed = mem::take(&mut self.postponed).into_iter();
        let left = postponed.chain(mem::take(&mut self.queue)).chain(mem::take(&mut self.inserted));
        self.context.discard_received(left.filter_map(|held| match held.event {
            StatemEvent::Message(message) => Some((message, held.is_counted, held.request)),
            _ => None,
        }));
    }
}

impl<S: Statem> Deref for StatemContext<S> {
    type Target = Context<S::Message>;

    fn deref(&self) -> &Self::Target {
        &self.context
    }
}

impl<S: Statem> DerefMut for StatemContext<S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.context
    }
}

impl<S: Statem> fmt::Debug for StatemContext<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatemContext")
            .field("context", &self.context)
            .field("postponed", &self.postponed.len())
            .field("timers", &self.timers)
            .finish_non_exhaustive()
    }
}
