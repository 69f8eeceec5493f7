//! Decisions between the operations of atomics.

use std::panic::Location;

use super::{Chance, Plan};
use crate::chance::fine::{Aim, Before, FIXED, GAP_MAX, Moment};
use crate::tape::Purpose;

impl Chance {
    /// Decides after how many operations the thread that gets its turn is preempted. 0 stands for
    /// never.
    pub(crate) fn plan(&mut self, thread: Option<u32>) -> u32 {
        if !self.fine.is_open {
            return 0;
        }
        self.fine.held = self.fine.held.filter(|&(held, _)| Some(held) != thread);
        let logged = self.fine.log.as_ref().map_or(0, Vec::len);
        // Part of the digest once the turn has ended, because it can change until then.
        let gap = self.decide_undigested(Purpose::Schedule, GAP_MAX, |this| {
            this.fine.count_turn();
            let mean = match (this.fine.aim, &this.plan) {
                (Aim::Places(_), _) => return 0,
                (Aim::Anywhere(_), Plan::Uniform) => 2,
                (Aim::Anywhere(mean), _) => mean,
            };
            this.fine.rng.u32(1..2 * mean)
        });
        self.fine.planned = Some((self.tape[Purpose::Schedule].len() - 1, logged));
        gap
    }

    /// Decides whether the running thread is preempted before the operation `at`, which is number
    /// `operations` of its turn, although that was not planned.
    pub(crate) fn preempts(&mut self, before: Before, at: &Location<'_>, operations: u32) -> bool {
        let Some((planned, _)) = self.fine.planned else { return false };
        let Aim::Places(places) = self.fine.aim else { return false };
        let is_free = !self.fine.is_holding() || self.fine.nested < self.fine.nested_max;
        let is_possible = self.given.is_none() && is_free && operations < GAP_MAX;
        if !is_possible || !places.contain(before, at) || self.fine.rng.u32(0..places.one_in) > 0 {
            return false;
        }
        // On a tape it is a plan like any other.
        self.tape[Purpose::Schedule][planned] = operations;
        true
    }

    /// Returns `true` if threads are preempted only where [`preempts`](Self::preempts) says so.
    pub(crate) fn has_aim(&self) -> bool {
        self.fine.is_open && self.given.is_none() && !matches!(self.fine.aim, Aim::Anywhere(_))
    }

    /// A turn ends after so many operations. If the turn ends before its planned preemption, the
    /// preemption is removed from the tape.
    pub(crate) fn end_turn(&mut self, gap: u32, operations: u32) {
        let Some((at, logged)) = self.fine.planned.take() else { return };
        if gap > operations {
            self.tape[Purpose::Schedule][at] = 0;
        }
        self.digest(u64::from(self.tape[Purpose::Schedule][at]) << 32 | u64::from(GAP_MAX));
        if let Some(log) = &mut self.fine.log {
            log[logged].count = operations.min(GAP_MAX - 1) + 1;
        }
    }

    /// Chooses which thread runs instead of the preempted thread, which is the last of `ready` and
    /// not among the choices.
    pub(crate) fn instead(&mut self, ready: &[u32]) -> u32 {
        self.fine.nested = if self.fine.is_holding() { self.fine.nested + 1 } else { 0 };
        self.fine.held = ready.last().map(|&preempted| (preempted, self.fine.hold));
        self.decide(Purpose::Schedule, ready.len() as u32 - 1, |this| match &mut this.plan {
            Plan::Priorities(priorities) => priorities.instead(ready, &mut this.fine.rng),
            Plan::Random(_) | Plan::Uniform => this.fine.rng.u32(0..ready.len() as u32 - 1),
        })
    }

    /// Decides whether so much time passes while only a preempted thread can run. A search of all
    /// schedules does not try it.
    pub(crate) fn passes_time(&mut self, length: u64) -> bool {
        self.at_cost(FIXED, |this| {
            this.decide(Purpose::Schedule, 2, |this| (length <= this.fine.patience).into())
        }) == 1
    }

    /// Returns `true` if this thread was preempted, as the last one, and has not run since.
    pub(crate) fn was_preempted_last(&self, thread: u32) -> bool {
        self.fine.held.is_some_and(|(held, _)| held == thread)
    }

    /// Decides like [`passes_time`](Self::passes_time), after others have run and wait again.
    /// `is_usual` is set if so much time passes in any run.
    pub(crate) fn goes_on_without_preempted(&mut self, is_usual: bool, length: u64) -> bool {
        self.at_cost(FIXED, |this| {
            this.decide(Purpose::Schedule, 2, |this| {
                let passes = is_usual || length <= this.fine.patience;
                (passes && this.fine.is_holding()).into()
            })
        }) == 1
    }

    /// Decides how many of a thread's stores other threads do not see when it loses its turn.
    pub(crate) fn keep(&mut self, stores: u32) -> u32 {
        self.at_cost(0, |this| {
            this.decide(Purpose::Memory, stores + 1, |this| {
                let is_passed =
                    matches!(this.fine.aim, Aim::Places(places) if places.moment == Moment::Passed);
                match this.fine.rng.u32(0..4) {
                    0 if !is_passed => 0,
                    1 => this.fine.rng.u32(0..=stores),
                    _ => stores,
                }
            })
        })
    }

    /// Decides how many of another thread's stores become visible at an operation.
    pub(crate) fn reveal(&mut self, stores: u32) -> u32 {
        self.decide(Purpose::Memory, stores + 1, |this| {
            if this.fine.rng.u32(0..this.fine.rarity) == 0 {
                this.fine.rng.u32(1..=stores)
            } else {
                0
            }
        })
    }

    /// Decides which of so many values an operation of a weak processor finds. 0 is the newest.
    pub(crate) fn older_value(&mut self, count: u32) -> u32 {
        self.at_cost(0, |this| {
            this.decide(Purpose::Memory, count, |this| {
                match this.fine.rng.u32(0..this.fine.staleness) {
                    0 => this.fine.rng.u32(1..count),
                    _ => 0,
                }
            })
        })
    }

    /// Chooses one of so many threads that wait for the same object.
    pub(crate) fn released(&mut self, waiting: u32) -> u32 {
        self.decide(Purpose::Schedule, waiting, |this| this.schedule.u32(0..waiting))
    }

    /// Makes a decision with this cost.
    fn at_cost(&mut self, cost: u32, decide: impl FnOnce(&mut Self) -> u32) -> u32 {
        self.fine.cost = cost;
        let value = decide(self);
        self.fine.cost = 1;
        value
    }
}
