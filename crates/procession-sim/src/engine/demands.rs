//! What the schedulers say waits for a worker, and the [bounds](super::bounds) of these waits.

use std::collections::BTreeMap;

use procession::sim::Demand;

use super::{BUSY_MAX, Engine, GRAIN, Held, State, Status, Virtual};
use crate::engine::bounds::{EVERY, LOOKS, STALL};
use crate::faults::Fault;
use crate::story::Kind;
use crate::time::NEVER;

impl State {
    /// Returns `true` if the law does not hold at this moment.
    fn suspends_bounds(&self) -> bool {
        // Threads stand in the middle of operations, where a scheduler cannot say what waits.
        #[cfg(procession_sim)]
        if self.setup.at_atomics {
            return true;
        }
        // Only so many computing workers are replaced.
        let computes = |thread: &&Virtual| thread.stalls() == Some(Held::Computes);
        let computing = self.threads.iter().filter(computes).count();
        self.is_over || computing >= self.setup.workers
    }

    /// Looks at the demands of all schedulers. Returns the law that is broken, if any.
    fn broken_bound(&mut self, demands: &[Option<Demand>], now: u64) -> Option<String> {
        self.note_delays(now);
        self.note_others(now);
        let stalls = |thread: &&Virtual| thread.waits || thread.stalls().is_some();
        self.bounds.stalled = self.threads.iter().filter(stalls).count() as u64;
        let losing = self.threads.iter().map(|thread| thread.losing);
        self.bounds.losing = losing.fold(0, u64::saturating_add);
        let coarse = if self.setup.faults.contains(Fault::CoarseClock) { 2 * GRAIN } else { 0 };
        let slack = coarse + if self.busy > BUSY_MAX { LOOKS } else { 0 };
        demands
            .iter()
            .enumerate()
            .find_map(|(number, demand)| self.bounds.look(number, demand.as_ref()?, now, slack))
    }

    /// Notes how many workers could run beside the scheduler that has the fewest such workers.
    fn note_others(&mut self, now: u64) {
        let can_run = |thread: &&Virtual| match thread.status {
            Status::Ready => true,
            Status::Parked { until, .. } | Status::Held { until, .. } => until <= now,
            Status::Ended => false,
        };
        let mut workers = BTreeMap::<_, u64>::new();
        for (scheduler, _) in self.threads.iter().filter(can_run).filter_map(|it| it.worker) {
            *workers.entry(scheduler).or_default() += 1;
        }
        let others = workers.values().sum::<u64>() - workers.values().min().unwrap_or(&0);
        self.bounds.most_others = self.bounds.most_others.max(others);
        let most = workers.values().copied().max().unwrap_or_default();
        self.bounds.most_workers = self.bounds.most_workers.max(most);
    }

    /// Notes the waits of threads that could run.
    fn note_delays(&mut self, now: u64) {
        for thread in &self.threads {
            if let Some(since) = thread.ready_since()
                && since <= now
            {
                self.bounds.note_delay(now - since);
            }
        }
    }
}

impl Engine {
    /// Returns the bound that is broken, if any.
    pub(super) fn broken_bound(&self) -> Option<String> {
        let mut state = self.state();
        let now = self.time();
        if state.suspends_bounds() {
            state.bounds.restart(now);
            return None;
        }
        state.bounds.next_look = now + EVERY;
        let subjects = state.subjects.clone();
        // Without the lock: a scheduler may read the clock, and its last reference may go here.
        drop(state);
        let demands: Vec<_> =
            subjects.iter().map(|one| one.upgrade().map(|subject| subject.demand())).collect();
        self.state().broken_bound(&demands, now)
    }

    /// Checks the bounds, unless that was done a moment ago.
    pub(super) fn check_bounds(&self) {
        let is_due = {
            let state = self.state();
            !state.is_over && self.time() >= state.bounds.next_look
        };
        if is_due && let Some(law) = self.broken_bound() {
            self.fail(Kind::Law, law);
        }
    }
}

impl Virtual {
    /// Returns why the thread is held up, or what it does between two parts of its step, if that is
    /// for so long that its step stalls.
    fn stalls(&self) -> Option<Held> {
        match self.status {
            _ if self.computed >= STALL => Some(Held::Computes),
            Status::Held { how: Held::Preempted, .. } => None,
            Status::Held { until, since, how } if until - since >= STALL => Some(how),
            _ => None,
        }
    }

    /// Returns the time since which the thread can run, in the past or in the future. Returns
    /// `None` if it runs, has ended, or waits without a deadline.
    pub(super) fn ready_since(&self) -> Option<u64> {
        match self.status {
            Status::Ready => self.left_at,
            Status::Parked { until, .. } | Status::Held { until, .. } if until != NEVER => {
                Some(until)
            }
            _ => None,
        }
    }
}
