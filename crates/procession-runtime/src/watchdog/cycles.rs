//! Cycles of waits: the reports of processes that wait for one another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::scheduler::seat_id::NEVER;
use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::observe::process_info;
use crate::observe::wait_cycle::{CyclicWait, WaitCycle};
use crate::process::pid::Pid;
use crate::process::slot::Slot;
use crate::process::unwind::{drop_guarded, guarded};
use crate::process::wait_edge::{WaitProof, mutation};
use crate::scheduler::builder::Builder;
use crate::scheduler::owner::Scheduler;
use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;
use crate::scheduler::wait_graph::WaitLink;
use crate::sys::{nanoseconds, stderr};

/// The default time for which a cycle stands before it is reported, in nanoseconds.
const AFTER_DEFAULT: u64 = 5_000_000_000;
/// The number of reports that are kept.
const KEPT_MAX: usize = 16;
/// Tells the number of a monitor from the number of a wait.
const MONITOR: u64 = 1 << 33;
/// Nanoseconds by which the watchdog looks later than a wait is due, because ages are rounded.
const LATER: u64 = 20_000_000;

type CycleObserver = dyn Fn(&WaitCycle) + Send + Sync;

/// The cycles of waits of a scheduler.
pub(crate) struct WaitCycles {
    observer: Option<Box<CycleObserver>>,
    /// Nanoseconds for which each wait of a cycle lasts before the report, or `NEVER`.
    after: u64,
    kept: Mutex<VecDeque<Arc<WaitCycle>>>,
    /// The wait of the lowest slot of each cycle that was reported: its generation, and the
    /// number of its monitor or of the wait.
    reported: Mutex<SortedMap<u32, (u32, u64)>>,
}

impl Default for WaitCycles {
    fn default() -> Self {
        Self {
            observer: None,
            after: AFTER_DEFAULT,
            kept: Mutex::default(),
            reported: Mutex::default(),
        }
    }
}

impl Part for WaitCycles {
    /// Under the test clock, a cycle is reported as soon as nothing can run.
    fn settled(&self, shared: &Shared) {
        for slot in shared.processes.edges.take_new() {
            let link = shared.table().slot(slot).and_then(|slot| shared.sole_wait(slot));
            if let Some(link) = link.filter(|_| self.after != NEVER) {
                self.check(shared, link, 0, shared.world.now());
            }
        }
    }
}

impl Drop for WaitCycles {
    fn drop(&mut self) {
        drop_guarded(self.observer.take());
    }
}

impl WaitCycles {
    pub(crate) fn of(shared: &Shared) -> &Self {
        shared.parts.get().expect("`assembly.rs` gives each scheduler this part")
    }

    /// Returns the reports that are kept, the oldest first.
    pub(crate) fn kept(&self) -> Vec<Arc<WaitCycle>> {
        self.kept.lock().iter().cloned().collect()
    }

    /// Returns `true` if processes may be in cycles.
    pub(super) fn may_find(&self, shared: &Shared) -> bool {
        self.after != NEVER && shared.processes.edges.has_proofs()
    }

    /// Looks at a process that has waited for `age`. Returns when to look at it again, or `NEVER`.
    pub(super) fn visit(&self, shared: &Shared, slot: &Slot, age: u64, now: u64) -> u64 {
        if self.after == NEVER {
            return NEVER;
        }
        let Some(link) = shared.sole_wait(slot) else { return NEVER };
        let is_early = mutation::is(mutation::BUILT, mutation::AT_ONCE);
        let after = if is_early { 0 } else { self.after };
        if age < after {
            return now + (after - age) + LATER;
        }
        self.check(shared, link, after, now)
    }

    /// Reports the cycle of a wait, if there is one whose waits have all lasted for `after`.
    fn check(&self, shared: &Shared, link: WaitLink, after: u64, now: u64) -> u64 {
        let Some(links) = shared.wait_cycle(link) else { return NEVER };
        let (slot, generation) = links[0].waiter;
        let wait = match shared.processes.edges.proof(slot) {
            // A message makes the process look at its mailbox in another step of the same wait.
            WaitProof::Monitor(number) => (generation, MONITOR | u64::from(number)),
            _ => (generation, links[0].number),
        };
        if self.reported.lock().get(&slot) == Some(&wait) {
            return NEVER;
        }
        let waits = links.iter().map(|link| describe(shared, link, now)).collect::<Option<_>>();
        let Some(cycle) = waits.map(|waits| WaitCycle { waits }) else { return NEVER };
        let youngest = nanoseconds(cycle.at_least());
        if youngest < after {
            return now + (after - youngest) + LATER;
        }
        // The watchdog and a worker may have found it at the same time.
        if self.reported.lock().insert(slot, wait) != Some(wait) {
            self.report(shared, cycle);
        }
        NEVER
    }

    fn report(&self, shared: &Shared, cycle: WaitCycle) {
        shared.processes.edges.count_cycle();
        let cycle = Arc::new(cycle);
        let old = {
            let mut kept = self.kept.lock();
            kept.push_back(Arc::clone(&cycle));
            if kept.len() > KEPT_MAX { kept.pop_front() } else { None }
        };
        drop(old);
        // Panics of the observers end here.
        match &self.observer {
            Some(observer) => drop(guarded(|| observer(&cycle))),
            None if is_traced() => {}
            None => stderr::write(&shared.world, &cycle),
        }
        #[cfg(feature = "tracing")]
        drop(guarded(|| crate::observe::trace::wait_cycle(&cycle)));
    }
}

/// Describes a wait, if its process still exists.
fn describe(shared: &Shared, link: &WaitLink, now: u64) -> Option<CyclicWait> {
    let slot = shared.table().pin(link.waiter.0, link.waiter.1)?;
    Some(CyclicWait {
        pid: slot.pid(),
        label: process_info::label(&slot),
        spawned_at: slot.location(),
        reason: slot.waiting.get().reasons().next()?,
        location: slot.waited_at.get(),
        target: Pid::local(shared.id(), link.target.0, link.target.1),
        at_least: Duration::from_nanos(shared.processes.stamp(&slot, now)?),
    })
}

/// Returns `true` if a subscriber wants the reports.
fn is_traced() -> bool {
    #[cfg(feature = "tracing")]
    return guarded(crate::observe::trace::wants_stalls).unwrap_or(false);
    #[cfg(not(feature = "tracing"))]
    false
}

impl Builder {
    /// Sets for how long a cycle of waits stands before it is [reported](Self::on_wait_cycle).
    /// `None` turns the search off. Default: 5 s.
    ///
    /// The watchdog finds a cycle up to 5 s later in a program that is otherwise idle, and later
    /// still among more than 25 000 processes. With the test clock, a cycle is reported as soon as
    /// nothing can run. A scheduler without a watchdog and without a test clock reports none.
    pub fn wait_cycle_after(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.wait_cycles().after = time.into().map_or(NEVER, nanoseconds);
        self
    }

    /// Sets a hook that is called once for each [cycle of waits](WaitCycle). Default: an event for
    /// subscribers of `tracing` if there is one, or else a line on standard error.
    ///
    /// The hook runs on the watchdog's thread, or on a worker with the test clock. It must not
    /// block. A panic of the hook is caught.
    ///
    /// ```
    /// use std::sync::{Arc, mpsc};
    /// use procession::{Scheduler, sync::Mutex};
    ///
    /// let (reports, reported) = mpsc::channel();
    /// let scheduler = Scheduler::builder()
    ///     .worker_threads(1)
    ///     .test_clock()
    ///     .on_wait_cycle(move |cycle| drop(reports.send(cycle.clone())))
    ///     .build()?;
    /// let twice = scheduler.spawn(async {
    ///     let lock = Mutex::new(());
    ///     let _guard = lock.lock().await;
    ///     let _again = lock.lock().await;
    /// });
    /// scheduler.run_until_idle();
    /// let cycle = reported.try_recv()?;
    /// assert_eq!(cycle.waits.len(), 1);
    /// assert_eq!(cycle.waits[0].pid, twice.pid());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_wait_cycle(mut self, observer: impl Fn(&WaitCycle) + Send + Sync + 'static) -> Self {
        self.wait_cycles().observer = Some(Box::new(observer));
        self
    }

    fn wait_cycles(&mut self) -> &mut WaitCycles {
        let part = self.parts.get_mut::<WaitCycles>();
        part.expect("`assembly.rs` gives each scheduler this part")
    }
}

impl Scheduler {
    /// Returns the last 16 cycles of waits that were [reported](Builder::on_wait_cycle), the oldest
    /// first. A cycle that has ended since, because a process in it was ended, is still among them.
    pub fn wait_cycles(&self) -> Vec<Arc<WaitCycle>> {
        WaitCycles::of(self.shared()).kept()
    }
}
