//! Look at `admitted`: `governor` says whether a request may pass now, and when to ask again. It
//! knows no runtime: its clock is that of the scheduler, and the wait is a sleep of the process.
//! The lock queues the callers, so they pass first come, first served, and a hundred that wait
//! cause one wake-up at a time.
//!
//! The program runs on the test clock.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use procession::sync::Mutex;
use procession::time::Instant;
use procession::{Scheduler, sleep, spawn};

/// The time of the scheduler, as `governor` measures it.
#[derive(Clone)]
struct SchedulerClock {
    begin: Instant,
}

impl Clock for SchedulerClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.begin)
    }
}

struct Limiter {
    clock: SchedulerClock,
    limiter: RateLimiter<NotKeyed, InMemoryState, SchedulerClock, NoOpMiddleware<Duration>>,
    turn: Mutex<()>,
}

impl Limiter {
    fn new(quota: Quota) -> Self {
        let clock = SchedulerClock { begin: Instant::now() };
        let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
        Self { clock, limiter, turn: Mutex::new(()) }
    }

    /// Waits until a request may pass.
    ///
    /// # Cancellation
    /// A caller that drops its future leaves the queue, and uses nothing up.
    async fn admitted(&self) {
        let _turn = self.turn.lock().await;
        while let Err(refused) = self.limiter.check() {
            sleep(refused.wait_time_from(self.clock.now())).await;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    const CALLERS: u32 = 4;
    const REQUESTS: u32 = 5;
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
    scheduler.block_on(async {
        let a_second = NonZeroU32::new(10).expect("it is not zero");
        let at_once = NonZeroU32::new(5).expect("it is not zero");
        let limiter = Arc::new(Limiter::new(Quota::per_second(a_second).allow_burst(at_once)));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                spawn(async move {
                    let mut passed = Vec::new();
                    for _ in 0..REQUESTS {
                        limiter.admitted().await;
                        passed.push(limiter.clock.now().as_millis());
                    }
                    passed
                })
            })
            .collect();
        let mut all = Vec::new();
        for (number, caller) in callers.into_iter().enumerate() {
            let passed = caller.await?;
            println!("caller {number} passed after {passed:?} ms");
            all.extend(passed);
        }
        all.sort();
        // Five at once, and then one every 100 ms.
        let expected = (0..CALLERS * REQUESTS).map(|n| 100 * u128::from((n + 1).saturating_sub(5)));
        assert!(all.into_iter().eq(expected));
        Ok(())
    })
}
