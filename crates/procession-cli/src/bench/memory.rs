//! The memory of processes that wait.

use procession::Context;

use super::latch::Latch;
use super::meter::resident;
use super::workload::{IDLE_MEM_PROCESSES, Outcome, Scale};

/// What a fresh program is started with, to do [`idle`].
pub(super) fn arguments(scale: Scale) -> Vec<&'static str> {
    arguments_for("--idle-memory-here", scale)
}

/// What a fresh program is started with, to measure what `flag` says.
pub(super) fn arguments_for(flag: &'static str, scale: Scale) -> Vec<&'static str> {
    let mut arguments = vec!["bench", flag];
    if scale == Scale::Tiny {
        arguments.push("--tiny");
    }
    arguments
}

/// Includes what its owner pays to keep each address.
pub(super) async fn idle(scale: Scale) -> Outcome {
    static LEFT: Latch = Latch::new();
    let count = scale.of(IDLE_MEM_PROCESSES);
    LEFT.set(count);
    let before = resident()?;
    let mut addresses = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let process = |mut cx: Context<()>| async move {
            LEFT.count_down();
            if cx.receive().await.is_some() {
                LEFT.count_down();
            }
        };
        let (address, handle) = procession::start(process).into_parts();
        drop(handle);
        addresses.push(address);
    }
    LEFT.wait().await;
    let after = resident()?;
    // They were all there, waiting.
    LEFT.set(count);
    for address in addresses {
        address.send(())?;
    }
    LEFT.wait().await;
    Ok(vec![after.saturating_sub(before) as f64 / count as f64])
}
