//! Look at `debounced`: requests that come close together are served by one run of the work, when
//! no more have come for a while. A request that keeps coming does not put the run off forever: the
//! second limit ends the wait. The mailbox keeps the requests and the replies, so there is no lock
//! and no flag.
//!
//! The program runs on the test clock.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::time::Duration;

use procession::time::Instant;
use procession::{Address, Context, Reply, Scheduler, sleep, spawn, start, timeout};

/// A run begins when no request has come for this long.
const QUIET: Duration = Duration::from_millis(50);
/// A run begins at the latest this long after the first request.
const LATEST: Duration = Duration::from_millis(200);

/// Asks for a run, which is told the number of requests that it serves.
struct Save(Reply<usize>);

/// Returns the number of runs.
async fn debounced(mut cx: Context<Save>) -> usize {
    let mut runs = 0;
    while let Some(Save(first)) = cx.recv().await {
        let mut replies = vec![first];
        let latest = Instant::now() + LATEST;
        loop {
            let pause = QUIET.min(latest.saturating_duration_since(Instant::now()));
            match timeout(pause, cx.recv()).await {
                Ok(Some(Save(reply))) => replies.push(reply),
                Ok(None) | Err(_) => break,
            }
        }
        // The work takes a while. Requests that come meanwhile are for the next run.
        sleep(Duration::from_millis(20)).await;
        runs += 1;
        let served = replies.len();
        println!("run {runs} served {served} requests");
        replies.into_iter().for_each(|reply| reply.send(served));
    }
    runs
}

async fn save(to: Address<Save>) -> Result<usize, procession::CallError<Save>> {
    to.call(Save, Duration::from_secs(1)).await
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    scheduler.block_on(async {
        let saver = start(debounced);

        // Ten requests at once are one run.
        let burst: Vec<_> = (0..10).map(|_| spawn(save(saver.address().clone()))).collect();
        for request in burst {
            assert_eq!(request.await??, 10);
        }

        // A request every 30 ms never lets it be quiet for 50 ms, and yet it runs.
        let mut trickle = Vec::new();
        for _ in 0..20 {
            trickle.push(spawn(save(saver.address().clone())));
            sleep(Duration::from_millis(30)).await;
        }
        for request in trickle {
            assert!(request.await?? <= 8);
        }

        saver.cancel();
        let runs = saver.await?;
        assert!((4..=6).contains(&runs), "{runs} runs");
        Ok(())
    })
}
