//! Commands: what state machines yield, and who serves them.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use procession_queue::Entry;
use procession_sync::Mutex;

use crate::Pid;
use crate::machine::completion::{Completion, Target};
use crate::machine::registry::{Handler, Registry};
use crate::machine::value::{CommandError, CommandId, CommandResult, Value};
use crate::mailbox::call;
use crate::mailbox::parcel::{Parcel, Relay};
use crate::mailbox::relay::InProcess;
use crate::process::body::System;
use crate::process::slot::{Pin, Slot};
use crate::process::unwind::{drop_guarded, guarded};
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::scheduler::error::BuildError;
use crate::sys::nanoseconds;
use crate::time::action::Action;
use crate::time::arm;
use crate::time::armed::Armed;
use crate::variance::Typed;

/// A command with its types: the value is the input. See
/// [`Builder::command`](crate::Builder::command),
/// [`Yields::perform`](crate::machine::process::Yields::perform), [`perform`].
///
/// ```
/// use procession::Scheduler;
/// use procession::command::{Command, CommandId, perform};
///
/// /// Squares a number.
/// struct Square(u32);
///
/// impl Command for Square {
///     const ID: CommandId = CommandId::FIRST_FREE;
///     type Output = u32;
/// }
///
/// let scheduler = Scheduler::builder().worker_threads(1).command(|square: Square, done| done.send(Ok(square.0 * square.0))).build()?;
/// let squared = scheduler.block_on(async { perform(Square(7)).await });
/// assert_eq!(squared, Ok(49));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub trait Command: Send + 'static {
    /// Its number.
    const ID: CommandId;
    /// What it completes with.
    type Output: Send + 'static;

    /// What its handler is given; the command itself, unless the command says otherwise.
    fn into_input(self) -> Value
    where
        Self: Sized,
    {
        Box::new(self)
    }

    /// What came of it, out of a completion.
    ///
    /// # Errors
    /// [`CommandError`]; [`WrongOutput`](CommandError::WrongOutput) if a handler of another command
    /// by the same number served it.
    fn output(result: CommandResult) -> Result<Self::Output, CommandError>
    where
        Self: Sized,
    {
        result?.downcast().map(|output| *output).map_err(|other| {
            drop_guarded(other);
            CommandError::WrongOutput(std::any::type_name::<Self::Output>())
        })
    }
}

/// A [`Completion`] with its type.
#[derive(Debug)]
pub struct Done<C: Command>(Completion, Typed<C>);

impl<C: Command> Done<C> {
    /// Completes the command.
    pub fn send(self, result: Result<C::Output, CommandError>) {
        self.0.complete(result.map(|output| Box::new(output) as Value));
    }
}

/// The handler of a command with types.
pub(crate) fn typed<C: Command>(
    serve: impl Fn(C, Done<C>) + Send + Sync + 'static,
) -> impl Handler {
    move |input: Value, completion: Completion| match input.downcast() {
        Ok(command) => serve(*command, Done(completion, PhantomData)),
        Err(other) => {
            drop_guarded(other);
            completion.complete(Err(CommandError::WrongInput(std::any::type_name::<C>())));
        }
    }
}

/// The command that sends a message by PID, for who has it without its type, such as a guest.
///
/// It completes with the parcel, if that was refused.
#[derive(Debug)]
pub struct SendParcel(Parcel);

impl SendParcel {
    /// Creates the command that sends `parcel`.
    pub fn new(parcel: Parcel) -> Self {
        Self(parcel)
    }
}

impl Command for SendParcel {
    const ID: CommandId = CommandId::SEND;
    type Output = Result<(), Parcel>;
}

/// The command that starts a process: the function is called on the worker, outside the step, and
/// says which process it started.
pub struct SpawnProcess(Box<dyn FnOnce() -> Option<Pid> + Send>);

impl SpawnProcess {
    /// Starts a process by calling `start`, which says which one; `None` if it was refused.
    pub fn new(start: impl FnOnce() -> Option<Pid> + Send + 'static) -> Self {
        Self(Box::new(start))
    }
}

impl fmt::Debug for SpawnProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpawnProcess(..)")
    }
}

impl Command for SpawnProcess {
    const ID: CommandId = CommandId::SPAWN;
    type Output = Option<Pid>;
}

/// The command that runs a closure which blocks, or computes for long, on a thread of
/// [`spawn_blocking`](crate::spawn_blocking). A panic in it completes with
/// [`CommandError::Failed`].
pub struct BlockingWork<T>(Box<dyn FnOnce() -> T + Send>);

impl<T> BlockingWork<T> {
    /// Runs `work`, and completes with what it returns.
    pub fn new(work: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Box::new(work))
    }
}

impl<T> fmt::Debug for BlockingWork<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockingWork(..)")
    }
}

impl<T: Send + 'static> Command for BlockingWork<T> {
    const ID: CommandId = CommandId::BLOCKING;
    type Output = T;

    /// The handler knows no types: it is given what makes a value.
    fn into_input(self) -> Value {
        let work = self.0;
        Box::new(Work(Box::new(move || Box::new(work()) as Value)))
    }
}

/// What the handler of [`CommandId::BLOCKING`] is given.
struct Work(Box<dyn FnOnce() -> Value + Send>);

/// Has a command served for the calling process, and waits for what comes of it. In a thread that
/// runs no process, the default scheduler serves it.
///
/// # Errors
/// [`CommandError`].
///
/// # Cancellation
/// Dropped before it is complete, the command goes on, and its completion is for nobody.
pub async fn command(id: CommandId, input: impl Any + Send) -> CommandResult {
    command_of(id, Box::new(input)).await
}

async fn command_of(id: CommandId, input: Value) -> CommandResult {
    if id == CommandId::SLEEP {
        let duration = duration_of(input)?;
        crate::sleep(duration).await;
        return Ok(Box::new(()));
    }
    let shared = Arc::clone(&crate::scheduler::owner::here());
    let (reply, caller) = call::pair();
    let completion = Completion::new(Target::Caller { shared: Arc::clone(&shared), reply });
    shared.handlers().serve(id, input, completion);
    caller.replied(Waiting::COMPLETION).await.unwrap_or(Err(CommandError::Dropped))
}

impl<F: Fn(Value, Completion) + Send + Sync + 'static> Handler for F {
    fn handle(&self, input: Value, completion: Completion) {
        self(input, completion);
    }
}

pub(crate) fn serve_send(input: Value, completion: Completion) {
    let send = |SendParcel(parcel): SendParcel, done: Done<SendParcel>| {
        let sent = match current::relay_to(parcel.to) {
            Some(relay) => relay.relay(parcel),
            None => InProcess.relay(parcel),
        };
        done.send(Ok(sent));
    };
    drop(guarded(|| typed(send).handle(input, completion)));
}

pub(crate) fn serve_spawn(input: Value, completion: Completion) {
    let spawn =
        |SpawnProcess(start): SpawnProcess, done: Done<SpawnProcess>| done.send(Ok(start()));
    drop(guarded(|| typed(spawn).handle(input, completion)));
}

pub(crate) fn serve_blocking(input: Value, completion: Completion) {
    match input.downcast::<Work>() {
        Ok(work) => drop(crate::spawn_blocking(move || {
            let done =
                guarded(work.0).map_err(|exit| CommandError::Failed(exit.to_string().into()));
            completion.complete(done);
        })),
        Err(other) => {
            drop_guarded(other);
            completion.complete(Err(CommandError::WrongInput("BlockingWork")));
        }
    }
}

/// As [`command`], with types.
///
/// # Errors
/// [`CommandError`].
///
/// # Cancellation
/// As for [`command`].
pub async fn perform<C: Command>(command: C) -> Result<C::Output, CommandError> {
    C::output(command_of(C::ID, command.into_input()).await)
}

fn duration_of(input: Value) -> Result<Duration, CommandError> {
    input.downcast().map(|duration| *duration).map_err(|input| {
        drop_guarded(input);
        CommandError::WrongInput("Duration")
    })
}

pub(crate) fn sleep(slot: &Slot, tag: u64, input: Value) -> Result<Armed, CommandError> {
    let duration = duration_of(input)?;
    let shared = slot.shared();
    let when = shared.world.now().saturating_add(nanoseconds(duration));
    let sleeper = Pin::again(slot);
    // Which timer it is, is known once it is set; it cannot fire before, since only this worker
    // looks at its own heap meanwhile, or finds the cell locked.
    let timer = Arc::new(Mutex::new(None));
    let set = Arc::clone(&timer);
    let mut timer = timer.lock();
    let fire = Action::Call(Arc::new(move || {
        if let Some(timer) = *set.lock() {
            sleeper.push_system(Entry::new(System::Slept { tag, timer }));
        }
    }));
    let armed = arm(shared, when, None, fire).map_err(|_| CommandError::TimerLimit)?;
    *timer = Some(armed);
    Ok(armed)
}

impl Completion {
    pub(crate) fn new(target: Target) -> Self {
        target.shared().begin_outstanding();
        Self { target: Some(target) }
    }

    /// Returns the completion of a command of the state machine in `slot`.
    pub(crate) fn of_machine(slot: &Slot, tag: u64) -> Self {
        Self::new(Target::Machine { slot: Pin::again(slot), tag })
    }

    /// Completes the command.
    pub fn complete(mut self, result: CommandResult) {
        self.finish(result);
    }

    fn finish(&mut self, result: CommandResult) {
        match self.target.take() {
            Some(Target::Machine { slot, tag }) => {
                if let Some(result) = current::serve(&slot, tag, result) {
                    // Ignored: a process that has ended wants no completion.
                    slot.push_system(Entry::new(System::Completion { tag, result }));
                }
                slot.shared().end_outstanding();
            }
            Some(Target::Caller { shared, reply }) => {
                // If the caller has gone, the result is dropped here, which must not keep the clock
                // waiting.
                drop_guarded(reply.try_send(result));
                shared.end_outstanding();
            }
            None => {}
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.finish(Err(CommandError::Dropped));
    }
}

impl Registry {
    pub(crate) fn new(handlers: Vec<(CommandId, Arc<dyn Handler>)>) -> Result<Self, BuildError> {
        let mut registry = Self(BTreeMap::new());
        for (id, handler) in handlers {
            if id < CommandId::FIRST_FREE {
                return Err(BuildError::ReservedCommand(id));
            }
            if registry.0.insert(id, handler).is_some() {
                return Err(BuildError::DuplicateCommand(id));
            }
        }
        Ok(registry)
    }

    /// Has a command served for the process in `slot`; a sleep's timer is the process's to cancel.
    pub(crate) fn dispatch(
        &self,
        slot: &Slot,
        id: CommandId,
        tag: u64,
        input: Value,
    ) -> Option<Armed> {
        if id == CommandId::SLEEP {
            return match sleep(slot, tag, input) {
                Ok(timer) => Some(timer),
                Err(error) => {
                    slot.push_system(Entry::new(System::Completion { tag, result: Err(error) }));
                    None
                }
            };
        }
        self.serve(id, input, Completion::of_machine(slot, tag));
        None
    }

    /// Has a command served, other than a sleep.
    pub(crate) fn serve(&self, id: CommandId, input: Value, completion: Completion) {
        match (id, self.0.get(&id)) {
            // A panic drops the completion, which completes the command with an error.
            (_, Some(handler)) => drop(guarded(|| handler.handle(input, completion))),
            (CommandId::SEND, None) => serve_send(input, completion),
            (CommandId::SPAWN, None) => serve_spawn(input, completion),
            // What it runs may be refused, and then be dropped here.
            (CommandId::BLOCKING, None) => drop(guarded(|| serve_blocking(input, completion))),
            _ => {
                drop_guarded(input);
                completion.complete(Err(CommandError::Unknown(id)));
            }
        }
    }
}
