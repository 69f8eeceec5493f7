//! One process in detail.

use crate::Pid;
use crate::observe::look::pass;
use crate::observe::process_info::{ProcessInfo, ProcessRelations};
use crate::relations::links;
use crate::scheduler::reach::find;
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
