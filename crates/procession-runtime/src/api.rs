//! The public API at the root of the crate.

use std::future::{Future, poll_fn};
use std::task::Poll;

pub use crate::mailbox::address::Address;
pub use crate::mailbox::call::CallError;
pub use crate::mailbox::context::{Context, Event};
pub use crate::mailbox::reply::Reply;
pub use crate::mailbox::send_error::SendError;
pub use crate::pool::spawn_blocking;
pub use crate::process::cancel::{cancelled, until_cancelled};
pub use crate::process::exit::{Exit, OnCancel, Outcome, exit};
pub use crate::process::pid::Pid;
pub use crate::scheduler::builder::Builder;
pub use crate::scheduler::checkpoint::checkpoint;
pub use crate::scheduler::owner::Scheduler;
pub use crate::scheduler::spawn_error::SpawnError;
pub use crate::spawn::join_handle::{CancelOnDrop, Child, JoinHandle};
pub use crate::spawn::options::SpawnOptions;
pub use crate::sync::select::Select;
pub use crate::time::{interval, sleep, timeout};

use crate::process::async_body::AsyncBody;
use crate::process::exit::{AnyOutput, Returns};
use crate::scheduler::current;
use crate::scheduler::section::Section;

/// The trait of the module `coroutine` that depends on all rooms.
pub(crate) mod entry {
    use std::future::Future;

    /// Adds the method `wait` to every future, for plain threads and coroutines.
    ///
    /// The method is [`wait`](crate::coroutine::wait()). It parks a plain thread and suspends a
    /// coroutine until the future completes. Threads and coroutines can therefore use async
    /// operations, for example channels and locks.
    ///
    /// ```
    /// use procession::coroutine::Wait;
    ///
    /// let (sender, receiver) = procession::sync::channel::bounded(1);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| sender.send("from a thread").wait());
    ///     assert_eq!(receiver.recv().wait(), Some("from a thread"));
    /// });
    /// ```
    pub trait Wait: Future + Sized {
        /// Waits until the future completes, and returns its output.
        ///
        /// # Blocking
        /// In an async process or a state machine, and where a coroutine cannot be suspended, this
        /// blocks the worker; see [`wait`](crate::coroutine::wait()).
        ///
        /// # Panics
        /// Panics if the future panics, or if this would block the last thread that the scheduler
        /// may have.
        ///
        /// # Cancellation
        /// A coroutine that is cancelled or terminated while it waits unwinds from here.
        #[track_caller]
        fn wait(self) -> Self::Output {
            crate::coroutine::wait(self)
        }
    }

    impl<F: Future> Wait for F {}
}

pub mod command {
    //! Commands: requests that a process yields and that a handler of its scheduler serves.
    //!
    //! A [`Command`] has a number and an output. A scheduler knows how to serve it by
    //! [`Builder::command`](crate::Builder::command). A state machine issues commands by
    //! [`Yields::perform`](crate::machine::Yields::perform), and receives their completions as
    //! [`Event::Completion`](crate::Event::Completion). An async process or a coroutine awaits
    //! [`perform`].
    //!
    //! Untyped commands, for guests such as interpreters, are a [`CommandId`] and a [`Value`];
    //! their [`Handler`] gets a [`Completion`].

    pub use crate::machine::command::{
        AsyncWork, BlockingWork, Command, Done, SendParcel, SpawnProcess, command, perform,
    };
    pub use crate::machine::completion::Completion;
    pub use crate::machine::registry::Handler;
    pub use crate::machine::value::{CommandError, CommandId, CommandResult, Value};
}

pub mod local {
    //! Values that belong to one process.
    //!
    //! A [`ProcessLocal`] is visible to all code of a future, without being passed on.
    //! [`coroutine::Local`](crate::coroutine::Local) is the same for a whole coroutine.

    pub use crate::spawn::process_local::{ProcessLocal, ProcessLocalScope};
}

pub mod relay {
    //! Messages that leave their scheduler, and messages that no process receives.
    //!
    //! A [`Relay`] carries [`Parcel`]s to the processes of other schedulers. [`InProcess`] reaches
    //! every scheduler of the program and is the default. [`FaultyRelay`] drops and delays parcels,
    //! for tests. A [`RemoteNode`] represents another program or another machine, and makes the
    //! addresses of its processes. A [`DeadLetter`] is a message that was accepted and that no
    //! process received; see [`Builder::on_dead_letter`](crate::Builder::on_dead_letter).

    pub use crate::mailbox::dead_letter::{DeadCause, DeadLetter};
    pub use crate::mailbox::parcel::{
        NodeRelay, Parcel, Relay, RelayCause, RelayError, RoomFuture,
    };
    pub use crate::mailbox::relay::{FaultyRelay, InProcess, discard};
    pub use crate::relations::remote::{draw_monitor, receive, receive_link, receive_monitor};
    pub use crate::relations::signal::RemoteSignal;
    pub use crate::scheduler::enter::within;
    pub use crate::scheduler::nodes::RemoteNode;
    pub use crate::scheduler::writes::Outgoing;
}

pub mod request {
    //! The requests that processes work for, which travel with messages.
    //!
    //! A request enters a program at one place and passes through many processes. If each process
    //! knows the [`RequestId`] that it works for, you can find all log lines and spans of the
    //! request.
    //!
    //! ```
    //! use procession::mailbox::request::{self, RequestId};
    //! use procession::{Context, Scheduler, start};
    //!
    //! let scheduler = Scheduler::builder().request_ids(true).build()?;
    //! let id = RequestId::new(7).expect("it is not 0");
    //! let seen = scheduler.block_on(async move {
    //!     let server = start(async |mut cx: Context<&str>| {
    //!         cx.recv().await;
    //!         // Works for the request of the message, and so does what it spawns.
    //!         let child = procession::spawn(async { request::current() });
    //!         (request::current(), child.await)
    //!     });
    //!     request::with(id, || server.send("work"))?;
    //!     Ok::<_, procession::SendError<&str>>(server.await)
    //! })?;
    //! assert_eq!(seen, Ok((Some(id), Ok(Some(id)))));
    //! # Ok::<(), Box<dyn std::error::Error>>(())
    //! ```
    //!
    //! A process works for the request of the message that it received last, until it waits for
    //! another message. Until then, everything that it sends or spawns belongs to that request,
    //! including calls and timed messages.
    //!
    //! A request can have a [W3C trace context](RequestContext), whose trace id is the id of the
    //! request. The server of the module `http` works for the trace context of each request that
    //! has a valid one, and `http::TracedClient` sends the context on with the requests of a
    //! client. Servers of other protocols set a request with [`with`] or [`scope`].
    //!
    //! With the feature `tracing`, each message of a request that a process receives has a span
    //! `request` inside the span of the process. It has the fields `request`, `pid` and `sender`,
    //! and lasts until the process receives the next message, waits for one, or ends.
    //!
    //! Ids travel only to processes of a scheduler that was built with
    //! [`Builder::request_ids`](crate::Builder::request_ids); by default, messages have none. The
    //! notices of links and monitors belong to no request. Ids are not carried to jobs of
    //! [pools](crate::pool) and of [`spawn_blocking`](crate::spawn_blocking). A
    //! [`Relay`](crate::relay::Relay) carries them if it does so itself, as `procession-cluster`.

    pub use crate::mailbox::header::{RequestContext, RequestId};
    pub use crate::mailbox::request::{context, current, scope, with, work_for};
}

pub mod snapshot {
    //! The state of a running scheduler: its workers, processes, timers, descriptors and stalls.
    //!
    //! [`Scheduler::snapshot`](crate::Scheduler::snapshot) returns a [`Snapshot`].
    //! [`Scheduler::stalls`](crate::Scheduler::stalls) returns only what the watchdog has found.

    pub use crate::mailbox::bounds::MailboxSnapshot;
    pub use crate::observe::process_info::ProcessInfo;
    pub use crate::observe::process_state::ProcessState;
    pub use crate::observe::snapshot::{
        DescriptorSnapshot, LevelSnapshot, Snapshot, TimerSnapshot, WorkerSnapshot,
    };
    pub use crate::observe::unfinished::{DroppedProcesses, Unfinished};
    pub use crate::observe::wait_cycle::{CyclicWait, WaitCycle};
    pub use crate::process::wait_reason::Waiting;
    pub use crate::scheduler::stalls::{Stall, StallKind, StallSnapshot};
    pub use crate::scheduler::supply::StuckCoroutine;
}

/// Runs `future` on this thread until it completes. The processes of the default scheduler run
/// concurrently. See [`Scheduler::block_on`].
///
/// It returns when `future` is complete. It does not wait for the processes of the default
/// scheduler, which continue. It waits, for at most 10 s, only for [writes](crate::fs#at-the-end).
/// [`Scheduler::global`] says what happens to the processes when `main` returns.
///
/// ```
/// assert_eq!(procession::run(async { 1 + 1 }), 2);
/// ```
pub fn run<F: Future>(future: F) -> F::Output {
    Scheduler::default_here().block_on(future)
}

// The compiler's messages show the lines of bounds that a call does not satisfy, here and in the
// methods of `SpawnOptions` and `Scheduler`. So the comments on these lines say what to do.

/// Starts a process that runs `future`, on the scheduler of the calling process or thread, or else
/// on the default scheduler.
///
/// A cancel drops the future at its next suspension, and the process ends with
/// [`Exit::Shutdown`]. See [`OnCancel`] for this and for the alternative. A
/// [shutdown](Scheduler::shutdown) cancels the process, so a process that serves a client should
/// be started with [`start`] or with [`OnCancel::Ask`].
///
/// Awaiting the handle returns the output. If the scheduler takes no more processes, the future is
/// dropped and the handle returns [`Exit::Refused`]. [`SpawnOptions::try_spawn`] returns the future
/// instead.
///
/// The output may have any type. The process ends with [`Exit::Normal`] whatever it returns, even
/// if that is an `Err`. If links, monitors or supervisors must learn of an error, use
/// [`SpawnOptions::spawn_fallible`].
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
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static, // Not `Send`: `spawn_local`. A closure: `spawn_blocking`.
    F::Output: Send + 'static,
{
    let body = Box::new(AsyncBody::<F, AnyOutput>::Runs(future));
    SpawnOptions::new().spawn_body(body)
}

/// Starts a process with a mailbox.
///
/// `process` is called in the first step of the process, with its [`Context`]. The returned
/// [`Child`] is the address and the handle of the process. If the output is an `Err`, the process
/// has failed ([`Outcome`]).
///
/// If the scheduler takes no more processes, `process` is dropped, sends fail, and the handle
/// returns [`Exit::Refused`]. [`SpawnOptions::try_start`] returns `process` instead.
///
/// ```
/// use std::time::Duration;
/// use procession::{Context, Reply, start};
///
/// procession::run(async {
///     let squares = start(|mut cx: Context<(u64, Reply<u64>)>| async move {
///         let mut answered = 0;
///         while let Some((number, reply)) = cx.recv().await {
///             reply.send(number * number);
///             answered += 1;
///         }
///         answered
///     });
///     let square = squares.call(|reply| (7, reply), Duration::from_secs(9)).await?;
///     assert_eq!(square, 49);
///     // `recv` returns `None` once the process is cancelled and its mailbox is empty.
///     squares.cancel();
///     assert_eq!(squares.await?, 1);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn start<M, F, P>(process: F) -> Child<M, P::Output>
where
    M: Send + 'static, // Unknown: name it, as in `|cx: Context<Message>|`.
    F: FnOnce(Context<M>) -> P + Send + 'static,
    P: Future + Send + 'static, // Not `Send`: `start_local`.
    P::Output: Send + 'static,
    fn() -> P::Output: Returns,
{
    SpawnOptions::new().start(process)
}

/// Yields: everything that is ready on this worker runs before the process continues.
///
/// ```
/// use procession::{Scheduler, spawn, yield_now};
///
/// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// scheduler.block_on(async {
///     let other = spawn(async { "done" });
///     // On one worker, the other process runs in the meantime.
///     let waits = spawn(async move {
///         let mut turns = 0;
///         while !other.is_finished() {
///             yield_now().await;
///             turns += 1;
///         }
///         (other.await, turns)
///     });
///     assert!(matches!(waits.await, Ok((Ok("done"), 0 | 1))));
/// });
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|task| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        crate::scheduler::budget::yield_step(task);
        Poll::Pending
    })
    .await;
}

/// Runs `section`, which may block the thread: it waits in the kernel or for a lock, or computes
/// for long. Returns its result.
///
/// In a process, or in a future that is polled on a worker, the worker releases its permit while
/// the section lasts. If work is waiting, another worker takes the permit immediately; otherwise it
/// takes the permit as soon as there is work. Outside workers, this just runs `section`. Sections
/// may be nested.
///
/// If no permit is free when the section returns, the step still runs to its end. The worker parks
/// afterwards.
///
/// Up to [`Builder::max_threads`] threads are started for this. While all these threads are
/// blocked, ready processes wait. A section that returns always continues, so this alone never
/// deadlocks. There are two exceptions:
/// - A scheduler that its callers drive, or that is on a test clock, has no such threads by
///   default. If its width is 1, nothing else runs during the section.
/// - A process that is bound to this worker ([`SpawnOptions::affinity`]) waits in any case.
///
/// A process is not cancelled or terminated inside a section.
///
/// # Panics
/// Panics if `section` panics.
///
/// ```
/// let (asks, asked) = std::sync::mpsc::channel();
/// let answer = procession::run(async {
///     let waits = procession::spawn(async move { procession::blocking(|| asked.recv()) });
///     // Runs even if there is only one CPU and the other process has begun to wait.
///     let sent = procession::spawn(async move { asks.send(42) }).await;
///     sent.expect("it does not panic").expect("the other waits");
///     waits.await
/// })?;
/// assert_eq!(answer, Ok(42));
/// # Ok::<(), procession::Exit>(())
/// ```
///
/// # Blocking
/// Blocks the thread for as long as `section` does.
pub fn blocking<R>(section: impl FnOnce() -> R) -> R {
    let _section = Section::enter();
    section()
}

/// Returns the PID of the process that the calling code runs in or works for, or `None` if there is
/// none.
///
/// A job works for the process that submitted it, if it runs on a thread: a closure of
/// [`spawn_blocking`], of a [pool of threads](crate::pool), or of
/// [`coroutine::blocking`](crate::coroutine::blocking). The process may have ended by then. A job
/// is no step of the process: whatever acts on the running process, such as
/// [`link`](crate::relations::link) or [`exit`], finds none in a job. A task of tokio's works for
/// no process.
///
/// ```
/// procession::run(async {
///     let process = procession::spawn(async {
///         let in_job = procession::spawn_blocking(procession::process::current_pid).await;
///         assert_eq!(in_job, Ok(procession::process::current_pid()));
///     });
///     process.await
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
pub fn current_pid() -> Option<Pid> {
    current::current().map(|slot| slot.pid()).or_else(current::on_behalf_of)
}
