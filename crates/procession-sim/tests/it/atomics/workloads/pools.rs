//! Workloads about pools.

use std::sync::Arc;
use std::time::Duration;

use procession::pool::Pool;
use procession_sim::Sim;
use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::Ordering::Relaxed;

use super::MICROSECOND;

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

/// Two processes give jobs to a pool and cancel some of them, while its threads become idle and
/// end. Each job that was taken ends, whether it runs or not.
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
        let ended = procession::timeout(Duration::from_secs(10), pool.ended()).await;
        sim.always("a closed pool ends", ended.is_ok());
        for giver in givers {
            sim.always("a job that was taken runs", giver.await.expect("it ends"));
        }
    }
}
