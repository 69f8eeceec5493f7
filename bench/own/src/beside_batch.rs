//! Requests beside batch work that would use both processors: what all contestants share.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use procession_sync::Arc;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

/// What a request computes, and a part of the batch work between two looks for others.
pub(crate) const PART: Duration = Duration::from_micros(100);

/// The processes of the batch work.
pub(crate) const BATCH: usize = 4;

/// Two processors could serve 20 000 requests in a second, and 30 % of these arrive.
const EVERY: Duration = Duration::from_nanos(166_667);

const REQUESTS: u32 = 12_000;

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the load comes by the real clock")]
fn pause(duration: Duration) {
    thread::sleep(duration);
}

pub(crate) fn compute(duration: Duration) {
    let until = now() + duration;
    while now() < until {
        std::hint::spin_loop();
    }
}

/// Counts the parts of the batch work.
#[derive(Clone, Default)]
pub(crate) struct Parts(Arc<AtomicU64>);

impl Parts {
    /// Computes for that long. A thread that is preempted does less, and counts less.
    pub(crate) fn work(&self, duration: Duration) {
        let mut sum = 0_u64;
        let until = now() + duration;
        while now() < until {
            for number in 0..64 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
            }
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Sends requests for some seconds, and prints how late they were answered, and how much of the
/// batch work was done. `request` starts a request that was due at a time.
#[expect(clippy::print_stdout, reason = "the figures are the result")]
pub(crate) fn measure(name: &str, parts: &Parts, request: impl Fn(Instant, Sender<Duration>)) {
    pause(Duration::from_millis(200));
    let (sender, receiver) = channel();
    let (begin, before) = (now(), parts.count());
    for number in 0..REQUESTS {
        let due = begin + number * EVERY;
        pause(due.saturating_duration_since(now()));
        request(due, sender.clone());
    }
    drop(sender);
    let mut waits: Vec<Duration> = receiver.iter().collect();
    let rate = (parts.count() - before) as f64 / begin.elapsed().as_secs_f64();
    waits.sort_unstable();
    let at = |thousandth: usize| waits[(waits.len() - 1) * thousandth / 1000];
    println!(
        "{name}: p50 {:?}, p99 {:?}, p99.9 {:?}, batch {rate:.0}/s",
        at(500),
        at(990),
        at(999),
    );
}
