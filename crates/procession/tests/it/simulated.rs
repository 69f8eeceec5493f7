//! Runs the tests of `procession` as they are, or each of them in a simulation.
//!
//! `PROCESSION_SIMULATED=1` asks for simulations. An optimised build runs five seeds. Another build
//! runs one seed, and leaves out the slow tests. `#[test]` is the attribute of
//! `procession-sim-attribute`, and `home` has threads and channels for both. [`excepted`] lists the
//! tests that are left out in simulations, with the reason of each; these count as passed.

mod excepted;
#[allow(dead_code, reason = "each room uses some of it")]
pub(crate) mod sockets;

use std::process::{ExitCode, Termination};
use std::sync::LazyLock;

use procession_sim::{Check, Fault, Faults};
use procession_sync::host;

use crate::home;

/// Returns `true` if the tests of this program run in simulations.
pub(crate) fn is_simulated() -> bool {
    static ASKED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("PROCESSION_SIMULATED").is_some());
    *ASKED
}

/// Runs a test. In simulations, it is left out if it is excepted.
pub(crate) fn run<R: Termination + 'static>(name: &str, test: fn() -> R) {
    if !is_simulated() {
        assert!(test().report() == ExitCode::SUCCESS, "the test fails");
        return;
    }
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    if excepted::reason(name).is_some() {
        return;
    }
    // One stack is taken at a time in a program, which has the tests of other simulations, too.
    static STACKS: host::Mutex<()> = host::Mutex::new(());
    let takes_stacks = ["requests::stacks::", "door::asks::"].iter().any(|at| name.starts_with(at));
    let _alone = takes_stacks.then(|| STACKS.lock());
    // The tests say what happens on a system that does what it is asked for, in time.
    let faults = Faults::none().with(Fault::EarlyWake).with(Fault::NoMembarrier);
    // An unoptimised build takes several times as long. See also `excepted::SLOW`.
    let usual = if cfg!(debug_assertions) { 1 } else { 5 };
    let asked = std::env::var("SIM_SEEDS").ok().map(|seeds| seeds.parse().expect("a number"));
    let seeds = asked.unwrap_or(usual);
    let check = Check::new().seeds(0..seeds).workers(1..=4).faults(faults).keep_files();
    let check = if excepted::polls_by_hand(name) { check.usual_budgets() } else { check };
    check.allow_panics().step_limit(std::time::Duration::from_secs(30)).run_threads(move |sim| {
        home::SEED.set(sim.choose(0..1 << 31));
        sim.always("the test succeeds", test().report() == ExitCode::SUCCESS);
    });
}
