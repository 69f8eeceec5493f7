//! The workloads of timers: setting, cancelling, lateness and resetting.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::latch::Latch;
use super::meter::now;
use super::rt::{self, Instant, Sleep};
use super::workload::{
    Outcome, Scale, TIMER_BEHIND_HOG_COMPUTES, TIMER_BEHIND_HOG_PERIOD, TIMER_BEHIND_HOG_TICKS,
    TIMERS_BETWEEN_YIELDS, TIMERS_CANCEL_AFTER_MS, TIMERS_CANCEL_COUNT, TIMERS_CANCEL_DELAYED,
    TIMERS_CANCEL_LIVE, TIMERS_CANCEL_PROCESSES, TIMERS_RESET_AFTER, TIMERS_RESET_COUNT, check,
    each,
};

/// Polls a sleep once, which sets its timer. Returns `true` if the sleep is pending.
async fn poll_once(sleep: &mut Pin<Box<Sleep>>) -> bool {
    poll_fn(|task| Poll::Ready(sleep.as_mut().poll(task).is_pending())).await
}

async fn arm(rng: &mut Rng) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(rt::sleep(Duration::from_millis(rng.u64(TIMERS_CANCEL_AFTER_MS))));
    poll_once(&mut sleep).await;
    sleep
}

/// Measures twice: first in the form that is the fastest on this runtime, then with yields.
pub(super) async fn cancel(scale: Scale) -> Outcome {
    let mut figures = Vec::new();
    for yields in rt::CANCEL_YIELDS {
        static TO_BE_READY: Latch = Latch::new();
        TO_BE_READY.set(TIMERS_CANCEL_PROCESSES);
        let processes: Vec<_> = (0..TIMERS_CANCEL_PROCESSES)
            .map(|seed| {
                rt::spawn(rt::unconstrained(arm_and_cancel(seed, scale, &TO_BE_READY, yields)))
            })
            .collect();
        let mut sum = 0.0;
        for process in processes {
            sum += process.await?;
        }
        figures.push(sum / TIMERS_CANCEL_PROCESSES as f64);
    }
    Ok(figures)
}

async fn arm_and_cancel(seed: u64, scale: Scale, to_be_ready: &Latch, yields: bool) -> f64 {
    let mut rng = Rng::with_seed(seed);
    let mut live = Vec::new();
    for number in 0..scale.of(TIMERS_CANCEL_LIVE) {
        live.push(arm(&mut rng).await);
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            rt::yield_now().await;
        }
    }
    to_be_ready.count_down();
    while !to_be_ready.is_open() {
        rt::yield_now().await;
    }
    let count = scale.of(TIMERS_CANCEL_COUNT);
    let mut recent = VecDeque::with_capacity(TIMERS_CANCEL_DELAYED + 1);
    let start = now();
    for number in 0..count {
        recent.push_back(arm(&mut rng).await);
        if recent.len() > TIMERS_CANCEL_DELAYED {
            recent.pop_front();
        }
        if yields && number % TIMERS_BETWEEN_YIELDS == 0 {
            rt::yield_now().await;
        }
    }
    each(start, count)
}

pub(super) async fn behind_hog(scale: Scale) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let hog = rt::spawn(async move {
        // Relaxed: the loop may stop a little later.
        while !stopped.load(Relaxed) {
            let start = now();
            while start.elapsed() < TIMER_BEHIND_HOG_COMPUTES {
                std::hint::spin_loop();
            }
            rt::sleep(TIMER_BEHIND_HOG_PERIOD).await;
        }
    });
    let ticks = rt::spawn(async move {
        let mut ticks = rt::ticks(TIMER_BEHIND_HOG_PERIOD);
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
    let mut sleep = Box::pin(rt::sleep(TIMERS_RESET_AFTER));
    let mut pending = 0;
    let start = now();
    for number in 0..count {
        sleep.as_mut().reset(Instant::now() + TIMERS_RESET_AFTER);
        pending += u64::from(poll_once(&mut sleep).await);
        if number % TIMERS_BETWEEN_YIELDS == 0 {
            rt::yield_now().await;
        }
    }
    let outcome = vec![each(start, count)];
    check("the polls before the deadline that found it pending", count, pending)?;
    Ok(outcome)
}
