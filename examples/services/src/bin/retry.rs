//! Look at `.sleep(sleep)`: `backon` retries with a pause that doubles up to a limit, plus a random
//! part of it (*jitter*), so that callers which failed together do not come back together. It knows
//! no runtime, so the pauses are sleeps of the process. A timeout bounds the whole.
//!
//! The program runs on the test clock, so the pauses take no time, and the same seed gives the same
//! pauses.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::fmt;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use procession::time::Instant;
use procession::{Scheduler, sleep, timeout};

#[derive(Debug, PartialEq, Eq)]
enum AskError {
    Down,
    NoSuchPage,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "no connection",
            Self::NoSuchPage => "no such page",
        })
    }
}

impl Error for AskError {}

fn backoff(seed: u64) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(2))
        .with_max_times(7)
        .with_jitter()
        .with_jitter_seed(seed)
}

/// Asks a service that is down for the first 600 ms.
async fn ask(begin: Instant) -> Result<&'static str, AskError> {
    sleep(Duration::from_millis(5)).await;
    let up = Instant::now().saturating_duration_since(begin) >= Duration::from_millis(600);
    if up { Ok("an answer") } else { Err(AskError::Down) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    scheduler.block_on(async {
        let begin = Instant::now();
        let answer = (|| ask(begin)).retry(backoff(7)).sleep(sleep).notify(|error, pause| {
            println!("{error}; the next attempt comes after {pause:.0?}");
        });
        let answer = answer.await?;
        println!("{answer} after {:.1?}", Instant::now().saturating_duration_since(begin));

        // The attempts end, whatever the service does.
        let mut calls = 0;
        let down = || {
            calls += 1;
            async { Err::<(), _>(AskError::Down) }
        };
        assert_eq!(down.retry(backoff(7)).sleep(sleep).await, Err(AskError::Down));
        println!("down after {calls} calls");
        assert_eq!(calls, 8);

        // An error that no repetition mends ends them at once.
        let mut calls = 0;
        let missing = || {
            calls += 1;
            async { Err::<(), _>(AskError::NoSuchPage) }
        };
        let missing = missing.retry(backoff(7)).sleep(sleep).when(|error| *error == AskError::Down);
        assert_eq!(missing.await, Err(AskError::NoSuchPage));
        println!("{} after {calls} call", AskError::NoSuchPage);

        // The deadline ends a pause, or a call that is under way.
        let begin = Instant::now();
        let never = (async || Err::<(), _>(AskError::Down)).retry(backoff(8)).sleep(sleep);
        assert!(timeout(Duration::from_millis(250), never).await.is_err());
        println!("gave up after {:?}", Instant::now().saturating_duration_since(begin));
        Ok(())
    })
}
