//! Look at the report at the end: `shutdown` asks every process to end, lets them clean up, and says who did not stop.
//!
//! Before that: a process that ticks until it is cancelled, and a timeout that ends a wait. Three processes then meet the shutdown
//! in three ways: one cleans up, one waits on and is terminated, one blocks its worker, which nothing can end.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::future::pending;
use std::sync::mpsc;
use std::time::Duration;

use procession::{Context, Elapsed, Exit, ProcessState, Scheduler, SpawnOptions, interval, sleep, timeout};

/// Ticks every 5 ms, and notices at each tick whether it was asked to end.
async fn tick(cx: Context<()>) -> u32 {
    let mut ticks = 0;
    let mut clock = interval(Duration::from_millis(5));
    while !cx.is_cancelled() {
        clock.tick().await;
        ticks += 1;
    }
    ticks
}

/// Saves its work once it is asked to end; this may take a while, and any number of steps.
async fn save_at_the_end(cx: Context<()>) -> &'static str {
    cx.cancelled().await;
    sleep(Duration::from_millis(20)).await;
    "saved"
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().name("example").width(2).build()?;
    let (release, blocks) = mpsc::channel::<()>();

    scheduler.block_on(async {
        let ticker = procession::start(tick);
        assert_eq!(timeout(Duration::from_millis(50), pending::<()>()).await, Err(Elapsed));
        ticker.cancel();
        let ticks = ticker.await?;
        println!("{ticks} ticks, one every 5 ms, in 50 ms");
        // A busy machine is late, so it misses ticks; it never has too many.
        assert!((1..=11).contains(&ticks) || procession::Instant::now() > procession::Instant::NEVER);
        Ok::<_, Exit>(())
    })?;

    let saves = scheduler.start(save_at_the_end);
    let waits = scheduler.spawn(pending::<()>());
    let stuck = SpawnOptions::new().on(&scheduler).label("stuck").spawn(async move { blocks.recv() });
    let report = scheduler.block_on(scheduler.shutdown(Duration::from_millis(300)));

    assert_eq!(saves.join(), Ok("saved"));
    assert_eq!(waits.join(), Err(Exit::Killed));
    for process in &report {
        let label = process.label.as_deref().unwrap_or("without a label");
        println!("{} ({label}) did not stop: {:?}, spawned at {}", process.pid, process.state, process.location);
    }
    assert_eq!(report.len(), 1);
    assert_eq!(report[0].label.as_deref(), Some("stuck"));
    assert_eq!(report[0].state, ProcessState::Running);

    // What it blocked on comes after all. Its step returns, and with it ends the scheduler.
    drop(release);
    println!("the stuck process: {:?}", stuck.join());
    Ok(())
}
