//! Errors in the use of an attribute.

use proc_macro::{Span, TokenStream};

use crate::{code, respanned};

/// A wrong use of an attribute, which becomes an error of the compiler.
pub(crate) struct Misuse {
    place: Span,
    message: String,
}

impl Misuse {
    pub(crate) fn at(place: Span, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }

    /// Returns the code that lets the compiler report the message at its place.
    pub(crate) fn into_tokens(self) -> TokenStream {
        respanned(code(&format!("::core::compile_error! {{ {:?} }}", self.message)), self.place)
    }
}
