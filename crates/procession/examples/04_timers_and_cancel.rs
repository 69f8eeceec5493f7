//! Look at the report at the end: `shutdown` asks every process to end, lets the processes clean
//! up, and returns a list of those that did not stop.
//!
//! Before that, a process ticks until it is cancelled, and a timeout ends a wait. Then four
//! processes meet the shutdown. The first one cleans up. The second one keeps waiting and is
//! terminated. The third one has no context: it is dropped where it sleeps. The fourth one blocks
//! its worker, and nothing can end it.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::future::pending;
use std::sync::mpsc;
use std::time::Duration;

use procession::observe::ProcessState;
use procession::time::{Elapsed, Instant, interval};
use procession::{Context, Exit, Scheduler, SpawnOptions, sleep, timeout};

const PERIOD: Duration = Duration::from_millis(5);

/// Ticks, and checks at each tick whether it was cancelled.
async fn tick(cx: Context<()>) -> u32 {
    let mut ticks = 0;
    let mut clock = interval(PERIOD);
    loop {
        clock.tick().await;
        ticks += 1;
        if cx.is_cancelled() {
            return ticks;
        }
    }
}

/// Saves its work once it is cancelled. Saving takes 20 ms.
async fn save_at_the_end(cx: Context<()>) -> &'static str {
    cx.cancelled().await;
    sleep(Duration::from_millis(20)).await;
    "saved"
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().name("example").worker_threads(2).build()?;

    scheduler.block_on(async {
        let start = Instant::now();
        let ticker = procession::start(tick);
        assert_eq!(timeout(10 * PERIOD, pending::<()>()).await, Err(Elapsed));
        ticker.cancel();
        let ticks = ticker.await?;
        let elapsed = Instant::now() - start;
        println!("{ticks} ticks in {elapsed:?}, one every {PERIOD:?}");
        // The first tick is at once.
        assert!((ticks - 1) * PERIOD <= elapsed, "a timer is never early");
        Ok::<_, Exit>(())
    })?;

    let (release, blocks) = mpsc::channel::<()>();
    let (begins, has_begun) = mpsc::channel();
    let saves = scheduler.start(save_at_the_end);
    let waits = scheduler.start(|_: Context<()>| pending::<()>());
    let sleeps = scheduler.spawn(sleep(Duration::from_secs(3600)));
    let stuck = SpawnOptions::new().on(&scheduler).label("stuck").spawn(async move {
        begins.send(()).expect("the main thread waits");
        blocks.recv()
    });
    has_begun.recv()?;

    let report = scheduler.block_on(scheduler.shutdown(Duration::from_millis(300)));
    assert_eq!(saves.join(), Ok("saved"));
    assert_eq!(waits.join(), Err(Exit::Killed));
    assert_eq!(sleeps.join(), Err(Exit::Shutdown));
    for process in &report.processes {
        let label = process.label.as_deref().unwrap_or("without a label");
        println!(
            "{} ({label}) did not stop: {:?}, spawned at {}",
            process.pid, process.state, process.location
        );
    }
    let [unfinished] = &report.processes[..] else { panic!("all but one have ended") };
    assert_eq!(
        (unfinished.label.as_deref(), unfinished.state),
        (Some("stuck"), ProcessState::Running)
    );

    // The blocking call returns after all, so the step ends, too.
    drop(release);
    let late = stuck.join()?;
    println!("later it ended: {late:?}");
    assert!(late.is_err(), "the channel was closed");
    Ok(())
}
