//! Measures how many runs of a small program fit in a second. The program has 20 processes that
//! send 200 messages, on 4 workers.
//!
//! `cargo run --release -p procession-sim --example speed -- 2000` runs 2000 seeds for each
//! strategy, and then makes a failure short.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::time::{Duration, Instant};

use procession::Context;
use procession_sim::{Check, Faults, Sim, Strategy};

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
                    procession::yield_if_due().await;
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

/// Prints how long it takes to make a failure of several thousand decisions short. It needs three
/// of them, which lie far apart.
fn measure_shrinking() {
    let check = Check::new().workers(4..=4).strategy(Strategy::Uniform);
    let report = check.try_run(|sim| async move {
        let mut unusual = 0;
        for _ in 0..20 {
            program(sim.clone()).await;
            unusual += u32::from(sim.choose(0..4) == 3);
        }
        sim.always("no more than two choices are unusual", unusual < 3);
    });
    let report = report.expect_err("three choices are unusual");
    let lines = report.lines().filter(|line| line.contains("failed:") || line.contains("shrunk"));
    lines.for_each(|line| println!("{line}"));
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
    measure_shrinking();
}
