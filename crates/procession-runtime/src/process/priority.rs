//! The priority of a process, as users see and change it.

#[doc(inline)]
pub use procession_protocols::process::priority::Priority;

use crate::Pid;
use crate::scheduler::budget;
use crate::scheduler::reach::find;

impl crate::Outcome for Priority {}

/// Changes the priority of a process of this program. Returns `true` if the process exists.
///
/// A process changes its own priority with its own PID ([`current_pid`](crate::current_pid())). The
/// new priority counts from the moment at which the process is queued next, and a process that is
/// queued as [`High`](Priority::High) or [`Batch`](Priority::Batch) moves immediately. Processes
/// that the process spawns do not inherit it, and it does not travel with messages.
///
/// While a process waits for the reply to a call, or for a lock, the process that it calls or that
/// holds the lock runs at least at its priority, and so on for up to eight processes that wait for
/// one another. This is decided when the wait begins, and again when the process is woken: a change
/// of a priority meanwhile, or a next holder of the lock that is lower than the one before, may
/// lend nothing. The priority of a process of another node cannot be changed.
///
/// ```
/// use procession::process::{Priority, priority, set_priority};
/// use procession::{Context, SpawnOptions};
///
/// procession::run(async {
///     let options = SpawnOptions::new().priority(Priority::Batch);
///     let report = options.start(|mut cx: Context<()>| async move {
///         cx.recv().await;
///         priority(cx.pid())
///     });
///     // Somebody waits for the report now.
///     assert!(set_priority(report.pid(), Priority::High));
///     report.send(()).expect("it waits for a message");
///     assert_eq!(report.await, Ok(Some(Priority::High)));
/// });
/// ```
pub fn set_priority(pid: Pid, priority: Priority) -> bool {
    budget::spend();
    find(pid).map(|slot| slot.shared().set_priority(&slot, priority)).is_some()
}

/// Returns the priority at which a process of this program runs, or `None` if the process does not
/// exist. See [`set_priority`].
pub fn priority(pid: Pid) -> Option<Priority> {
    find(pid).map(|slot| slot.shared().priority(&slot))
}
