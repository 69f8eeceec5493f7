//! The workloads of rescues: the delay of work beside steps that block, and the wake-ups of an idle
//! runtime.

use std::sync::mpsc;

use super::meter::{block, compute, now, sleeps_of_others};
use super::rt;
use super::workload::{
    BLOCK, Failed, IDLE_WAKES_PROCESSES, IDLE_WAKES_REST, IDLE_WAKES_WATCHED, MIXED_BLOCKS_EVERY,
    MIXED_CLIENTS, MIXED_REQUESTS, MIXED_SHORT, Outcome, RESCUE_COUNT, Scale, check, microseconds,
    middle_and_worst, percentiles,
};

pub(super) fn rescue(scale: Scale) -> Outcome {
    let runtime = rt::runtime(1)?;
    let mut figures = Vec::new();
    for declared in [false, true] {
        let mut waits = Vec::new();
        for _ in 0..scale.of(RESCUE_COUNT) {
            let (tells, told) = mpsc::sync_channel(1);
            let blocks = runtime.spawn(async move {
                let start = now();
                drop(rt::spawn(async move { tells.send(start.elapsed()) }));
                if declared { rt::blocking(|| block(BLOCK)) } else { block(BLOCK) }
            });
            waits.push(told.recv().map_err(Failed::error)?);
            rt::join(&runtime, blocks)?;
        }
        figures.extend(middle_and_worst(waits));
    }
    Ok(figures)
}

pub(super) async fn mixed(scale: Scale) -> Outcome {
    let start = now();
    let each = scale.of(MIXED_REQUESTS) / MIXED_CLIENTS;
    let client = |client| async move {
        let mut waits = Vec::new();
        for request in 0..each {
            let start = now();
            let blocks = (client + request) % MIXED_BLOCKS_EVERY == 0;
            rt::spawn(async move { if blocks { block(BLOCK) } else { compute(MIXED_SHORT) } })
                .await?;
            if !blocks {
                waits.push(start.elapsed());
            }
        }
        Ok::<_, Failed>(waits)
    };
    let clients: Vec<_> = (0..MIXED_CLIENTS).map(|number| rt::spawn(client(number))).collect();
    let mut waits = Vec::new();
    for client in clients {
        waits.extend(client.await??);
    }
    let requests = each * MIXED_CLIENTS;
    Ok(vec![microseconds(start.elapsed()) / requests as f64, percentiles(waits, [990])[0]])
}

pub(super) fn idle_wakes(scale: Scale) -> Outcome {
    let runtime = rt::runtime(2)?;
    let count = scale.of(IDLE_WAKES_PROCESSES);
    for _ in 0..count {
        drop(runtime.spawn(async { rt::sleep(std::time::Duration::from_secs(3600)).await }));
    }
    block(IDLE_WAKES_REST);
    let before = sleeps_of_others()?;
    block(IDLE_WAKES_WATCHED);
    let sleeps = sleeps_of_others()? - before;
    check("the sleepers", count, rt::alive(&runtime))?;
    Ok(vec![sleeps as f64 / IDLE_WAKES_WATCHED.as_secs_f64()])
}
