//! Rust types as terms, by serde, and the types of versioned messages.
//!
//! [`to_term`] and [`from_term`] convert values of any type that implements serde's traits. The
//! terms are the terms that programs in Erlang and Elixir use for the same things:
//!
//! | Rust | term | also read |
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
//! A struct variant is a tuple of an atom and a map. serde chooses the names of variants and
//! fields, so `#[serde(rename_all = "snake_case")]` on an enum makes the usual atoms.
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

#[cfg(doc)]
use crate::term::{Atom, NodePid, Reference, Term};

pub mod address;
mod calls;
mod convert;
mod error;
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

pub use self::convert::{from_term, to_term};
pub use self::error::{CallError, ConvertError, SendError};
pub use self::format::Format;
pub use self::message::{MessageError, Messages, message};
pub(crate) use self::typed::Unsent;

#[cfg(test)]
mod tests;
