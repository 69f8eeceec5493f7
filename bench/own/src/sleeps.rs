//! The workloads of sleeping.

use std::time::Duration;

use fastrand::Rng;

use super::meter::{cpu_time, now};
use super::rt;
use super::workload::{
    Failed, Outcome, SLEEP_50US_COUNT, Scale, TIMERS_FIRE_COUNT, TIMERS_FIRE_WITHIN_US, check, each,
};

pub(super) async fn fire(scale: Scale) -> Outcome {
    let count = scale.of(TIMERS_FIRE_COUNT);
    let within = scale.of(TIMERS_FIRE_WITHIN_US);
    let mut rng = Rng::with_seed(0);
    let mut longest = 0;
    let mut sleepers = Vec::with_capacity(count as usize);
    let start = now();
    let cpu = cpu_time();
    for _ in 0..count {
        let duration = rng.u64(0..within);
        longest = longest.max(duration);
        sleepers.push(rt::spawn(rt::sleep(Duration::from_micros(duration))));
    }
    let mut joined = 0;
    for sleeper in sleepers {
        sleeper.await?;
        joined += 1;
    }
    let outcome = vec![each(start, count), (cpu_time() - cpu).as_nanos() as f64 / count as f64];
    check("the sleepers joined", count, joined)?;
    if start.elapsed() < Duration::from_micros(longest) {
        return Err(Failed::Early);
    }
    Ok(outcome)
}

pub(super) async fn sleep_50us(scale: Scale) -> Outcome {
    let asked = Duration::from_micros(50);
    let mut slept = Vec::new();
    for _ in 0..scale.of(SLEEP_50US_COUNT) {
        let start = now();
        rt::sleep(asked).await;
        slept.push(start.elapsed());
    }
    slept.sort_unstable();
    if slept[0] < asked {
        return Err(Failed::Early);
    }
    Ok(vec![slept[slept.len() / 2].as_nanos() as f64 / 1000.0])
}
