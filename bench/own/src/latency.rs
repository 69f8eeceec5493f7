//! The workload of latency: the time that requests take under load.

use std::time::Duration;

use super::meter::{block, compute, now};
use super::pauses::Pauses;
use super::rt::{self, Runtime};
use super::workload::{LOAD_PAUSES, LOAD_REQUEST, LOAD_REQUESTS, Outcome, Scale, percentiles};

pub(super) fn load(runtime: &Runtime, scale: Scale) -> Outcome {
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
            waits.push(rt::join(runtime, request)?);
        }
        figures.extend(percentiles(waits, [500, 990, 999]));
    }
    Ok(figures)
}
