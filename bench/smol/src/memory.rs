//! The workloads of memory: what waiting tasks take.

use smol::channel;

use crate::latch::Latch;
use crate::meter::resident;
use crate::rt;
use crate::workload::{IDLE_MEM_PROCESSES, Outcome, Scale};

/// Returns the arguments with which a fresh program runs [`idle`].
pub(crate) fn arguments(scale: Scale) -> Vec<&'static str> {
    let mut arguments = vec!["--idle-memory-here"];
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
        let (address, mailbox) = channel::unbounded();
        let waits = rt::spawn(async move {
            LEFT.count_down();
            if mailbox.recv().await.is_ok() {
                LEFT.count_down();
            }
        });
        rt::detach(waits);
        addresses.push(address);
    }
    LEFT.wait().await;
    let after = resident()?;
    // All of them exist, and wait.
    LEFT.set(count);
    for address in addresses {
        address.try_send(())?;
    }
    LEFT.wait().await;
    Ok(vec![after.saturating_sub(before) as f64 / count as f64])
}
