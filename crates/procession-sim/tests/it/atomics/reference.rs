//! Random programs, run by the simulation and by the abstract machine of the paper on x86-TSO
//! (Sewell and others, CACM 2010). Both must come to the same set of outcomes. The weak processor
//! has a reference of its own.

mod weak;

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use procession_sim::{Bound, Check, Faults, Processor, Threads};
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use procession_sync::atomic::{AtomicU32, fence};
use procession_sync::host::Mutex;

/// The number of atomics, which contain 0 at first.
const ATOMICS: usize = 2;

/// An instruction of a thread. The atomics are numbered.
#[derive(Clone, Copy, Debug)]
enum Instruction {
    Load(usize),
    Store(usize, u32),
    /// An exchange, which is locked.
    Swap(usize, u32),
    Fence,
}

type Program = Vec<Vec<Instruction>>;

/// What the threads have read, in their order, and then what the atomics contain.
type Outcomes = BTreeSet<Vec<u32>>;

/// The abstract machine: threads with their places in the program, what they have read, and their
/// store buffers; and the memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Machine {
    threads: Vec<Core>,
    memory: [u32; ATOMICS],
}

#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Core {
    at: usize,
    read: Vec<u32>,
    buffer: Vec<(usize, u32)>,
}

impl Machine {
    fn new(threads: usize) -> Self {
        Self { threads: vec![Core::default(); threads], memory: [0; ATOMICS] }
    }

    /// Returns the state after the oldest store of a thread has come to the memory.
    fn written(&self, thread: usize) -> Option<Self> {
        let mut next = self.clone();
        let buffer = &mut next.threads[thread].buffer;
        if buffer.is_empty() {
            return None;
        }
        let (atomic, value) = buffer.remove(0);
        next.memory[atomic] = value;
        Some(next)
    }

    /// Returns the state after the next instruction of a thread, if it can be executed now.
    fn executed(&self, program: &Program, thread: usize) -> Option<Self> {
        let mut next = self.clone();
        let own = &mut next.threads[thread];
        let instruction = *program[thread].get(own.at)?;
        own.at += 1;
        let is_locked = matches!(instruction, Instruction::Swap(..) | Instruction::Fence);
        if is_locked && !own.buffer.is_empty() {
            return None;
        }
        match instruction {
            Instruction::Load(atomic) => {
                let newest = own.buffer.iter().rfind(|store| store.0 == atomic);
                own.read.push(newest.map_or(next.memory[atomic], |store| store.1));
            }
            Instruction::Store(atomic, value) => own.buffer.push((atomic, value)),
            Instruction::Swap(atomic, value) => {
                own.read.push(std::mem::replace(&mut next.memory[atomic], value));
            }
            Instruction::Fence => {}
        }
        Some(next)
    }
}

/// Returns the outcomes of the abstract machine.
fn allowed(program: &Program) -> Outcomes {
    let (mut seen, mut outcomes) = (BTreeSet::new(), Outcomes::new());
    let mut left = vec![Machine::new(program.len())];
    while let Some(machine) = left.pop() {
        let threads = 0..program.len();
        let next: Vec<_> = threads
            .flat_map(|thread| [machine.executed(program, thread), machine.written(thread)])
            .flatten()
            .collect();
        if next.is_empty() {
            let read = machine.threads.iter().flat_map(|thread| thread.read.iter());
            outcomes.insert(read.chain(&machine.memory).copied().collect());
        }
        left.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
    }
    outcomes
}

/// Executes the instructions of a thread. Returns what it has read.
fn execute(instructions: &[Instruction], atomics: &[AtomicU32; ATOMICS]) -> Vec<u32> {
    let mut read = Vec::new();
    for (at, &instruction) in instructions.iter().enumerate() {
        // The weakest order and a stronger one, which are the same on an x86-64.
        let is_weak = at % 2 == 0;
        match instruction {
            Instruction::Load(atomic) => {
                read.push(atomics[atomic].load(if is_weak { Relaxed } else { Acquire }));
            }
            Instruction::Store(atomic, value) => {
                atomics[atomic].store(value, if is_weak { Relaxed } else { Release });
            }
            Instruction::Swap(atomic, value) => {
                read.push(atomics[atomic].swap(value, if is_weak { Relaxed } else { AcqRel }));
            }
            Instruction::Fence => fence(SeqCst),
        }
    }
    read
}

/// How a thread with these instructions uses the atomics. Returns what it has read.
type Execute<I> = fn(&[I], &[AtomicU32; ATOMICS]) -> Vec<u32>;

/// Returns the outcomes of all schedules of the simulation with so many deviations and of as many
/// seeds, and the number of schedules.
fn met_by<I: Clone + Send + Sync + 'static>(
    processor: Processor,
    execute: Execute<I>,
    program: &[Vec<I>],
    (deviations, seeds): (u32, u64),
) -> (Outcomes, u64) {
    let (seen, program) = (Arc::new(Mutex::new(Outcomes::new())), Arc::new(program.to_vec()));
    let noted = Arc::clone(&seen);
    let run = move |threads: &Threads<'_>| {
        let atomics: Arc<[AtomicU32; ATOMICS]> = Arc::default();
        let read = Arc::new(Mutex::new(vec![Vec::new(); program.len()]));
        for thread in 0..program.len() {
            let (program, atomics, read) =
                (Arc::clone(&program), Arc::clone(&atomics), Arc::clone(&read));
            threads.spawn(move || {
                let own = execute(&program[thread], &atomics);
                read.lock()[thread] = own;
            });
        }
        threads.join_all();
        let mut outcome = read.lock().concat();
        outcome.extend(atomics.iter().map(|atomic| atomic.load(Relaxed)));
        noted.lock().insert(outcome);
    };
    let bound = Bound { deviations, runs: 100_000 };
    let check = || Check::new().at_atomics().processor(processor).faults(Faults::none());
    if seeds > 0 {
        check().seeds(0..seeds).try_threads(run.clone()).expect("nothing fails");
    }
    let searched = check().try_all_of_threads(bound, run).expect("nothing fails");
    assert!(searched.is_complete, "{searched:?}");
    (std::mem::take(&mut *seen.lock()), searched.runs)
}

/// Draws a program. Each store has a different value, so that outcomes distinguish the stores.
fn draw(rng: &mut Rng, lengths: &[usize]) -> Program {
    let mut value = 0;
    let mut instruction = || {
        value += 1;
        let atomic = rng.usize(0..ATOMICS);
        match rng.u32(0..8) {
            0..3 => Instruction::Load(atomic),
            3..6 => Instruction::Store(atomic, value),
            6 => Instruction::Swap(atomic, value),
            _ => Instruction::Fence,
        }
    };
    lengths.iter().map(|&length| (0..length).map(|_| instruction()).collect()).collect()
}

/// Draws programs until so many have run, and compares the outcomes of each.
fn compare(programs: u32, lengths: &[usize], deviations: u32) {
    let mut rng = Rng::with_seed(27);
    let (mut runs, mut outcomes) = (0, 0);
    for _ in 0..programs {
        let program = draw(&mut rng, lengths);
        let (met, searched) = met_by(Processor::X86, execute, &program, (deviations, 0));
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
fn two_threads_come_to_the_outcomes_of_the_abstract_machine() {
    compare(20, &[3, 3], 4);
}

#[test]
fn three_threads_come_to_the_outcomes_of_the_abstract_machine() {
    compare(6, &[2, 2, 1], 4);
}

/// The store buffers matter: without them, programs have fewer outcomes.
#[test]
fn the_abstract_machine_delays_stores() {
    let [x, y] = [0, 1];
    let side = |own, other| vec![Instruction::Store(own, 1), Instruction::Load(other)];
    let outcomes = allowed(&vec![side(x, y), side(y, x)]);
    let read: BTreeSet<_> = outcomes.iter().map(|outcome| &outcome[..2]).collect();
    assert_eq!(read, BTreeSet::from([&[0, 0][..], &[0, 1], &[1, 0], &[1, 1]]));
}
