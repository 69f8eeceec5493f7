//! One process in detail.

use std::sync::Arc;

use crate::Pid;
use crate::observe::look::pass;
use crate::observe::look::view::ProcessRow;
use crate::relations::links;
use crate::relations::pid_list::PidList;
use crate::scheduler::reach::find;
use crate::scheduler::shared::Shared;

/// A process with its relations. See [`Scheduler::detail`](crate::Scheduler::detail).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessDetail {
    /// Its row, with its figures since its start.
    pub row: ProcessRow,
    /// The name under which it is registered, if it is.
    pub name: Option<Arc<str>>,
    /// The type of its messages.
    pub message: &'static str,
    /// The processes that it is linked with.
    pub links: PidList,
    /// The processes that monitor it.
    pub monitors: PidList,
    /// The processes that it monitors.
    pub monitored: PidList,
    /// The processes in its scope.
    pub scope: PidList,
    /// The process that supervises it, if there is one.
    pub supervisor: Option<Pid>,
}

/// Returns a process of this program in detail, whatever scheduler it belongs to, or `None` if it
/// has ended.
///
/// ```
/// let name = procession::run(procession::spawn(async {
///     let pid = procession::process::current_pid()?;
///     procession::process::register("clock", pid).ok()?;
///     procession::observe::detail(pid)?.name
/// }));
/// assert_eq!(name.unwrap().as_deref(), Some("clock"));
/// ```
pub fn detail(pid: Pid) -> Option<ProcessDetail> {
    of(find(pid)?.shared(), pid)
}

/// Returns the number of messages that wait in the mailbox of a process of this program, as
/// [`ProcessRow::mailbox`] has it, or `None` if the process has ended.
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

/// Returns the process with this PID, if it belongs to the scheduler.
pub(crate) fn of(shared: &Shared, pid: Pid) -> Option<ProcessDetail> {
    if (pid.node(), pid.scheduler()) != (0, shared.id()) {
        return None;
    }
    let slot = shared.table().pin(pid.slot(), pid.generation())?;
    let row = pass::row(shared, &slot)?;
    let relations = links::overview(&slot);
    Some(ProcessDetail {
        row,
        name: links::registered_name(&slot),
        message: (slot.kind().message_name)(),
        links: relations.links,
        monitors: relations.monitors,
        monitored: relations.monitored,
        scope: relations.scope,
        supervisor: relations.supervisor,
    })
}
