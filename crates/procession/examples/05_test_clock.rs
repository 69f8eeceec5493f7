//! Look at `main`: it tests a process that waits for a whole day, in no time, and the same way each time.
//!
//! On the test clock, time stands still while anything can run. Then it moves to the next deadline at once, or, with `advance`,
//! as far as the test says. `run_until_idle` runs what can run and moves nothing: it tells who waits for what.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::time::Duration;

use procession::{Context, Elapsed, Scheduler, SpawnOptions};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Ends a day after the last message. This is what is tested; it knows nothing of the test.
async fn session(mut cx: Context<&'static str>) -> usize {
    let mut requests = 0;
    while let Ok(Some(request)) = cx.receive_timeout(DAY).await {
        requests += 1;
        println!("request {requests}: {request}");
    }
    requests
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().width(1).test_clock().seed(1).build()?;
    let start = scheduler.now();
    let mut session = SpawnOptions::new().on(&scheduler).label("session").start(session);

    session.send("log in")?;
    let waiting = scheduler.run_until_idle();
    for process in &waiting {
        println!("{} ({:?}) waits for: {}", process.pid, process.label, process.waiting);
    }
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].label.as_deref(), Some("session"));
    assert!(waiting[0].waiting.for_messages() && waiting[0].waiting.for_timer());
    assert_eq!(scheduler.now(), start, "nothing has moved the clock");

    // 23 hours later it is still there, and one more request gives it another day.
    scheduler.advance(23 * HOUR);
    assert_eq!(scheduler.run_until_idle().len(), 1);
    session.send("look around")?;
    scheduler.run_until_idle();
    scheduler.advance(23 * HOUR);
    assert_eq!(scheduler.run_until_idle().len(), 1);

    // Nothing can run, so the clock moves to the end of the session by itself.
    let requests = scheduler.block_on(&mut session)?;
    println!("{requests} requests, ended after {:?}", scheduler.now() - start);
    assert_eq!(requests, 2);
    assert_eq!(scheduler.now() - start, 23 * HOUR + DAY);
    assert!(scheduler.run_until_idle().is_empty());

    // An hour passes while nobody waits for anything but the clock.
    let slept = scheduler.block_on(procession::timeout(HOUR, std::future::pending::<()>()));
    assert_eq!(slept, Err(Elapsed));
    assert_eq!(scheduler.now() - start, 24 * HOUR + DAY);
    Ok(())
}
