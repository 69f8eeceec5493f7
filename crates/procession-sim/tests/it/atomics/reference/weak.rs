//! Random programs, run by the simulation on the weak processor and judged by axioms. The axioms
//! are those of RC11 (Lahav, Vafeiadis, Kang, Hur and Dreyer, *Repairing sequential consistency in
//! C/C++11*, PLDI 2017), with the release sequences of C++20 and without SeqCst accesses. They know
//! no views: an execution is a choice of what each load reads and of the order of the stores.

use std::collections::BTreeSet;

use fastrand::Rng;
use procession_sim::Processor;
use procession_sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use procession_sync::atomic::{AtomicU32, fence};

use super::{ATOMICS, Outcomes, met_by};

/// An instruction of a thread. The atomics are numbered.
#[derive(Clone, Copy, Debug)]
enum Instruction {
    Load(usize, Ordering),
    Store(usize, u32, Ordering),
    Swap(usize, u32, Ordering),
    Fence(Ordering),
}

use Instruction::{Fence, Load, Store, Swap};

type Program = Vec<Vec<Instruction>>;

/// For each event, the events that it is related to, as bits.
#[derive(Clone)]
struct Relation(Vec<u32>);

impl Relation {
    fn from(events: usize, holds: impl Fn(usize, usize) -> bool) -> Self {
        let row =
            |one| (0..events).filter(|&other| holds(one, other)).fold(0, |row, at| row | 1 << at);
        Self((0..events).map(row).collect())
    }

    fn holds(&self, one: usize, other: usize) -> bool {
        self.0[one] >> other & 1 == 1
    }

    fn union(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(one, other)| one | other).collect())
    }

    /// Relates what this relation and then the other one lead to.
    fn then(&self, other: &Self) -> Self {
        let events = self.0.len();
        let row = |row: &u32| {
            (0..events).filter(|at| row >> at & 1 == 1).fold(0, |all, at| all | other.0[at])
        };
        Self(self.0.iter().map(row).collect())
    }

    /// Relates what any number of steps, at least one, leads to.
    fn closure(&self) -> Self {
        let mut all = self.clone();
        for _ in 0..self.0.len() {
            all = all.union(&all.then(self));
        }
        all
    }

    fn is_irreflexive(&self) -> bool {
        (0..self.0.len()).all(|at| !self.holds(at, at))
    }
}

/// An instruction as a part of an execution, or the first value of an atomic.
#[derive(Clone, Copy)]
struct Event {
    thread: Option<usize>,
    instruction: Instruction,
}

impl Event {
    fn atomic(self) -> Option<usize> {
        match self.instruction {
            Load(atomic, _) | Store(atomic, ..) | Swap(atomic, ..) => Some(atomic),
            Fence(_) => None,
        }
    }

    fn written(self) -> Option<u32> {
        match self.instruction {
            Store(_, value, _) | Swap(_, value, _) => Some(value),
            Load(..) | Fence(_) => None,
        }
    }

    fn reads(self) -> bool {
        matches!(self.instruction, Load(..) | Swap(..))
    }

    fn order(self) -> Ordering {
        match self.instruction {
            Load(_, order) | Store(_, _, order) | Swap(_, _, order) | Fence(order) => order,
        }
    }

    fn is_fence(self) -> bool {
        matches!(self.instruction, Fence(_))
    }

    fn releases(self) -> bool {
        matches!(self.order(), Release | AcqRel | SeqCst)
    }

    fn acquires(self) -> bool {
        matches!(self.order(), Acquire | AcqRel | SeqCst)
    }
}

/// What an execution chooses: for each event that reads, the event that it reads from; and the
/// stores to each atomic, in their order.
struct Execution<'a> {
    events: &'a [Event],
    reads_from: Vec<Option<usize>>,
    stores: Vec<Vec<usize>>,
}

impl Execution<'_> {
    fn relation(&self, holds: impl Fn(usize, usize) -> bool) -> Relation {
        Relation::from(self.events.len(), holds)
    }

    /// Returns the place of a store among the stores to its atomic.
    fn place(&self, event: usize) -> usize {
        let atomic = self.events[event].atomic().expect("a store has an atomic");
        let stores = &self.stores[atomic];
        stores.iter().position(|&store| store == event).expect("it is one of the stores")
    }

    fn is_allowed(&self) -> bool {
        let events = self.events;
        // First values come before all; events of a thread are in order.
        let program =
            self.relation(|one, other| match (events[one].thread, events[other].thread) {
                (None, Some(_)) => true,
                (one_thread, other_thread) => {
                    one_thread == other_thread && one_thread.is_some() && one < other
                }
            });
        let reads_from = self.relation(|one, other| self.reads_from[other] == Some(one));
        let is_store = |event: usize| events[event].written().is_some();
        let is_same = |one: usize, other: usize| {
            events[one].atomic().is_some() && events[one].atomic() == events[other].atomic()
        };
        let stored = self.relation(|one, other| {
            is_store(one)
                && is_store(other)
                && is_same(one, other)
                && self.place(one) < self.place(other)
        });
        let overtaken = self.relation(|one, other| {
            let read = self.reads_from[one];
            one != other
                && is_store(other)
                && is_same(one, other)
                && read.is_some_and(|read| self.place(read) < self.place(other))
        });
        let is_atomic = (0..events.len()).filter(|&at| is_store(at)).all(|at| {
            self.reads_from[at].is_none_or(|read| self.place(read) + 1 == self.place(at))
        });
        // A read-modify-write continues the release sequence of the store that it reads.
        let continues = self.relation(|one, other| is_store(other) && reads_from.holds(one, other));
        let sequence = continues.closure().then(&reads_from).union(&reads_from);
        let synchronizes = self.relation(|one, other| {
            let starts = |store: usize| {
                one == store && events[store].releases()
                    || events[one].is_fence() && events[one].releases() && program.holds(one, store)
            };
            let ends = |read: usize| {
                other == read && events[read].acquires()
                    || events[other].is_fence()
                        && events[other].acquires()
                        && program.holds(read, other)
            };
            let all = 0..events.len();
            all.clone()
                .filter(|&store| is_store(store) && starts(store))
                .any(|store| all.clone().any(|read| sequence.holds(store, read) && ends(read)))
        });
        let before = program.union(&synchronizes).closure();
        let extended = reads_from.union(&stored).union(&overtaken).closure();
        let is_total = |event: usize| events[event].is_fence() && events[event].order() == SeqCst;
        let between = before.union(&before.then(&extended).then(&before));
        let total = self
            .relation(|one, other| is_total(one) && is_total(other) && between.holds(one, other));
        // The last condition is that of executions without promises: there is an order in which
        // everything happens.
        is_atomic
            && before.is_irreflexive()
            && extended.is_irreflexive()
            && before.then(&extended).is_irreflexive()
            && program.union(&reads_from).union(&total).closure().is_irreflexive()
    }

    fn outcome(&self) -> Vec<u32> {
        let written = |event: usize| self.events[event].written().expect("it is a store");
        let read = self.reads_from.iter().flatten().map(|&read| written(read));
        let last =
            self.stores.iter().map(|stores| written(*stores.last().expect("the first value")));
        read.chain(last).collect()
    }
}

/// Returns all orders of some events after the first one.
fn orders(first: usize, rest: &[usize]) -> Vec<Vec<usize>> {
    let Some((&one, others)) = rest.split_first() else { return vec![vec![first]] };
    let shorter = orders(first, others);
    let put = |order: &Vec<usize>, at: usize| {
        let mut longer = order.clone();
        longer.insert(at, one);
        longer
    };
    shorter.iter().flat_map(|order| (1..=order.len()).map(move |at| put(order, at))).collect()
}

/// Returns the outcomes that the axioms allow.
fn allowed(program: &Program) -> Outcomes {
    let first =
        (0..ATOMICS).map(|atomic| Event { thread: None, instruction: Store(atomic, 0, Relaxed) });
    let of_threads = program.iter().enumerate().flat_map(|(thread, instructions)| {
        instructions.iter().map(move |&instruction| Event { thread: Some(thread), instruction })
    });
    let events: Vec<_> = first.chain(of_threads).collect();
    let stores_to = |atomic: usize| {
        let is_it =
            move |event: &Event| event.written().is_some() && event.atomic() == Some(atomic);
        events.iter().enumerate().filter(move |(_, event)| is_it(event)).map(|(at, _)| at)
    };
    let mut all_stores: Vec<Vec<Vec<usize>>> = vec![Vec::new()];
    for atomic in 0..ATOMICS {
        let rest: Vec<_> = stores_to(atomic).skip(1).collect();
        let of_atomic = orders(atomic, &rest);
        let extend = |known: &Vec<Vec<usize>>, order: &Vec<usize>| {
            let mut longer = known.clone();
            longer.push(order.clone());
            longer
        };
        all_stores = all_stores
            .iter()
            .flat_map(|known| of_atomic.iter().map(move |order| extend(known, order)))
            .collect();
    }
    let mut all_reads: Vec<Vec<Option<usize>>> = vec![Vec::new()];
    for (at, event) in events.iter().enumerate() {
        let sources: Vec<Option<usize>> = match event.atomic() {
            Some(atomic) if event.reads() => {
                stores_to(atomic).filter(|&store| store != at).map(Some).collect()
            }
            _ => vec![None],
        };
        let extend = |known: &Vec<Option<usize>>, source: Option<usize>| {
            let mut longer = known.clone();
            longer.push(source);
            longer
        };
        all_reads = all_reads
            .iter()
            .flat_map(|known| sources.iter().map(move |&source| extend(known, source)))
            .collect();
    }
    let mut outcomes = Outcomes::new();
    for stores in &all_stores {
        for reads_from in &all_reads {
            let (stores, reads_from) = (stores.clone(), reads_from.clone());
            let execution = Execution { events: &events, reads_from, stores };
            if execution.is_allowed() {
                outcomes.insert(execution.outcome());
            }
        }
    }
    outcomes
}

/// Executes the instructions of a thread. Returns what it has read.
fn execute(instructions: &[Instruction], atomics: &[AtomicU32; ATOMICS]) -> Vec<u32> {
    let mut read = Vec::new();
    for &instruction in instructions {
        match instruction {
            Load(atomic, order) => read.push(atomics[atomic].load(order)),
            Store(atomic, value, order) => atomics[atomic].store(value, order),
            Swap(atomic, value, order) => read.push(atomics[atomic].swap(value, order)),
            Fence(order) => fence(order),
        }
    }
    read
}

/// Draws a program. Each store has a different value, so that outcomes distinguish the stores.
fn draw(rng: &mut Rng, lengths: &[usize]) -> Program {
    let mut value = 0;
    let mut instruction = || {
        value += 1;
        let (atomic, is_weak) = (rng.usize(0..ATOMICS), rng.bool());
        let order = |strong| if is_weak { Relaxed } else { strong };
        match rng.u32(0..9) {
            0..3 => Load(atomic, order(Acquire)),
            3..6 => Store(atomic, value, order(Release)),
            6 => Swap(atomic, value, order(AcqRel)),
            7 => Fence(if is_weak { Acquire } else { Release }),
            _ => Fence(SeqCst),
        }
    };
    lengths.iter().map(|&length| (0..length).map(|_| instruction()).collect()).collect()
}

/// Draws programs until so many have run, and compares the outcomes of each.
fn compare(programs: u32, lengths: &[usize], seeds: u64) {
    let mut rng = Rng::with_seed(27);
    let (mut runs, mut outcomes) = (0, 0);
    for _ in 0..programs {
        let program = draw(&mut rng, lengths);
        let (met, searched) = met_by(Processor::Weak, execute, &program, (2, seeds));
        assert_eq!(met, allowed(&program), "{program:?}");
        runs += searched;
        outcomes += met.len();
    }
    #[expect(clippy::print_stdout, reason = "the figures are of interest")]
    {
        println!("{programs} programs with {outcomes} outcomes in {runs} schedules");
    }
}

#[test]
fn two_threads_come_to_the_outcomes_that_the_axioms_allow() {
    compare(20, &[3, 3], 3000);
}

#[test]
fn three_threads_come_to_the_outcomes_that_the_axioms_allow() {
    compare(6, &[2, 2, 1], 10_000);
}

/// The axioms are weak enough for a message that overtakes what it is about, and strong enough to
/// forbid it if the message is released and acquired.
#[test]
fn the_axioms_know_release_and_acquire() {
    let read = |store, load| {
        let program = vec![
            vec![Store(0, 1, Relaxed), Store(1, 1, store)],
            vec![Load(1, load), Load(0, Relaxed)],
        ];
        allowed(&program).iter().map(|outcome| outcome[..2].to_vec()).collect::<BTreeSet<_>>()
    };
    let all: BTreeSet<_> = [[0, 0], [0, 1], [1, 0], [1, 1]].map(Vec::from).into();
    let ordered: BTreeSet<_> = [[0, 0], [0, 1], [1, 1]].map(Vec::from).into();
    assert_eq!((read(Relaxed, Acquire), read(Release, Relaxed)), (all.clone(), all));
    assert_eq!(read(Release, Acquire), ordered);
}
