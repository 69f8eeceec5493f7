//! The id of a request.

use std::fmt;
use std::num::NonZeroU128;

/// The id of a request: a number of 128 bits that is not 0, as the trace ids of W3C Trace Context
/// and OpenTelemetry, or a UUID.
///
/// It prints as 32 hexadecimal digits. When it is parsed, fewer digits and the hyphens of a UUID
/// are accepted as well.
///
/// ```
/// use procession::mailbox::request::RequestId;
///
/// let id: RequestId = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse()?;
/// assert_eq!(id.to_string(), "67e5504410b1426f9247bb680e5fe0c8");
/// assert_eq!(RequestId::new(7), "7".parse().ok());
/// assert!("0".parse::<RequestId>().is_err());
/// assert!("seven".parse::<RequestId>().is_err());
/// # Ok::<(), procession::process::ParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    // Two words, since a `u128` would align all entries of mailboxes to 16 bytes.
    high: u64,
    low: u64,
}

impl RequestId {
    /// Returns the id with this number, or `None` for 0.
    pub const fn new(number: u128) -> Option<Self> {
        if number == 0 {
            return None;
        }
        Some(Self { high: (number >> 64) as u64, low: number as u64 })
    }

    /// Returns the number.
    pub const fn get(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

impl From<NonZeroU128> for RequestId {
    fn from(number: NonZeroU128) -> Self {
        Self { high: (number.get() >> 64) as u64, low: number.get() as u64 }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.high, self.low)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({self})")
    }
}
