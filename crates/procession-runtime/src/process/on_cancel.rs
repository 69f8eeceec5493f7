//! The effect of a cancel on a process.

/// The effect of a cancel on a process, chosen at the spawn
/// ([`SpawnOptions::on_cancel`](crate::SpawnOptions::on_cancel)).
///
/// A cancel is caused by [`JoinHandle::cancel`](crate::JoinHandle::cancel),
/// [`Scheduler::cancel`](crate::Scheduler::cancel), the end of a
/// [scope](crate::SpawnOptions::scoped), a supervisor that stops a child, or a
/// [shutdown](crate::Scheduler::shutdown). The effect does not depend on the cause.
///
/// | process | default | `Ask` | `Drop` | terminated ([`kill`](crate::relations::kill())) |
/// |---|---|---|---|---|
/// | [`spawn`](crate::spawn()) | `Drop` | [`cancelled`](crate::cancelled()) resolves | its future is dropped | its future is dropped |
/// | [`start`](crate::start()) | `Ask` | `cancelled` resolves, and [`recv`](crate::Context::recv) returns `None` once the mailbox is empty | its future is dropped | its future is dropped |
/// | [state machine](crate::machine) | `Ask` | its next step receives [`Event::Cancel`](crate::Event::Cancel), once | it is closed and dropped | it is closed and dropped |
/// | [coroutine](crate::coroutine) | `Ask` | `recv` returns `None` once the mailbox is empty, and `cancelled` resolves. Any other wait unwinds its stack | its stack is unwound, even from `recv` | its stack is unwound |
/// | guest, such as a Lua program | `Ask` | `process.receive` returns `nil, "cancelled"` once the mailbox is empty, and waits end | it is closed and dropped | it is closed and dropped |
/// | the exit | | that of its result, or [`Exit::Shutdown`](crate::Exit::Shutdown) if a stack was unwound | [`Exit::Shutdown`](crate::Exit::Shutdown) | [`Exit::Killed`](crate::Exit::Killed) |
///
/// A process is dropped or terminated only between two steps. If the step that runs at that time
/// ends the process, its result stands. A process that is dropped before its first step never runs.
/// Where a program aborts on panics, stacks are not unwound but leaked.
///
/// # Shutdown
/// A shutdown asks all processes of the first kind at the same time. A process of the second kind
/// may be the helper of a process that cleans up, so it is dropped only after its parent has ended.
/// It is dropped immediately if it has no parent on its scheduler, or if its parent is the process
/// that shuts down. When the time that is reserved for terminating begins, it is terminated like
/// all other processes.
///
/// A process of the second kind for which nobody has chosen `Drop` is counted when a shutdown drops
/// it ([`Unfinished::dropped`](crate::snapshot::Unfinished::dropped)), because `spawn` says nothing
/// about the end, and the process may be the connection of a client.
///
/// A process that another one spawns during the shutdown may be such a helper as well. Whichever
/// its kind, it is cancelled once its parent has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnCancel {
    /// The process is asked to end, and ends when it likes.
    Ask,
    /// The process is dropped at its next suspension, and ends with
    /// [`Exit::Shutdown`](crate::Exit::Shutdown).
    Drop,
}
