//! The tests of `procession`, each in a simulation: with five seeds in an optimised build, and with
//! one in another, which also leaves out the slow ones.
//!
//! This is a test of `procession-sim`. It is here because the modules are. `#[test]` is the
//! attribute of `procession-sim-attribute` here, and `home` has simulated threads and channels.
//! [`excepted`] lists the tests that are left out, with the reason of each; they count as passed.
//! These modules are left out as a whole:
//! - `beam`, `children`, `refusals` and `signals` are about other programs, or about limits of this
//!   one and signals to it;
//! - `bridge` and `paused` run a runtime of tokio's beside the scheduler;
//! - `layers` reads sources.
#![expect(
    clippy::type_complexity,
    clippy::redundant_async_block,
    clippy::borrowed_box,
    clippy::needless_range_loop,
    clippy::async_yields_async,
    reason = "as in the tests themselves"
)]
#![allow(
    dead_code,
    unused_imports,
    unexpected_cfgs,
    unfulfilled_lint_expectations,
    reason = "some of it is for modules that are left out, or for threads of the system"
)]

#[macro_use]
extern crate procession_sim_attribute;

/// Threads and channels of the simulation, and sockets that wait in it.
mod home {
    use std::cell::Cell;

    pub(crate) use procession_sim::sync::Barrier;
    pub(crate) use procession_sim::{mpsc, thread};

    pub(crate) use crate::waiting_sockets as net;

    thread_local! {
        /// The seed that the run has drawn, on its first thread.
        pub(super) static SEED: Cell<u64> = const { Cell::new(0) };
    }

    /// Lets other threads run: they do so only where a thread passes its turn on.
    pub(crate) fn others_may_run() {
        thread::yield_now();
    }

    /// Blocks for this virtual time.
    pub(crate) fn block(time: std::time::Duration) {
        thread::sleep(time);
    }

    /// Returns the seed of a test that draws its input.
    pub(crate) fn seed() -> u64 {
        SEED.get()
    }
}

#[path = "simulated/excepted.rs"]
mod excepted;
#[path = "simulated/sockets.rs"]
mod waiting_sockets;

mod basics;
mod behaviour;
mod blocked;
mod bounds;
mod budget;
mod cancel;
mod channels;
mod contracts;
mod copies;
mod coroutines;
mod door;
mod ends;
mod facade;
mod fairness;
mod files;
mod group;
mod here;
mod hostile;
mod http;
mod idle;
mod key_value;
mod local;
mod look;
mod machines;
mod messages;
mod net;
mod order;
mod outcomes;
mod panics;
mod pool;
mod promises;
mod recorder;
mod reports;
mod request_ids;
mod requests;
mod scene;
mod seeded;
mod select;
mod serialize;
mod shutdown;
mod sockets;
mod spawn;
mod stalls;
mod stress;
mod sync;
mod time;

use std::process::{ExitCode, Termination};

use procession_sim::{Check, Fault, Faults};
use procession_sync::host;

/// Runs a test in a simulation, unless it is excepted.
fn simulate<R: Termination + 'static>(name: &str, test: fn() -> R) {
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
