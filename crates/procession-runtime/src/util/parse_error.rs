//! The error of a text that cannot be parsed.

use std::error::Error;
use std::fmt;

/// The number of characters of a text that its error keeps.
const TEXT_MAX: usize = 40;

/// A text cannot be parsed as a [`Pid`](crate::Pid), a [`RequestId`](crate::request::RequestId), or
/// the name of a key, a state or a reason. It contains the text, cut after 40 characters, and what
/// was expected instead.
///
/// ```
/// use procession::Pid;
/// use procession::process::ParseError;
///
/// let error: ParseError = "p1.42".parse::<Pid>().unwrap_err();
/// assert_eq!(error.to_string(), "cannot parse \"p1.42\": expected a PID such as p1.42.7");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

impl ParseError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.chars().take(TEXT_MAX).collect(), expected }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot parse {:?}: expected {}", self.text, self.expected)
    }
}

impl Error for ParseError {}
