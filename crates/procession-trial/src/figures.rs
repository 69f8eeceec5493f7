//! The figures of the clients, counted while they run.

use std::time::Duration;

use procession_sync::Mutex;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of buckets for each doubling. The percentile that is reported exceeds the exact
/// percentile by at most a sixteenth.
const FINE: u64 = 16;
/// Number of buckets for all 64-bit numbers of nanoseconds.
const BUCKETS: usize = (64 * FINE) as usize;

/// A histogram of latencies.
#[derive(Debug)]
pub(crate) struct Latencies {
    buckets: Vec<AtomicU32>,
    longest_ns: AtomicU64,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            longest_ns: AtomicU64::new(0),
        }
    }

    fn add(&self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)].fetch_add(1, Relaxed);
        self.longest_ns.fetch_max(nanoseconds, Relaxed);
    }

    /// Returns the latency that `share` in a thousand requests did not exceed.
    pub(crate) fn permille(&self, share: u64) -> Duration {
        let counts: Vec<u64> =
            self.buckets.iter().map(|bucket| bucket.load(Relaxed).into()).collect();
        let wanted = (counts.iter().sum::<u64>() * share).div_ceil(1000);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        Duration::from_nanos(upper(found.unwrap_or(0))).min(self.longest())
    }

    pub(crate) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Relaxed))
    }
}

/// Returns the bucket of a number: exact below 16, and above that by the highest bit and the four
/// bits after it.
fn bucket(nanoseconds: u64) -> usize {
    let doublings = u64::from((nanoseconds | FINE).ilog2() - FINE.ilog2());
    (doublings * FINE + (nanoseconds >> doublings)) as usize
}

/// Returns the largest number in a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let doublings = (bucket / FINE).saturating_sub(1);
    ((bucket - doublings * FINE) << doublings) + ((1 << doublings) - 1)
}

/// The sums of all stages. Once the clients have ended, `asked` is the sum of the other counts.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Number of requests that were sent to their last byte.
    pub(crate) asked: AtomicU64,
    /// Number of requests answered in full, with success.
    pub(crate) answered: AtomicU64,
    /// Number of requests with a handler that panicked, and a connection that was closed as it must
    /// be.
    pub(crate) panicked: AtomicU64,
    /// Number of requests that had not begun when the shutdown closed their connection.
    pub(crate) turned_away: AtomicU64,
    /// Number of all other requests. It must be 0.
    pub(crate) lost: AtomicU64,
    /// The first loss, in words.
    first_loss: Mutex<Option<String>>,
    /// `true` if the service is about to end.
    is_ending: AtomicBool,
}

impl Sums {
    pub(crate) fn answer(&self, latencies: &Latencies, latency: Duration) {
        self.answered.fetch_add(1, Relaxed);
        latencies.add(latency);
    }

    pub(crate) fn lose(&self, how: impl FnOnce() -> String) {
        self.lost.fetch_add(1, Relaxed);
        self.first_loss.lock().get_or_insert_with(how);
    }

    pub(crate) fn first_loss(&self) -> Option<String> {
        self.first_loss.lock().clone()
    }

    /// Announces the end of the service. Called before the service is asked to end: from then on, a
    /// closed connection may not be a loss.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Relaxed);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_put_into_it_and_is_at_most_a_sixteenth_wide() {
        for shift in 0..64 {
            for number in [
                1_u64 << shift,
                (1 << shift) + 1,
                (1 << shift) + ((1 << shift) >> 1),
                u64::MAX >> (63 - shift),
            ] {
                let upper = upper(bucket(number));
                assert!(
                    upper >= number && upper - number <= number / FINE,
                    "{number} is in a bucket up to {upper}"
                );
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!(upper(bucket(0)), 0);
    }

    #[test]
    fn percentiles_are_those_of_what_was_added() {
        let latencies = Latencies::new();
        (1..=1000).for_each(|number| latencies.add(Duration::from_nanos(number * 1000)));
        let microseconds = |share| latencies.permille(share).as_nanos() / 1000;
        assert!((500..=531).contains(&microseconds(500)), "{}", microseconds(500));
        assert!((990..=1000).contains(&microseconds(990)), "{}", microseconds(990));
        assert_eq!(latencies.longest(), Duration::from_millis(1));
    }
}
