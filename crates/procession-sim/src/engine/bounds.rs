//! The bounds in time: everything that waits for a worker gets one soon.
//!
//! A process that is ready, a timer that is due and an event of a descriptor wait for a worker, and
//! for nothing else. From time to time, and at each quiet point, the engine asks each scheduler for
//! what waits in this way. If an answer stays the same for longer than a limit, the law is broken.
//!
//! The engine computes the limit from the run itself. With `k` processes ready at a time, and steps
//! of `t`, a process waits at most `2 (k t + 2 t + 1 ms)` on one processor. There is one processor,
//! whatever the number of workers, because virtual threads take turns. The factor 2 is there
//! because woken processes may have every other turn. A new process may wait for twice as long as
//! that, because processes that continue have every other one of the remaining turns. The engine
//! may also let a thread that could run wait, for as long as its strategy likes. The limit counts
//! the longest such wait four times: for a worker, for the worker that helps it, and for the
//! watchdog. Each step that stalls adds the time in which the watchdog notices that.
//!
//! A `Batch` process has one turn in 64, and `High` processes have 8 in a row, so a `Batch` process
//! may wait 64 times as long, and a `Normal` one ten times as long once there are `High` ones. For
//! a `High` process there is no such factor, and `k` counts only `High` ones. With `v` workers
//! that could run, it waits at most `9/8 k t + 2 v t + 2 t + 1 ms`, because each of the workers may
//! be in a step, and have one turn in nine for another process next.
//!
//! The schedulers of hosts share the processor. If `n` workers of other schedulers have something
//! to run, each step of a scheduler may follow one step of each such worker: `2 ((1 + n) (k t + 2
//! t) + 1 ms)`. `k` counts only one scheduler, because only its own processes stand before a
//! process in its queues.
//!
//! A fault that makes the system late adds the time by which it does, and the time in which the
//! watchdog notices a stall, because the watchdog itself may be late, and then begins again. Only
//! the faults during the wait count, so the law holds between faults, and also during faults.

use std::collections::BTreeMap;

use procession::Pid;
use procession::process::Priority;
use procession::sim::Demand;

use crate::time::{MS, duration};

/// Virtual time between two looks at least.
pub(super) const EVERY: u64 = MS;
/// A step of this length stalls.
pub(super) const STALL: u64 = 10 * MS;
/// The time in which the watchdog replaces a stalled worker, from the beginning of its step.
const RESCUE: u64 = 14 * MS;
/// The time of two looks of the watchdog. Where steps become longer, a worker may continue for that
/// long before it reads the clock.
pub(super) const LOOKS: u64 = 5 * MS;
/// The largest number of processes that the law is checked for. With more processes, a look takes
/// longer than a check can afford.
const READY_MAX: usize = 500;

/// Something that waits for a worker, and in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiter {
    /// A process, with the number of its steps and its priority.
    Process(Pid, u32, Priority),
    /// Timers that are due, the earliest with this deadline.
    Timer(u64),
    /// Events of descriptors, after so many polls.
    Events(u64),
}

impl Waiter {
    /// Returns `true` for a process that has not run yet.
    fn is_new(self) -> bool {
        matches!(self, Self::Process(_, 0, _))
    }

    fn describe(self, waited: u64) -> String {
        let waited = duration(waited);
        match self {
            Self::Process(pid, ..) => {
                let name = procession::sim::name(pid);
                format!("{name} has been ready for {waited}, and no worker runs it")
            }
            Self::Timer(_) => format!("a timer has been due for {waited}, and no worker fires it"),
            Self::Events(_) => {
                format!("a descriptor has had events for {waited}, and no worker polls")
            }
        }
    }
}

/// When a look found it first, how many steps had stalled by then, and the time that faults had
/// cost.
#[derive(Clone, Copy, Debug)]
struct Since {
    time: u64,
    stalls: u64,
    lost: u64,
}

/// What the engine has seen of a run.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    pub(super) next_look: u64,
    /// The longest time without a point of a thread that ran, except for stalls.
    longest_step: u64,
    /// The longest time for which a thread that could run had to wait for its turn.
    longest_delay: u64,
    /// The largest number of processes of a scheduler that were ready at a time.
    most_ready: u64,
    /// The largest number of workers that could run at a time, without the workers of one
    /// scheduler.
    pub(super) most_others: u64,
    /// The largest number of workers of one scheduler that could run at a time.
    pub(super) most_workers: u64,
    /// The largest number of `High` processes of a scheduler that were ready at a time.
    most_high: u64,
    /// The number of steps that have stalled.
    stalls: u64,
    /// How many steps stall now.
    pub(super) stalled: u64,
    /// The time that faults have cost.
    lost: u64,
    /// The part of `lost` that belongs to faults which continue.
    pub(super) losing: u64,
    /// By the number of the scheduler.
    seen: Vec<BTreeMap<Waiter, Since>>,
}

impl Bounds {
    /// Notes that a thread ran for so long without a point, or is held up for so long.
    pub(super) fn note_step(&mut self, length: u64) {
        if length < STALL {
            self.longest_step = self.longest_step.max(length);
        } else {
            self.note_stall();
        }
    }

    /// Notes that a step has computed for so long, and before its last part for so long.
    pub(super) fn note_computing(&mut self, before: u64, computed: u64) {
        if before < STALL {
            self.note_step(computed);
        }
    }

    /// Notes that a step stalls.
    pub(super) fn note_stall(&mut self) {
        self.stalls += 1;
    }

    /// Notes a fault that makes the system late by so much. Returns the time that this costs.
    pub(super) fn note_fault(&mut self, late: u64) -> u64 {
        let cost = late.saturating_add(RESCUE);
        self.lost = self.lost.saturating_add(cost);
        cost
    }

    /// Notes that a thread waited for its turn for so long.
    pub(super) fn note_delay(&mut self, length: u64) {
        self.longest_delay = self.longest_delay.max(length);
    }

    /// Forgets what waited: it may have waited for what the scheduler cannot help.
    pub(super) fn restart(&mut self, now: u64) {
        self.next_look = now + EVERY;
        self.seen.clear();
    }

    /// Returns how long a waiter may wait that was first seen then.
    fn limit(&self, waiter: Waiter, since: Since, slack: u64) -> u64 {
        let turns = if waiter.is_new() { 4 } else { 2 };
        let (turns, before) = match waiter {
            Waiter::Process(.., Priority::High) => {
                (1, self.most_high * 9 / 8 + 2 * self.most_workers)
            }
            Waiter::Process(.., Priority::Batch) => (turns * 64, self.most_ready),
            Waiter::Process(.., Priority::Normal) if self.most_high > 0 => {
                (turns * 10, self.most_ready)
            }
            _ => (turns, self.most_ready),
        };
        let steps = (1 + self.most_others) * (before + 2) * self.longest_step + MS;
        let stalls = self.stalls - since.stalls;
        let lost = self.lost - since.lost;
        let limit = turns * steps + 4 * self.longest_delay + stalls * RESCUE + slack;
        limit.saturating_add(lost)
    }

    /// Looks at the demand of a scheduler. Returns the law that is broken, if any.
    pub(super) fn look(
        &mut self,
        number: usize,
        demand: &Demand,
        now: u64,
        slack: u64,
    ) -> Option<String> {
        self.seen.resize_with(self.seen.len().max(number + 1), BTreeMap::new);
        if !demand.can_be_met || demand.ready.len() > READY_MAX {
            self.seen[number].clear();
            return None;
        }
        self.most_ready = self.most_ready.max(demand.ready.len() as u64);
        let mut waiters: Vec<_> =
            demand.ready.iter().map(|&(pid, steps, of)| Waiter::Process(pid, steps, of)).collect();
        let high = demand.ready.iter().filter(|&&(.., of)| of == Priority::High).count();
        self.most_high = self.most_high.max(high as u64);
        waiters.extend((demand.deadline <= now).then_some(Waiter::Timer(demand.deadline)));
        waiters.extend(demand.events.map(Waiter::Events));
        // This also counts the steps that stall now, and the faults that continue.
        let (stalls, lost) = (self.stalls - self.stalled, self.lost.saturating_sub(self.losing));
        let first = Since { time: now, stalls, lost };
        let before = std::mem::take(&mut self.seen[number]);
        let since = |waiter| before.get(waiter).copied().unwrap_or(first);
        let seen: BTreeMap<_, _> = waiters.iter().map(|waiter| (*waiter, since(waiter))).collect();
        let late = waiters.into_iter().find(|waiter| {
            let since = seen[waiter];
            now - since.time > self.limit(*waiter, since, slack)
        });
        let waited = late.map(|waiter| waiter.describe(now - seen[&waiter].time));
        self.seen[number] = seen;
        waited
    }
}

#[cfg(test)]
mod tests {
    use procession::process::Priority;
    use procession::sim::Demand;

    use super::{Bounds, RESCUE};
    use crate::time::MS;

    fn demand() -> Demand {
        // A timer that is due, all the time.
        Demand { deadline: 1, can_be_met: true, ..Demand::default() }
    }

    /// Returns when the bound is broken, in looks of 1 ms.
    fn broken(bounds: &mut Bounds, first: u64) -> Option<u64> {
        broken_by(bounds, &demand(), first)
    }

    fn broken_by(bounds: &mut Bounds, demand: &Demand, first: u64) -> Option<u64> {
        (first..first + 100).find(|look| bounds.look(0, demand, look * MS, 0).is_some())
    }

    #[test]
    fn a_high_process_waits_for_no_others_than_high_ones() {
        let process = |priority| (procession::spawn(async {}).pid(), 1, priority);
        let mut waits = demand();
        waits.deadline = u64::MAX;
        waits.ready = (0..8).map(|_| process(Priority::Normal)).collect();
        let bounds = || Bounds { most_workers: 1, longest_step: MS, ..Bounds::default() };
        assert_eq!(broken_by(&mut bounds(), &waits, 1), Some(1 + 2 * (8 + 2 + 1) + 1));
        waits.ready.push(process(Priority::High));
        assert_eq!(broken_by(&mut bounds(), &waits, 1), Some(1 + 1 + 2 + 2 + 1 + 1));
    }

    #[test]
    fn a_fault_extends_the_bound_by_its_cost() {
        // 2 ms for a timer, and then the first look that finds it late.
        let limit = 2;
        assert_eq!(broken(&mut Bounds::default(), 1), Some(1 + limit + 1));
        let mut late = Bounds::default();
        assert!(late.look(0, &demand(), MS, 0).is_none(), "it waits");
        late.note_fault(20 * MS);
        assert_eq!(broken(&mut late, 2), Some(1 + limit + 20 + RESCUE / MS + 1));
    }

    #[test]
    fn schedulers_share_one_processor() {
        // Twice the two steps that count in any case, and 1 ms.
        for (most_others, limit) in [(0, 2 * (2 + 1)), (6, 2 * (7 * 2 + 1))] {
            let mut bounds = Bounds { most_others, longest_step: MS, ..Bounds::default() };
            assert_eq!(broken(&mut bounds, 1), Some(1 + limit + 1));
        }
    }

    #[test]
    fn a_fault_from_before_the_wait_does_not_count_unless_it_goes_on() {
        let mut over = Bounds::default();
        over.note_fault(20 * MS);
        assert_eq!(broken(&mut over, 1), Some(4));
        let mut goes_on = Bounds::default();
        goes_on.losing = goes_on.note_fault(20 * MS);
        assert_eq!(broken(&mut goes_on, 1), Some(4 + 20 + RESCUE / MS));
    }
}
