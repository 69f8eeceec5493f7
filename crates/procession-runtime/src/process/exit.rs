//! Exits of processes.

use std::error::Error;
use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use crate::util::bounded_text::bounded_text;

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
    ///   [sources](Error::source), as the errors of axum, hyper and tungstenite have. The error of
    ///   a database client may also have such a source. A supervisor that restarts the process says
    ///   so at the level `WARN`. Without a supervisor, turn the error into a failure with
    ///   `Exit::failed`.
    Disconnected(Arc<str>),
    /// It was a supervisor, and needed more restarts than it tolerates. The text names the child,
    /// and states how the child's last process ended.
    GaveUp(Arc<str>),
    /// Its `step` waits for completions, but none is outstanding.
    WaitsForNothing,
    /// Its mailbox was full, and the policy of the mailbox is to end the process.
    MailboxFull,
    /// The process did not exist when it was linked or monitored.
    NoProcess,
    /// Its node cannot be reached any more. The process itself may be alive.
    NoConnection,
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

    /// Creates the exit of a process that returns `error`: a failure, or
    /// [`Disconnected`](Self::Disconnected) if `error` or one of its [sources](Error::source) says
    /// that the other side of a connection has gone. The reason is the text of `error`, followed by
    /// the texts of its sources, each after `": "`. A source is left out if the text before it ends
    /// with the source's text, because many errors print their cause. An error that is an `Exit`
    /// stays as it is.
    ///
    /// The reason has at most 4096 bytes.
    ///
    /// ```
    /// use procession::Exit;
    ///
    /// let full = std::io::Error::other("no space left");
    /// assert_eq!(Exit::from_error(&full), Exit::failed("no space left"));
    /// assert_eq!(Exit::from_error(&Exit::Shutdown), Exit::Shutdown);
    ///
    /// let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    /// assert_eq!(Exit::from_error(&reset), Exit::disconnected("connection reset"));
    /// ```
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        if let Some(exit) = error.downcast_ref::<Self>() {
            return exit.clone();
        }
        let (mut reason, mut is_whole) = bounded_text(error, REASON_MAX);
        let mut source = error.source();
        while let Some(error) = source.filter(|_| is_whole) {
            let (text, fits) = bounded_text(error, REASON_MAX);
            if !fits || !reason.ends_with(&text) {
                (reason, is_whole) = bounded_text(format_args!("{reason}: {text}"), REASON_MAX);
                is_whole &= fits;
            }
            source = error.source();
        }
        if is_disconnect(error) { Self::disconnected(reason) } else { Self::failed(reason) }
    }

    /// Creates a failure with a reason of at most 4096 bytes.
    pub(crate) fn failed_with(text: fmt::Arguments<'_>) -> Self {
        Self::failed(bounded_text(text, REASON_MAX).0)
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
        !matches!(self, Self::Normal | Self::Shutdown | Self::Killed | Self::Disconnected(_))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("the process ended normally"),
            Self::Shutdown => f.write_str("the process was shut down"),
            Self::Panicked(text) => write!(f, "the process panicked: {text}"),
            Self::Killed => f.write_str("the process was terminated"),
            Self::Failed(text) => write!(f, "the process failed: {text}"),
            Self::Disconnected(text) => write!(f, "the process lost its connection: {text}"),
            Self::GaveUp(text) => write!(f, "the supervisor gave up: {text}"),
            Self::WaitsForNothing => {
                f.write_str("the process waits for completions, but none is outstanding")
            }
            Self::MailboxFull => f.write_str("the process's mailbox was full"),
            Self::NoProcess => f.write_str("there is no such process"),
            Self::NoConnection => f.write_str("there is no connection to the node of the process"),
            Self::ThreadEnded => f.write_str("the thread that the process stays on has ended"),
            Self::Refused => f.write_str("the scheduler takes no more processes"),
        }
    }
}

impl Error for Exit {}

/// The kind of the error is [`Other`](io::ErrorKind::Other).
impl From<Exit> for io::Error {
    fn from(exit: Exit) -> Self {
        Self::other(exit)
    }
}

/// Returns `true` if the error says that the other side of a connection has gone, or that both
/// sides were silent for longer than allowed.
fn is_disconnect(error: &(dyn Error + 'static)) -> bool {
    // Only of the error itself, because the reader of a format wraps this error when a file is
    // shorter than it should be.
    let ends_early = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    error.downcast_ref().is_some_and(ends_early) || successors(error).any(is_lost_connection)
}

/// Returns an error and its sources. The source that an [`io::Error`] wraps is included, which
/// [`Error::source`] skips.
fn successors<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error.downcast_ref().and_then(io::Error::get_ref);
        wrapped.map(|error| -> &(dyn Error + 'static) { error }).or_else(|| error.source())
    })
}

fn is_lost_connection(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    let kind = error.downcast_ref().map(io::Error::kind);
    matches!(kind, Some(BrokenPipe | ConnectionAborted | ConnectionReset)) || error.is::<Idle>()
}

/// The error of a connection in which no data has moved for this time.
#[derive(Debug)]
pub(crate) struct Idle(pub(crate) Duration);

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no data has moved in either direction for {:?}", self.0)
    }
}

impl Error for Idle {}

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
