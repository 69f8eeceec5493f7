//! Writes what the workers did last to a file, which the viewer at <https://ui.perfetto.dev> opens.
//!
//! Look at the arrows: they lead from the step that made a process ready to the step that followed.
//!
//! Usage: `15_flight_recorder [FILE [FILE OF A WINDOW]]`
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::env;
use std::error::Error;
use std::fs::File;
use std::thread;
use std::time::Duration;

use procession::observe::TraceEventKind;
use procession::{Context, Reply, Scheduler, SpawnOptions};

/// A process that adds up, and answers.
async fn teller(mut cx: Context<(u64, Reply<u64>)>) {
    let mut sum = 0;
    while let Some((amount, reply)) = cx.recv().await {
        sum += amount;
        reply.send(sum);
    }
}

/// Customers that call the teller, sleep, and spawn others.
async fn bank(customers: u64) -> u64 {
    let teller = SpawnOptions::new().label("teller").start(teller);
    let each = (1..=customers).map(|amount| {
        let teller = teller.address().clone();
        procession::spawn(async move {
            for _ in 0..20 {
                procession::sleep(Duration::from_micros(amount)).await;
                procession::yield_now().await;
                let balance = teller.call(|reply| (amount, reply), Duration::from_secs(9)).await;
                procession::spawn(async { drop(balance) }).await.expect("it does not panic");
            }
        })
    });
    for customer in each.collect::<Vec<_>>() {
        customer.await.expect("it does not panic");
    }
    teller.call(|reply| (0, reply), Duration::from_secs(9)).await.expect("the teller answers")
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = env::args_os().skip(1);
    let scheduler = Scheduler::builder().name("bank").worker_threads(2).build()?;
    let balance = scheduler.block_on(bank(50));
    assert_eq!(balance, 20 * (1..=50).sum::<u64>());

    let trace = scheduler.dump();
    let steps = trace.events().filter(|event| matches!(event.kind, TraceEventKind::Step(_)));
    println!("{} steps, of {} dispatches", steps.count(), dispatches(&scheduler));
    if let Some(file) = files.next() {
        let processes = scheduler.snapshot().processes.into_iter().map(|process| process.pid);
        trace.with_tracks(processes).write_to(File::create(file)?)?;
    }

    // With exact times, but only from now on.
    let window = thread::scope(|scope| {
        let runs = scope.spawn(|| scheduler.trace(Duration::from_millis(20)));
        scheduler.block_on(bank(50));
        runs.join().expect("it does not panic")
    })?;
    println!("{} bytes of a window", window.to_bytes().len());
    if let Some(file) = files.next() {
        window.write_to(File::create(file)?)?;
    }
    Ok(())
}

fn dispatches(scheduler: &Scheduler) -> u64 {
    scheduler.snapshot().workers.iter().map(|worker| worker.dispatches).sum()
}
