//! Commands: requests that state machines yield, and the handlers that serve them.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::util::sorted_map::SortedMap;
use procession_queue::Entry;
use procession_sync::Mutex;

use crate::Pid;
use crate::machine::awaited::AnyFuture;
use crate::machine::completion::{Completion, Target};
use crate::machine::registry::{Handler, HandlerTable};
use crate::machine::value::{CommandError, CommandId, CommandResult, Value};
use crate::mailbox::call;
use crate::mailbox::parcel::{Parcel, Relay, RelayError};
use crate::mailbox::relay::InProcess;
use crate::process::body::System;
use crate::process::slot::{Slot, SlotRef};
use crate::process::typed::Typed;
use crate::process::unwind::{drop_guarded, guarded};
use crate::process::wait_reason::Waiting;
use crate::scheduler::error::BuildError;
use crate::scheduler::{reach, serving};
use crate::sys::nanoseconds;
use crate::time::action::{Action, Armed};
use crate::time::arm::arm_function;

/// A command with types. The value itself is the input.
///
/// A handler is registered with [`Builder::command`](crate::Builder::command). A state machine
/// issues the command by [`Yields::perform`](crate::machine::process::Yields::perform), any other
/// process by [`perform`].
///
/// ```
/// use procession::machine::{Command, CommandId, perform};
/// use procession::Scheduler;
///
/// /// Squares a number.
/// struct Square(u32);
///
/// impl Command for Square {
///     const ID: CommandId = CommandId::FIRST_FREE;
///     type Output = u32;
/// }
///
/// let builder = Scheduler::builder().worker_threads(1);
/// let builder = builder.command(|square: Square, done| done.send(Ok(square.0 * square.0)));
/// let scheduler = builder.build()?;
/// let squared = scheduler.block_on(async { perform(Square(7)).await });
/// assert_eq!(squared, Ok(49));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub trait Command: Send + 'static {
    /// The number of the command.
    const ID: CommandId;
    /// The type of the output.
    type Output: Send + 'static;

    /// Returns the input of the handler. Default: the command itself.
    fn into_input(self) -> Value
    where
        Self: Sized,
    {
        Box::new(self)
    }

    /// Converts the result of a completion into the output.
    ///
    /// # Errors
    /// Returns the [`CommandError`] of the result. Returns
    /// [`WrongOutput`](CommandError::WrongOutput) if the output has another type, because the
    /// handler belongs to another command with this number.
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

/// A [`Completion`] with the type of its command.
#[derive(Debug)]
pub struct Done<C: Command>(Completion, Typed<C>);

impl<C: Command> Done<C> {
    /// Completes the command.
    pub fn send(self, result: Result<C::Output, CommandError>) {
        self.0.complete(result.map(|output| Box::new(output) as Value));
    }
}

/// Returns the handler of a typed command.
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

/// The command that sends a message by PID, for a sender that does not know the type of the
/// message, such as a guest.
///
/// It completes with `Ok(())`, or with an error that has the parcel if that was refused.
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
    type Output = Result<(), RelayError>;
}

/// The command that starts a process.
///
/// The function is called on the worker, outside the step. It returns the process that it started.
pub struct SpawnProcess(Box<dyn FnOnce() -> Option<Pid> + Send>);

impl SpawnProcess {
    /// Creates the command that calls `start`. `start` returns `None` if the process was refused.
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

/// The command that runs a closure which blocks or computes for long, on a thread of
/// [`spawn_blocking`](crate::spawn_blocking).
///
/// If the closure panics, the command completes with [`CommandError::Failed`].
pub struct BlockingWork<T>(Box<dyn FnOnce() -> T + Send>);

impl<T> BlockingWork<T> {
    /// Creates the command that runs `work` and completes with its result.
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

    /// Erases the type of the output, because the handler does not know it.
    fn into_input(self) -> Value {
        let work = self.0;
        Box::new(BlockingCall(Box::new(move || Box::new(work()) as Value)))
    }
}

/// The input of the handler of [`CommandId::BLOCKING`].
struct BlockingCall(Box<dyn FnOnce() -> Value + Send>);

/// The command that awaits a future, such as a wait for a socket, a read or a write.
///
/// In a state machine, the future is polled in the steps of the process, whenever the process is
/// woken. So its work is charged to the budget of the process, the process shows what the future
/// waits for, and the end of the process drops the future. Events that arrive before the future is
/// complete are delivered as usual. If several futures are outstanding, each wake-up polls all
/// futures. This suits a few futures, such as the two directions of a connection. For many, start a
/// process for each.
///
/// The future owns what it uses. For example, both directions of a connection can share the
/// connection in an [`Arc`], because its methods take `&self`. The output may return the buffer.
///
/// If the future panics or ends its process by [`exit`](crate::exit), the command completes with
/// [`CommandError::Failed`], and the process continues.
///
/// ```
/// use std::io;
/// use std::sync::Arc;
///
/// use procession::machine::{
///     AsyncWork, Command, Events, InitError, Process, Status, WaitingFor, Yields,
/// };
/// use procession::mailbox::Event;
/// use procession::net::{TcpListener, TcpStream};
/// use procession::SpawnOptions;
///
/// /// Answers each byte of a connection by the next one, until the other side closes.
/// struct Increments(Arc<TcpStream>);
///
/// type Served = AsyncWork<io::Result<bool>>;
///
/// impl Increments {
///     /// Serves one byte. Returns `false` if there is none.
///     fn serve(&self) -> Served {
///         let stream = Arc::clone(&self.0);
///         AsyncWork::new(async move {
///             let mut byte = [0];
///             if stream.read(&mut byte).await? == 0 {
///                 return Ok(false);
///             }
///             stream.write_all(&[byte[0] + 1]).await?;
///             Ok(true)
///         })
///     }
/// }
///
/// impl Process for Increments {
///     type Input = ();
///     type Message = ();
///     type Output = ();
///
///     fn init(&mut self, _method: &str, (): ()) -> Result<(), InitError> {
///         Ok(())
///     }
///
///     fn step(
///         &mut self,
///         events: &mut Events<()>,
///         yields: &mut Yields<'_>,
///     ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
///         for event in events {
///             if let Event::Completion { result, .. } = event
///                 && !Served::output(result)??
///             {
///                 return Ok(Status::Done(()));
///             }
///         }
///         // The first step comes without an event, and each other one with a completion.
///         yields.perform(0, self.serve());
///         Ok(Status::Wait(WaitingFor::Completions))
///     }
/// }
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     let (served, _) = listener.accept().await?;
///     let server = SpawnOptions::new().try_start_machine(Increments(Arc::new(served)), "",
/// ()).expect("it accepts");
///     client.write_all(&[41]).await?;
///     let mut answer = [0];
///     client.read_exact(&mut answer).await?;
///     assert_eq!(answer, [42]);
///     drop(client);
///     assert_eq!(server.await, Ok(()));
///     io::Result::Ok(())
/// })?;
/// # io::Result::Ok(())
/// ```
pub struct AsyncWork<T>(AnyFuture, Typed<T>);

impl<T: Send + 'static> AsyncWork<T> {
    /// Creates the command that awaits `future`, and completes with its output.
    pub fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        let any = async move { Box::new(future.await) as Value };
        Self(AnyFuture(Box::pin(any)), PhantomData)
    }

    pub(crate) fn wrong_input() -> CommandError {
        CommandError::WrongInput("AsyncWork")
    }
}

impl<T> fmt::Debug for AsyncWork<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncWork(..)")
    }
}

impl<T: Send + 'static> Command for AsyncWork<T> {
    const ID: CommandId = CommandId::ASYNC;
    type Output = T;

    /// Erases the type of the output, because the process does not know it.
    fn into_input(self) -> Value {
        Box::new(self.0)
    }
}

/// Performs a command for the running process, and waits for its result. On a thread that runs no
/// process, the default scheduler serves it.
///
/// # Errors
/// Returns the [`CommandError`] of the command.
///
/// # Cancellation
/// Dropping the future does not stop the command. Its result is dropped.
#[track_caller]
pub fn command(id: CommandId, input: impl Any + Send) -> impl Future<Output = CommandResult> {
    crate::scheduler::placed::placed(async move { command_of(id, Box::new(input)).await })
}

async fn command_of(id: CommandId, input: Value) -> CommandResult {
    if id == CommandId::SLEEP {
        let duration = duration_of(input)?;
        crate::sleep(duration).await;
        return Ok(Box::new(()));
    }
    if id == CommandId::ASYNC {
        return match input.downcast::<AnyFuture>() {
            Ok(future) => Ok(future.0.await),
            Err(other) => {
                drop_guarded(other);
                Err(AsyncWork::<()>::wrong_input())
            }
        };
    }
    let shared = Arc::clone(&crate::scheduler::owner::here());
    let (reply, caller) = call::pair();
    let completion = Completion::new(Target::Caller { shared: Arc::clone(&shared), reply });
    HandlerTable::of(&shared).serve(id, input, completion);
    caller.replied(Waiting::COMPLETION).await.unwrap_or(Err(CommandError::Dropped))
}

impl<F: Fn(Value, Completion) + Send + Sync + 'static> Handler for F {
    fn handle(&self, input: Value, completion: Completion) {
        self(input, completion);
    }
}

pub(crate) fn serve_send(input: Value, completion: Completion) {
    let send = |SendParcel(parcel): SendParcel, done: Done<SendParcel>| {
        let sent = match reach::relay_to(parcel.to) {
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
    match input.downcast::<BlockingCall>() {
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

/// Performs a typed command, and waits for its output. See [`command`].
///
/// # Errors
/// Returns the [`CommandError`] of the command.
///
/// # Cancellation
/// See [`command`].
#[track_caller]
pub fn perform<C: Command>(command: C) -> impl Future<Output = Result<C::Output, CommandError>> {
    crate::scheduler::placed::placed(async move {
        C::output(command_of(C::ID, command.into_input()).await)
    })
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
    let sleeper = SlotRef::again(slot);
    // The action needs the timer, which is known only once it is set. It cannot run before: either
    // this worker owns the heap and is busy here, or the action finds the cell locked.
    let timer = Arc::new(Mutex::new(None));
    let set = Arc::clone(&timer);
    let mut timer = timer.lock();
    let fire = Action::Call(Arc::new(move || {
        if let Some(timer) = *set.lock() {
            sleeper.push_system(Entry::new(System::Slept { tag, timer }), false);
        }
    }));
    let armed = arm_function(shared, when, None, fire).map_err(|_| CommandError::TimerLimit)?;
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
        Self::new(Target::Machine { slot: SlotRef::again(slot), tag })
    }

    /// Completes the command.
    pub fn complete(mut self, result: CommandResult) {
        self.finish(result);
    }

    fn finish(&mut self, result: CommandResult) {
        match self.target.take() {
            Some(Target::Machine { slot, tag }) => {
                if let Some(result) = serving::serve(&slot, tag, result) {
                    // Ignored: an ended process receives no completion.
                    slot.push_system(Entry::new(System::Completion { tag, result }), false);
                }
                slot.shared().end_outstanding();
            }
            Some(Target::Caller { shared, reply }) => {
                // If the caller has gone, the result is dropped before the clock may go on.
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

impl HandlerTable {
    pub(crate) fn new(handlers: Vec<(CommandId, Arc<dyn Handler>)>) -> Result<Self, BuildError> {
        let mut registry = Self(SortedMap::new());
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

    /// Lets the handler serve a command of the process in `slot`. Returns the timer of a sleep, so
    /// that the process can cancel it.
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
                    slot.push_system(
                        Entry::new(System::Completion { tag, result: Err(error) }),
                        false,
                    );
                    None
                }
            };
        }
        self.serve(id, input, Completion::of_machine(slot, tag));
        None
    }

    /// Lets the handler serve a command that is not a sleep.
    pub(crate) fn serve(&self, id: CommandId, input: Value, completion: Completion) {
        match (id, self.0.get(&id)) {
            // A panic drops the completion, which completes the command with an error.
            (_, Some(handler)) => drop(guarded(|| handler.handle(input, completion))),
            (CommandId::SEND, None) => serve_send(input, completion),
            (CommandId::SPAWN, None) => serve_spawn(input, completion),
            // The closure may be refused, and is then dropped here.
            (CommandId::BLOCKING, None) => drop(guarded(|| serve_blocking(input, completion))),
            _ => {
                drop_guarded(input);
                completion.complete(Err(CommandError::Unknown(id)));
            }
        }
    }
}
