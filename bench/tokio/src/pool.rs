//! The workloads of pools: a semaphore limits the jobs that run at once, as tokio's documentation
//! does for a limit of tasks.

use std::sync::Arc;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use tokio::sync::Semaphore;

use crate::meter::Spent;
use crate::workload::{Failed, Outcome, POOL_JOB, POOL_JOBS, Scale, check};

async fn submit(permits: Arc<Semaphore>, jobs: u64, done: Arc<AtomicU64>) -> Result<(), Failed> {
    for _ in 0..jobs {
        let done = Arc::clone(&done);
        let permit = Arc::clone(&permits).acquire_owned().await.map_err(Failed::error)?;
        drop(tokio::spawn(async move {
            tokio::time::sleep(POOL_JOB).await;
            done.fetch_add(1, Relaxed);
            drop(permit);
        }));
    }
    Ok(())
}

pub(crate) async fn sleepers(scale: Scale, capacity: u64, submitters: u64) -> Outcome {
    let (jobs, capacity) = (scale.of(POOL_JOBS), scale.of(capacity) as u32);
    let permits = Arc::new(Semaphore::new(capacity as usize));
    let done = Arc::new(AtomicU64::new(0));
    let spent = Spent::begin()?;
    let share = jobs / submitters;
    let running: Vec<_> = (0..submitters)
        .map(|number| {
            let jobs = share + u64::from(number < jobs % submitters);
            tokio::spawn(submit(Arc::clone(&permits), jobs, Arc::clone(&done)))
        })
        .collect();
    for submitter in running {
        submitter.await??;
    }
    // Waits until the last permits have come back.
    drop(permits.acquire_many(capacity).await.map_err(Failed::error)?);
    let outcome = spent.outcome()?;
    check("the jobs done", jobs, done.load(Relaxed))?;
    Ok(outcome)
}
