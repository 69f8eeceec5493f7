//! Decisions between the operations of atomics.

use fastrand::Rng;

use super::{Chance, Plan};

/// The largest number of operations that a preemption can be planned ahead.
const GAP_MAX: u32 = 1 << 16;

/// The cost of a decision that is not searched.
pub(crate) const FIXED: u32 = u32::MAX;

/// A decision, as a search of all schedules looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    /// How many values there were to choose from.
    pub(crate) count: u32,
    /// What any value but 0 adds to the deviations of a schedule.
    pub(crate) cost: u32,
}

/// What decides between two operations.
pub(crate) struct Fine {
    rng: Rng,
    /// The mean number of operations between two preemptions.
    gap: u32,
    /// One in so many operations makes stores of other threads visible.
    rarity: u32,
    /// Set while the program runs, and not before or after it.
    pub(crate) is_open: bool,
    /// Where the current preemption stands on the tape.
    planned: Option<usize>,
    cost: u32,
    pub(crate) log: Option<Vec<Choice>>,
}

impl Fine {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        Self {
            gap: [3, 12, 60, 300, 1500][rng.usize(0..5)],
            rarity: [4, 16, 64, 512][rng.usize(0..4)],
            rng,
            is_open: false,
            planned: None,
            cost: 1,
            log: None,
        }
    }

    /// Notes the decision that was just put on the tape.
    pub(super) fn note(&mut self, count: u32) {
        let cost = if self.is_open { self.cost } else { FIXED };
        if let Some(log) = &mut self.log {
            log.push(Choice { count, cost });
        }
    }
}

impl Chance {
    /// Decides after how many operations the thread that gets its turn is preempted. 0 stands for
    /// never.
    pub(crate) fn plan(&mut self) -> u32 {
        if !self.fine.is_open {
            return 0;
        }
        let at = self.tape.0.len();
        let gap = self.decide(GAP_MAX, |this| {
            let mean = match &this.plan {
                Plan::Uniform => 2,
                Plan::Random(_) | Plan::Priorities(_) => this.fine.gap,
            };
            this.fine.rng.u32(1..2 * mean)
        });
        self.fine.planned = Some(at);
        gap
    }

    /// A turn ends after so many operations. A preemption that did not come is removed from the
    /// tape.
    pub(crate) fn end_turn(&mut self, gap: u32, operations: u32) {
        let Some(at) = self.fine.planned.take() else { return };
        if gap > operations {
            self.tape.0[at] = 0;
        }
        if let Some(log) = &mut self.fine.log {
            log[at].count = operations.min(GAP_MAX - 1) + 1;
        }
    }

    /// Chooses which thread runs instead of the one that is preempted, which is the last of `ready`
    /// and not among the choices.
    pub(crate) fn instead(&mut self, ready: &[u32]) -> u32 {
        self.decide(ready.len() as u32 - 1, |this| match &mut this.plan {
            Plan::Priorities(priorities) => priorities.best(ready, true, None, &mut this.fine.rng),
            Plan::Random(_) | Plan::Uniform => this.fine.rng.u32(0..ready.len() as u32 - 1),
        })
    }

    /// Decides how many of a thread's stores other threads do not see when it loses its turn.
    pub(crate) fn keep(&mut self, stores: u32) -> u32 {
        self.free(|this| {
            this.decide(stores + 1, |this| match this.fine.rng.u32(0..4) {
                0 => 0,
                1 => this.fine.rng.u32(0..=stores),
                _ => stores,
            })
        })
    }

    /// Decides how many of another thread's stores become visible at an operation.
    pub(crate) fn reveal(&mut self, stores: u32) -> u32 {
        self.decide(stores + 1, |this| {
            if this.fine.rng.u32(0..this.fine.rarity) == 0 {
                this.fine.rng.u32(1..=stores)
            } else {
                0
            }
        })
    }

    /// Makes decisions that do not count as deviations.
    fn free(&mut self, decide: impl FnOnce(&mut Self) -> u32) -> u32 {
        self.fine.cost = 0;
        let value = decide(self);
        self.fine.cost = 1;
        value
    }
}
