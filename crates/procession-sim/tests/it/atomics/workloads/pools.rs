//! Workloads about pools.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use procession::pool::{Pool, PoolStats};
use procession_sim::Sim;
use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::Ordering::Relaxed;

use super::{MICROSECOND, bound, scheduler, shut_down};

/// A job ends only after another one, which waits for a place until the pool is larger.
pub(super) async fn larger_pools(sim: &Sim) {
    sim.heal();
    for _ in 0..6 {
        let pool = Pool::builder().capacity(1).build().expect("it is in range");
        let has_run = Arc::new(AtomicBool::new(false));
        let (own, seen) = (sim.clone(), Arc::clone(&has_run));
        let waits = move || {
            for _ in 0..5000 {
                if seen.load(Relaxed) {
                    break;
                }
                own.block(Duration::from_millis(1));
            }
        };
        let Ok(first) = pool.submit(waits) else {
            return sim.always("no job is refused", false);
        };
        let second = sim.spawn({
            let (pool, has_run) = (pool.clone(), Arc::clone(&has_run));
            async move {
                if let Ok(place) = pool.reserve().await
                    && let Ok(runs) = place.submit(move || has_run.store(true, Relaxed))
                {
                    drop(runs.await);
                }
            }
        });
        procession::sleep(5 * sim.choose(0..4) as u32 * MICROSECOND).await;
        pool.resize(2).expect("it is in range");
        let is_in_time = procession::timeout(Duration::from_secs(2), second).await.is_ok();
        sim.always("a larger pool lets a waiter in", is_in_time && has_run.load(Relaxed));
        drop(first.await);
    }
}

/// Two processes submit jobs to a pool and cancel some jobs, while its threads become idle and end.
/// Each job that was taken ends, whether it runs or not.
pub(super) async fn busy_pools(sim: &Sim) {
    sim.heal();
    for _ in 0..3 {
        let capacity = sim.choose(1..3) as usize;
        let pool = Pool::builder().capacity(capacity).keep_alive(40 * MICROSECOND);
        let pool = pool.build().expect("it is in range");
        let givers = [(); 2].map(|()| {
            let (pool, own) = (pool.clone(), sim.clone());
            sim.spawn(async move {
                for _ in 0..6 {
                    procession::sleep(10 * own.choose(0..6) as u32 * MICROSECOND).await;
                    let has_run = Arc::new(AtomicBool::new(false));
                    let (runs, works) = (Arc::clone(&has_run), own.clone());
                    let length = 10 * own.choose(0..3) as u32 * MICROSECOND;
                    let job = pool.submit(move || {
                        works.block(length);
                        runs.store(true, Relaxed);
                    });
                    let Ok(job) = job else { return false };
                    let is_cancelled = own.choose(0..3) == 0 && job.cancel();
                    let limit = Duration::from_secs(10);
                    let Ok(end) = procession::timeout(limit, job).await else { return false };
                    let is_cancelled = is_cancelled && end.is_err();
                    if is_cancelled == has_run.load(Relaxed) {
                        return false;
                    }
                }
                true
            })
        });
        for giver in givers {
            let is_right = giver.await.expect("it ends");
            sim.always("a job runs, or it was cancelled", is_right);
        }
    }
}

/// Returns `true` if a job ends before long.
async fn ends<F: IntoFuture>(job: F) -> bool {
    procession::timeout(Duration::from_secs(10), job).await.is_ok()
}

/// Checks the equations that always hold for the numbers of a pool.
fn always_adds_up(sim: &Sim, stats: PoolStats) {
    let ended = stats.completed + stats.panicked + stats.cancelled;
    let others = stats.queued + stats.busy + stats.inline;
    sim.always("each job is counted once", stats.submitted == ended + others as u64);
    let is_each_counted = stats.live == stats.busy + stats.idle;
    sim.always("each worker is counted once", is_each_counted);
}

/// A job is submitted at the moment at which the previous job ends, which has the same key or the
/// only worker. It runs, or is cancelled before.
pub(super) async fn next_jobs(sim: &Sim) {
    sim.heal();
    for _ in 0..12 {
        let has_key = sim.choose(0..2) == 1;
        let pool = Pool::builder().capacity(1 + usize::from(has_key));
        let pool = pool.build().expect("it is in range");
        let (own, length) = (sim.clone(), 5 * sim.choose(1..6) as u32 * MICROSECOND);
        let first = pool.job(move || own.block(length));
        let first = if has_key { first.key("the only one") } else { first };
        let Ok(first) = first.submit() else { return };
        let is_queued = sim.choose(0..2) == 1;
        if !is_queued {
            sim.compute(5 * sim.choose(1..8) as u32 * MICROSECOND);
        }
        let has_run = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&has_run);
        let second = pool.job(move || runs.store(true, Relaxed));
        let second = if has_key { second.key("the only one") } else { second };
        let Ok(second) = second.submit() else { return };
        let mut is_cancelled = false;
        if is_queued {
            sim.compute(5 * sim.choose(1..8) as u32 * MICROSECOND);
            is_cancelled = second.cancel();
        }
        sim.always("the first job ends", ends(first).await);
        sim.always("the job after it ends", ends(second).await);
        sim.always("a job runs, or it was cancelled", has_run.load(Relaxed) != is_cancelled);
        pool.close();
        sim.always("a closed pool ends", ends(pool.ended()).await);
        always_adds_up(sim, pool.stats());
    }
}

/// A job is submitted at the moment at which the only worker of its pool has rested for long
/// enough.
pub(super) async fn rests(sim: &Sim) {
    sim.heal();
    let Some(other) = scheduler(2, 2) else { return };
    let pool = Pool::builder().capacity(1).keep_alive(20 * MICROSECOND);
    let pool = pool.on(&other).build_async().expect("it is in range");
    let own = sim.clone();
    let gives = bound(&other, 1).spawn(async move {
        for _ in 0..24 {
            let Ok(job) = pool.submit(async {}).await else { return };
            own.always("a job ends", ends(job).await);
            always_adds_up(&own, pool.stats());
            match own.choose(0..2) {
                0 => own.compute(5 * own.choose(2..7) as u32 * MICROSECOND),
                _ => procession::sleep(5 * own.choose(2..7) as u32 * MICROSECOND).await,
            }
        }
    });
    gives.await.expect("it ends");
    shut_down(sim, &other).await;
}

/// A pool is closed while others give it jobs. What it takes runs.
pub(super) async fn closed_pools(sim: &Sim) {
    sim.heal();
    for _ in 0..8 {
        let pool = Pool::builder().capacity(1).build().expect("it is in range");
        let givers = [(); 2].map(|()| {
            let (pool, own) = (pool.clone(), sim.clone());
            sim.spawn(async move {
                procession::sleep(5 * own.choose(0..3) as u32 * MICROSECOND).await;
                let Ok(job) = pool.submit(|| ()) else { return true };
                let ended = procession::timeout(Duration::from_secs(10), job).await;
                matches!(ended, Ok(Ok(())))
            })
        });
        procession::sleep(5 * sim.choose(0..3) as u32 * MICROSECOND).await;
        pool.close();
        let taken = pool.stats().submitted;
        let ended = procession::timeout(Duration::from_secs(10), pool.ended()).await;
        sim.always("a closed pool ends", ended.is_ok());
        for giver in givers {
            sim.always("a job that was taken runs", giver.await.expect("it ends"));
        }
        sim.always("a closed pool takes no job", pool.stats().submitted == taken);
    }
}
