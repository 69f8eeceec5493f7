//! The effect of a cancel on a process.

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
pub enum OnCancel {
    /// The process is asked to end, and ends when it likes.
    Ask,
    /// The process is dropped at its next suspension, and ends with
    /// [`Exit::Shutdown`](crate::Exit::Shutdown).
    Drop,
}
