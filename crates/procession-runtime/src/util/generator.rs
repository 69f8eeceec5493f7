//! A generator of pseudorandom numbers.

/// Makes the numbers of wyrand, in the order in which the crate `fastrand` makes them.
///
/// It is here because each crate that a dependent has in its lock file is one more to audit, and
/// because a seed repeats a run only as long as nobody changes the numbers.
#[derive(Clone, Debug)]
pub(crate) struct Generator(u64);

impl Generator {
    pub(crate) const fn with_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    #[inline]
    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x2d35_8dcc_aa6c_78a5);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0x8bb8_4b93_962e_acc9);
        (product as u64) ^ (product >> 64) as u64
    }

    /// Returns a number below `count`, each with the same probability (Lemire's method). If `count`
    /// is 0, returns 0.
    #[inline]
    pub(crate) fn below_u64(&mut self, count: u64) -> u64 {
        let mut product = u128::from(self.any()) * u128::from(count);
        if (product as u64) < count {
            let uneven = count.wrapping_neg() % count;
            while (product as u64) < uneven {
                product = u128::from(self.any()) * u128::from(count);
            }
        }
        (product >> 64) as u64
    }

    /// As [`below_u64`](Self::below_u64), for indices.
    #[inline]
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.below_u64(count as u64) as usize
    }

    /// As [`below_u64`](Self::below_u64), with the other half of the numbers' bits.
    #[inline]
    pub(crate) fn below_u32(&mut self, count: u32) -> u32 {
        let mut product = (self.any() & u64::from(u32::MAX)) * u64::from(count);
        if (product as u32) < count {
            let uneven = count.wrapping_neg() % count;
            while (product as u32) < uneven {
                product = (self.any() & u64::from(u32::MAX)) * u64::from(count);
            }
        }
        (product >> 32) as u32
    }

    #[inline]
    pub(crate) fn bool(&mut self) -> bool {
        self.any().is_multiple_of(2)
    }

    /// Returns a number of at least 0 and below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        loop {
            let fraction = (self.any() >> 1) as f64 * (1.0 / (1_u64 << 63) as f64);
            if fraction < 1.0 {
                return fraction;
            }
        }
    }

    pub(crate) fn shuffle<T>(&mut self, slice: &mut [T]) {
        for last in 1..slice.len() {
            slice.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Generator;

    #[test]
    fn numbers_are_those_of_fastrand() {
        for seed in [0, 1, 7, u64::MAX] {
            let (mut own, mut other) = (Generator::with_seed(seed), fastrand::Rng::with_seed(seed));
            for count in 1..2_000_u32 {
                // Near half of all numbers, where many are drawn again.
                let many = (1 << 63) + u64::from(count);
                assert_eq!(own.any(), other.u64(..));
                assert_eq!(own.below(count as usize), other.usize(..count as usize));
                assert_eq!(own.below_u64(many), other.u64(..many));
                assert_eq!(own.below_u32(count), other.u32(..count));
                assert_eq!(own.below_u32((1 << 31) + count), other.u32(..(1 << 31) + count));
                assert_eq!(own.bool(), other.bool());
                assert_eq!(own.fraction().to_bits(), other.f64().to_bits());
                let (mut one, mut two) = ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7]);
                own.shuffle(&mut one);
                other.shuffle(&mut two);
                assert_eq!(one, two);
            }
        }
    }
}
