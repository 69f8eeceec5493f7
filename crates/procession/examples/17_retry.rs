//! Look at `retry`: a call that fails is tried again after a pause. The pause doubles up to a
//! limit, and a random part of it is taken (*full jitter*), so that callers which failed together
//! do not come back together. A deadline bounds the whole.
//!
//! The program runs on the test clock, so the pauses take no time, and the same seed gives the same
//! pauses.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use fastrand::Rng;
use procession::time::Instant;
use procession::{Scheduler, sleep, timeout};

/// The pauses between attempts.
struct Backoff {
    pause: Duration,
    pause_max: Duration,
    attempts: u32,
    random: Rng,
}

impl Backoff {
    fn new(seed: u64) -> Self {
        Self {
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(2),
            attempts: 8,
            random: Rng::with_seed(seed),
        }
    }

    /// Returns the next pause, or `None` if there are no more attempts.
    fn next(&mut self) -> Option<Duration> {
        self.attempts = self.attempts.checked_sub(1).filter(|&left| left > 0)?;
        let pause = self.pause.mul_f64(self.random.f64());
        self.pause = self.pause_max.min(self.pause * 2);
        Some(pause)
    }
}

/// Calls until a call succeeds or the attempts are used up. Returns the last result.
async fn retry<T, E: Display>(
    mut backoff: Backoff,
    mut call: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    loop {
        match call().await {
            Err(error) => match backoff.next() {
                Some(pause) => {
                    println!("{error}; the next attempt comes after {pause:.0?}");
                    sleep(pause).await;
                }
                None => return Err(error),
            },
            done => return done,
        }
    }
}

/// A service that is down for the first seconds.
async fn ask(begin: Instant) -> Result<&'static str, String> {
    sleep(Duration::from_millis(5)).await;
    let up = Instant::now().saturating_duration_since(begin) >= Duration::from_millis(600);
    if up { Ok("an answer") } else { Err("no connection".to_owned()) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    scheduler.block_on(async {
        let begin = Instant::now();
        let answer = retry(Backoff::new(7), async || ask(begin).await).await?;
        assert_eq!(answer, "an answer");
        println!("{answer} after {:.1?}", Instant::now().saturating_duration_since(begin));

        // The attempts end, whatever the service does.
        let mut calls = 0;
        let down = retry(Backoff::new(7), async || {
            calls += 1;
            Err::<(), _>("still down")
        });
        assert_eq!(down.await, Err("still down"));
        assert_eq!(calls, 8);

        // The deadline ends a pause or a call that is under way.
        let never = retry(Backoff::new(8), async || Err::<(), _>("down for good"));
        assert!(timeout(Duration::from_millis(10), never).await.is_err());
        Ok(())
    })
}
