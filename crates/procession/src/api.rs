//! The public face of the crate.

use std::future::{Future, poll_fn};
use std::task::Poll;

#[cfg(feature = "tokio")]
pub use crate::bridge::{Compat, CompatError, compat};
pub use crate::machine::command::perform;
pub use crate::machine::command::{BlockingWork, Command, Done, SendParcel, SpawnProcess, command};
pub use crate::machine::completion::Completion;
pub use crate::machine::process::{Events, InitError, Process, Status, WaitingFor, Yields};
pub use crate::machine::registry::Handler;
pub use crate::machine::value::CommandId;
pub use crate::machine::value::{CommandError, CommandResult, Value};
pub use crate::mailbox::address::{Address, SendError, SendWait, send};
pub use crate::mailbox::bounded::{MailboxSnapshot, WhenFull};
pub use crate::mailbox::call::{CallError, call_all};
pub use crate::mailbox::context::{Context, Receive};
pub use crate::mailbox::dead_letter::{DeadCause, DeadLetter};
pub use crate::mailbox::event::Event;
pub use crate::mailbox::parcel::{Parcel, Relay};
pub use crate::mailbox::relay::{FaultyRelay, InProcess};
pub use crate::mailbox::reply::Reply;
pub use crate::mailbox::thread::ThreadMailbox;
pub use crate::observe::snapshot::{
    DescriptorSnapshot, ProcessSnapshot, Snapshot, TimerSnapshot, UnfinishedProcess,
    WaitingProcess, WorkerSnapshot,
};
pub use crate::pool::spawn_blocking;
pub use crate::process::exit::{Exit, exit};
pub use crate::process::pid::{ParsePidError, Pid};
pub use crate::process::state::ProcessState;
pub use crate::process::wait_reason::Waiting;
pub use crate::relations::names::{Named, RegisterError, register, whereis};
pub use crate::relations::signal::{Down, ExitSignal, MonitorRef};
pub use crate::relations::{link, send_exit, unlink};
pub use crate::scheduler::builder::Builder;
pub use crate::scheduler::error::{BlockOnError, BuildError, WidthError};
pub use crate::scheduler::owner::Scheduler;
pub use crate::spawn::join_handle::{Child, Handle};
pub use crate::spawn::options::{SpawnError, SpawnOptions};
pub use crate::sync::select::Select;
pub use crate::time::{
    Elapsed, Instant, Interval, MissedTicks, Sleep, Timeout, Timer, TimerLimit, interval,
    run_after, run_every, sleep, sleep_until, timeout,
};
pub use crate::watchdog::state::{Stall, StallKind, StallSnapshot};

pub use crate::coroutine as co;
pub use crate::sync::channel;
pub use crate::wait::{Wait, wait};

use crate::scheduler::current;

/// Runs `future` on this thread until it is complete, beside the processes of the default
/// scheduler. See [`Scheduler::block_on`].
///
/// ```
/// assert_eq!(procession::run(async { 1 + 1 }), 2);
/// ```
pub fn run<F: Future>(future: F) -> F::Output {
    Scheduler::global().block_on(future)
}

/// Starts a process that runs `future`, on the scheduler of the calling process or thread; outside
/// of all, on the default one.
///
/// The handle is a future of the result. If the scheduler takes no more processes, the future is
/// dropped, and the handle answers [`Exit::Refused`]; [`SpawnOptions::try_spawn`] gives the future
/// back instead.
///
/// ```
/// let sum = procession::run(async {
///     let handles: Vec<_> = (1..=10).map(|n| procession::spawn(async move { n * n })).collect();
///     let mut sum = 0;
///     for handle in handles {
///         sum += handle.await?;
///     }
///     Ok::<i32, procession::Exit>(sum)
/// })?;
/// assert_eq!(sum, 385);
/// # Ok::<(), procession::Exit>(())
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> Handle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    SpawnOptions::new().spawn(future)
}

/// Starts a process with a mailbox: `process` is called in its first step, with its [`Context`].
/// What is returned is its address and its handle in one.
///
/// If the scheduler takes no more processes, `process` is dropped, sends fail, and the handle
/// answers [`Exit::Refused`]; [`SpawnOptions::try_start`] gives it back instead.
#[track_caller]
pub fn start<M, F, P>(process: F) -> Child<M, P::Output>
where
    M: Send + 'static,
    F: FnOnce(Context<M>) -> P + Send + 'static,
    P: Future + Send + 'static,
    P::Output: Send + 'static,
{
    SpawnOptions::new().start(process)
}

/// Starts a coroutine: a process whose code is straight-line and blocks, on a stack of its own.
/// `function` gets its [`crate::coroutine::context::Context`], with a mailbox; what is returned is
/// its address and its handle in one.
///
/// See [`co`] for an example, where it runs, and how it ends.
///
/// # Errors
/// [`SpawnError`] gives the function back: coroutines are not enabled
/// ([`Builder::enable_coroutines`]), or the scheduler takes no more processes.
#[track_caller]
pub fn spawn_coroutine<M, F, T>(function: F) -> Result<Child<M, T>, SpawnError<F>>
where
    M: Send + 'static,
    F: FnOnce(crate::coroutine::context::Context<M>) -> T + Send + 'static,
    T: Send + 'static,
{
    SpawnOptions::new().spawn_coroutine(function)
}

/// Starts a state machine by the entry point `method`.
///
/// ```
/// use procession::{Event, Events, InitError, Process, Status, Value, WaitingFor, Yields};
///
/// /// Adds numbers up until it gets a zero.
/// struct Sum(u32);
///
/// impl Process for Sum {
///     type Message = u32;
///     type Output = u32;
///
///     fn init(&mut self, method: &str, _: Value) -> Result<(), InitError> {
///         if method == "sum" { Ok(()) } else { Err(InitError::unknown_method(method)) }
///     }
///
///     fn step(
///         &mut self,
///         events: &mut Events<u32>,
///         _: &mut Yields<'_>,
///     ) -> Result<Status<u32>, Box<dyn std::error::Error + Send + Sync>> {
///         for event in events {
///             match event {
///                 Event::Message(0) | Event::Cancel => return Ok(Status::Done(self.0)),
///                 Event::Message(n) => self.0 += n,
///                 _ => {}
///             }
///         }
///         Ok(Status::Wait(WaitingFor::Messages))
///     }
/// }
///
/// procession::run(async {
///     let sum = procession::spawn_process(Sum(0), "sum", Box::new(()))?;
///     for n in [1, 2, 3, 0] {
///         sum.send(n).expect("it has not got its zero yet");
///     }
///     assert_eq!(sum.await, Ok(6));
///     let error = procession::spawn_process(Sum(0), "average", Box::new(())).unwrap_err();
///     assert_eq!(error.to_string(), "cannot start a process: it has no method \"average\"");
///     Ok::<(), procession::SpawnError<Sum>>(())
/// })?;
/// # Ok::<(), procession::SpawnError<Sum>>(())
/// ```
///
/// # Errors
/// [`SpawnError`], with the process in it: the scheduler takes no more processes, or `init`
/// refused.
#[track_caller]
pub fn spawn_process<P: Process>(
    process: P,
    method: &str,
    input: Value,
) -> Result<Child<P::Message, P::Output>, SpawnError<P>> {
    SpawnOptions::new().spawn_process(process, method, input)
}

/// Gives way: all that is ready on this worker runs before the process goes on.
pub async fn yield_now() {
    let mut gave_way = false;
    poll_fn(|task| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        crate::scheduler::budget::give_way(task);
        Poll::Pending
    })
    .await;
}

/// For computations: gives way if it is time to, and costs next to nothing if not.
///
/// A step has a budget of 128 operations. Each operation of the runtime costs one: a message sent
/// or received, a poll of a sleep, a handle, a channel, a lock or a socket that is awaited, and
/// this. Once it is spent, the next that is awaited ends the step, and what is ready runs before
/// the process goes on. A computation that awaits nothing spends nothing; call this where a
/// microsecond or so has passed. It also gives way, at once, if the watchdog has taken the worker's
/// place away because the step lasted too long.
///
/// ```
/// let sum = procession::run(async {
///     let mut sum = 0_u64;
///     for n in 0..1_000_000 {
///         sum += n;
///         if n % 1000 == 0 {
///             procession::yield_if_due().await;
///         }
///     }
///     sum
/// });
/// assert_eq!(sum, 499_999_500_000);
/// ```
pub async fn yield_if_due() {
    let mut gave_way = false;
    poll_fn(|task| {
        if std::mem::take(&mut gave_way)
            || !current::is_replaced() && crate::scheduler::budget::charge(task)
        {
            return Poll::Ready(());
        }
        gave_way = true;
        crate::scheduler::budget::give_way(task);
        Poll::Pending
    })
    .await;
}

/// Runs `section`, which may block the thread: it waits in the kernel, for a lock, or computes for
/// long. In a process, or in a future that is polled on a worker, that worker's place among those
/// that run at once is given to another meanwhile: at once if work is waiting, or as soon as some
/// comes. Outside of workers it just runs `section`. Sections may be nested; its result or its
/// panic is this call's.
///
/// When it returns and as many others run as the scheduler is wide, the step goes on to its end
/// even so, and the worker pauses then.
///
/// Threads are started for this up to [`Builder::threads_max`]. Once all of them are blocked, what
/// is ready waits until one returns; a section that returns always goes on, so this alone never
/// deadlocks. A scheduler that its callers drive, also one on the test clock, has no such threads
/// unless told to: there nothing else runs meanwhile if it is one wide. What is bound to the worker
/// ([`SpawnOptions::affinity`]) waits in any case. Processes are not cancelled or terminated inside
/// of a section.
///
/// ```
/// let (asks, asked) = std::sync::mpsc::channel();
/// let answer = procession::run(async {
///     let waits = procession::spawn(async move { procession::blocking(|| asked.recv()) });
///     // Runs even if there is but one CPU, and the other has begun to wait.
///     procession::spawn(async move { asks.send(42) }).await.expect("it does not panic").expect("the other waits");
///     waits.await
/// })?;
/// assert_eq!(answer, Ok(42));
/// # Ok::<(), procession::Exit>(())
/// ```
///
/// # Blocking
/// Blocks the thread for as long as `section` does.
pub fn blocking<R>(section: impl FnOnce() -> R) -> R {
    let _section = current::Section::enter();
    section()
}

/// The PID of the running process; `None` in a thread that runs none.
pub fn current_pid() -> Option<Pid> {
    current::current().map(|slot| slot.pid())
}
