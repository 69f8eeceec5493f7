//! The errors of terms that cannot be read or written.

use std::error::Error;
use std::fmt;

/// The error of bytes that are not a term, or a term beyond the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end within a term.
    Incomplete,
    /// A tag that is unknown, or refused: compressed terms are.
    Tag(u8),
    /// An atom that is not text, or longer than 255 characters.
    Atom,
    /// A reference to an atom that the header of the frame does not have.
    AtomReference(u8),
    /// It is nested more than 128 levels deep.
    TooDeep,
    /// It would take more memory than a message may.
    TooLarge,
    /// A field has a value that the format does not allow.
    Value,
    /// There are more bytes after the term.
    Trailing,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete => f.write_str("the bytes end within a term"),
            Self::Tag(tag) => write!(f, "a term has the unknown tag {tag}"),
            Self::Atom => f.write_str("an atom is not text of at most 255 characters"),
            Self::AtomReference(index) => {
                write!(f, "a term refers to atom {index}, which the frame does not have")
            }
            Self::TooDeep => f.write_str("a term is nested more than 128 levels deep"),
            Self::TooLarge => f.write_str("a term would take too much memory"),
            Self::Value => f.write_str("a field of a term has a value that is not allowed"),
            Self::Trailing => f.write_str("there are more bytes after the term"),
        }
    }
}

impl Error for DecodeError {}

/// The error of a term that cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// It is nested more than 128 levels deep.
    TooDeep,
    /// A map in it has a key twice.
    DuplicateKey,
    /// Some part has 2^32 items or more, or an integer in the term has more than 65 536 bytes.
    TooLong,
    /// A float in it is infinite or no number.
    NotFinite,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "the term is nested more than 128 levels deep",
            Self::DuplicateKey => "a map in the term has a key twice",
            Self::TooLong => "a part of the term is too long",
            Self::NotFinite => "a float in the term is infinite or no number",
        })
    }
}

impl Error for EncodeError {}

/// The error of a text that is no term. It says where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseTermError {
    pub(crate) at: usize,
}

impl ParseTermError {
    /// Returns the place of the first byte that does not fit.
    pub fn at(&self) -> usize {
        self.at
    }
}

impl fmt::Display for ParseTermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the text is no term: byte {} does not fit", self.at)
    }
}

impl Error for ParseTermError {}
