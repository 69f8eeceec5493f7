//! Decisions between the operations of atomics.

use std::panic::Location;

use fastrand::Rng;

use super::{Chance, Plan};
use crate::engine::MS;
use crate::tape::Purpose;

/// The largest number of operations that a preemption can be planned ahead.
const GAP_MAX: u32 = 1 << 16;

/// For how many turns of threads an aim holds. In some runs it holds for the whole run.
const AIM_TURNS: [u32; 4] = [30, 200, u32::MAX, u32::MAX];

/// The cost of a decision that is not searched.
pub(crate) const FIXED: u32 = u32::MAX;

/// A decision, as a search of all schedules looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) purpose: Purpose,
    /// How many values there were to choose from.
    pub(crate) count: u32,
    /// What any value but 0 adds to the deviations of a schedule.
    pub(crate) cost: u32,
}

/// Before which operations the threads of a run are preempted.
#[derive(Clone, Copy, Debug)]
enum Aim {
    /// Any, with this mean number of operations from one preemption to the next.
    Anywhere(u32),
    /// Those at some places of the source.
    Places(Places),
}

/// What a thread has done before an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    /// A load of the thread has passed one of its stores.
    pub(crate) has_passed: bool,
    /// The operation before was the release of a mutex.
    pub(crate) has_released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// After a load of the thread has passed one of its stores. Only there does a fence make a
    /// difference.
    Passed,
    /// After a mutex was released. There it makes a difference if what belongs together is done
    /// under one lock, but not at once.
    Released,
    Any,
}

#[derive(Clone, Copy, Debug)]
struct Places {
    /// Set for operations at this moment, and only those.
    moment: Moment,
    /// Chooses one in `share` places, which is a power of two.
    salt: u64,
    share: u64,
    /// The thread is preempted at one in so many operations at these places.
    one_in: u32,
}

impl Aim {
    fn drawn(rng: &mut Rng) -> Self {
        match rng.u32(0..10) {
            0..3 => Self::Anywhere([3, 12, 60, 300, 1500][rng.usize(0..5)]),
            3..6 => Self::at_places(Moment::Passed, rng),
            6 | 7 => Self::at_places(Moment::Released, rng),
            _ => Self::at_places(Moment::Any, rng),
        }
    }

    fn at_places(moment: Moment, rng: &mut Rng) -> Self {
        let shares = if moment == Moment::Any { [8, 32, 128, 128] } else { [1, 1, 8, 32] };
        let share = shares[rng.usize(0..4)];
        let rates = if share == 1 { [2, 6, 20] } else { [1, 2, 6] };
        Self::Places(Places { moment, salt: rng.u64(..), share, one_in: rates[rng.usize(0..3)] })
    }

    /// Chooses other places, or another mean.
    fn redrawn(self, rng: &mut Rng) -> Self {
        match self {
            Self::Anywhere(_) => Self::Anywhere([3, 12, 60, 300][rng.usize(0..4)]),
            Self::Places(places) => Self::at_places(places.moment, rng),
        }
    }
}

impl Places {
    /// Returns `true` if the operation is one of these.
    fn contain(&self, before: Before, at: &Location<'_>) -> bool {
        let is_moment = match self.moment {
            Moment::Passed => before.has_passed,
            Moment::Released => before.has_released,
            Moment::Any => true,
        };
        if !is_moment {
            return false;
        }
        // The same number in each process, which the address of the place would not be.
        let place = u64::from(at.line()) << 20
            | u64::from(at.column()) << 8
            | at.file().len() as u64 & 0xff;
        (place ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & (self.share - 1) == 0
    }
}

/// What decides between two operations.
pub(crate) struct Fine {
    rng: Rng,
    aim: Aim,
    /// For how many turns an aim holds, and this one still does.
    aim_turns: (u32, u32),
    /// The thread that was preempted last, and at how many points others run in its place.
    held: Option<(u32, u32)>,
    /// The number of such points after a preemption.
    hold: u32,
    /// How many preemptions have followed one another, each while the thread before was held.
    nested: u32,
    /// The largest such number.
    nested_max: u32,
    /// The longest time in nanoseconds that may pass while a preempted thread is the only one.
    patience: u64,
    /// One in so many operations makes stores of other threads visible.
    rarity: u32,
    /// Set while the program runs, and not before or after it.
    pub(crate) is_open: bool,
    /// Where the current preemption stands on its track, and in the log.
    planned: Option<(usize, usize)>,
    cost: u32,
    pub(crate) log: Option<Vec<Choice>>,
}

impl Fine {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        let aim = Aim::drawn(&mut rng);
        // A load that has passed a store is seen only while the store is not.
        let rarities: &[u32] = match aim {
            Aim::Places(Places { moment: Moment::Passed, .. }) => {
                &[512, u32::MAX, u32::MAX, u32::MAX]
            }
            _ => &[4, 16, 64, 512, u32::MAX],
        };
        let aim_turns = AIM_TURNS[rng.usize(0..4)];
        Self {
            aim,
            aim_turns: (aim_turns, aim_turns),
            held: None,
            hold: [0, 8, 60, 500][rng.usize(0..4)],
            nested: 0,
            nested_max: [0, 0, 1, 2][rng.usize(0..4)],
            patience: [0, MS, 5 * MS][rng.usize(0..3)],
            rarity: rarities[rng.usize(0..rarities.len())],
            rng,
            is_open: false,
            planned: None,
            cost: 1,
            log: None,
        }
    }

    /// Counts a turn of the aim.
    fn count_turn(&mut self) {
        let (turns, left) = &mut self.aim_turns;
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => {
                *left = *turns;
                self.aim = self.aim.redrawn(&mut self.rng);
            }
        }
    }

    /// Notes the decision that was just put on the tape.
    pub(super) fn note(&mut self, purpose: Purpose, count: u32) {
        let cost = if self.is_open { self.cost } else { FIXED };
        if let Some(log) = &mut self.log {
            log.push(Choice { purpose, count, cost });
        }
    }

    /// Returns the choice that lets a preempted thread wait, or `choice` if it is none.
    pub(super) fn instead_of_held(&mut self, ready: &[u32], choice: u32) -> u32 {
        match &mut self.held {
            Some((held, left)) if *left > 0 && ready[choice as usize] == *held => {
                *left -= 1;
                (choice + 1) % ready.len() as u32
            }
            _ => choice,
        }
    }

    /// Returns `true` if a thread was preempted, and waits until others have run for long enough.
    fn is_holding(&self) -> bool {
        self.held.is_some_and(|(_, left)| left > 0)
    }
}

impl Chance {
    /// Decides after how many operations the thread that gets its turn is preempted. 0 stands for
    /// never.
    pub(crate) fn plan(&mut self, thread: Option<u32>) -> u32 {
        if !self.fine.is_open {
            return 0;
        }
        self.fine.held = self.fine.held.filter(|&(held, _)| Some(held) != thread);
        let logged = self.fine.log.as_ref().map_or(0, Vec::len);
        // Part of the digest once the turn has ended, since it can change until then.
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

    /// A turn ends after so many operations. A preemption that did not come is removed from the
    /// tape.
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

    /// Chooses which thread runs instead of the one that is preempted, which is the last of `ready`
    /// and not among the choices.
    pub(crate) fn instead(&mut self, ready: &[u32]) -> u32 {
        self.fine.nested = if self.fine.is_holding() { self.fine.nested + 1 } else { 0 };
        self.fine.held = ready.last().map(|&preempted| (preempted, self.fine.hold));
        self.decide(Purpose::Schedule, ready.len() as u32 - 1, |this| match &mut this.plan {
            Plan::Priorities(priorities) => priorities.best(ready, true, None, &mut this.fine.rng),
            Plan::Random(_) | Plan::Uniform => this.fine.rng.u32(0..ready.len() as u32 - 1),
        })
    }

    /// Decides whether so much time passes while a preempted thread is the only one that can run. A
    /// search of all schedules does not try it.
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
