//! A run is the same in a process that has run others before, and in a process that has not.

use std::process::Command;

use procession_sim::{Check, Outcome};

use super::workloads;

/// The environment variable of a child process: the seed that is to run there.
const CHILD: &str = "PROCESSION_SIM_TEST_SEED_AT_ATOMICS";
/// The text before the outcome in the output of a child.
const MARK: &str = "outcome: ";

fn run(seed: u64) -> Outcome {
    Check::new().at_atomics().seeds(seed..seed + 1).run(workloads::all)
}

/// Goal: nothing decides that lives longer than a run, such as a static that the first one makes,
/// or an address that is used again. Method: all seeds run here, one after the other, and each one
/// in a child process that runs nothing else. There, another length of the environment moves the
/// stack.
#[test]
fn each_seed_is_the_same_run_in_a_process_of_its_own() {
    if let Ok(seed) = std::env::var(CHILD) {
        let seed = seed.trim().parse().expect("the parent has set a number");
        #[expect(clippy::print_stdout, reason = "the parent reads it")]
        {
            println!("{MARK}{:?}", run(seed));
        }
        return;
    }
    let first = std::env::var("SIM_FIRST").map_or(0, |text| text.parse().expect("a number"));
    let count = std::env::var("SIM_SEEDS").map_or(40, |text| text.parse().expect("a number"));
    let test = "atomics::reproduce::each_seed_is_the_same_run_in_a_process_of_its_own";
    for seed in first..first + count {
        let here = format!("{MARK}{:?}", run(seed));
        let child = Command::new(std::env::current_exe().expect("the system knows this program"))
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, format!("{:width$}", seed, width = 1 + seed as usize * 61 % 3000))
            .output()
            .expect("the system starts a program");
        let printed = String::from_utf8_lossy(&child.stdout);
        assert!(printed.contains(&here), "seed {seed} here: {here}, and in the child:\n{printed}");
    }
}
