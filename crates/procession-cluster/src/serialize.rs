//! Rust types as terms, by serde, and the types of versioned messages.
//!
//! [`to_term`] and [`from_term`] convert values of any type that implements serde's traits. The
//! terms are those that programs in Erlang and Elixir use for the same things:
//!
//! | Rust | term | read, too |
//! |---|---|---|
//! | `bool` | atom `true`, `false` | |
//! | integers up to 128 bits | integer | |
//! | `f32`, `f64` | float | integers |
//! | `String`, `char` | binary in UTF-8 | atoms, strings of Erlang |
//! | bytes | binary | lists of bytes |
//! | `Vec`, other sequences | list | tuples; a binary as a sequence of its bytes |
//! | tuples, tuple structs | tuple | lists |
//! | maps | map | |
//! | structs | map with atoms as keys | binaries as keys |
//! | `None`, `Some(x)` | atom `undefined`, x | atom `nil` |
//! | `()`, unit structs | atom `ok` | the empty tuple |
//! | newtype structs | the value in it | |
//! | variant of an enum | atom, or tuple of an atom and what is in it | |
//! | `Ok(x)`, `Err(x)` | `{ok, X}`, `{error, X}` | atom `ok` as `Ok(())` |
//! | [`Term`], [`Atom`], [`NodePid`], [`Reference`] | themselves | |
//!
//! A struct variant is a tuple of an atom and a map. Names of variants and fields are what serde
//! makes of them, so `#[serde(rename_all = "snake_case")]` on an enum gives the usual atoms.
//!
//! ```
//! use procession_cluster::serialize::{from_term, to_term};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! #[serde(rename_all = "snake_case")]
//! enum Order {
//!     Cancel,
//!     Buy { item: String, count: u32 },
//! }
//!
//! let order = Order::Buy { item: "tea".into(), count: 2 };
//! let term = to_term(&order)?;
//! assert_eq!(term.to_string(), r#"{buy,#{item => <<"tea">>,count => 2}}"#);
//! assert_eq!(from_term::<Order>(term)?, order);
//! assert!(to_term(&Order::Cancel)?.is_atom("cancel"));
//! # Ok::<(), procession_cluster::serialize::ConvertError>(())
//! ```

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde_core::de::DeserializeOwned;
use serde_core::{Serialize, de, ser};

use crate::letter::TermReply;
use crate::link::Remote;
use crate::node::{CallTermError, Member, Node, SendTermError};
use crate::term::{Atom, NodePid, Reference, Term};

pub mod address;
mod format;
#[cfg(any(feature = "postcard", feature = "message-pack"))]
mod limited;
mod message;
mod read;
pub mod reply;
mod scope;
mod terms;
mod typed;
mod write;

pub use self::format::Format;
pub use self::message::{MessageError, Messages, message};

/// The error of a value that is no term, or of a term that is no such value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertError(String);

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ConvertError {}

impl ser::Error for ConvertError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

impl de::Error for ConvertError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

/// Returns the term of a value.
///
/// # Errors
/// [`ConvertError`]: the name of a field or variant has more than 255 characters, a float is
/// infinite or no number, or the type's own code fails.
pub fn to_term<T: Serialize + ?Sized>(value: &T) -> Result<Term, ConvertError> {
    value.serialize(write::Writer)
}

/// Returns the value of a term.
///
/// # Errors
/// [`ConvertError`] says what was expected and what came.
pub fn from_term<T: DeserializeOwned>(term: Term) -> Result<T, ConvertError> {
    T::deserialize(read::Reader(term))
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

fn reply_as<R: DeserializeOwned>(reply: Result<Term, CallTermError>) -> Result<R, CallError> {
    let reply = reply.map_err(CallError::Call)?;
    // The error returns the reply.
    from_term(reply.clone()).map_err(|error| CallError::Reply(error, reply))
}

impl Node {
    /// Calls a process of another node like [`call`](Self::call), with a request and a reply of
    /// Rust types.
    ///
    /// # Errors
    /// [`CallError`]: the request has no term, there is no reply, or it is of another type.
    ///
    /// # Cancellation
    /// As for [`call`](Self::call).
    pub async fn call_as<R: DeserializeOwned>(
        &self,
        to: impl Into<Remote>,
        request: &(impl Serialize + ?Sized),
        timeout: Duration,
    ) -> Result<R, CallError> {
        let request = to_term(request).map_err(CallError::Request)?;
        reply_as(self.call(to, request, timeout).await)
    }
}

impl Member {
    /// Calls a process of another node like [`call`](Self::call), with a request and a reply of
    /// Rust types.
    ///
    /// # Errors
    /// [`CallError`]: the request has no term, there is no reply, or it is of another type.
    ///
    /// # Cancellation
    /// As for [`call`](Self::call).
    pub async fn call_as<R: DeserializeOwned>(
        &self,
        to: impl Into<Remote>,
        request: &(impl Serialize + ?Sized),
        timeout: Duration,
    ) -> Result<R, CallError> {
        let request = to_term(request).map_err(CallError::Request)?;
        reply_as(self.call(to, request, timeout).await)
    }

    /// Sends a value like [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError`]: the value has no term, or that was not sent.
    pub fn send_as(
        &self,
        to: impl Into<Remote>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), SendError> {
        let term = to_term(value).map_err(SendError::Convert)?;
        self.send(to, term).map_err(SendError::Send)
    }
}

impl TermReply {
    /// Sends a value as the reply, like [`send`](Self::send).
    ///
    /// # Errors
    /// [`SendError`]: the value has no term, or that was not sent.
    pub fn send_as(self, value: &(impl Serialize + ?Sized)) -> Result<(), SendError> {
        let term = to_term(value).map_err(SendError::Convert)?;
        self.send(term).map_err(SendError::Send)
    }
}

#[cfg(test)]
mod tests;
