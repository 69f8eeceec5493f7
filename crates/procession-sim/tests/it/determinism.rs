//! The same seed, the same run.

use std::process::Command;
use std::sync::{Arc, Weak};

use procession_sim::{Check, Outcome, Strategy};
use procession_sync::Mutex;

use crate::counters;

/// The environment variable of a test program that is to print its outcomes.
const CHILD: &str = "PROCESSION_SIM_TEST_CHILD";

fn check(strategy: Strategy, workers: usize) -> Check {
    Check::new().seeds(0..3).workers(workers..=workers).strategy(strategy)
}

fn run(check: Check) -> Outcome {
    check.run(|sim| async move {
        let sum = counters(&sim, 8, 20).await;
        sim.always("each message is counted once", sum == 160);
    })
}

#[test]
fn the_same_seed_is_the_same_run_with_any_number_of_workers() {
    for workers in [1, 2, 4, 64] {
        for strategy in [Strategy::Portfolio, Strategy::Random, Strategy::Priorities] {
            let first = run(check(strategy, workers));
            for _ in 0..3 {
                assert_eq!(run(check(strategy, workers)), first, "{workers} workers, {strategy:?}");
            }
        }
    }
}

/// Goal: nothing that differs between two programs decides, such as an address, the number of a
/// scheduler or of a thread, or what ran before. Method: 64 workers run 20 times, and this test
/// runs itself in two children.
#[test]
fn the_same_seed_is_the_same_run_in_another_program() {
    let outcome = |workers| run(check(Strategy::Portfolio, workers));
    let outcomes = [1, 4, 64].map(outcome);
    let here = format!("outcomes: {outcomes:?}");
    if std::env::var_os(CHILD).is_some() {
        #[expect(clippy::print_stdout, reason = "the parent reads it")]
        {
            println!("{here}");
        }
        return;
    }
    for _ in 1..20 {
        assert_eq!(outcome(64), outcomes[2]);
    }
    let test = "determinism::the_same_seed_is_the_same_run_in_another_program";
    for length in [1, 3000] {
        let child = Command::new(std::env::current_exe().expect("the system knows this program"))
            .args(["--exact", test, "--nocapture"])
            // Another length of the environment moves the stack.
            .env(CHILD, "x".repeat(length))
            .output()
            .expect("the system starts a program");
        let printed = String::from_utf8_lossy(&child.stdout);
        assert!(printed.contains(&here), "here {here}, and in the child:\n{printed}");
    }
}

/// Goal: a run leaves nothing behind. Method: each scheduler keeps a value, which must be dropped
/// once its run is over.
#[test]
fn nothing_is_left_of_a_run() {
    let kept: Arc<Mutex<Vec<Weak<()>>>> = Arc::default();
    let made = Arc::clone(&kept);
    let check = Check::new().allow_panics().scheduler(move |builder| {
        let value = Arc::new(());
        made.lock().push(Arc::downgrade(&value));
        builder.on_thread_start(move || drop(Arc::clone(&value)))
    });
    check.run(|sim| async move {
        match sim.choose(0..4) {
            0 => assert_eq!(counters(&sim, 4, 8).await, 32),
            1 => sim.settle().await,
            2 => drop(sim.spawn(async { panic!("a process fails") }).await),
            // The program ends before the quiet point.
            _ => {
                let own = sim.clone();
                sim.spawn(async move { own.settle().await }).detach();
                procession::yield_now().await;
            }
        }
    });
    let kept = kept.lock();
    assert!(kept.len() >= 100);
    assert_eq!(kept.iter().filter(|value| value.strong_count() > 0).count(), 0);
}

/// A program may write PIDs to a socket, and the number of bytes decides how long that takes.
#[test]
fn the_numbers_of_schedulers_have_seven_digits() {
    let digits = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&digits);
    Check::new().seeds(0..3).run(move |sim| {
        let seen = Arc::clone(&seen);
        async move {
            let pid = sim.spawn(async {}).pid();
            seen.lock().push(pid.scheduler().to_string().len());
        }
    });
    assert!(digits.lock().iter().all(|&count| count == 7), "{digits:?}");
}

#[test]
fn several_runs_at_a_time_are_the_same_runs() {
    let runs = |jobs| run(check(Strategy::Portfolio, 4).seeds(0..40).jobs(jobs));
    let one = runs(1);
    for jobs in [2, 3, 50] {
        assert_eq!(runs(jobs), one, "{jobs} jobs");
    }
}
