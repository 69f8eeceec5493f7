//! Measures how many runs of a small program fit in a second. The program has 20 processes that
//! send 200 messages, on 4 workers.
//!
//! `cargo run --release -p procession-sim --example speed -- 2000` runs 2000 seeds for each
//! strategy, and then makes failures of two programs short.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use procession::Context;
use procession_sim::{Check, Faults, Sim, Strategy};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

const RECEIVERS: u64 = 10;
const SENDERS: u64 = 10;
const MESSAGES: u64 = 20;

async fn program(sim: Sim) {
    let receivers: Vec<_> = (0..RECEIVERS)
        .map(|_| {
            procession::start(|mut cx: Context<u64>| async move {
                let mut sum = 0;
                for _ in 0..MESSAGES {
                    sum += cx.recv().await.unwrap_or(0);
                }
                sum
            })
        })
        .collect();
    let addresses: Vec<_> = receivers.iter().map(|one| one.address().clone()).collect();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let addresses = addresses.clone();
            sim.spawn(async move {
                for message in 0..MESSAGES {
                    let to = (sender + 3 * message) % RECEIVERS;
                    addresses[to as usize].send(1).expect("the receiver lives");
                    procession::checkpoint().await;
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("it ends");
    }
    drop(addresses);
    let mut sum = 0;
    for receiver in receivers {
        sum += receiver.await.expect("it ends");
    }
    sim.always("each message arrives", sum == SENDERS * MESSAGES);
}

fn measure(seeds: u64, strategy: Strategy, faults: Faults, jobs: usize) {
    let check = Check::new().seeds(0..seeds).workers(4..=4).strategy(strategy).faults(faults);
    #[expect(clippy::disallowed_methods, reason = "this measures real time")]
    let began = Instant::now();
    let outcome = check.jobs(jobs).time_limit(Duration::MAX).run(program);
    println!(
        "{strategy:?}, {} faults, {jobs} at a time: {:.0} seeds/s, {} points a run",
        if faults == Faults::none() { "no" } else { "all" },
        outcome.seeds as f64 / began.elapsed().as_secs_f64(),
        outcome.points / outcome.seeds,
    );
}

/// Fails if three choices are unusual, which lie far apart.
async fn choices(sim: Sim) {
    let mut unusual = 0;
    for _ in 0..20 {
        program(sim.clone()).await;
        unusual += u32::from(sim.choose(0..4) == 3);
    }
    sim.always("no more than two choices are unusual", unusual < 3);
}

/// Fails if a deposit is lost in two rounds. In each, a process must stop between its read and its
/// write, although it continues there in nearly all runs.
async fn lost_updates(sim: Sim) {
    let mut lost = 0;
    for _ in 0..20 {
        program(sim.clone()).await;
        let account = Arc::new(AtomicU32::new(0));
        let deposits = [(); 2].map(|()| {
            let account = Arc::clone(&account);
            sim.spawn(async move {
                let balance = account.load(Relaxed);
                procession::checkpoint().await;
                account.store(balance + 1, Relaxed);
            })
        });
        for deposit in deposits {
            deposit.await.expect("it ends");
        }
        lost += u32::from(account.load(Relaxed) != 2);
    }
    sim.always("at most one deposit is lost", lost < 2);
}

/// Prints how long it takes to make a failure of several thousand decisions short.
fn measure_shrinking<P: Future<Output = ()> + 'static>(program: fn(Sim) -> P, strategy: Strategy) {
    let check = Check::new().workers(4..=4).strategy(strategy);
    let report = check.try_run(program).expect_err("the program is wrong");
    let lines = report.lines().filter(|line| line.contains("failed:") || line.contains("shrunk"));
    lines.for_each(|line| println!("{strategy:?}: {line}"));
}

fn main() {
    let seeds = std::env::args().nth(1).and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    for faults in [Faults::none(), Faults::all()] {
        for strategy in [Strategy::Random, Strategy::Priorities, Strategy::Uniform] {
            measure(seeds, strategy, faults, 1);
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for jobs in [1, processors] {
            measure(seeds, Strategy::Portfolio, faults, jobs);
        }
    }
    for strategy in [Strategy::Random, Strategy::Priorities, Strategy::Uniform] {
        measure_shrinking(choices, strategy);
        measure_shrinking(lost_updates, strategy);
    }
}
