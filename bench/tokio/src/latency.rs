//! The workloads of latency: the time until something runs, on an idle runtime and on a loaded one.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::meter::{block, compute, now};
use crate::pauses::Pauses;
use crate::workload::{
    LOAD_PAUSES, LOAD_REQUEST, LOAD_REQUESTS, Outcome, Scale, WAKE_COUNT, WAKE_PAUSE, percentiles,
};

pub(crate) fn wake(runtime: &Runtime, scale: Scale) -> Outcome {
    let count = scale.of(WAKE_COUNT);
    let (address, mut mailbox) = mpsc::unbounded_channel::<Instant>();
    let sleeper = runtime.spawn(async move {
        let mut waits = Vec::new();
        for _ in 0..count {
            waits.extend(mailbox.recv().await.map(|sent| sent.elapsed()));
        }
        waits
    });
    for _ in 0..count {
        block(WAKE_PAUSE);
        address.send(now())?;
    }
    Ok(percentiles(runtime.block_on(sleeper)?, [500, 990, 999]).to_vec())
}

pub(crate) fn load(runtime: &Runtime, scale: Scale) -> Outcome {
    let mut figures = Vec::new();
    for pause in LOAD_PAUSES {
        let mut requests = Vec::new();
        let mut pauses = Pauses::begin(pause, now());
        for _ in 0..scale.of(LOAD_REQUESTS) {
            block(pauses.next().saturating_duration_since(now()));
            let start = now();
            requests.push(runtime.spawn(async move {
                compute(LOAD_REQUEST);
                start.elapsed()
            }));
        }
        let mut waits: Vec<Duration> = Vec::new();
        for request in requests {
            waits.push(runtime.block_on(request)?);
        }
        figures.extend(percentiles(waits, [500, 990, 999]));
    }
    Ok(figures)
}
