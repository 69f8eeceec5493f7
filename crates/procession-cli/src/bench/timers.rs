//! The workloads of timers that are set, cancelled, fired and reset.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use procession::Scheduler;
use procession::time::{Instant, Sleep};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::inside;
use super::latch::Latch;
use super::meter::{cpu_time, now};
use super::workload::{
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
    let mut sleep =
        Box::pin(procession::sleep(Duration::from_millis(rng.u64(TIMERS_CANCEL_AFTER_MS))));
    poll_once(&mut sleep).await;
    sleep
}

pub(super) fn cancel(scheduler: &Scheduler, scale: Scale) -> Outcome {
    let before = scheduler.snapshot().timers;
    let outcome = inside(scheduler, cancel_in_parallel(scale))?;
    let after = scheduler.snapshot().timers;
    let count =
        TIMERS_CANCEL_PROCESSES * (scale.of(TIMERS_CANCEL_LIVE) + scale.of(TIMERS_CANCEL_COUNT));
    check("the timers set", count, after.armed - before.armed)?;
    check(
        "the timers cancelled or fired",
        count,
        after.cancelled + after.fired - before.cancelled - before.fired,
    )?;
    Ok(outcome)
}

async fn cancel_in_parallel(scale: Scale) -> Outcome {
    static TO_BE_READY: Latch = Latch::new();
    TO_BE_READY.set(TIMERS_CANCEL_PROCESSES);
    let processes: Vec<_> = (0..TIMERS_CANCEL_PROCESSES)
        .map(|seed| procession::spawn(arm_and_cancel(seed, scale, &TO_BE_READY)))
        .collect();
    let mut sum = 0.0;
    for process in processes {
        sum += process.await?;
    }
    Ok(vec![sum / TIMERS_CANCEL_PROCESSES as f64])
}

async fn arm_and_cancel(seed: u64, scale: Scale, to_be_ready: &Latch) -> f64 {
    let mut rng = Rng::with_seed(seed);
    let mut live = Vec::new();
    for number in 0..scale.of(TIMERS_CANCEL_LIVE) {
        live.push(arm(&mut rng).await);
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            procession::yield_now().await;
        }
    }
    to_be_ready.count_down();
    while !to_be_ready.is_open() {
        procession::yield_now().await;
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
            procession::yield_now().await;
        }
    }
    each(start, count)
}

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
        sleepers.push(procession::spawn(procession::sleep(Duration::from_micros(duration))));
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
        procession::sleep(asked).await;
        slept.push(start.elapsed());
    }
    slept.sort_unstable();
    if slept[0] < asked {
        return Err(Failed::Early);
    }
    Ok(vec![slept[slept.len() / 2].as_nanos() as f64 / 1000.0])
}

pub(super) async fn behind_hog(scale: Scale) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let hog = procession::spawn(async move {
        // Relaxed: the process stops a little later.
        while !stopped.load(Relaxed) {
            let start = now();
            while start.elapsed() < TIMER_BEHIND_HOG_COMPUTES {
                std::hint::spin_loop();
            }
            procession::sleep(TIMER_BEHIND_HOG_PERIOD).await;
        }
    });
    let ticks = procession::spawn(async move {
        let mut ticks = procession::interval(TIMER_BEHIND_HOG_PERIOD);
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

pub(super) async fn reset(scale: Scale) -> Outcome {
    let count = scale.of(TIMERS_RESET_COUNT);
    let mut sleep = Box::pin(procession::sleep(TIMERS_RESET_AFTER));
    let mut pending = 0;
    let start = now();
    for number in 0..count {
        sleep.as_mut().reset(Instant::now() + TIMERS_RESET_AFTER);
        pending += u64::from(poll_once(&mut sleep).await);
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            procession::yield_now().await;
        }
    }
    let outcome = vec![each(start, count)];
    check("the polls before the deadline that found it pending", count, pending)?;
    Ok(outcome)
}
