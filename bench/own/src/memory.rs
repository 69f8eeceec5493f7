//! The workloads of memory: the memory of waiting processes.

use std::future::pending;

use procession::mailbox::Event;
use procession::{Context, Exit, SpawnOptions};

use super::latch::Latch;
use super::meter::{now, resident};
use super::workload::{
    DOWNS_AGAIN, DOWNS_PAUSE, DOWNS_PROCESSES, Failed, IDLE_MEM_PROCESSES, Outcome,
    POPULATION_AT_ONCE, POPULATION_LEFT, POPULATION_MESSAGES, POPULATION_PAUSE, POPULATION_SEED,
    POPULATIONS, Scale, check, each,
};

/// Returns the arguments with which a fresh program runs [`idle`].
pub(super) fn arguments(scale: Scale) -> Vec<&'static str> {
    arguments_for("--idle-memory-here", scale)
}

/// Returns the arguments with which a fresh program runs the measurement of `flag`.
pub(super) fn arguments_for(flag: &'static str, scale: Scale) -> Vec<&'static str> {
    let mut arguments = vec![flag];
    if scale == Scale::Tiny {
        arguments.push("--tiny");
    }
    arguments
}

/// Measures waiting processes. The memory includes the addresses that their owner keeps.
pub(super) async fn idle(scale: Scale) -> Outcome {
    static LEFT: Latch = Latch::new();
    let count = scale.of(IDLE_MEM_PROCESSES);
    LEFT.set(count);
    let before = resident()?;
    let mut addresses = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let process = |mut cx: Context<()>| async move {
            LEFT.count_down();
            if cx.recv().await.is_some() {
                LEFT.count_down();
            }
        };
        let (address, handle) = procession::start(process).into_parts();
        drop(handle);
        addresses.push(address);
    }
    LEFT.wait().await;
    let after = resident()?;
    // All processes exist, and wait.
    LEFT.set(count);
    for address in addresses {
        address.send(())?;
    }
    LEFT.wait().await;
    Ok(vec![after.saturating_sub(before) as f64 / count as f64])
}

/// Measures populations of different sizes. Each process counts down at every message, and ends at
/// the last.
pub(super) async fn population(scale: Scale) -> Outcome {
    static LEFT: Latch = Latch::new();
    let mut figures = Vec::new();
    let mut left = 0.0;
    for population in POPULATIONS {
        let count = scale.of(population).max(POPULATIONS[0]);
        let before = resident()?;
        LEFT.set(count);
        let mut addresses = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let process = |mut cx: Context<bool>| async move {
                LEFT.count_down();
                while let Some(goes_on) = cx.recv().await {
                    LEFT.count_down();
                    if !goes_on {
                        break;
                    }
                }
            };
            let (address, handle) = procession::start(process).into_parts();
            drop(handle);
            addresses.push(address);
        }
        LEFT.wait().await;
        let mut generator = fastrand::Rng::with_seed(POPULATION_SEED);
        let batches = scale.of(POPULATION_MESSAGES).div_ceil(POPULATION_AT_ONCE);
        let start = now();
        for _ in 0..batches {
            LEFT.set(POPULATION_AT_ONCE);
            for _ in 0..POPULATION_AT_ONCE {
                addresses[generator.usize(..addresses.len())].send(true)?;
            }
            LEFT.wait().await;
        }
        figures.push(each(start, batches * POPULATION_AT_ONCE));
        LEFT.set(count);
        for address in addresses {
            address.send(false)?;
        }
        LEFT.wait().await;
        if population == POPULATION_LEFT {
            procession::sleep(POPULATION_PAUSE).await;
            left = resident()?.saturating_sub(before) as f64 / count as f64;
        }
    }
    figures.push(left);
    Ok(figures)
}

/// Kills a population several times. Memory that is kept after the first time is reused later,
/// unless it is lost. The reported time is that of the last.
pub(super) async fn downs(scale: Scale) -> Outcome {
    let count = scale.of(DOWNS_PROCESSES);
    let before = resident()?;
    let (_, held) = kill_all(count).await?;
    procession::sleep(DOWNS_PAUSE).await;
    let kept = resident()?;
    let mut time = 0.0;
    for _ in 0..DOWNS_AGAIN {
        (time, _) = kill_all(count).await?;
    }
    procession::sleep(DOWNS_PAUSE).await;
    let lost = resident()?.saturating_sub(kept) / DOWNS_AGAIN;
    let each = |bytes: u64| bytes as f64 / count as f64;
    Ok(vec![time, each(held.saturating_sub(before)), each(kept.saturating_sub(before)), each(lost)])
}

/// Starts a process that monitors all others and kills them. Returns the time for each process
/// until the last down has come, and the memory while all processes existed.
async fn kill_all(count: u64) -> Result<(f64, u64), Failed> {
    static LEFT: Latch = Latch::new();
    let killer = procession::start(move |mut cx: Context<()>| async move {
        LEFT.set(count);
        let mut victims = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let victim = SpawnOptions::new().monitor().start(|mut cx: Context<()>| async move {
                LEFT.count_down();
                cx.recv().await;
                // If this waited for a message only, a terminate in the middle of the first step
                // would let `recv` return, and the process would end by itself.
                pending::<()>().await;
            });
            victims.push(victim.pid());
            drop(victim);
        }
        LEFT.wait().await;
        let held = resident()?;
        let start = now();
        for victim in victims {
            procession::process::kill(victim);
        }
        let mut killed = 0;
        for _ in 0..count {
            if let Some(Event::Down(down)) = cx.recv_event().await {
                killed += u64::from(down.exit == Exit::Killed);
            }
        }
        let time = each(start, count);
        check("processes that were said to be killed", count, killed)?;
        Ok((time, held))
    });
    killer.await?
}
