//! One process in detail.

use std::time::Duration;

use crate::Pid;
use crate::observe::ask::{self, AskError};
use crate::observe::look::pass;
use crate::observe::process_info::{ProcessInfo, ProcessRelations};
use crate::process::request::Inspection;
use crate::relations::links;
use crate::scheduler::current::Hold;
use crate::scheduler::reach::{find, reach};
use crate::scheduler::shared::Shared;

/// Returns a process of this program in detail, whatever scheduler it belongs to, or `None` if it
/// has ended.
///
/// ```
/// let name = procession::run(procession::spawn(async {
///     let pid = procession::process::current_pid()?;
///     procession::process::register("clock", pid).ok()?;
///     procession::observe::detail(pid)?.relations?.name
/// }));
/// assert_eq!(name.unwrap().as_deref(), Some("clock"));
/// ```
pub fn detail(pid: Pid) -> Option<ProcessInfo> {
    of(find(pid)?.shared(), pid)
}

/// Returns the number of messages that wait in the mailbox of a process of this program, as
/// [`ProcessInfo::mailbox`] has it, or `None` if the process has ended.
///
/// Unlike [`detail`], it is cheap enough for each message.
///
/// ```
/// let length = procession::run(procession::spawn(async {
///     procession::observe::mailbox_length(procession::process::current_pid()?)
/// }));
/// assert_eq!(length.unwrap(), Some(0));
/// ```
pub fn mailbox_length(pid: Pid) -> Option<u32> {
    find(pid).map(|slot| pass::mailbox_length(&slot))
}

/// Asks a process of this program what it shows of itself, whatever scheduler it belongs to. See
/// [`Scheduler::inspect`](crate::Scheduler::inspect).
///
/// ```
/// use procession::observe::{AskError, inspect};
/// use procession::{Context, start};
///
/// procession::run(async {
///     let counter = start(|mut cx: Context<u32>| async move {
///         let _shown = cx.inspect_with(|out| {
///             out.field("count", 7);
///         });
///         cx.recv().await
///     });
///     let shown = loop {
///         match inspect(counter.pid()).await {
///             // It has not begun yet.
///             Err(AskError::ShowsNothing) => procession::yield_now().await,
///             shown => break shown.expect("it waits"),
///         }
///     };
///     assert_eq!(shown.fields().collect::<Vec<_>>(), [("count", "7")]);
///     counter.cancel();
///     assert_eq!(counter.await, Ok(None));
/// });
/// ```
///
/// # Errors
/// [`AskError`].
///
/// # Cancellation
/// If the future is dropped, the process answers into the void.
pub async fn inspect(pid: Pid) -> Result<Inspection, AskError> {
    // The scheduler is not kept while the process is awaited.
    let asked = ask::request_inspection(&*scheduler_of(pid)?, pid)?;
    ask::answer(asked).await
}

fn scheduler_of(pid: Pid) -> Result<Hold, AskError> {
    reach(pid.scheduler()).filter(|_| pid.node() == 0).ok_or(AskError::Ended)
}

/// Suspends a process of this program for at most 60 s, whatever scheduler it belongs to. See
/// [`Scheduler::suspend_for`](crate::Scheduler::suspend_for).
///
/// # Errors
/// [`AskError::Ended`], [`AskError::Ending`] or [`AskError::NoTimer`].
pub fn suspend_for(pid: Pid, duration: Duration) -> Result<(), AskError> {
    ask::suspend(&*scheduler_of(pid)?, pid, duration)
}

/// Ends the suspension of a process of this program, whatever scheduler it belongs to. Returns
/// `false` if it is not suspended.
///
/// ```
/// use std::time::Duration;
///
/// use procession::observe::{resume, suspend_for};
/// use procession::{Context, start};
///
/// procession::run(async {
///     let waits = start(|mut cx: Context<u32>| async move { cx.recv().await });
///     suspend_for(waits.pid(), Duration::from_secs(60))?;
///     waits.send(1).expect("the mailbox takes messages");
///     assert!(resume(waits.pid()));
///     assert_eq!(waits.await, Ok(Some(1)));
///     Ok::<(), procession::observe::AskError>(())
/// })?;
/// # Ok::<(), procession::observe::AskError>(())
/// ```
pub fn resume(pid: Pid) -> bool {
    scheduler_of(pid).is_ok_and(|scheduler| ask::resume(&scheduler, pid))
}

/// Returns the process with this PID, if it belongs to the scheduler.
pub(crate) fn of(shared: &Shared, pid: Pid) -> Option<ProcessInfo> {
    if (pid.node(), pid.scheduler()) != (0, shared.id()) {
        return None;
    }
    let slot = shared.table().pin(pid.slot(), pid.generation())?;
    let mut info = pass::row(shared, &slot)?;
    let overview = links::overview(&slot);
    info.relations = Some(Box::new(ProcessRelations {
        name: links::registered_name(&slot),
        message: (slot.kind().message_name)(),
        links: overview.links,
        monitors: overview.monitors,
        monitored: overview.monitored,
        scope: overview.scope,
        supervisor: overview.supervisor,
    }));
    Some(info)
}
