//! The handle of a scheduler, and the scheduler that a thread belongs to.

use std::panic::Location;
use std::sync::Arc;

use crate::scheduler::current;
use crate::scheduler::current::Hold;
use crate::scheduler::shared::Shared;

/// A scheduler: a number of workers that run processes, isolated from all other schedulers.
///
/// This is a handle; its clones refer to the same scheduler. When the last handle is dropped, the
/// scheduler terminates its processes, each between two of its steps, and ends with the last
/// process. The drop does not wait, so any thread or process may do it. To let processes clean up,
/// call [`shutdown`](Self::shutdown) first.
///
/// ```
/// use procession::Scheduler;
///
/// let scheduler = Scheduler::builder().name("example").worker_threads(2).build()?;
/// let sum = scheduler.block_on(async {
///     let one = procession::spawn(async { 1 });
///     let two = procession::spawn(async { 2 });
///     Ok::<_, procession::Exit>(one.await? + two.await?)
/// })?;
/// assert_eq!(sum, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Scheduler(pub(crate) Arc<Owner>);

pub(crate) struct Owner(pub(crate) Arc<Shared>);

/// Returns the scheduler that new processes of this thread belong to.
#[inline]
pub(crate) fn here() -> Hold {
    // Spelled out, because each spawn of a process passes here.
    current::seat().unwrap_or_else(elsewhere)
}

#[cold]
#[inline(never)]
fn elsewhere() -> Hold {
    current::here().unwrap_or_else(|| Hold::Shared(Arc::clone(Scheduler::default_here().shared())))
}

/// Returns the location of the caller.
#[track_caller]
pub(crate) fn caller() -> &'static Location<'static> {
    Location::caller()
}

impl Scheduler {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }
}
