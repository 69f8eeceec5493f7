//! A histogram of times with fixed buckets.

/// A histogram of times in `LEN` buckets.
///
/// The bound of the first bucket is the power of two `FIRST` in nanoseconds, and each bound is
/// twice the bound before. The last bucket has no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const FIRST: u32, const LEN: usize> {
    counts: [u64; LEN],
    /// The sum of all times, in nanoseconds.
    pub sum: u64,
}

/// The lateness of timers: bounds from 16 us to 8.6 s.
pub type LatenessHistogram = Histogram<14, 21>;

/// The times from a wake-up to the step: bounds from 256 ns to 8.6 s.
pub type WaitHistogram = Histogram<8, 27>;

impl<const FIRST: u32, const LEN: usize> Default for Histogram<FIRST, LEN> {
    fn default() -> Self {
        Self { counts: [0; LEN], sum: 0 }
    }
}

impl<const FIRST: u32, const LEN: usize> Histogram<FIRST, LEN> {
    /// Adds a time in nanoseconds.
    #[inline]
    pub fn add(&mut self, time: u64) {
        self.add_many(time, 1);
    }

    /// Adds a time in nanoseconds as often as `count` says.
    #[inline]
    pub fn add_many(&mut self, time: u64, count: u64) {
        // A time is at most 2^n exactly if the number below it has at most n bits.
        let bits = u64::BITS - time.saturating_sub(1).leading_zeros();
        self.counts[(bits.saturating_sub(FIRST) as usize).min(LEN - 1)] += count;
        self.sum = self.sum.saturating_add(time.saturating_mul(count));
    }

    /// Adds all times of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.sum = self.sum.saturating_add(other.sum);
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
    }

    /// Returns the number of times in each bucket, with the bound of the bucket in nanoseconds. The
    /// last bucket has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.counts.iter().enumerate().map(|(at, &count)| {
            let bound = (at < LEN - 1).then(|| 1 << (FIRST + at as u32));
            (bound, count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{LatenessHistogram, WaitHistogram};

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        let mut histogram = LatenessHistogram::default();
        for time in [0, 1, 1 << 14, (1 << 14) + 1, 1 << 33, (1 << 33) + 1, u64::MAX] {
            let before = histogram;
            histogram.add(time);
            let changed = before.buckets().zip(histogram.buckets()).position(|(a, b)| a.1 < b.1);
            let fits = |bucket: (Option<u64>, u64)| bucket.0.is_none_or(|bound| time <= bound);
            assert_eq!(changed, histogram.buckets().position(fits), "{time}");
        }
        let total: u64 = histogram.buckets().map(|bucket| bucket.1).sum();
        assert_eq!((total, histogram.sum), (7, u64::MAX));
        assert_eq!(histogram.buckets().count(), 21);
    }

    #[test]
    fn two_histograms_add_up() {
        let (mut one, mut other) = (LatenessHistogram::default(), LatenessHistogram::default());
        one.add(20_000);
        other.add(20_001);
        other.add(5);
        one.merge(&other);
        assert_eq!(one.buckets().map(|bucket| bucket.1).take(3).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(one.sum, 40_006);
    }
    #[test]
    fn a_time_can_stand_for_many() {
        let mut histogram = WaitHistogram::default();
        histogram.add_many(257, 3);
        histogram.add_many(1 << 33, 2);
        let found: Vec<_> = histogram.buckets().filter(|bucket| bucket.1 > 0).collect();
        assert_eq!(found, [(Some(512), 3), (Some(1 << 33), 2)]);
        assert_eq!(histogram.sum, 3 * 257 + (2 << 33));
    }
}
