//! The workloads of memory: what waiting tasks take.

use tokio::sync::mpsc;

use crate::latch::Latch;
use crate::meter::{now, resident};
use crate::workload::{
    IDLE_MEM_PROCESSES, Outcome, POPULATION_AT_ONCE, POPULATION_LEFT, POPULATION_MESSAGES,
    POPULATION_PAUSE, POPULATION_SEED, POPULATIONS, Scale, each,
};

/// Returns the arguments with which a fresh program runs [`idle`].
pub(crate) fn arguments(scale: Scale) -> Vec<&'static str> {
    arguments_for("--idle-memory-here", scale)
}

/// Returns the arguments with which a fresh program runs the measurement of `flag`.
pub(crate) fn arguments_for(flag: &'static str, scale: Scale) -> Vec<&'static str> {
    let mut arguments = vec![flag];
    if scale == Scale::Tiny {
        arguments.push("--tiny");
    }
    arguments
}

/// The memory includes the senders that their owner keeps.
pub(crate) async fn idle(scale: Scale) -> Outcome {
    static LEFT: Latch = Latch::new();
    let count = scale.of(IDLE_MEM_PROCESSES);
    LEFT.set(count);
    let before = resident()?;
    let mut addresses = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (address, mut mailbox) = mpsc::unbounded_channel();
        drop(tokio::spawn(async move {
            LEFT.count_down();
            if mailbox.recv().await.is_some() {
                LEFT.count_down();
            }
        }));
        addresses.push(address);
    }
    LEFT.wait().await;
    let after = resident()?;
    // All of them exist, and wait.
    LEFT.set(count);
    for address in addresses {
        address.send(())?;
    }
    LEFT.wait().await;
    Ok(vec![after.saturating_sub(before) as f64 / count as f64])
}

/// Measures populations of different sizes. Each task counts down at every message, and ends at the
/// last.
pub(crate) async fn population(scale: Scale) -> Outcome {
    static LEFT: Latch = Latch::new();
    let mut figures = Vec::new();
    let mut left = 0.0;
    for population in POPULATIONS {
        let count = scale.of(population).max(POPULATIONS[0]);
        let before = resident()?;
        LEFT.set(count);
        let mut addresses = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (address, mut mailbox) = mpsc::unbounded_channel::<bool>();
            drop(tokio::spawn(async move {
                LEFT.count_down();
                while let Some(goes_on) = mailbox.recv().await {
                    LEFT.count_down();
                    if !goes_on {
                        break;
                    }
                }
            }));
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
            tokio::time::sleep(POPULATION_PAUSE).await;
            left = resident()?.saturating_sub(before) as f64 / count as f64;
        }
    }
    figures.push(left);
    Ok(figures)
}
