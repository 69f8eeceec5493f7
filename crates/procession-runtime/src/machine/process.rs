//! State machines: their trait, and the body that runs them.

use std::any::Any;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::Context as TaskContext;

use procession_protocols::mailbox::bounded::Taken;
use procession_protocols::process::state::WaitPhase;
use procession_protocols::util::small_vec::SmallVec;

use crate::machine::awaited::{AnyFuture, AwaitedFutures};
use crate::machine::command::{AsyncWork, Command};
use crate::machine::completion::Completion;
use crate::machine::events::Events;
use crate::machine::registry::HandlerTable;
use crate::machine::value::{CommandId, CommandResult, Value};
use crate::mailbox::context::Event;
use crate::mailbox::deliver::leave;
use crate::mailbox::request;
use crate::process::body::{Body, Queued, Step, System};
use crate::process::exit::Outcome;
use crate::process::request::Inspection;
use crate::process::slot::{Mailbox, Slot};
use crate::process::unwind::{DropGuarded, drop_guarded, guarded};
use crate::process::wait_reason::Waiting;
use crate::relations::links;
use crate::relations::signal::MonitorRef;
use crate::scheduler::current;
use crate::scheduler::serving::Serving;
use crate::scheduler::spawn_error::InitError;
use crate::time::action::Armed;
use crate::{Exit, Pid};

/// A process as a state machine. It receives events, performs a step, and returns what it waits
/// for.
///
/// Start it by [`try_start_machine`](crate::SpawnOptions::try_start_machine).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use procession::machine::{CommandId, Events, InitError, Process, Status, WaitingFor, Yields};
/// use procession::mailbox::Event;
/// use procession::SpawnOptions;
///
/// /// Waits for a number, sleeps, and returns the double.
/// struct Double;
///
/// impl Process for Double {
///     type Input = ();
///     type Message = u64;
///     type Output = u64;
///
///     fn init(&mut self, _method: &str, (): ()) -> Result<(), InitError> {
///         Ok(())
///     }
///
///     fn step(
///         &mut self,
///         events: &mut Events<u64>,
///         yields: &mut Yields<'_>,
///     ) -> Result<Status<u64>, Box<dyn std::error::Error + Send + Sync>> {
///         for event in events {
///             match event {
///                 Event::Message(number) => {
///                     yields.command(CommandId::SLEEP, number, Duration::from_millis(1));
///                 }
///                 Event::Completion { tag, .. } => return Ok(Status::Done(2 * tag)),
///                 Event::Cancel => return Ok(Status::Done(0)),
///                 _ => {}
///             }
///         }
///         Ok(Status::Wait(WaitingFor::Either))
///     }
/// }
///
/// procession::run(async {
///     let double = SpawnOptions::new().try_start_machine(Double, "", ())?;
///     double.send(21)?;
///     assert_eq!(double.await, Ok(42));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Status and yields
/// A step returns a [`Status`], and yields any number of commands. Each command has a tag, which
/// its completion carries back.
///
/// | status | with completions outstanding | with none |
/// |---|---|---|
/// | [`Continue`](Status::Continue) | steps after everything that is ready | the same |
/// | [`Wait`](Status::Wait) for messages | steps when a message arrives | the same |
/// | `Wait` for completions | steps when one arrives | ends with [`Exit::WaitsForNothing`] |
/// | `Wait` for either | steps when either arrives | steps when a message arrives |
/// | [`Done`](Status::Done) | ends, as the output says ([`Outcome`]) | the same |
/// | [`Become`](Status::Become) | its successor steps after everything that is ready | the same |
/// | an error | ends with [`Exit::Failed`] | the same |
///
/// While the process waits for messages, completions are kept, and the other way round. When it is
/// `Done`, its sleeps are cancelled, other commands continue, and their completions are ignored.
/// The text of [`Exit::Failed`] consists of the texts of the error and its sources.
///
/// Signals ([`Event::Down`], [`Event::Exit`]) count as messages. If the error is an [`Exit`], the
/// process ends with that exit.
///
/// If a step returns `Done` or an error, its yields are dropped. A cancel is a separate event. It
/// occurs once, and ends every wait.
///
/// # Successors
/// A process may become another state machine with the same types of messages and outputs, for
/// example a new version of its code. It keeps its PID, mailbox, links, monitors, names, children
/// and label. See [`successor`](Self::successor).
///
/// # Panics
/// A panic in `init` is returned to the starter. A panic in `step` ends the process with
/// [`Exit::Panicked`]. A panic in `close` has no effect.
pub trait Process: Send + 'static {
    /// The input of [`init`](Self::init). Use `()` for none.
    type Input: Send + 'static;
    /// The type of the messages that it receives.
    type Message: Send + 'static;
    /// The type of its output, which says whether the process has failed.
    type Output: Outcome + Send + 'static;

    /// Selects the entry point. It may refuse to start. It runs on the thread that starts the
    /// process.
    ///
    /// # Errors
    /// Returns an [`InitError`], which goes to the starter together with the process.
    fn init(&mut self, method: &str, input: Self::Input) -> Result<(), InitError>;

    /// Shows the state to a caller of [`Scheduler::inspect`](crate::Scheduler::inspect). It runs
    /// between two steps, ahead of all events, and must be quick, because the process does nothing
    /// else until it returns. By default, a state machine shows nothing.
    ///
    /// The program decides what it shows. Leave out secrets: all that can reach the
    /// [door](crate#features) of the program can read it.
    fn inspect(&self, shown: &mut Inspection) {
        let _ = shown;
    }

    /// Performs a step. Events that it does not take out of `events` are dropped. If the step ends
    /// the process, it has not received the messages among them: they are left as in a mailbox.
    ///
    /// # Errors
    /// Any error ends the process.
    fn step(
        &mut self,
        events: &mut Events<Self::Message>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<Self::Output>, Box<dyn Error + Send + Sync>>;

    /// Returns the state machine that continues in place of this state machine. It is called once
    /// after each step that returned [`Status::Become`]. By default, returns `None`.
    ///
    /// The events that the step has not taken, the commands that it has yielded and the completions
    /// that are outstanding belong to the successor. If the process has been cancelled, the
    /// successor receives one [`Event::Cancel`], whether this state machine has taken its own or
    /// not. `init` is not called. This state machine
    /// is closed and dropped before the first step of the successor.
    ///
    /// If there is no successor, the process ends with [`Exit::Failed`].
    ///
    /// ```
    /// use procession::machine::{
    ///     Events, InitError, Process, Status, Successor, WaitingFor, Yields,
    /// };
    /// use procession::mailbox::Event;
    /// use procession::SpawnOptions;
    ///
    /// type StepResult = Result<Status<u64>, Box<dyn std::error::Error + Send + Sync>>;
    ///
    /// /// Counts messages until 0 comes. After that, [`Adds`] continues with the count.
    /// struct Counts(u64);
    /// /// Adds up messages until 0 comes.
    /// struct Adds(u64);
    ///
    /// impl Process for Counts {
    ///     type Input = ();
    ///     type Message = u64;
    ///     type Output = u64;
    ///
    ///     fn init(&mut self, _method: &str, (): ()) -> Result<(), InitError> {
    ///         Ok(())
    ///     }
    ///
    ///     fn step(&mut self, events: &mut Events<u64>, _: &mut Yields<'_>) -> StepResult {
    ///         for event in events {
    ///             match event {
    ///                 Event::Message(0) => return Ok(Status::Become),
    ///                 Event::Message(_) => self.0 += 1,
    ///                 _ => {}
    ///             }
    ///         }
    ///         Ok(Status::Wait(WaitingFor::Messages))
    ///     }
    ///
    ///     fn successor(&mut self) -> Option<Successor<(), u64, u64>> {
    ///         Some(Box::new(Adds(self.0)))
    ///     }
    /// }
    ///
    /// impl Process for Adds {
    ///     type Input = ();
    ///     type Message = u64;
    ///     type Output = u64;
    ///
    ///     fn init(&mut self, _method: &str, (): ()) -> Result<(), InitError> {
    ///         Ok(())
    ///     }
    ///
    ///     fn step(&mut self, events: &mut Events<u64>, _: &mut Yields<'_>) -> StepResult {
    ///         for event in events {
    ///             match event {
    ///                 Event::Message(0) => return Ok(Status::Done(self.0)),
    ///                 Event::Message(number) => self.0 += number,
    ///                 _ => {}
    ///             }
    ///         }
    ///         Ok(Status::Wait(WaitingFor::Messages))
    ///     }
    /// }
    ///
    /// let sum = procession::run(async {
    ///     let process = SpawnOptions::new().try_start_machine(Counts(0), "", ());
    ///     let process = process.expect("it accepts everything");
    ///     for number in [5, 5, 0, 10, 0] {
    ///         process.send(number).expect("it is alive");
    ///     }
    ///     process.await
    /// });
    /// assert_eq!(sum, Ok(2 + 10));
    /// ```
    fn successor(&mut self) -> Option<Successor<Self::Input, Self::Message, Self::Output>> {
        None
    }

    /// Releases what the process holds, before the process is dropped. It is called once, whatever
    /// the exit, but only if `init` accepted, and for every successor.
    fn close(&mut self) {}
}

/// The state machine that a process becomes, see [`Process::successor`]. It is a [`Process`]
/// itself.
pub type Successor<I, M, T> = Box<dyn Process<Input = I, Message = M, Output = T>>;

impl<I, M, T> Process for Successor<I, M, T>
where
    I: Send + 'static,
    M: Send + 'static,
    T: Outcome + Send + 'static,
{
    type Input = I;
    type Message = M;
    type Output = T;

    fn init(&mut self, method: &str, input: I) -> Result<(), InitError> {
        (**self).init(method, input)
    }

    fn inspect(&self, shown: &mut Inspection) {
        (**self).inspect(shown);
    }

    fn step(
        &mut self,
        events: &mut Events<M>,
        yields: &mut Yields<'_>,
    ) -> Result<Status<T>, Box<dyn Error + Send + Sync>> {
        (**self).step(events, yields)
    }

    fn successor(&mut self) -> Option<Successor<I, M, T>> {
        (**self).successor()
    }

    fn close(&mut self) {
        (**self).close();
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status<T> {
    /// The process wants another step.
    Continue,
    /// The process waits.
    Wait(WaitingFor),
    /// The process continues as its [`successor`](Process::successor).
    Become,
    /// The process ends with a result.
    Done(T),
}

/// The events that a state machine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitingFor {
    /// Messages. Completions are kept until the wait ends.
    Messages,
    /// Completions. Messages are kept until the wait ends.
    Completions,
    /// Messages and completions.
    Either,
}

/// Takes the commands that a step yields, and changes the relations of the process.
pub struct Yields<'a> {
    commands: &'a mut SmallVec<(CommandId, u64, Value)>,
    sleeps: &'a mut Vec<(u64, Armed)>,
    outstanding: &'a mut usize,
    slot: &'a Slot,
}

impl Yields<'_> {
    /// Yields a command. Its completion carries `tag`. Several commands may have the same tag.
    pub fn command(&mut self, command: CommandId, tag: u64, input: impl Any + Send) {
        self.commands.push((command, tag, Box::new(input)));
    }

    /// Yields a typed command. [`Command::output`] converts the result of its completion.
    pub fn perform<C: Command>(&mut self, tag: u64, command: C) {
        self.commands.push((C::ID, tag, command.into_input()));
    }

    /// Returns the completion of work that the process starts itself, without a handler. Once it is
    /// completed, the process receives an [`Event::Completion`] with `tag`.
    pub fn completion(&mut self, tag: u64) -> Completion {
        *self.outstanding += 1;
        Completion::of_machine(self.slot, tag)
    }

    /// Cancels the sleeps ([`CommandId::SLEEP`]) with this tag, so that they never complete.
    /// Returns `true` if there was such a sleep. If the time of a sleep is already over, it still
    /// completes.
    pub fn cancel_sleep(&mut self, tag: u64) -> bool {
        let before = self.commands.len();
        self.commands.retain(|&(command, other, _)| (command, other) != (CommandId::SLEEP, tag));
        let mut cancelled = self.commands.len() < before;
        let (outstanding, slot) = (&mut *self.outstanding, self.slot);
        self.sleeps.retain(|&(other, timer)| {
            let Some(action) = (other == tag).then(|| timer.delete(slot.shared())).flatten() else {
                return true;
            };
            drop_guarded(action);
            *outstanding -= 1;
            cancelled = true;
            false
        });
        cancelled
    }

    /// Returns the PID of the process.
    pub fn pid(&self) -> Pid {
        self.slot.pid()
    }

    /// Changes the label of the process, which snapshots, looks and reports show from now on. The
    /// span of its traces keeps the label that it was spawned with.
    pub fn set_label(&mut self, label: impl Into<Arc<str>>) {
        let label = label.into();
        let before = self.slot.extra_or_default().changed_label.lock().replace(label);
        drop(before);
    }

    /// Monitors another process. When that process ends, the monitoring process gets an
    /// [`Event::Down`]. See [`Context::monitor`](crate::Context::monitor).
    pub fn monitor(&mut self, pid: Pid) -> MonitorRef {
        crate::relations::monitors::monitor(self.slot, pid)
    }

    /// Ends a monitor. See [`Context::demonitor`](crate::Context::demonitor).
    pub fn demonitor(&mut self, monitor: MonitorRef) -> bool {
        crate::relations::monitors::demonitor(self.slot, monitor)
    }

    /// Links the process and another process. See [`link`](crate::relations::links::link()).
    pub fn link(&mut self, pid: Pid) {
        links::link_to(self.slot, pid);
    }

    /// Removes a link.
    pub fn unlink(&mut self, pid: Pid) {
        links::unlink_from(self.slot, pid);
    }

    /// Sets whether exit signals come as [`Event::Exit`] instead of ending the process. Returns the
    /// previous value.
    pub fn trap_exits(&mut self, traps: bool) -> bool {
        links::trap_exits(self.slot, traps)
    }
}

/// Returns `true` if the process that this thread runs has been terminated, such as by
/// [`Exit::Killed`] or by the end of a linked process.
///
/// A process ends between two steps. A step that computes for a long time may call this function to
/// return early. Returns `false` outside of processes. The cost is a few nanoseconds.
///
/// ```
/// use procession::machine::is_terminated;
/// use procession::process::{current_pid, send_exit};
/// use procession::Exit;
///
/// let process = procession::run(async {
///     let process = procession::spawn(async {
///         assert!(!is_terminated());
///         send_exit(current_pid().expect("it is a process"), Exit::Killed);
///         is_terminated()
///     });
///     process.await
/// });
/// assert_eq!(process, Ok(true));
/// ```
pub fn is_terminated() -> bool {
    current::current().is_some_and(|slot| slot.state.see().is_terminated())
}

impl fmt::Debug for Yields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Yields").field(&self.commands).finish()
    }
}

/// The body of a state machine.
pub(crate) struct MachineBody<P: Process> {
    stage: MachineStage<P>,
    events: Events<P::Message>,
    /// The number of events of each kind in `events`.
    messages: usize,
    completions: usize,
    signals: usize,
    yields: SmallVec<(CommandId, u64, Value)>,
    /// Completions that have not been delivered.
    outstanding: usize,
    /// The tags and timers of its sleeps, which end with the process.
    sleeps: Vec<(u64, Armed)>,
    futures: AwaitedFutures,
    waiting_for: Option<WaitingFor>,
    told_cancel: bool,
    /// Set if the mailbox may hold more entries.
    has_more: bool,
}

enum MachineStage<P: Process> {
    Runs(Closing<P>),
    /// Runs as a successor of the process that was started.
    Became(Closing<Successor<P::Input, P::Message, P::Output>>),
    Ended(Result<P::Output, Exit>),
    Taken,
}

/// Calls `close` before the process is dropped.
struct Closing<P: Process>(P);

impl<P: Process> Drop for Closing<P> {
    fn drop(&mut self) {
        // Guarded, so that a panic of `close` does not meet a panic of the process's `Drop`.
        drop(guarded(|| self.0.close()));
    }
}

/// Maximum number of entries of a bounded mailbox that a state machine receives in one step. It
/// equals the budget of other processes.
const COLLECTED_MAX: u32 = crate::scheduler::local::BUDGET;
/// Capacity for more events or commands than this is released after the step that needed it.
const KEPT: usize = 4;

impl<P: Process> MachineBody<P> {
    pub(crate) fn init(
        mut process: P,
        method: &str,
        input: P::Input,
    ) -> Result<Box<Self>, (P, InitError)> {
        match guarded(|| process.init(method, input)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err((process, error)),
            Err(Exit::Panicked(text)) => return Err((process, InitError::Panicked(text))),
            // `init` ended the process, or it was cancelled while it waited.
            Err(exit) => return Err((process, InitError::Refused(Box::new(exit)))),
        }
        // Written in place. Moving the value would read it right after it was written in parts, and
        // stall on the stores (4 % of `step`).
        Ok(Box::write(
            Box::new_uninit(),
            Self {
                stage: MachineStage::Runs(Closing(process)),
                events: Events(VecDeque::new(), None),
                messages: 0,
                completions: 0,
                signals: 0,
                yields: SmallVec::default(),
                outstanding: 0,
                sleeps: Vec::new(),
                futures: AwaitedFutures::default(),
                waiting_for: None,
                told_cancel: false,
                has_more: false,
            },
        ))
    }

    /// Takes the entries of the mailbox.
    fn collect(&mut self, slot: &Slot) {
        self.has_more = false;
        let Some(mailbox) = slot.mailbox_checked::<P::Message>() else {
            unreachable!("[typed] the slot was made for this process")
        };
        match mailbox {
            Mailbox::Unbounded(queue) | Mailbox::Headed(queue) => {
                let taken = queue.take();
                if taken.len() > 0 {
                    slot.note_length();
                    taken.for_each(|event| self.note(slot, event, false));
                }
            }
            Mailbox::Bounded(ring) => {
                // Limited, because signals and completions need no room and may come as fast as
                // they are taken. Messages release their room when the process receives them.
                for _ in 0..COLLECTED_MAX {
                    let Taken { entry: Some(entry), is_urgent, .. } = ring.take_kept() else {
                        return;
                    };
                    self.note(slot, entry, is_urgent);
                }
                self.has_more = true;
            }
        }
    }

    #[inline]
    fn note(&mut self, slot: &Slot, event: Queued<P::Message>, is_urgent: bool) {
        let mut noted = None;
        let event = match event {
            Queued::Message(message) => Event::Message(message),
            Queued::Headed(entry) => {
                let (header, message) = request::take(slot, entry);
                noted = header;
                Event::Message(message)
            }
            Queued::System(entry) => match entry.into_inner() {
                System::Completion { tag, result } => Event::Completion { tag, result },
                System::Slept { tag, timer } => {
                    self.sleeps.retain(|&(_, sleep)| sleep != timer);
                    Event::Completion { tag, result: Ok(Box::new(()) as Value) }
                }
                System::Signal(signal) => match links::accept(slot, signal) {
                    Some(signal) => signal.into(),
                    None => return,
                },
                // The header belongs to the next message.
                System::Header(_) => return,
            },
        };
        match event {
            Event::Message(_) => self.messages += 1,
            Event::Completion { .. } => self.completions += 1,
            _ => self.signals += 1,
        }
        if noted.is_some() || is_urgent {
            self.events.push_rare(event, noted, is_urgent);
        } else {
            self.events.0.push_back(event);
        }
    }

    /// Serves the commands that the process has yielded.
    fn serve(&mut self, slot: &Slot) {
        if self.yields.is_empty() {
            return;
        }
        let serving = Serving::begin(slot);
        while let Some((command, tag, input)) = self.yields.pop() {
            if command == CommandId::ASYNC {
                self.begin_future(tag, input);
                continue;
            }
            self.sleeps.extend(
                HandlerTable::of(slot.shared())
                    .dispatch(slot, command, tag, input)
                    .map(|timer| (tag, timer)),
            );
            if let Some((tag, result)) = serving.take() {
                self.complete(tag, result);
            }
        }
        self.yields.shrink(KEPT);
    }

    fn complete(&mut self, tag: u64, result: CommandResult) {
        self.completions += 1;
        self.events.0.push_back(Event::Completion { tag, result });
    }

    /// Serves an [`AsyncWork`].
    fn begin_future(&mut self, tag: u64, input: Value) {
        match input.downcast::<AnyFuture>() {
            Ok(future) => self.futures.push(tag, *future),
            Err(other) => {
                drop_guarded(other);
                self.complete(tag, Err(AsyncWork::<()>::wrong_input()));
            }
        }
    }

    /// Polls the futures that the process awaits.
    #[inline]
    fn poll_futures(&mut self, task: &mut TaskContext<'_>) {
        let (events, completions) = (&mut self.events.0, &mut self.completions);
        self.futures.poll(task, &mut |tag, result| {
            *completions += 1;
            events.push_back(Event::Completion { tag, result });
        });
    }

    /// Returns `true` if an event has come that ends this wait.
    fn has_come(&self, waiting_for: WaitingFor) -> bool {
        match waiting_for {
            WaitingFor::Messages => self.messages + self.signals > 0,
            WaitingFor::Completions => self.completions > 0,
            WaitingFor::Either => self.messages + self.signals + self.completions > 0,
        }
    }

    /// Returns `true` if the process may perform a step: it does not wait, or an event has come
    /// that it waits for.
    fn may_step(&mut self, slot: &Slot) -> bool {
        if slot.state.is_cancelled() && !std::mem::replace(&mut self.told_cancel, true) {
            self.events.0.push_back(Event::Cancel);
            return true;
        }
        self.waiting_for.is_none_or(|waiting_for| self.has_come(waiting_for))
    }

    /// Drops the events, commands and futures that are left, one by one, and cancels the sleeps.
    /// The caller records the end.
    fn drop_untold(&mut self, slot: &Slot) {
        self.futures.clear();
        while let Some((_, sleep)) = self.sleeps.pop() {
            drop_guarded(sleep.delete(slot.shared()));
        }
        let (mut left, mut buried) = (0, 0);
        while let Some((event, request)) = self.events.take_untold() {
            match event {
                Event::Message(message) => {
                    left += 1;
                    buried += u64::from(leave(slot, request, message));
                }
                event => drop_guarded(event),
            }
        }
        self.events.1 = None;
        while let Some(command) = self.yields.pop() {
            drop_guarded(command);
        }
        // The messages that a failed step has left were counted as received.
        (self.messages..left).for_each(|_| slot.uncount_received());
        self.messages = 0;
        if buried > 0 {
            current::count(slot.shared(), |stats| &stats.discarded, buried);
        }
    }

    /// Returns the last step of a process with an output. If the output panics, `end` replaces it.
    fn judge(&self) -> Step {
        match &self.stage {
            MachineStage::Ended(Ok(output)) => Step::judged(output.failure()),
            _ => Step::Ended(None),
        }
    }

    fn end_with(&mut self, slot: &Slot, exit: Exit) -> Step {
        self.drop_untold(slot);
        let step = Step::ended(exit.clone());
        // If the `Drop` of the process panics, the exit is replaced by `Exit::Panicked`.
        self.stage = MachineStage::Ended(Err(exit));
        step
    }

    /// Continues as the successor of the process. The events that are left are kept for it: they
    /// count as received.
    fn become_successor(&mut self, slot: &Slot) -> Step {
        let successor = match &mut self.stage {
            MachineStage::Runs(process) => process.0.successor(),
            MachineStage::Became(process) => process.0.successor(),
            MachineStage::Ended(_) | MachineStage::Taken => None,
        };
        let Some(successor) = successor else {
            return self.end_with(slot, Exit::failed("the process has no successor"));
        };
        let before = std::mem::replace(&mut self.stage, MachineStage::Became(Closing(successor)));
        // A panic here ends the process, as in a step.
        drop(before);
        self.waiting_for = None;
        // The cancel may be among the events that the step has left.
        self.told_cancel = self.events.0.iter().any(|event| matches!(event, Event::Cancel));
        self.outstanding += self.yields.len();
        self.serve(slot);
        Step::GoesOn
    }

    /// Waits for `waiting_for`, unless events have arrived since.
    fn wait(&self, slot: &Slot, waiting_for: WaitingFor) -> Step {
        if self.has_more {
            return Step::GoesOn;
        }
        if self.outstanding > 0 && waiting_for != WaitingFor::Messages {
            slot.waiting.note(Waiting::COMPLETION);
        }
        if waiting_for == WaitingFor::Completions {
            return Step::Waits(WaitPhase::Blocked);
        }
        let Some(mailbox) = slot.mailbox_checked::<P::Message>() else {
            unreachable!("[typed] the slot was made for this process")
        };
        if !request::arm(slot, mailbox) {
            return Step::GoesOn;
        }
        slot.waiting.note(Waiting::MESSAGE);
        Step::Waits(WaitPhase::Idle)
    }
}

impl<P: Process> Body for MachineBody<P> {
    fn inspect(&self, shown: &mut Inspection) {
        match &self.stage {
            MachineStage::Runs(process) => process.0.inspect(shown),
            MachineStage::Became(process) => process.0.inspect(shown),
            MachineStage::Ended(_) | MachineStage::Taken => {}
        }
    }

    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        let ((), terminated) = slot.state.take_for_step(|| self.collect(slot));
        if terminated {
            // The collected events may include some that came after the terminate. The worker ends
            // the process now.
            return Step::GoesOn;
        }
        self.poll_futures(task);
        if !self.may_step(slot) {
            let waiting_for = self.waiting_for.expect("a process that waits for nothing may step");
            return self.wait(slot, waiting_for);
        }
        slot.count_received(self.messages as u32);
        if self.messages > 0
            && let Some(Mailbox::Bounded(ring)) = slot.mailbox_checked::<P::Message>()
        {
            crate::mailbox::deliver::release_bounded(slot, ring, self.messages as u32);
        }
        self.outstanding -= self.completions;
        self.messages = 0;
        self.completions = 0;
        self.signals = 0;
        let yields = &mut Yields {
            commands: &mut self.yields,
            sleeps: &mut self.sleeps,
            outstanding: &mut self.outstanding,
            slot,
        };
        let status = match &mut self.stage {
            MachineStage::Runs(process) => process.0.step(&mut self.events, yields),
            MachineStage::Became(process) => process.0.step(&mut self.events, yields),
            MachineStage::Ended(_) | MachineStage::Taken => return Step::Ended(None),
        };
        if let Ok(Status::Become) = status {
            return self.become_successor(slot);
        }
        let waiting_for = match status {
            Ok(Status::Done(output)) => {
                self.drop_untold(slot);
                // Stored here, where no move is needed. A panic of the process's `Drop` replaces
                // it, as in `end_with`.
                self.stage = MachineStage::Ended(Ok(output));
                return self.judge();
            }
            Err(error) => {
                let error = DropGuarded::new(error);
                return self.end_with(slot, Exit::from_error(&**error));
            }
            Ok(Status::Continue | Status::Become) => None,
            Ok(Status::Wait(waiting_for)) => Some(waiting_for),
        };
        while let Some(event) = self.events.0.pop_front() {
            drop_guarded(event);
        }
        self.events.1 = None;
        if self.events.0.capacity() > KEPT {
            self.events.0 = VecDeque::new();
        }
        self.waiting_for = waiting_for;
        self.outstanding += self.yields.len();
        self.serve(slot);
        self.poll_futures(task);
        match waiting_for {
            Some(WaitingFor::Completions) if self.outstanding == 0 => {
                self.end_with(slot, Exit::WaitsForNothing)
            }
            Some(waiting_for) if !self.has_come(waiting_for) => self.wait(slot, waiting_for),
            _ => Step::GoesOn,
        }
    }

    fn end(&mut self, slot: &Slot, exit: Exit) {
        self.end_with(slot, exit);
    }

    fn take_result(&mut self, result: &mut dyn Any) {
        if let MachineStage::Ended(ended) = std::mem::replace(&mut self.stage, MachineStage::Taken)
            && let Some(result) = result.downcast_mut::<Option<Result<P::Output, Exit>>>()
        {
            *result = Some(ended);
        }
    }
}
