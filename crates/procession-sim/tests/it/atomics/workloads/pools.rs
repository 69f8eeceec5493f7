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
