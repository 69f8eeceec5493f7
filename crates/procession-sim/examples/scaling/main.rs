//! Measures what the runtime's operations cost here with one worker, predicts two workers and
//! compares the prediction with two real ones, and shows what the model says of up to 64 workers on
//! other machines. `docs/SCALING.md` explains the tables.
//!
//! `cargo run --release -p procession-sim --example scaling -- costs predict machines` does all of
//! it, and any of the words alone does that part, from the costs in this file if they are not
//! measured. With `tiny`, all sizes are so small that the figures mean nothing. `line=114`,
//! `unpark=0` and `wake=0` replace the times of all machines, and the names of workloads choose
//! those that `machines` runs.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

mod probes;
mod workloads;

use std::time::Duration;

use procession_sim::scaling::{Costs, Figures, Machine, Model, ModelError};

use probes::{for_real, nanoseconds};
use workloads::{
    FANIN, RING, SKEW, SKYNET, SKYNET_LARGE, Size, TIMERS_CANCEL, TIMERS_CANCEL_128, Workload,
};

/// The allocator of the command's benchmarks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measured on an AMD EPYC of family 26, a virtual machine with two processors.
const COSTS: Costs =
    Costs { step: 38.9, spawn: 39.0, wake: 23.8, send: 9.6, receive: 6.6, join: 18.8, timer: 23.9 };
const HERE: Machine = Machine {
    group: 2,
    socket: 2,
    near: 22.0,
    far: 22.0,
    remote: 22.0,
    unpark: 7000.0,
    wake: 11_000.0,
    hold: 20.0,
    clock: 20.0,
};

const WORKLOADS: [Workload; 7] =
    [SKYNET, SKYNET_LARGE, FANIN, RING, SKEW, TIMERS_CANCEL, TIMERS_CANCEL_128];
const WORKERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

fn main() -> Result<(), ModelError> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    let (size, rounds) = if has("tiny") { (Size(100), 1) } else { (Size(1), 25) };
    let (mut here, mut costs) = (HERE, COSTS);
    if has("costs") {
        here = machine_here(size);
        costs = probes::measure(here, size, rounds, |name, time, cost| {
            println!("{name:14} {time:7.1} ns each: {cost:7.1} ns");
        })?;
        println!("{costs:?}\n");
    }
    here = changed(here, &words);
    let is_wanted = |workload: &&Workload| {
        has(workload.name) || WORKLOADS.iter().all(|workload| !has(workload.name))
    };
    if has("predict") {
        predict(here, costs, size, rounds)?;
    }
    if has("machines") {
        for (name, machine) in
            [("one cache", Machine::ONE_CACHE), ("eight a cache", Machine::EIGHT_A_CACHE)]
        {
            println!("{name}");
            for workload in WORKLOADS.iter().filter(is_wanted) {
                scale(changed(machine, &words), costs, *workload, size)?;
            }
        }
    }
    Ok(())
}

/// Returns the machine with the times that the words name, such as `line=114`.
fn changed(mut machine: Machine, words: &[String]) -> Machine {
    for (name, time) in words.iter().filter_map(|word| word.split_once('=')) {
        let Ok(time) = time.parse() else { continue };
        match name {
            "line" => (machine.near, machine.far, machine.remote) = (time, time, time),
            "unpark" => machine.unpark = time,
            "wake" => machine.wake = time,
            _ => {}
        }
    }
    machine
}

/// Measures this machine.
fn machine_here(size: Size) -> Machine {
    let near = probes::line_transfer(100_000 / size.0);
    let (unpark, wake) = probes::wake_up(1000 / size.0);
    println!("a line moves in {near:.0} ns; a wake-up takes {unpark:.0} and {wake:.0} ns");
    Machine { near, far: near, remote: near, unpark, wake, ..HERE }
}

/// Compares the model with real workers.
fn predict(here: Machine, costs: Costs, size: Size, rounds: usize) -> Result<(), ModelError> {
    println!("workload            workers  predicted   fastest    median  error of the median");
    for workload in WORKLOADS {
        for workers in [1, 2] {
            let count = (workload.count)(size) as f64;
            let run = workload.run;
            let predicted = Model::new(here, costs).workers(workers).run(move || run(size))?;
            let (fastest, median) = for_real(workers, rounds, || run(size));
            let each = |time: Duration| nanoseconds(time) / count;
            let (predicted, fastest, median) =
                (each(predicted.elapsed), each(fastest), each(median));
            let error = (predicted / median - 1.0) * 100.0;
            let name = workload.name;
            println!(
                "{name:20} {workers:6} {predicted:10.1} {fastest:9.1} {median:9.1} {error:+5.0}%"
            );
        }
    }
    println!();
    Ok(())
}

/// Shows one workload with up to 64 workers.
fn scale(machine: Machine, costs: Costs, workload: Workload, size: Size) -> Result<(), ModelError> {
    println!(
        "{:17} workers    ns/op  speed-up   steals  searches failed CAS  wake-ups  longest wait",
        workload.name
    );
    let (mut alone, run) = (None, workload.run);
    let mut last: Option<Figures> = None;
    for workers in WORKERS {
        let figures = Model::new(machine, costs).workers(workers).run(move || run(size))?;
        let elapsed = figures.elapsed.as_secs_f64();
        let speed_up = *alone.get_or_insert(elapsed) / elapsed;
        println!(
            "{:24} {:8.1} {:9.2} {:8} {:9} {:10} {:9} {:>13}",
            workers,
            nanoseconds(figures.elapsed) / (workload.count)(size) as f64,
            speed_up,
            figures.steals,
            figures.searches,
            figures.failed_swaps(),
            figures.wake_ups,
            format!("{:.1?}", figures.longest_wait),
        );
        last = Some(figures);
    }
    if let Some(figures) = last {
        let all = figures.elapsed.as_secs_f64() * WORKERS[WORKERS.len() - 1] as f64;
        let parts = figures.lines.iter().take(4).map(|line| {
            let part = (line.moving + line.waiting).as_secs_f64() / all * 100.0;
            format!("{} {part:.1}%", line.name)
        });
        println!("  of the time at 64: {}\n", parts.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}
