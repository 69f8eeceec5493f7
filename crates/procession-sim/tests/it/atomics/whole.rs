//! The whole scheduler with each operation of an atomic as a point.

use std::process::Command;

use procession_sim::{Check, Outcome, Strategy};

use crate::counters;

/// The environment variable of a test program that is to print its outcome.
const CHILD: &str = "PROCESSION_SIM_TEST_CHILD_AT_ATOMICS";

fn run(strategy: Strategy, workers: usize) -> Outcome {
    let check = Check::new().at_atomics().seeds(0..20).workers(workers..=workers);
    check.strategy(strategy).run(|sim| async move {
        let sum = counters(&sim, 6, 12).await;
        sim.always("each message is counted once", sum == 72);
    })
}

#[test]
fn threads_lose_their_turns_in_steps_and_stores_are_late() {
    for strategy in [Strategy::Random, Strategy::Priorities, Strategy::Uniform] {
        let counts = run(strategy, 3).counts;
        #[expect(clippy::print_stdout, reason = "the figures are of interest")]
        {
            println!("{strategy:?}: {counts:?}");
        }
        assert!(counts.operations > 20 * 1000, "{counts:?}");
        assert!(counts.preemptions > 100 && counts.delayed_stores > 10, "{counts:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for workers in [1, 2, 4, 16] {
        let first = run(Strategy::Portfolio, workers);
        assert_eq!(run(Strategy::Portfolio, workers), first, "{workers} workers");
    }
}

/// Goal: nothing that differs between two programs decides, such as an address. Method: this test
/// runs itself in a child, where another length of the environment moves the stack.
#[test]
fn the_same_seed_is_the_same_run_in_another_program() {
    let outcomes = || {
        let outcomes = [1, 3].map(|workers| run(Strategy::Portfolio, workers));
        format!("outcomes: {outcomes:?}")
    };
    if std::env::var_os(CHILD).is_some() {
        #[expect(clippy::print_stdout, reason = "the parent reads it")]
        {
            println!("{}", outcomes());
        }
        return;
    }
    let test = "atomics::whole::the_same_seed_is_the_same_run_in_another_program";
    let child = Command::new(std::env::current_exe().expect("the system knows this program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "x".repeat(3000))
        .output()
        .expect("the system starts a program");
    let (here, printed) = (outcomes(), String::from_utf8_lossy(&child.stdout));
    assert!(printed.contains(&here), "here {here}, and in the child:\n{printed}");
}
