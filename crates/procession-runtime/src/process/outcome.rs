//! The end of a process that returns: a success, or the failure that its output reports.

mod outputs;

use std::any::Any;

use crate::process::exit::Exit;

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
/// - A `Box` or `Arc` of `dyn Error`, and an [`io::Error`](std::io::Error), have their
///   [sources](std::error::Error::source).
/// - All other errors are written in the alternate form `{:#}`. The errors of anyhow and eyre and a
///   [`CallError`](crate::CallError) write their causes in that form, and most types ignore it. A
///   type parameter cannot be asked whether it implements `Error`. So a type of yours adds its
///   causes in its `Display`, or is turned into a `Box<dyn Error + Send + Sync>` by `?`.
///
/// The text has at most 4096 bytes.
///
/// If the error, or a cause that can be found, says that the other side of a connection has gone,
/// the exit is [`Exit::Disconnected`], because clients that leave are no failure of the program.
/// For example, a process that serves a WebSocket of axum returns a `Box<dyn Error + Send + Sync>`,
/// because axum's errors wrap the errors of the connection.
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
