//! How processes end: exits, the outcome of a process that returns, and the effect of a cancel.

pub(crate) mod causes;
pub(crate) mod outputs;
mod shown;

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::Arc;

/// The way in which a process ended.
///
/// Linked processes receive it in an exit signal, and monitoring processes in a
/// [`Down`](crate::relations::Down). If the process ended without an output, its handle returns
/// the exit as the error.
///
/// ```
/// use procession::{Exit, process, spawn};
///
/// procession::run(async {
///     let panics = spawn(async { panic!("no page {}", 7) });
///     let endless = spawn(std::future::pending::<()>());
///     process::kill(endless.pid());
///     let ends: [Result<(), Exit>; 2] = [panics.await, endless.await];
///     match &ends[0] {
///         Err(Exit::Panicked(text)) => assert!(text.contains("no page 7")),
///         other => unreachable!("{other:?}"),
///     }
///     assert_eq!(ends[1], Err(Exit::Killed));
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// It returned, and its output reports no failure ([`Outcome`](crate::Outcome)), or it ended
    /// normally without an output ([`exit`]).
    Normal,
    /// It was shut down because it was no longer needed, for example by its supervisor, or by a
    /// cancel that [drops](crate::OnCancel::Drop) it.
    Shutdown,
    /// It panicked. The text is the panic message.
    Panicked(Arc<str>),
    /// It was terminated between two steps, by [`kill`](crate::relations::kill()), by a shutdown,
    /// or because its scheduler was dropped.
    Killed,
    /// It failed. The text is the error that it returned ([`Outcome`](crate::Outcome)), the error
    /// of its `step`, or the reason that it passed to [`exit`].
    Failed(Arc<str>),
    /// The other side of its connection has gone: it reset the connection, closed it in the middle
    /// of a message, or takes no more data. The text is the error.
    ///
    /// Links, monitors and supervisors treat this exit as a failure, because the process did not
    /// finish. Its [report](crate::report::Reporting) has the level `DEBUG`, because clients leave
    /// every day.
    ///
    /// A process ends with this exit if it returns one of these errors:
    ///
    /// - An [`io::Error`] of the kind `ConnectionReset`, `ConnectionAborted`, `BrokenPipe` or
    ///   `UnexpectedEof`. A file that ends before its format allows has the kind `UnexpectedEof` as
    ///   well, so turn that error into another exit, for example with [`Exit::failed`].
    /// - The error of an [idle timeout](crate::io::CopyBidirectional::idle_timeout).
    /// - A boxed error that has an `io::Error` of one of the first three kinds among its
    ///   [sources][source], as the errors of axum, hyper and tungstenite have. The error of
    ///   a database client may also have such a source. A supervisor that restarts the process says
    ///   so at the level `WARN`. Without a supervisor, turn the error into a failure with
    ///   `Exit::failed`.
    /// - Any other error whose text ends as the standard library writes one of these three kinds,
    ///   for example with `Connection reset by peer (os error 104)`. The errors of anyhow, eyre and
    ///   axum do, and an error of thiserror does if its text includes the text of its source.
    ///
    /// [`io::Error`]: std::io::Error
    /// [source]: std::error::Error::source
    Disconnected(Arc<str>),
    /// It was a supervisor, and needed more restarts than it tolerates. The text names the child,
    /// and states how the child's last process ended.
    GaveUp(Arc<str>),
    /// It lost its name, which this text is, because an older claim of another node has become
    /// known. `procession-cluster` sends this exit (`SharedNames`).
    ///
    /// A supervisor does not restart the process, whatever its policy, because the process that
    /// keeps the name does the work. Otherwise the registry and the supervisor would both repair
    /// the same conflict.
    NameLost(Arc<str>),
    /// Its `step` waits for completions, but none is outstanding.
    WaitsForNothing,
    /// Its mailbox was full, and the policy of the mailbox is to end the process.
    MailboxFull,
    /// The process did not exist when it was linked or monitored.
    NoProcess,
    /// Its node cannot be reached any more. The process itself may be alive.
    NoConnection,
    /// Its node has left the cluster in order (`Node::drain` of `procession-cluster`). All that was
    /// accepted for it has arrived there. It cannot be reached any more, and is usually ending.
    Left,
    /// It was a coroutine or a local process, and the thread on which it had begun has ended. This
    /// was the thread of a caller that drove the scheduler
    /// ([`Builder::callers_drive`](crate::Builder::callers_drive)).
    ThreadEnded,
    /// It never ran, because its scheduler has reached its limit of processes or is shutting down.
    Refused,
}

impl Exit {
    /// Creates a failure with a reason.
    pub fn failed(reason: impl Into<Arc<str>>) -> Self {
        Self::Failed(reason.into())
    }

    /// Creates the exit for a process when its peer has gone
    /// ([`Disconnected`](Self::Disconnected)).
    pub fn disconnected(reason: impl Into<Arc<str>>) -> Self {
        Self::Disconnected(reason.into())
    }

    /// Returns `true` for [`Normal`](Self::Normal).
    pub fn is_normal(&self) -> bool {
        matches!(self, Self::Normal)
    }

    /// Returns `true` if the process panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self, Self::Panicked(_))
    }

    /// Returns `true` if the peer of the process has gone.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Disconnected(_))
    }

    /// Returns `true` if the process was terminated.
    pub fn is_killed(&self) -> bool {
        matches!(self, Self::Killed)
    }

    /// Returns `true` if a process that ends itself with this exit has failed.
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(
            self,
            Self::Normal
                | Self::Shutdown
                | Self::Killed
                | Self::Disconnected(_)
                | Self::NameLost(_)
        )
    }
}

/// The maximum length in bytes of a reason that an error writes. A process keeps the reason as
/// long as others have not received it, and a log shows it in a line.
const REASON_MAX: usize = 4096;

/// The panic payload of a process that ends itself.
pub(crate) struct Exiting(pub(crate) Exit);

/// Ends the running process immediately, with `exit`, by unwinding its stack, which drops
/// everything on it. Its handle returns `Err(exit)`.
///
/// A process can also return an `Err` ([`Outcome`](crate::Outcome)), or an [`Exit`] as its output,
/// which drops its values in the usual way. A state machine can return an [`Exit`] as the error of
/// its step.
///
/// # In programs that abort on panics
/// With `panic = "abort"`, no stack can be unwound. A program that calls this function is then not
/// built: the compiler reports the call, and asks for an `Err` or an [`Exit`] as the output instead
/// (`cargo build` does; `cargo check` does not look so deep). The function is generic so that
/// only such calls are errors.
///
/// In a job of a pool, and in [`spawn_blocking`](crate::spawn_blocking), it ends the job. The
/// handle returns [`JobError::Exited`](crate::pool::JobError::Exited), and the worker continues.
///
/// # Panics
/// Always unwinds. On a thread that runs no process, it unwinds the thread.
///
/// ```
/// use procession::process::exit;
/// use procession::{Exit, spawn};
///
/// procession::run(async {
///     let child = spawn(async {
///         if true {
///             exit(Exit::failed("no disk"));
///         }
///     });
///     assert_eq!(child.await, Err(Exit::failed("no disk")));
/// });
/// ```
pub fn exit<E: Into<Exit>>(exit: E) -> ! {
    #[cfg(panic = "abort")]
    const {
        panic!(
            "`procession::process::exit` unwinds the stack, but this program aborts on panics: let the \
             process return an `Err` or an `Exit` instead"
        )
    };
    resume_unwind(Box::new(Exiting(exit.into())))
}

/// The effect of a cancel on a process, chosen at the spawn
/// ([`SpawnOptions::on_cancel`](crate::SpawnOptions::on_cancel)).
///
/// A cancel is caused by [`JoinHandle::cancel`](crate::JoinHandle::cancel),
/// [`process::cancel`](crate::relations::cancel()), the end of a
/// [scope](crate::SpawnOptions::scoped), a supervisor that stops a child, or a
/// [shutdown](crate::Scheduler::shutdown). The effect does not depend on the cause.
///
/// | process | default | `Ask` | `Drop`, or terminated |
/// |---|---|---|---|
/// | [`spawn`] | `Drop` | [`cancelled`] resolves | its future is dropped |
/// | [`start`] | `Ask` | `cancelled` resolves, and [`recv`] ends | its future is dropped |
/// | [state machine] | `Ask` | it receives [`Event::Cancel`] | it is closed and dropped |
/// | [coroutine] | `Ask` | as for `start`, or unwound | its stack is unwound |
/// | guest, such as Lua | `Ask` | `process.receive` and waits end | it is closed and dropped |
///
/// `recv` ends by returning `None` once the mailbox is empty. `process.receive` of Lua then returns
/// `nil, "cancelled"`. A state machine receives [`Event::Cancel`] once, in its next step. If a
/// coroutine waits for anything else than `recv` or `cancelled`, its stack is unwound; with `Drop`,
/// it is unwound even from `recv`.
///
/// With `Ask`, the exit of the process is the exit of its result, or [`Exit::Shutdown`] if a stack
/// was unwound. With `Drop` it is [`Exit::Shutdown`]. If the process is terminated
/// ([`kill`](crate::relations::kill())), its exit is [`Exit::Killed`].
///
/// [`spawn`]: crate::spawn()
/// [`start`]: crate::start()
/// [state machine]: crate::machine
/// [coroutine]: crate::coroutine
/// [`cancelled`]: crate::cancelled()
/// [`recv`]: crate::Context::recv
/// [`Event::Cancel`]: crate::Event::Cancel
/// [`Exit::Shutdown`]: crate::Exit::Shutdown
/// [`Exit::Killed`]: crate::Exit::Killed
///
/// A process is dropped or terminated only between two steps. If the step that runs at that time
/// ends the process, its result stands. A process that is dropped before its first step never runs.
/// Where a program aborts on panics, stacks are not unwound but leaked.
///
/// # Shutdown
/// A shutdown asks all processes with `Ask` at the same time. A process with `Drop` may be the
/// helper of a process that cleans up, so it is dropped only after its parent has ended. It is
/// dropped immediately if it has no parent on its scheduler, or if its parent is the process that
/// shuts down. When the time that is reserved for terminating begins, it is terminated like all
/// other processes.
///
/// If a process has `Drop` only because [`spawn`] chose it, a shutdown that drops the process
/// counts it in [`Unfinished::dropped`](crate::snapshot::Unfinished::dropped), because the process
/// may be the connection of a client.
///
/// A process that is spawned during the shutdown may be such a helper as well. So it is cancelled
/// once its parent has ended, whether it has `Ask` or `Drop`.
///
/// ```
/// use procession::process::{OnCancel, cancelled};
/// use procession::{Exit, SpawnOptions};
///
/// procession::run(async {
///     let cancel = async |effect| {
///         let process = SpawnOptions::new().on_cancel(effect).spawn(async {
///             cancelled().await;
///             "cleaned up"
///         });
///         process.cancel();
///         process.await
///     };
///     assert_eq!(cancel(OnCancel::Ask).await, Ok("cleaned up"));
///     assert_eq!(cancel(OnCancel::Drop).await, Err(Exit::Shutdown));
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnCancel {
    /// The process is asked to end, and ends when it likes.
    Ask,
    /// The process is dropped at its next suspension, and ends with
    /// [`Exit::Shutdown`](crate::Exit::Shutdown).
    Drop,
}

/// An output of a process, which says whether the process has failed. It is for processes what
/// [`Termination`](std::process::Termination) is for `main`.
///
/// A process that returns ends with [`Exit::Normal`], unless its output reports a
/// [`failure`](Self::failure). An `Err` does: the process ends with [`Exit::Failed`] and the text
/// of the error. Links, monitors, supervisors and tracing learn that exit, so a
/// [transient](crate::supervisor::Restart::Transient) child is restarted. The handle still returns
/// the output itself, so the error keeps its type:
///
/// ```
/// use procession::{Context, Exit, SpawnOptions, start};
///
/// procession::run(async {
///     let watcher = start(|mut cx: Context<()>| async move {
///         let options = SpawnOptions::new().monitor();
///         let reader = options.start(|_: Context<()>| async { "many".parse::<u32>() });
///         let monitor = reader.monitor_ref().expect("it was asked for");
///         let down = cx.down(monitor).await;
///         (down.map(|down| down.exit), reader.await)
///     });
///     let (exit, output) = watcher.await?;
///     assert_eq!(exit, Some(Exit::failed("invalid digit found in string")));
///     assert!(output.is_ok_and(|output| output.is_err()));
///     Ok::<(), Exit>(())
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
///
/// [`start`](crate::start()), coroutines, state machines and the children of supervisors ask for an
/// `Outcome`. [`spawn`](crate::spawn()) takes any output, and a process that it starts ends
/// normally whatever it returns. [`spawn_fallible`](crate::SpawnOptions::spawn_fallible) is the
/// same with an `Outcome`.
///
/// # Outputs of the standard library
///
/// | output | the process has failed if |
/// |---|---|
/// | `Result<T, E>`, where `E: Display` | it is `Err`, or the content of `Ok` reports a failure |
/// | `Option`, `Box`, `&` | its content reports a failure |
/// | [`Exit`] | it is not [`Exit::Normal`]; the process ends with that exit |
/// | `Vec`, slices, arrays, maps, tuples, `Cow`, `Rc`, `Arc` | never |
/// | `()`, `!`, `bool`, `char`, numbers, strings, paths, times, addresses | never |
///
/// Collections never fail, because they are data, even if they contain a `Result`. `!` is the
/// output of a process that loops.
///
/// # The text of an error
///
/// An error that is an [`Exit`], for example the error of a handle, stays as it is: the process
/// ends with that exit. The text of any other error is its [`Display`](std::fmt::Display) form. The
/// causes of the error follow, each after `": "`, if they can be found:
///
/// - A `Box` or `Arc` of `dyn Error`, an [`io::Error`](std::io::Error), and an error of hyper (with
///   the feature `hyper`) have their [sources](std::error::Error::source).
/// - All other errors are written in the alternate form `{:#}`. The errors of anyhow and eyre and a
///   [`CallError`](crate::CallError) write their causes in that form, and most types ignore it. A
///   type parameter cannot be asked whether it implements `Error`. So a type of yours adds its
///   causes in its `Display`, or is turned into a `Box<dyn Error + Send + Sync>` by `?`.
///
/// The text has at most 4096 bytes.
///
/// If the error, or a cause that can be found, says that the other side of a connection has gone,
/// the exit is [`Exit::Disconnected`], because clients that leave are no failure of the program.
/// The exit is the same if the text ends with the system's number of such an error, for example
/// with `(os error 104)`. If a type of yours writes no cause, return a
/// `Box<dyn Error + Send + Sync>`.
///
/// # Types of yours
///
/// If a type is always a success, one line is enough:
///
/// ```
/// struct Summary {
///     lines: u64,
/// }
///
/// impl procession::process::Outcome for Summary {}
///
/// let summary = procession::run(procession::start(
///     |_: procession::Context<()>| async { Summary { lines: 3 } },
/// ))?;
/// assert_eq!(summary.lines, 3);
/// # Ok::<(), procession::Exit>(())
/// ```
///
/// Without it, the program does not compile, and the error shows that line:
///
/// ```compile_fail,E0277
/// struct Summary {
///     lines: u64,
/// }
///
/// drop(procession::start(|_: procession::Context<()>| async { Summary { lines: 3 } }));
/// ```
///
/// A type may also decide by its content:
///
/// ```
/// use procession::process::Outcome;
/// use procession::Exit;
///
/// struct Checked {
///     errors: u32,
/// }
///
/// impl Outcome for Checked {
///     fn failure(&self) -> Option<Exit> {
///         (self.errors > 0).then(|| Exit::failed(format!("{} errors", self.errors)))
///     }
/// }
///
/// assert_eq!(Checked { errors: 2 }.failure(), Some(Exit::failed("2 errors")));
/// ```
#[diagnostic::on_unimplemented(
    message = "the output `{Self}` of a process does not say whether the process has failed",
    label = "the output of this process is not an `Outcome`",
    note = "if a `{Self}` is always a success, add: `impl procession::process::Outcome for {Self} {{}}`",
    note = "`procession::spawn` takes any output"
)]
pub trait Outcome {
    /// Returns the exit of a process with this output, or `None` if the process ends normally.
    ///
    /// It is called once, in the last step of the process. A panic ends the process with
    /// [`Exit::Panicked`], and its handle then returns that exit instead of the output.
    fn failure(&self) -> Option<Exit> {
        None
    }
}

/// Decides the exit of a process that has returned an output.
pub(crate) trait Judge<T> {
    /// Returns the exit, or `None` for [`Exit::Normal`].
    fn judge(output: &T) -> Option<Exit>;
}

/// Ends the process normally, whatever its output.
pub(crate) struct AnyOutput;

/// Asks the output.
pub(crate) struct ByOutcome;

impl<T> Judge<T> for AnyOutput {
    #[inline]
    fn judge(_: &T) -> Option<Exit> {
        None
    }
}

impl<T: 'static> Judge<T> for ByOutcome
where
    fn() -> T: Returns,
{
    #[inline]
    fn judge(output: &T) -> Option<Exit> {
        <fn() -> T as Returns>::failure(output)
    }
}

/// The type of a function that returns an [`Outcome`], or that never returns.
///
/// `fn() -> T` implements it for every `T: Outcome`, and for `!`. The functions that start
/// processes ask for it instead of for `T: Outcome`, because a process that loops forever has the
/// output `!`, and the stable language can name that type only as the result of a function. The
/// trait cannot be implemented elsewhere.
pub trait Returns: Sealed {
    /// Returns the exit that `output`, a result of the function, reports.
    #[doc(hidden)]
    fn failure(output: &dyn Any) -> Option<Exit>;
}

impl<T: Outcome + 'static> Returns for fn() -> T {
    #[inline]
    fn failure(output: &dyn Any) -> Option<Exit> {
        output.downcast_ref().and_then(T::failure)
    }
}

impl Returns for fn() -> ! {
    fn failure(_: &dyn Any) -> Option<Exit> {
        None
    }
}

/// Keeps other crates from implementing [`Returns`].
pub trait Sealed {}

impl<T> Sealed for fn() -> T {}
