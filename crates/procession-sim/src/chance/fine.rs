//! What decides between the operations of atomics.

use std::panic::Location;

use fastrand::Rng;

use crate::tape::Purpose;
use crate::time::MS;

/// The largest number of operations that a preemption can be planned ahead.
pub(super) const GAP_MAX: u32 = 1 << 16;

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
pub(super) enum Aim {
    /// Any, with this mean number of operations from one preemption to the next.
    Anywhere(u32),
    /// Operations at some places of the source.
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
pub(super) enum Moment {
    /// After a load of the thread has passed one of its stores. Only there does a fence make a
    /// difference.
    Passed,
    /// After a mutex was released. There it makes a difference if changes that belong together are
    /// made under one lock, but in two critical sections.
    Released,
    Any,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// A thread is preempted only before operations at this moment.
    pub(super) moment: Moment,
    /// Chooses one in `share` places, which is a power of two.
    salt: u64,
    share: u64,
    /// The thread is preempted at one in so many operations at these places.
    pub(super) one_in: u32,
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
    pub(super) fn contain(&self, before: Before, at: &Location<'_>) -> bool {
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
    pub(super) rng: Rng,
    pub(super) aim: Aim,
    /// For how many turns an aim holds, and this one still does.
    pub(super) aim_turns: (u32, u32),
    /// The thread that was preempted last, and at how many points others run in its place.
    pub(super) held: Option<(u32, u32)>,
    /// The number of such points after a preemption.
    pub(super) hold: u32,
    /// How many preemptions have followed one another, each while the thread before was held.
    pub(super) nested: u32,
    /// The largest such number.
    pub(super) nested_max: u32,
    /// The longest time in nanoseconds that may pass while a preempted thread is the only one.
    pub(super) patience: u64,
    /// One in so many operations makes stores of other threads visible.
    pub(super) rarity: u32,
    /// One in so many operations of a weak processor finds an older value than the newest.
    pub(super) staleness: u32,
    /// Set while the program runs, and not before or after it.
    pub(crate) is_open: bool,
    /// Where the current preemption stands on its track, and in the log.
    pub(super) planned: Option<(usize, usize)>,
    pub(super) cost: u32,
    pub(crate) log: Option<Vec<Choice>>,
}

impl Fine {
    pub(super) fn new(outer: &mut Rng) -> Self {
        let mut rng = outer.fork();
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
            staleness: [2, 4, 16, 64][outer.usize(0..4)],
            is_open: false,
            planned: None,
            cost: 1,
            log: None,
        }
    }

    /// Counts a turn of the aim.
    pub(super) fn count_turn(&mut self) {
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
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some_and(|(_, left)| left > 0)
    }
}
