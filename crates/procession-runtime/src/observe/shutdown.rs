//! The shutdown of a scheduler. It uses the kernel and the observers: it ends the processes, and
//! lists the processes that have not ended.

use std::time::Duration;

use procession_protocols::scheduler::writes::table::Unwritten;
use procession_sync::atomic::Ordering::Relaxed;

use crate::observe::unfinished::{self, Unfinished};
use crate::recorder::dump::{DumpCause, Dumps};
use crate::scheduler::current;
use crate::scheduler::health::state::HealthState;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::settle::settle_reports;
use crate::scheduler::writes::SettledWrites;
use crate::sys::nanoseconds;

/// A shutdown reserves a tenth of its deadline to terminate processes, and at most this, in
/// nanoseconds.
const TERMINATION_MAX: u64 = 100_000_000;

impl Scheduler {
    /// Ends the scheduler in order, and returns what it could not finish by the deadline:
    /// processes, requests of HTTP servers, writes that helper threads have accepted, closures of
    /// [`spawn_blocking`](crate::spawn_blocking()), and messages to other nodes.
    ///
    /// 1. From the beginning, only processes of this scheduler can spawn.
    /// 2. Cancels every process except the caller. Processes that are asked
    ///    ([`OnCancel`](crate::OnCancel)) may clean up with any number of steps, messages, timers
    ///    and new processes. All other processes are dropped once the processes that spawned them
    ///    have ended. If the spawner is the caller, or no process of this scheduler, they are
    ///    dropped immediately. A process that is spawned from now on is cancelled once the process
    ///    that spawned it has ended, whatever the effect. A supervisor stops its children in order,
    ///    and they have until `deadline`, unless their [`Stop`](crate::supervisor::Stop) says
    ///    otherwise. Each process of [`spawn`](crate::spawn()) that is dropped is counted, because
    ///    it might be the connection of a client ([`Unfinished::dropped`]).
    /// 3. Terminates the remaining processes shortly before `deadline` has passed. A tenth of
    ///    `deadline` is reserved for this, at most 100 ms.
    /// 4. Waits for the [writes](crate::fs#at-the-end) that were accepted on this scheduler, and
    ///    for the closures of [`spawn_blocking`](crate::spawn_blocking()), except the closure that
    ///    calls.
    /// 5. Returns when all processes, writes and closures have ended, or when `deadline` has
    ///    passed.
    ///
    /// You may await this anywhere, for example in a process of another scheduler, or in another
    /// runtime. Neither a write that never ends nor a worker that is stuck holds it up beyond
    /// `deadline`, because a separate thread keeps the time. On the test clock it waits until the
    /// writes have ended, because that clock stands still until then, and not for closures, which
    /// may wait for something that the test does later.
    ///
    /// A terminated process has ended only when its `Drop` has returned. If a plain thread awaits
    /// this in [`block_on`](Self::block_on), it returns by its deadline whatever the processes do,
    /// unless that thread is itself a worker
    /// ([`Builder::callers_drive`](crate::Builder::callers_drive)) and runs a step that never
    /// returns.
    ///
    /// If [reports](crate::report::Reporting) wait to be written to standard error, it waits for
    /// that, for at most 100 ms of the deadline. In a process, this is a [blocking
    /// section](crate::blocking()).
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::{Context, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().worker_threads(1).build()?;
    /// let store = scheduler.start(|mut cx: Context<u32>| async move {
    ///     let mut sum = 0;
    ///     while let Some(number) = cx.recv().await {
    ///         sum += number;
    ///     }
    ///     sum
    /// });
    /// store.send(7)?;
    /// let unfinished = scheduler.block_on(scheduler.shutdown(Duration::from_secs(10)));
    /// assert!(unfinished.is_empty(), "{unfinished}");
    /// assert_eq!(store.join()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn shutdown(&self, deadline: Duration) -> Unfinished {
        let shared = self.shared();
        let caller = current::current()
            .map(|slot| slot.seen_pid())
            .filter(|pid| pid.scheduler() == shared.id());
        let left = u64::from(caller.is_some());
        let allowed = nanoseconds(deadline);
        let now = shared.world.now();
        let deadline = now.saturating_add(allowed);
        let kept_back = (allowed / 10).min(TERMINATION_MAX);
        let terminates = now.saturating_add(allowed - kept_back);
        HealthState::of(shared).end();
        shared.lifetime.note_deadline(terminates);
        shared.lifetime.cancel_all(shared.table(), caller);
        shared.wait_for_ends(left, terminates).await;
        let mut terminated = Vec::new();
        if shared.alive() > left {
            // Before the processes are gone.
            Dumps::request(shared, DumpCause::Shutdown);
            terminated = unfinished::interrupted(shared, caller);
        }
        shared.terminate_all(caller);
        shared.wait_for_ends(left, deadline).await;
        let mut settled = SettledWrites::of_shutdown(shared);
        shared.settle_writes(&mut settled, deadline).await;
        let Unwritten { writes, messages, jobs } = settled.give_up();
        Dumps::settle_by(shared, deadline);
        settle_reports(&shared.world, deadline);
        let processes = if shared.alive() <= left {
            Vec::new()
        } else {
            unfinished::unfinished(shared, caller)
        };
        terminated.retain(|row| processes.iter().all(|process| process.pid != row.pid));
        let losses = &shared.lifetime.losses;
        let [requests, stopped, stopped_requests] =
            [&losses.requests, &losses.stopped, &losses.stopped_requests]
                // Relaxed: see there.
                .map(|count| count.load(Relaxed));
        let dropped = unfinished::dropped(shared);
        Unfinished {
            processes,
            terminated,
            dropped,
            requests,
            writes,
            messages,
            jobs,
            stopped,
            stopped_requests,
        }
    }
}
