//! The errors of conversions, and of calls and sends with values of Rust types.

use std::error::Error;
use std::fmt;

use serde_core::{de, ser};

use crate::error::{CallTermError, SendTermError};
use crate::reason::bounded;
use crate::term::Term;

/// The error of a value that is no term, or of a term that is no such value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertError(pub(super) String);

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ConvertError {}

impl ser::Error for ConvertError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(bounded(text))
    }
}

impl de::Error for ConvertError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        // The text may have what has arrived in it.
        Self(bounded(text))
    }
}

/// The error of a call with values of Rust types.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The request has no term.
    Request(ConvertError),
    /// There is no reply.
    Call(CallTermError),
    /// The reply is no value of the type. The error returns it.
    Reply(ConvertError, Term),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => write!(f, "the request has no term: {error}"),
            Self::Call(error) => fmt::Display::fmt(error, f),
            Self::Reply(error, _) => write!(f, "the reply is of another type: {error}"),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Request(error) | Self::Reply(error, _) => Some(error),
            Self::Call(error) => Some(error),
        }
    }
}

/// The error of sending a value of a Rust type.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The value has no term.
    Convert(ConvertError),
    /// The term was not sent. The error returns it.
    Send(SendTermError),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convert(error) => write!(f, "the value has no term: {error}"),
            Self::Send(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Convert(error) => Some(error),
            Self::Send(error) => Some(error),
        }
    }
}
