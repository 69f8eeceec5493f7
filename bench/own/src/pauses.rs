//! The times at which requests arrive.

use std::time::{Duration, Instant};

/// The pauses between independent requests, which are distributed exponentially.
#[derive(Debug)]
pub(crate) struct Pauses {
    mean: Duration,
    next: Instant,
    generator: fastrand::Rng,
}

impl Pauses {
    pub(crate) fn begin(mean: Duration, start: Instant) -> Self {
        Self { mean, next: start, generator: fastrand::Rng::with_seed(1) }
    }

    pub(crate) fn next(&mut self) -> Instant {
        // Never 0, which has no logarithm.
        self.next += self.mean.mul_f64(-(1.0 - self.generator.f64()).ln());
        self.next
    }
}
