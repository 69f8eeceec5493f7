//! The simulation, from the outside.

#[cfg(procession_sim)]
mod atomics;
mod determinism;
mod exchange;
mod faults;
mod found;
mod layers;
mod mutants;
mod net;
mod relations;
mod suspensions;

use std::time::Duration;

use procession::{Context, Reply};
use procession_sim::Sim;

enum Count {
    Add(u64),
    Get(Reply<u64>),
}

/// Counters and senders: messages, sleeps, yields, calls, cancels and joins. Returns the sum.
async fn counters(sim: &Sim, processes: u64, rounds: u64) -> u64 {
    let counters: Vec<_> = (0..processes)
        .map(|_| {
            procession::start(|mut cx: Context<Count>| async move {
                let mut sum = 0;
                while let Some(message) = cx.recv().await {
                    match message {
                        Count::Add(number) => sum += number,
                        Count::Get(reply) => reply.send(sum),
                    }
                }
            })
        })
        .collect();
    let addresses: Vec<_> = counters.iter().map(|counter| counter.address().clone()).collect();
    let senders: Vec<_> = (0..processes)
        .map(|sender| {
            let addresses = addresses.clone();
            sim.spawn(async move {
                for round in 0..rounds {
                    let to = (sender + round * 7) % processes;
                    addresses[to as usize].send(Count::Add(1)).expect("it lives");
                    if round % 8 == 3 {
                        procession::yield_now().await;
                    }
                    if round % 32 == 5 {
                        procession::sleep(Duration::from_micros(50)).await;
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("it ends");
    }
    let mut sum = 0;
    for counter in &counters {
        sum += counter.call(Count::Get, Duration::from_secs(1 << 20)).await.expect("it answers");
    }
    for counter in counters {
        counter.cancel();
        counter.await.expect("it ends");
    }
    sum
}
