//! The error of a time limit.

use std::error::Error;
use std::{fmt, io};

/// The error of a time that was over before the future was complete.
///
/// ```
/// use std::io;
/// use std::time::Duration;
/// use procession::timeout;
///
/// async fn answer() -> io::Result<u32> {
///     Ok(timeout(Duration::from_millis(1), std::future::pending()).await?)
/// }
///
/// let error = procession::run(answer()).unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::TimedOut);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time is over")
    }
}

impl Error for Elapsed {}

/// The kind of the error is [`TimedOut`](io::ErrorKind::TimedOut).
impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(io::ErrorKind::TimedOut, elapsed)
    }
}
