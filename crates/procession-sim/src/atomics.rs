//! Checks in which each operation of an atomic is a point. Only builds with the private cfg
//! `procession_sim` have them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::campaign::{Check, on_scheduler, tell};
use crate::chance::Chance;
use crate::chance::fine::{Choice, FIXED};
use crate::explore::Outcome;
use crate::memory::Processor;
use crate::program::{Program, Rules, Run, run};
use crate::sim::Sim;
use crate::story::Story;
use crate::tape::Tape;

/// The threads of a program without a scheduler.
pub struct Threads<'a>(&'a Sim);

impl fmt::Debug for Threads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").finish_non_exhaustive()
    }
}

impl Threads<'_> {
    /// Starts a thread of the simulated system.
    pub fn spawn(&self, body: impl FnOnce() + Send + 'static) {
        procession_sync::simulated::enter_kernel();
        let engine = &self.0.engine;
        let started = engine.launch_on(engine.home(), "thread".to_owned(), Box::new(body));
        started.expect("the system refuses no thread here");
    }

    /// Waits until all threads but the calling one have ended.
    pub fn join_all(&self) {
        self.0.engine.join_all();
    }

    /// Returns the simulation.
    pub fn sim(&self) -> &Sim {
        self.0
    }
}

/// The result of a search of all schedules in which none failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Searched {
    /// The number of schedules.
    pub runs: u64,
    /// `true` if there are no more within the bound.
    pub is_complete: bool,
}

/// A bounded search of all schedules.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The largest number of deviations from the usual schedule: preemptions, and choices of
    /// another thread than the next one where a thread waits.
    pub deviations: u32,
    /// The largest number of schedules.
    pub runs: u64,
}

impl Check {
    /// Lets another thread run before each operation of an atomic, a lock, a cell or a fence, on a
    /// simulated x86-64.
    pub fn at_atomics(mut self) -> Self {
        self.at_atomics = true;
        self
    }

    /// Simulates this processor in the place of an x86-64.
    pub fn processor(mut self, processor: Processor) -> Self {
        self.processor = processor;
        self
    }

    /// Runs a program of threads, without a scheduler, like [`try_run`](Self::try_run).
    ///
    /// # Errors
    /// Returns the report of a failure.
    pub fn try_threads<F>(self, program: F) -> Result<Outcome, String>
    where
        F: Fn(&Threads<'_>) + Send + Sync + 'static,
    {
        self.run_by(&self.rules(of_threads(program)))
    }

    /// Runs a program of threads, without a scheduler, in all schedules of the bound.
    ///
    /// # Errors
    /// Returns the report of a failure.
    pub fn try_all_of_threads<F>(self, bound: Bound, program: F) -> Result<Searched, String>
    where
        F: Fn(&Threads<'_>) + Send + Sync + 'static,
    {
        search(&self.rules(of_threads(program)), bound)
    }

    /// Runs a program on a scheduler in all schedules of the bound, with the smallest number of
    /// workers and without faults. The scheduler starts and ends as usual.
    ///
    /// # Errors
    /// Returns the report of a failure.
    pub fn try_all<F, P>(self, bound: Bound, program: F) -> Result<Searched, String>
    where
        F: Fn(Sim) -> P + Send + Sync + 'static,
        P: Future<Output = ()> + 'static,
    {
        search(&self.rules(on_scheduler(program)), bound)
    }
}

/// Returns the program that ends when all its threads have ended.
fn of_threads(program: impl Fn(&Threads<'_>) + Send + Sync + 'static) -> Program {
    Program::Alone(Arc::new(move |sim: Sim| {
        program(&Threads(&sim));
        sim.engine.join_all();
    }))
}

/// Runs all schedules, depth first on the tape: the last decision that can be raised is raised, and
/// all later decisions are taken again.
fn search(rules: &Rules, bound: Bound) -> Result<Searched, String> {
    let mut tape = Tape::default();
    let mut choices: Vec<Choice> = Vec::new();
    let mut runs = 0;
    loop {
        let mut chance = Chance::replayed(tape.clone());
        chance.fine.log = Some(Vec::new());
        let ran = run(rules, chance, Story::default());
        runs += 1;
        if ran.failure.is_some() {
            return Err(report(rules, runs, &ran));
        }
        // The number of choices is known since the decisions were made for the first time. A turn
        // that is cut short does not show how long it would be.
        choices.extend_from_slice(ran.choices.get(choices.len()..).unwrap_or_default());
        choices.truncate(ran.choices.len());
        tape = ran.tape;
        if runs == bound.runs {
            return Ok(Searched { runs, is_complete: false });
        }
        if !raise(&mut tape, &mut choices, bound.deviations) {
            return Ok(Searched { runs, is_complete: true });
        }
    }
}

/// Moves on to the next schedule within the bound. Returns `false` if there is none.
fn raise(tape: &mut Tape, choices: &mut Vec<Choice>, deviations: u32) -> bool {
    let costs = Tape::purposes().flat_map(|purpose| {
        let of_purpose = choices.iter().filter(move |choice| choice.purpose == purpose);
        tape[purpose].iter().zip(of_purpose)
    });
    let mut spent: u32 = costs
        .filter(|(value, choice)| **value > 0 && choice.cost != FIXED)
        .map(|(_, choice)| choice.cost)
        .sum();
    while let Some(choice) = choices.pop() {
        let value = tape[choice.purpose].pop().expect("each choice is on its track");
        if choice.cost == FIXED {
            continue;
        }
        if value > 0 {
            spent -= choice.cost;
        }
        if value + 1 < choice.count && spent + choice.cost <= deviations {
            tape[choice.purpose].push(value + 1);
            choices.push(choice);
            return true;
        }
    }
    false
}

fn report(rules: &Rules, number: u64, ran: &Run) -> String {
    let told = run(rules, Chance::replayed(ran.tape.clone()), Story::told());
    let mut text = format!("schedule {number} failed: {}\n", crate::campaign::headline(&told));
    tell(&mut text, &told);
    let mut tape = ran.tape.clone();
    tape.trim();
    text + &format!("replay:  PROCESSION_SIM={} cargo test", tape.encode())
}
