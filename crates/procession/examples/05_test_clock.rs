//! Look at `test`: it tests a process that waits for a whole day. The test takes no time, and it
//! runs the same way each time.
//!
//! On the test clock, time stands still while any process can run. Then it jumps to the next
//! deadline. `run_until_idle` runs what can run without moving the clock, and returns what each
//! process waits for. `advance` moves the clock.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::time::Duration;

use procession::{Context, Scheduler, SpawnOptions};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Ends a day after the last request. This is the code under test, and it knows nothing of the
/// test.
async fn session(mut cx: Context<&'static str>) -> Vec<&'static str> {
    let mut requests = Vec::new();
    while let Ok(Some(request)) = cx.recv_timeout(DAY).await {
        requests.push(request);
    }
    requests
}

/// Tests a session, and returns the number of steps it took.
fn test(seed: u64) -> Result<u32, Box<dyn Error>> {
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().seed(seed).build()?;
    let start = scheduler.now();
    let mut session = SpawnOptions::new().on(&scheduler).label("session").start(session);

    session.send("log in")?;
    let waiting = scheduler.run_until_idle();
    let [process] = &waiting[..] else { panic!("there is one process, and it waits") };
    println!("{} waits for: {}", process.label.as_deref().unwrap_or("-"), process.waiting);
    assert_eq!(process.label.as_deref(), Some("session"));
    assert!(process.waiting.for_messages() && process.waiting.for_timer());
    assert_eq!(scheduler.now(), start, "nothing has moved the clock");

    // A request within the last hour extends the session by another day.
    scheduler.advance(23 * HOUR);
    session.send("look around")?;
    scheduler.run_until_idle();
    scheduler.advance(23 * HOUR);
    assert_eq!(scheduler.run_until_idle().len(), 1, "it waits still");
    let steps = scheduler.snapshot().processes[0].steps;

    // No process can run, so the clock jumps to the end of the session.
    let requests = scheduler.block_on(&mut session)?;
    let elapsed = scheduler.now() - start;
    println!("{requests:?}, ended after {} hours", elapsed.as_secs() / HOUR.as_secs());
    assert_eq!(requests, ["log in", "look around"]);
    assert_eq!(elapsed, 23 * HOUR + DAY);
    assert!(scheduler.run_until_idle().is_empty());
    Ok(steps)
}

fn main() -> Result<(), Box<dyn Error>> {
    assert_eq!(test(1)?, test(1)?, "one seed, one course of events");
    Ok(())
}
