//! The workloads that find planted defects of the scheduler (`.ci/mutants`).
//!
//! On the scheduler as it is, no workload fails. With a mutant, the test prints the first seed that
//! fails for each strategy. `.ci/run simulation` runs more seeds than a plain `cargo test`.

mod clinic;
mod cycles;
mod history;
mod leaks;
mod levels;
mod listed;
mod workloads;

use std::time::Duration;

#[cfg(procession_sim)]
use procession_sim::Processor;
use procession_sim::{Check, Sim, Strategy};

use crate::counters;
pub(crate) use history::one_permit;
use history::{
    affinity, bystander, chain, hand_over, jobs, late_helpers, mixture, monitors, order, overtakes,
    quiet_timers, refusals, shares, slow_reads,
};
use workloads::{bells, descriptor, descriptor_from_outside, sleepers, stalls, timers_of_blocked};

/// Three workloads, one after the other.
pub(crate) async fn all(sim: Sim) {
    for _ in 0..3 {
        match sim.choose(0..22) {
            0 => {
                let sum = counters(&sim, 4, 12).await;
                sim.always("each message is counted once", sum == 48);
            }
            1 => sleepers(&sim).await,
            2 => bells(&sim).await,
            3 => descriptor_from_outside(&sim).await,
            4 => timers_of_blocked(&sim).await,
            5 => stalls(&sim).await,
            6 => descriptor(&sim).await,
            7 => mixture(&sim).await,
            8 => hand_over(&sim).await,
            9 => chain(&sim).await,
            10 => jobs(&sim).await,
            11 => quiet_timers(&sim).await,
            12 => slow_reads(&sim).await,
            13 => affinity(&sim).await,
            14 => monitors(&sim).await,
            15 => order(&sim).await,
            16 => shares(&sim).await,
            17 => overtakes(&sim).await,
            18 => one_permit(&sim).await,
            19 => late_helpers(&sim).await,
            20 => refusals(&sim).await,
            _ => bystander(&sim).await,
        }
    }
}

/// Reads a number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number: {text}")))
}

/// Returns the check of a strategy. `SIM_SEEDS` seeds run, from `SIM_FIRST` on; or, with
/// `SIM_SECONDS`, as many seeds as run in that time. `SIM_PROCESSOR` names the processor of all
/// runs.
fn check(strategies: u32) -> Check {
    let first = number("SIM_FIRST").unwrap_or(0);
    let check = match number("SIM_SECONDS") {
        Some(seconds) => Check::new()
            .seeds(first..u64::MAX)
            .time_limit(Duration::from_secs(seconds) / strategies),
        None => Check::new()
            .seeds(first..first + number("SIM_SEEDS").unwrap_or(60))
            .time_limit(Duration::MAX),
    };
    #[cfg(procession_sim)]
    let check = match std::env::var("SIM_PROCESSOR").as_deref() {
        Err(_) | Ok("x86") => check.at_atomics(),
        Ok("weak") => check.at_atomics().processor(Processor::Weak),
        Ok(other) => panic!("SIM_PROCESSOR must be x86 or weak: {other}"),
    };
    check.jobs(std::thread::available_parallelism().map_or(1, usize::from))
}

/// All strategies, or the strategy that `SIM_STRATEGY` names.
#[test]
fn the_scheduler_keeps_its_laws() {
    let mut strategies =
        vec![Strategy::Portfolio, Strategy::Random, Strategy::Priorities, Strategy::Uniform];
    if let Ok(name) = std::env::var("SIM_STRATEGY") {
        strategies.retain(|strategy| format!("{strategy:?}") == name);
    }
    let mut found = String::new();
    #[cfg(procession_sim)]
    let all = crate::atomics::workloads::all;
    let count = strategies.len() as u32;
    for strategy in strategies {
        match check(count).strategy(strategy).try_run(all) {
            #[expect(clippy::print_stdout, reason = "the check of the project reads it")]
            Ok(outcome) => println!("{strategy:?}: {} seeds passed", outcome.seeds),
            Err(report) => found += &format!("{strategy:?}: {report}\n"),
        }
    }
    assert!(found.is_empty(), "{found}");
}

/// The workloads that runs of the other test seldom come to, by the portfolio of strategies.
#[cfg(procession_sim)]
mod rare {
    use procession_protocols::scheduler::{lifo_slot, shutdown};
    use procession_protocols::util::biased_lock;
    use procession_sim::{Fault, Faults, Processor, Threads};

    use super::check;
    use crate::atomics::fences;
    use crate::atomics::workloads::{Rare, rare};

    macro_rules! keep_the_laws {
        ($($test:ident: $workload:ident,)*) => {
            $(
                #[test]
                fn $test() {
                    keeps_the_laws(Rare::$workload);
                }
            )*

            const COUNT: u32 = [$(Rare::$workload),*].len() as u32 + PROTOCOLS;
        };
    }

    fn keeps_the_laws(workload: Rare) {
        match check(COUNT).try_run(move |sim| rare(sim, workload)) {
            #[expect(clippy::print_stdout, reason = "the check of the project reads it")]
            Ok(outcome) => println!("{workload:?}: {} seeds passed", outcome.seeds),
            Err(report) => panic!("\n{workload:?}: {report}"),
        }
    }

    /// The number of programs in which a protocol runs alone.
    const PROTOCOLS: u32 = 4;

    /// Runs a protocol alone, without a scheduler, on a weak processor. Half of the runs have no
    /// membarrier(2).
    fn keeps_its_laws(name: &str, program: fn(&Threads<'_>)) {
        let check = check(COUNT).processor(Processor::Weak);
        let check = check.faults(Faults::none().with(Fault::NoMembarrier));
        match check.try_threads(program) {
            #[expect(clippy::print_stdout, reason = "the check of the project reads it")]
            Ok(outcome) => println!("{name}: {} seeds passed", outcome.seeds),
            Err(report) => panic!("\n{name}: {report}"),
        }
    }

    #[test]
    fn lock_alone() {
        keeps_its_laws("LockAlone", fences::lock::<{ biased_lock::mutation::BUILT }>);
    }

    #[test]
    fn slot_alone() {
        keeps_its_laws("SlotAlone", fences::slot::<{ lifo_slot::mutation::BUILT }>);
    }

    #[test]
    fn raid_alone() {
        keeps_its_laws("RaidAlone", fences::raid::<{ lifo_slot::mutation::BUILT }>);
    }

    #[test]
    fn shutdown_alone() {
        keeps_its_laws("ShutdownAlone", fences::shutdown::<{ shutdown::mutation::BUILT }>);
    }

    keep_the_laws! {
        taken_permits: TakenPermits,
        circles: Circles,
        idle_looks: IdleLooks,
        watched_ends: WatchedEnds,
        shared_replies: SharedReplies,
        inspections: Inspections,
        made_messages: MadeMessages,
        set_aside: SetAside,
        cancelled_and_reset: CancelledAndReset,
        periodic: Periodic,
        next_in_slot: NextInSlot,
        postponed: Postponed,
        advanced: Advanced,
        settled_by_others: SettledByOthers,
        reset_by_two: ResetByTwo,
        short_steps: ShortSteps,
        short_wakes: ShortWakes,
        raids: Raids,
        joins: Joins,
        busy_pools: BusyPools,
        closed_pools: ClosedPools,
        rests: Rests,
        next_jobs: NextJobs,
    }
}
