//! The methods of a [`Scheduler`] that look at it.

use crate::Pid;
use crate::observe::process_info::ProcessInfo;
use crate::observe::snapshot::{self, Snapshot};
use crate::scheduler::current;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::stalls::StallSnapshot;

impl Scheduler {
    /// Waits until no process can run, and returns the waiting processes with what each waits for.
    /// The test clock stands still until this returns.
    ///
    /// If the scheduler is driven by its callers, this thread runs the processes.
    ///
    /// # Blocking
    /// Blocks the thread. It does not return while a process keeps running.
    ///
    /// # Panics
    /// Panics in a process of this scheduler, because the process would wait for itself.
    pub fn run_until_idle(&self) -> Vec<ProcessInfo> {
        let by_its_own =
            current::current().is_some_and(|slot| slot.seen_pid().scheduler() == self.id());
        assert!(
            !by_its_own,
            "cannot wait until the scheduler is idle: the caller is one of its processes"
        );
        self.shared().run_until_idle();
        snapshot::waiting(self.shared())
    }

    /// Returns what all workers and processes are doing.
    pub fn snapshot(&self) -> Snapshot {
        snapshot::take(self.shared())
    }

    /// Returns the row of one process in the [snapshot](Self::snapshot), at a cost that does not
    /// grow with the number of processes. Returns `None` if the process does not exist in this
    /// scheduler.
    ///
    /// ```
    /// use procession::observe::ProcessState;
    ///
    /// let scheduler = procession::Scheduler::builder().worker_threads(1).test_clock().build()?;
    /// let idle = procession::SpawnOptions::new()
    ///     .on(&scheduler)
    ///     .label("idle")
    ///     .spawn(std::future::pending::<()>());
    /// scheduler.run_until_idle();
    /// let row = scheduler.process(idle.pid()).expect("it has not ended");
    /// assert_eq!((row.label.as_deref(), row.steps), (Some("idle"), 1));
    /// assert_eq!(row.state, ProcessState::Blocked);
    /// assert!(scheduler.process(procession::Pid::NOBODY).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn process(&self, pid: Pid) -> Option<ProcessInfo> {
        snapshot::one(self.shared(), pid)
    }

    /// Returns what the watchdog has found so far. This is
    /// [`Snapshot::stalls`](crate::observe::snapshot::Snapshot::stalls) alone, at a cost that does
    /// not grow with the number of processes.
    pub fn stalls(&self) -> StallSnapshot {
        self.shared().workforce.watchdog.counts()
    }
}
