//! Pools limit how much runs at the same time: blocking work on threads, waiting work in processes.
//!
//! Look at what comes back: results, panics, and the work that a full or closed pool refuses.

use std::error::Error;
use std::time::Duration;

use procession::pool::{JobError, OnFull, Pool, Queue};

fn main() -> Result<(), Box<dyn Error>> {
    // A pool of at most two threads. Ten jobs may wait for a thread, and the eleventh comes back.
    let threads = Pool::builder()
        .name("checks")
        .capacity(2)
        .queue(Queue::Bounded(10))
        .on_full(OnFull::Refuse)
        .build()?;
    let sum = threads.submit(|| (1..=1000_u64).sum::<u64>())?;
    let unlucky =
        threads.submit(|| -> u64 { std::panic::resume_unwind(Box::new("out of luck")) })?;
    assert_eq!(sum.join(), Ok(500_500));
    assert!(matches!(unlucky.join(), Err(JobError::Panicked(text)) if &*text == "out of luck"));

    // A closed pool returns new work, finishes the work that it has, and can be opened again.
    threads.close();
    let refused = threads.submit(|| "still mine").expect_err("it is closed");
    assert!(refused.is_closed());
    assert_eq!(refused.into_inner()(), "still mine");
    threads.wait(Some(Duration::from_secs(10)))?;
    threads.reopen()?;
    let stats = threads.stats();
    assert_eq!((stats.submitted, stats.panicked, stats.refused, stats.live), (2, 1, 1, 0));

    // A pool of processes: a thousand sleeps, a hundred at a time, on a few workers.
    let slowest = procession::run(async {
        let pool = Pool::builder().capacity(100).build_async()?;
        let mut handles = Vec::new();
        for n in 0..1000_u64 {
            let job = async move {
                procession::sleep(Duration::from_millis(1)).await;
                n
            };
            // Waits while a hundred jobs are in the pool.
            handles.push(pool.submit(job).await?);
        }
        let mut slowest = 0;
        for handle in handles {
            slowest = slowest.max(handle.await?);
        }
        assert!(pool.stats().peak <= 100);
        Ok::<u64, Box<dyn Error>>(slowest)
    })?;
    assert_eq!(slowest, 999);

    // Blocking code in a process takes its worker away. On a thread of the default pool it does
    // not.
    let text = procession::run(async {
        procession::spawn_blocking(|| String::from("read from a slow disk")).await
    })?;
    assert_eq!(text, "read from a slow disk");
    Ok(())
}
