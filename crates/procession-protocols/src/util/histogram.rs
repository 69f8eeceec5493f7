//! A histogram of times with fixed buckets.

/// The number of buckets with a bound. One more holds what is above all bounds.
pub const BUCKETS: usize = 20;
/// The first bound is this power of two in nanoseconds, 16 us. Each bound is twice the bound
/// before, so the last is 8.6 s.
const FIRST_BITS: u32 = 14;

/// A histogram of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS + 1],
    /// The sum of all times, in nanoseconds.
    pub sum: u64,
}

impl Histogram {
    /// Adds a time in nanoseconds.
    #[inline]
    pub fn add(&mut self, time: u64) {
        // A time is at most 2^n exactly if the number below it has at most n bits.
        let bits = u64::BITS - time.saturating_sub(1).leading_zeros();
        self.counts[(bits.saturating_sub(FIRST_BITS) as usize).min(BUCKETS)] += 1;
        self.sum = self.sum.saturating_add(time);
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
            let bound = (at < BUCKETS).then(|| 1 << (FIRST_BITS + at as u32));
            (bound, count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Histogram};

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        let mut histogram = Histogram::default();
        for time in [0, 1, 1 << 14, (1 << 14) + 1, 1 << 33, (1 << 33) + 1, u64::MAX] {
            let before = histogram;
            histogram.add(time);
            let changed = before.buckets().zip(histogram.buckets()).position(|(a, b)| a.1 < b.1);
            let fits = |bucket: (Option<u64>, u64)| bucket.0.is_none_or(|bound| time <= bound);
            assert_eq!(changed, histogram.buckets().position(fits), "{time}");
        }
        let total: u64 = histogram.buckets().map(|bucket| bucket.1).sum();
        assert_eq!((total, histogram.sum), (7, u64::MAX));
        assert_eq!(histogram.buckets().count(), BUCKETS + 1);
    }

    #[test]
    fn two_histograms_add_up() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.add(20_000);
        other.add(20_001);
        other.add(5);
        one.merge(&other);
        assert_eq!(one.buckets().map(|bucket| bucket.1).take(3).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(one.sum, 40_006);
    }
}
