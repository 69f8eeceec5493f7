//! The workloads of timers that are set, cancelled, fired and reset.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;
use tokio::task;
use tokio::time::{self, Instant, MissedTickBehavior, Sleep};

use crate::latch::Latch;
use crate::meter::{cpu_time, now};
use crate::workload::{
    Failed, Outcome, SLEEP_50US_COUNT, Scale, TIMER_BEHIND_HOG_COMPUTES, TIMER_BEHIND_HOG_PERIOD,
    TIMER_BEHIND_HOG_TICKS, TIMERS_BETWEEN_YIELDS, TIMERS_CANCEL_AFTER_MS, TIMERS_CANCEL_COUNT,
    TIMERS_CANCEL_DELAYED, TIMERS_CANCEL_LIVE, TIMERS_CANCEL_PROCESSES, TIMERS_FIRE_COUNT,
    TIMERS_FIRE_WITHIN_US, TIMERS_RESET_AFTER, TIMERS_RESET_COUNT, check, each,
};

/// Polls a sleep once, which sets its timer. Returns `true` if the sleep is pending.
async fn poll_once(sleep: &mut Pin<Box<Sleep>>) -> bool {
    poll_fn(|task| Poll::Ready(sleep.as_mut().poll(task).is_pending())).await
}

async fn arm(rng: &mut Rng) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(time::sleep(Duration::from_millis(rng.u64(TIMERS_CANCEL_AFTER_MS))));
    poll_once(&mut sleep).await;
    sleep
}

pub(crate) async fn cancel(scale: Scale) -> Outcome {
    static TO_BE_READY: Latch = Latch::new();
    TO_BE_READY.set(TIMERS_CANCEL_PROCESSES);
    let tasks: Vec<_> = (0..TIMERS_CANCEL_PROCESSES)
        .map(|seed| tokio::spawn(arm_and_cancel(seed, scale, &TO_BE_READY)))
        .collect();
    let mut sum = 0.0;
    for task in tasks {
        sum += task.await?;
    }
    Ok(vec![sum / TIMERS_CANCEL_PROCESSES as f64])
}

async fn arm_and_cancel(seed: u64, scale: Scale, to_be_ready: &Latch) -> f64 {
    let mut rng = Rng::with_seed(seed);
    let mut live = Vec::new();
    for number in 0..scale.of(TIMERS_CANCEL_LIVE) {
        live.push(arm(&mut rng).await);
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            task::yield_now().await;
        }
    }
    to_be_ready.count_down();
    while !to_be_ready.is_open() {
        task::yield_now().await;
    }
    let count = scale.of(TIMERS_CANCEL_COUNT);
    let mut recent = VecDeque::with_capacity(TIMERS_CANCEL_DELAYED + 1);
    let start = now();
    for number in 0..count {
        recent.push_back(arm(&mut rng).await);
        if recent.len() > TIMERS_CANCEL_DELAYED {
            recent.pop_front();
        }
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            task::yield_now().await;
        }
    }
    each(start, count)
}

pub(crate) async fn fire(scale: Scale) -> Outcome {
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
        sleepers.push(tokio::spawn(time::sleep(Duration::from_micros(duration))));
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

pub(crate) async fn sleep_50us(scale: Scale) -> Outcome {
    let asked = Duration::from_micros(50);
    let mut slept = Vec::new();
    for _ in 0..scale.of(SLEEP_50US_COUNT) {
        let start = now();
        tokio::time::sleep(asked).await;
        slept.push(start.elapsed());
    }
    slept.sort_unstable();
    if slept[0] < asked {
        return Err(Failed::Early);
    }
    Ok(vec![slept[slept.len() / 2].as_nanos() as f64 / 1000.0])
}

pub(crate) async fn behind_hog(scale: Scale) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let hog = tokio::spawn(async move {
        // Relaxed: the task stops a little later.
        while !stopped.load(Relaxed) {
            let start = now();
            while start.elapsed() < TIMER_BEHIND_HOG_COMPUTES {
                std::hint::spin_loop();
            }
            tokio::time::sleep(TIMER_BEHIND_HOG_PERIOD).await;
        }
    });
    let ticks = tokio::spawn(async move {
        let mut ticks = tokio::time::interval_at(
            Instant::now() + TIMER_BEHIND_HOG_PERIOD,
            TIMER_BEHIND_HOG_PERIOD,
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut late = Vec::new();
        for _ in 0..scale.of(TIMER_BEHIND_HOG_TICKS) {
            let due = ticks.tick().await;
            late.push((Instant::now() - due).as_nanos() as f64 / 1000.0);
        }
        late
    });
    let late = ticks.await?;
    stop.store(true, Relaxed);
    hog.await?;
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    Ok(vec![mean, late.into_iter().fold(0.0, f64::max)])
}

pub(crate) async fn reset(scale: Scale) -> Outcome {
    let count = scale.of(TIMERS_RESET_COUNT);
    let mut sleep = Box::pin(time::sleep(TIMERS_RESET_AFTER));
    let mut pending = 0;
    let start = now();
    for number in 0..count {
        sleep.as_mut().reset(Instant::now() + TIMERS_RESET_AFTER);
        pending += u64::from(poll_once(&mut sleep).await);
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            task::yield_now().await;
        }
    }
    let outcome = vec![each(start, count)];
    check("the polls before the deadline that found it pending", count, pending)?;
    Ok(outcome)
}
