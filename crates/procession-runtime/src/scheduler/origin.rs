//! The origin of a job: the scheduler and the process for which it runs on a thread.

use std::sync::Arc;

use crate::Pid;
use crate::scheduler::current;
use crate::scheduler::current::{Current, Entered};
use crate::scheduler::section::Section;
use crate::scheduler::shared::Shared;

/// The scheduler in which a job was submitted, and the process that submitted it. It holds the
/// scheduler's memory, but does not keep the scheduler from ending.
#[derive(Clone, Default)]
pub(crate) struct JobOrigin(Option<(Arc<Shared>, Option<Pid>)>);

impl JobOrigin {
    pub(crate) fn new(shared: Arc<Shared>, process: Pid) -> Self {
        Self(Some((shared, Some(process))))
    }

    /// Returns the origin of a job that this thread submits.
    pub(crate) fn current() -> Self {
        Self(current::here().map(|here| {
            let process = current::current().map(|slot| slot.pid());
            (Arc::clone(&here), process.or_else(current::on_behalf_of))
        }))
    }

    /// Returns the scheduler, if it has a test clock.
    pub(crate) fn on_test_clock(&self) -> Option<&Arc<Shared>> {
        self.0.as_ref().map(|(shared, _)| shared).filter(|shared| shared.world.is_test())
    }

    /// Makes this thread work for the origin until the place is dropped.
    ///
    /// A job may run on the thread of a caller that waits for it. If the caller is a process of the
    /// same scheduler, nothing changes. If it is a process of another scheduler, the job is a
    /// blocking section of that process.
    pub(crate) fn enter(&self) -> Option<EnteredOrigin> {
        let (shared, process) = self.0.as_ref()?;
        let is_here = current::here().is_some_and(|here| Arc::ptr_eq(&here, shared));
        if is_here && current::is_worker_of(shared) {
            return None;
        }
        let section = Section::enter();
        let here =
            Current::Outside { shared: Arc::clone(shared), on_behalf_of: *process, fires: false };
        Some(EnteredOrigin { entered: Entered::enter(here), section })
    }
}

/// The time for which a thread works for an origin. The fields are dropped in their order.
#[must_use]
#[expect(dead_code, reason = "the fields are held for their drop")]
pub(crate) struct EnteredOrigin {
    entered: Entered,
    section: Section,
}
