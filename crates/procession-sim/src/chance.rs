//! Decisions: drawn by a strategy, or taken from a tape.

#[cfg(procession_sim)]
mod between;
#[cfg(procession_sim)]
pub(crate) mod fine;

use fastrand::Rng;

#[cfg(procession_sim)]
use crate::chance::fine::Fine;
use crate::faults::Fault;
use crate::marks::{Marked, Marker};
use crate::tape::{Purpose, Tape};

/// How the runs of a [`Check`](crate::Check) choose which thread runs next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Each run draws another strategy of this list.
    #[default]
    Portfolio,
    /// The running thread continues, except that now and then another thread is drawn. Each run
    /// draws how often.
    Random,
    /// Each thread has a random priority, and at a few random points the running thread gets the
    /// lowest priority (probabilistic concurrency testing). A thread that spins or yields also gets
    /// the lowest priority, so that it does not starve the thread that it waits for. If other
    /// threads have kept a thread waiting for 20 000 points, it gets the highest priority.
    Priorities,
    /// At each point, all threads that can run are equally likely.
    Uniform,
}

enum Plan {
    /// One in so many points switches.
    Random(u32),
    Priorities(Priorities),
    Uniform,
}

/// The priorities of threads by number. A lower value runs first.
struct Priorities {
    of: Vec<u64>,
    /// The numbers of the points at which the running thread loses its priority.
    changes: Vec<u64>,
    points: u64,
    /// The next value that is lower than all before.
    lowest: u64,
    /// By thread, at how many points others have run in its place since it ran.
    passed_over: Vec<u32>,
}

/// Points after which a thread that runs alone loses its priority, while others could run.
const FAIR_AFTER: u32 = 1000;

/// Points after which a thread that could run gets the highest priority. Others that take turns
/// would keep it waiting.
const STARVED_AFTER: u32 = 20_000;

/// Choices of a program without a point between them, after which a choice that nothing decides is
/// no longer 0. A program may choose again until it gets another number.
const CHOICES_MAX: u32 = 10_000;

/// Decisions that were made before.
enum Given {
    /// By their numbers on the tracks.
    Numbered(Box<Tape>),
    /// By their marks. All others are 0.
    Marked(Marked),
}

/// What decides in one run.
pub(crate) struct Chance {
    plan: Plan,
    /// One generator for each purpose, so that more draws of one purpose do not change another.
    schedule: Rng,
    faults: Rng,
    user: Rng,
    /// Faults of calls and of the network.
    io: Rng,
    /// One in so many chances is a fault.
    rarity: u32,
    given: Option<Given>,
    /// Set if the decisions are to be marked.
    pub(crate) marker: Option<Marker>,
    pub(crate) tape: Tape,
    /// A digest of all decisions, with the purpose, the choice and the number of each.
    pub(crate) hash: u64,
    /// The thread that was chosen last, and for how many points in a row.
    chosen: Option<u32>,
    in_a_row: u32,
    /// How often the program has chosen since the last point.
    choices: u32,
    #[cfg(procession_sim)]
    pub(crate) fine: Fine,
}

impl Chance {
    /// Decides by a strategy.
    pub(crate) fn drawn(seed: u64, strategy: Strategy) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x51f1_5ee1);
        let plan = match strategy {
            Strategy::Portfolio => rng.u32(0..5),
            Strategy::Random => rng.u32(0..3),
            Strategy::Priorities => 3,
            Strategy::Uniform => 4,
        };
        let plan = match plan {
            few @ 0..3 => Plan::Random([3, 12, 60][few as usize]),
            3 => {
                let length = 1 << rng.u32(5..13);
                let changes = (0..rng.u32(0..6)).map(|_| rng.u64(0..length)).collect();
                Plan::Priorities(Priorities {
                    of: Vec::new(),
                    changes,
                    points: 0,
                    lowest: 1 << 40,
                    passed_over: Vec::new(),
                })
            }
            _ => Plan::Uniform,
        };
        Self::new(rng, plan, None)
    }

    /// Decides as a tape says.
    pub(crate) fn replayed(tape: Tape) -> Self {
        Self::new(Rng::with_seed(0), Plan::Uniform, Some(Given::Numbered(Box::new(tape))))
    }

    /// Decides as an earlier run did where the marks are the same.
    pub(crate) fn marked(decisions: Marked) -> Self {
        let chance = Self::new(Rng::with_seed(0), Plan::Uniform, Some(Given::Marked(decisions)));
        chance.marking()
    }

    /// Also marks the decisions.
    pub(crate) fn marking(self) -> Self {
        Self { marker: Some(Marker::default()), ..self }
    }

    fn new(mut rng: Rng, plan: Plan, given: Option<Given>) -> Self {
        Self {
            plan,
            schedule: rng.fork(),
            faults: rng.fork(),
            user: rng.fork(),
            rarity: [8, 40, 200][rng.usize(0..3)],
            io: rng.fork(),
            given,
            marker: None,
            tape: Tape::default(),
            hash: 0xcbf2_9ce4_8422_2325,
            chosen: None,
            in_a_row: 0,
            choices: 0,
            #[cfg(procession_sim)]
            fine: Fine::new(&mut rng),
        }
    }

    /// Decides among `count`: as the tape says, or else what `draw` proposes.
    fn decide(&mut self, purpose: Purpose, count: u32, draw: impl FnOnce(&mut Self) -> u32) -> u32 {
        if count <= 1 {
            return 0;
        }
        let value = self.decide_undigested(purpose, count, draw);
        self.digest(u64::from(value) << 32 | u64::from(count));
        value
    }

    /// Decides among at least two, and leaves the digest to the caller.
    fn decide_undigested(
        &mut self,
        purpose: Purpose,
        count: u32,
        draw: impl FnOnce(&mut Self) -> u32,
    ) -> u32 {
        let at = self.tape[purpose].len();
        let mark = self.marker.as_mut().map(|marker| marker.mark(purpose));
        let value = match &self.given {
            Some(Given::Numbered(tape)) => {
                tape[purpose].get(at).copied().unwrap_or_else(|| self.undecided(purpose, count))
            }
            Some(Given::Marked(known)) => {
                let value = mark.and_then(|mark| known.get(&mark)).copied();
                value.unwrap_or_else(|| self.undecided(purpose, count))
            }
            None => draw(self),
        };
        let value = if value < count { value } else { 0 };
        self.tape[purpose].push(value);
        #[cfg(procession_sim)]
        self.fine.note(purpose, count);
        value
    }

    /// Decides where nothing else does: 0, unless the program has chosen very often in a row.
    fn undecided(&self, purpose: Purpose, count: u32) -> u32 {
        match purpose {
            Purpose::Program if self.choices > CHOICES_MAX => self.choices % count,
            _ => 0,
        }
    }

    /// A thread gets its turn. The next decisions are about this process or thread.
    pub(crate) fn begin_turn(&mut self, place: u64) {
        self.choices = 0;
        self.come_to(place);
    }

    /// The next decisions are about this process or thread.
    pub(crate) fn come_to(&mut self, place: u64) {
        if let Some(marker) = &mut self.marker {
            marker.place = place;
        }
    }

    /// Adds a number to the digest of the run.
    pub(crate) fn digest(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Draws a number below `count` for the set-up of a run.
    pub(crate) fn setup(&mut self, count: u32) -> u32 {
        self.decide(Purpose::Setup, count, |this| this.faults.u32(0..count))
    }

    /// Draws 0 or 1 for the set-up of calls and of the network.
    pub(crate) fn io_setup(&mut self) -> bool {
        self.decide(Purpose::Calls, 2, |this| u32::from(this.io.bool())) == 1
    }

    /// Draws 0, and now and then another number below `count`, for a call or the network.
    pub(crate) fn io_fault(&mut self, fault: Fault, count: u32) -> u32 {
        self.decide(Purpose::Fault(fault), count, |this| match this.io.u32(0..this.rarity) {
            0 => this.io.u32(1..count),
            _ => 0,
        })
    }

    /// Draws a number below `count` for the program.
    pub(crate) fn choose(&mut self, count: u32) -> u32 {
        self.choices = self.choices.wrapping_add(1);
        self.decide(Purpose::Program, count, |this| this.user.u32(0..count))
    }

    /// Chooses a number below `count`, which is not 0, for a program of which nothing more is to be
    /// found out.
    pub(crate) fn choose_untaped(&mut self, count: u32) -> u32 {
        self.choices = self.choices.wrapping_add(1);
        self.undecided(Purpose::Program, count)
    }

    /// Draws the budget of a step below `count`, where 0 stands for the usual one. Half of the
    /// budgets are so small that nearly each operation is a place where others may run.
    pub(crate) fn budget(&mut self, count: u32) -> u32 {
        self.decide(Purpose::Budget, count, |this| {
            let most = if this.schedule.bool() { 4 } else { count };
            this.schedule.u32(0..most)
        })
    }

    /// Draws 0, and now and then another number below `count`.
    pub(crate) fn fault(&mut self, fault: Fault, count: u32) -> u32 {
        self.decide(Purpose::Fault(fault), count, |this| match this.faults.u32(0..this.rarity) {
            0 => this.faults.u32(1..count),
            _ => 0,
        })
    }

    /// Chooses one of the threads that can run. The first is the running thread, unless it waits or
    /// has to make room.
    pub(crate) fn next(&mut self, ready: &[u32], pauses: bool) -> u32 {
        self.decide(Purpose::Schedule, ready.len() as u32, |this| match &mut this.plan {
            Plan::Random(mean) => {
                let choice = if this.schedule.u32(0..*mean) == 0 {
                    this.schedule.u32(0..ready.len() as u32)
                } else {
                    0
                };
                #[cfg(procession_sim)]
                let choice = this.fine.instead_of_held(ready, choice);
                choice
            }
            Plan::Uniform => this.schedule.u32(0..ready.len() as u32),
            Plan::Priorities(priorities) => {
                let long = this.chosen.filter(|_| this.in_a_row > FAIR_AFTER);
                let best = priorities.best(ready, pauses, long, &mut this.schedule);
                let chosen = Some(ready[best as usize]);
                this.in_a_row = if this.chosen == chosen { this.in_a_row + 1 } else { 0 };
                this.chosen = chosen;
                best
            }
        })
    }
}

impl Priorities {
    /// Chooses a thread. `long` is a thread that has run for so long that it has to make room.
    fn best(&mut self, ready: &[u32], pauses: bool, long: Option<u32>, rng: &mut Rng) -> u32 {
        self.points += 1;
        let most = ready.iter().max().map_or(0, |&thread| thread as usize + 1);
        while self.of.len() < most {
            self.of.push(rng.u64(0..1 << 40));
            self.passed_over.push(0);
        }
        let (changes, points) = (&self.changes, self.points);
        let lowered = match long.filter(|long| ready.contains(long)) {
            // A thread that pauses is the last one.
            _ if pauses => ready.last().copied(),
            None => changes.contains(&points).then(|| ready[0]),
            long => long,
        };
        if let Some(lowered) = lowered {
            self.lowest += 1;
            self.of[lowered as usize] = self.lowest;
        }
        for &thread in ready {
            let passed_over = &mut self.passed_over[thread as usize];
            *passed_over += 1;
            if *passed_over > STARVED_AFTER {
                self.of[thread as usize] = 0;
            }
        }
        let best = (0..ready.len()).min_by_key(|&at| self.of[ready[at] as usize]).unwrap_or(0);
        self.passed_over[ready[best] as usize] = 0;
        best as u32
    }

    /// Chooses which thread runs instead of the last of `ready`, which was preempted. A thread that
    /// has starved keeps the highest priority. Otherwise it would starve again before each of its
    /// operations, while others look again and again at what it has locked.
    #[cfg(procession_sim)]
    fn instead(&mut self, ready: &[u32], rng: &mut Rng) -> u32 {
        let preempted = ready.last().map_or(0, |&thread| thread as usize);
        let has_starved = self.of.get(preempted) == Some(&0);
        let best = self.best(ready, true, None, rng);
        if has_starved {
            self.of[preempted] = 0;
        }
        best
    }
}

#[cfg(all(test, procession_sim))]
mod tests {
    use super::{Chance, STARVED_AFTER, Strategy};

    /// Others can always run, and none of them runs alone. The thread is preempted each time that
    /// it runs.
    #[test]
    fn a_thread_starves_once() {
        let mut chance = Chance::drawn(0, Strategy::Priorities);
        let (mut points, mut runs) = (0, 0);
        while runs < 10 {
            points += 1;
            let ready = if points % 2 == 0 { [1, 2, 0] } else { [3, 4, 0] };
            if ready[chance.next(&ready, false) as usize] == 0 {
                runs += 1;
                chance.instead(&ready);
            }
        }
        assert!(points < 2 * STARVED_AFTER, "{points} points");
    }
}
