//! The methods of a [`Scheduler`] that look at its processes.

use crate::Pid;
use crate::observe::look::detail;
use crate::observe::look::pass;
use crate::observe::look::query::Query;
use crate::observe::look::tree::{self, SupervisorRow};
use crate::observe::look::view::View;
use crate::observe::process_info::ProcessInfo;
use crate::scheduler::owner::Scheduler;

/// Available with the crate feature `look`.
impl Scheduler {
    /// Returns the processes that `query` asks for.
    ///
    /// The cost grows with the number of processes, about 40 ns for each, and with the number of
    /// rows. It needs nothing to be enabled, and does not stop the workers.
    ///
    /// # Blocking
    /// Computes for as long as that takes: a million processes are 40 ms.
    ///
    /// ```
    /// use procession::observe::{GroupKey, Query};
    /// use procession::{Context, Scheduler, SpawnOptions};
    ///
    /// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    /// let waits = |mut cx: Context<()>| async move { cx.recv().await };
    /// let options = || SpawnOptions::new().on(&scheduler).label("session");
    /// let _sessions: Vec<_> = (0..10).map(|_| options().start(waits)).collect();
    /// scheduler.run_until_idle();
    /// let query = Query::new().label("session").group_by(GroupKey::State);
    /// let view = scheduler.look(&query);
    /// assert_eq!(view.groups[0].processes, 10);
    /// # Ok::<(), procession::scheduler::BuildError>(())
    /// ```
    pub fn look(&self, query: &Query) -> View {
        pass::look(self.shared(), query)
    }

    /// Returns the details of one process, or `None` if this scheduler has no such process.
    pub fn detail(&self, pid: Pid) -> Option<ProcessInfo> {
        detail::of(self.shared(), pid)
    }

    /// Returns the supervisors that have children, with their children, by PID.
    ///
    /// It asks no supervisor, and so answers even if none runs. A child has its last 8 ends,
    /// without the ends that the supervisor asked for.
    pub fn supervision(&self) -> Vec<SupervisorRow> {
        tree::supervision(self.shared())
    }
}
