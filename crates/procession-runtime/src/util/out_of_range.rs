//! The error of a setting that is below its minimum or above its maximum.

use std::error::Error;
use std::fmt;

/// A setting has a value outside of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    setting: &'static str,
    value: u64,
    min: u64,
    max: u64,
}

impl OutOfRange {
    /// Returns an error unless `value` is from `min` to `max`.
    pub(crate) fn check(
        setting: &'static str,
        value: usize,
        min: usize,
        max: usize,
    ) -> Result<(), Self> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(Self { setting, value: value as u64, min: min as u64, max: max as u64 })
    }

    /// Returns the name of the setting, which is the name of the method that sets it.
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// Returns the value that was refused.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Returns the least value that is allowed.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// Returns the greatest value that is allowed.
    pub fn max(&self) -> u64 {
        self.max
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, value, min, max } = self;
        if *max == usize::MAX as u64 {
            return write!(f, "{setting} is {value}, but must be at least {min}");
        }
        write!(f, "{setting} is {value}, but must be from {min} to {max}")
    }
}

impl Error for OutOfRange {}
