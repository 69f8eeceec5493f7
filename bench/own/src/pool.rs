//! The workloads of pools: many jobs that sleep, empty jobs on threads, and the threads left after
//! a burst.

use std::sync::Arc;
use std::time::Duration;

use procession::Scheduler;
use procession::pool::{AsyncPool, ObjectPool, Pool, Queue};
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use super::meter::{Spent, compute, now};
use super::rt::inside;
use super::workload::{
    Failed, OBJECTS_BYTES, OBJECTS_COUNT, Outcome, POOL_CAPACITY, POOL_CAPACITY_LARGE, POOL_JOB,
    POOL_JOBS, POOL_SUBMITTERS, POOL_THREADS, POOL_THREADS_JOBS, POOL_TINY, POOL_TRICKLE_BURST,
    POOL_TRICKLE_KEEP_ALIVE_MS, POOL_TRICKLE_PAUSE, POOL_TRICKLE_PAUSES, Scale, check, each,
};

pub(super) fn few(scheduler: &Scheduler, scale: Scale) -> Outcome {
    inside(scheduler, sleepers(scale, POOL_CAPACITY, 1))
}

pub(super) fn many(scheduler: &Scheduler, scale: Scale) -> Outcome {
    inside(scheduler, sleepers(scale, POOL_CAPACITY, POOL_SUBMITTERS))
}

pub(super) fn large(scheduler: &Scheduler, scale: Scale) -> Outcome {
    inside(scheduler, sleepers(scale, POOL_CAPACITY_LARGE, 1))
}

pub(super) fn large_many(scheduler: &Scheduler, scale: Scale) -> Outcome {
    inside(scheduler, sleepers(scale, POOL_CAPACITY_LARGE, POOL_SUBMITTERS))
}

pub(super) fn coroutines(scheduler: &Scheduler, scale: Scale) -> Outcome {
    inside(scheduler, sleepers_in_coroutines(scale))
}

async fn submit(pool: AsyncPool, jobs: u64, done: Arc<AtomicU64>) -> Result<(), Failed> {
    for _ in 0..jobs {
        let done = Arc::clone(&done);
        let job = async move {
            procession::sleep(POOL_JOB).await;
            done.fetch_add(1, Relaxed);
        };
        pool.execute(job)
            .await
            .map_err(|error| Failed::error(std::io::Error::other(error.to_string())))?;
    }
    Ok(())
}

async fn sleepers_in_coroutines(scale: Scale) -> Outcome {
    let jobs = scale.of(POOL_JOBS);
    let builder = Pool::builder().capacity(scale.of(POOL_CAPACITY) as usize);
    let pool = builder.build_coroutines().map_err(Failed::error)?;
    let done = Arc::new(AtomicU64::new(0));
    let spent = Spent::begin()?;
    for _ in 0..jobs {
        let done = Arc::clone(&done);
        let job = move || {
            procession::coroutine::sleep(POOL_JOB);
            done.fetch_add(1, Relaxed);
        };
        pool.execute(job)
            .await
            .map_err(|error| Failed::error(std::io::Error::other(error.to_string())))?;
    }
    pool.close();
    pool.ended().await.map_err(Failed::error)?;
    let outcome = spent.outcome()?;
    check("the jobs done", jobs, done.load(Relaxed))?;
    Ok(outcome)
}

async fn sleepers(scale: Scale, capacity: u64, submitters: u64) -> Outcome {
    let jobs = scale.of(POOL_JOBS);
    let builder = Pool::builder().capacity(scale.of(capacity) as usize);
    let pool = builder.build_async().map_err(Failed::error)?;
    let done = Arc::new(AtomicU64::new(0));
    let spent = Spent::begin()?;
    let share = jobs / submitters;
    let running: Vec<_> = (0..submitters)
        .map(|number| {
            let jobs = share + u64::from(number < jobs % submitters);
            procession::spawn(submit(pool.clone(), jobs, Arc::clone(&done)))
        })
        .collect();
    for submitter in running {
        submitter.await??;
    }
    pool.close();
    pool.ended().await.map_err(Failed::error)?;
    let outcome = spent.outcome()?;
    check("the jobs done", jobs, done.load(Relaxed))?;
    Ok(outcome)
}

pub(super) fn threads(_: &Scheduler, scale: Scale) -> Outcome {
    let jobs = scale.of(POOL_THREADS_JOBS);
    let builder =
        Pool::builder().capacity(POOL_THREADS).prestart(POOL_THREADS).queue(Queue::Unbounded);
    let pool = builder.build().map_err(Failed::error)?;
    let mut outcome = Vec::new();
    for tiny in [false, true] {
        let done = Arc::new(AtomicU64::new(0));
        let start = now();
        for _ in 0..jobs {
            let done = Arc::clone(&done);
            let submitted = pool.execute(move || {
                if tiny {
                    compute(POOL_TINY);
                }
                done.fetch_add(1, Relaxed);
            });
            submitted.map_err(|error| Failed::error(std::io::Error::other(error.to_string())))?;
        }
        pool.wait_idle(None).map_err(Failed::error)?;
        outcome.push(each(start, jobs));
        check("the jobs done", jobs, done.load(Relaxed))?;
    }
    Ok(outcome)
}

/// Counts the threads after a burst, after a trickle that lasts several keep-alives, and after a
/// silence of two keep-alives.
pub(super) fn trickle(_: &Scheduler, scale: Scale) -> Outcome {
    let burst = scale.of(POOL_TRICKLE_BURST) as usize;
    let keep_alive = Duration::from_millis(scale.of(POOL_TRICKLE_KEEP_ALIVE_MS));
    let pool =
        Pool::builder().capacity(burst).keep_alive(keep_alive).build().map_err(Failed::error)?;
    let pauses = scale.of(POOL_TRICKLE_PAUSES);
    let handles: Vec<_> = (0..burst)
        .map(|_| pool.submit(|| pause(POOL_TRICKLE_PAUSE * 10)))
        .collect::<Result<_, _>>()
        .map_err(|error| Failed::error(std::io::Error::other(error.to_string())))?;
    let live = || pool.stats().live as f64;
    let after_burst = live();
    for handle in handles {
        handle.join().map_err(Failed::error)?;
    }
    for _ in 0..pauses {
        pause(POOL_TRICKLE_PAUSE);
        let handle = pool.submit(|| ());
        let handle =
            handle.map_err(|error| Failed::error(std::io::Error::other(error.to_string())))?;
        handle.join().map_err(Failed::error)?;
    }
    let after_trickle = live();
    pause(keep_alive * 2);
    Ok(vec![after_burst, after_trickle, live()])
}

#[expect(clippy::disallowed_methods, reason = "a benchmark waits on the real clock")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Takes a buffer from a pool, writes to it and returns it; then allocates and frees one.
pub(super) fn objects(_: &Scheduler, scale: Scale) -> Outcome {
    let count = scale.of(OBJECTS_COUNT);
    let pool = ObjectPool::builder(|| Vec::<u8>::with_capacity(OBJECTS_BYTES))
        .reset(|buffer| {
            buffer.clear();
            true
        })
        .build();
    let mut sum = 0;
    let start = now();
    for number in 0..count {
        let mut buffer = pool.get();
        buffer.push(number as u8);
        sum += std::hint::black_box(&mut *buffer).len();
    }
    let kept = each(start, count);
    let start = now();
    for number in 0..count {
        let mut buffer = Vec::<u8>::with_capacity(OBJECTS_BYTES);
        buffer.push(number as u8);
        sum += std::hint::black_box(&mut buffer).len();
    }
    let allocated = each(start, count);
    check("the bytes written", 2 * count, sum as u64)?;
    Ok(vec![kept, allocated])
}
