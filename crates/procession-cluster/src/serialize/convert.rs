//! Values as terms, and back.

use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use crate::serialize::error::ConvertError;
use crate::serialize::{read, write};
use crate::term::Term;

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
