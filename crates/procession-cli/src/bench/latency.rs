//! The workloads of latency: the time until something runs, on an idle runtime and on a loaded one.

use std::time::{Duration, Instant};

use procession::{Context, Scheduler};

use super::meter::{block, compute, now};
use super::pauses::Pauses;
use super::workload::{
    Failed, LOAD_PAUSES, LOAD_REQUEST, LOAD_REQUESTS, Outcome, Scale, WAKE_COUNT, WAKE_PAUSE,
    percentiles,
};

pub(super) fn wake(scheduler: &Scheduler, scale: Scale) -> Outcome {
    let count = scale.of(WAKE_COUNT);
    let sleeper = scheduler.start(move |mut cx: Context<Instant>| async move {
        let mut waits = Vec::new();
        for _ in 0..count {
            waits.extend(cx.recv().await.map(|sent| sent.elapsed()));
        }
        waits
    });
    for _ in 0..count {
        block(WAKE_PAUSE);
        sleeper.send(now())?;
    }
    Ok(percentiles(sleeper.join()?, [500, 990, 999]).to_vec())
}

pub(super) fn load(scheduler: &Scheduler, scale: Scale) -> Outcome {
    let mut figures = Vec::new();
    for pause in LOAD_PAUSES {
        let mut requests = Vec::new();
        let mut pauses = Pauses::begin(pause, now());
        for _ in 0..scale.of(LOAD_REQUESTS) {
            block(pauses.next().saturating_duration_since(now()));
            let start = now();
            requests.push(scheduler.spawn(async move {
                compute(LOAD_REQUEST);
                start.elapsed()
            }));
        }
        let waits = requests
            .into_iter()
            .map(|request| request.join())
            .collect::<Result<Vec<Duration>, _>>();
        figures.extend(percentiles(waits.map_err(Failed::from)?, [500, 990, 999]));
    }
    Ok(figures)
}
