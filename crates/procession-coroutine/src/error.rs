//! The reasons why there is no stack.

use std::error::Error;
use std::{fmt, io};

use crate::stacks;

/// The reason why no stack could be taken.
#[derive(Debug)]
pub struct StackError {
    pub(crate) wanted: usize,
    pub(crate) kind: StackErrorKind,
}

/// What was in the way.
#[derive(Debug)]
pub(crate) enum StackErrorKind {
    TooLarge,
    Limit(usize),
    Guards(usize),
    Mappings,
    System(io::Error),
}

impl StackError {
    /// Returns the error of a stack for which the system has refused memory, for simulations of
    /// that.
    #[doc(hidden)]
    pub fn refused(bytes: usize) -> Self {
        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        Self { wanted: bytes, kind: StackErrorKind::System(error) }
    }

    /// Returns `true` if the slab's own limit is reached and no stack is free. A stack is available
    /// again when another stack is returned, whatever its size.
    pub fn is_limit(&self) -> bool {
        matches!(self.kind, StackErrorKind::Limit(_))
    }

    /// Returns `true` if all slabs of the program together have reached a limit of guards or of
    /// slabs.
    pub fn is_exhausted(&self) -> bool {
        matches!(self.kind, StackErrorKind::Guards(_) | StackErrorKind::Mappings)
    }
}

impl StackErrorKind {
    /// Returns `true` if a stack of another size could give way.
    pub(crate) fn has_no_room(&self) -> bool {
        matches!(self, Self::Limit(_) | Self::Guards(_))
    }
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no stack of {} bytes: ", self.wanted)?;
        match &self.kind {
            StackErrorKind::TooLarge => {
                write!(f, "the largest has {} bytes", stacks::largest())
            }
            StackErrorKind::Limit(limit) => write!(f, "the limit of {limit} stacks is reached"),
            StackErrorKind::Guards(budget) => {
                write!(
                    f,
                    "all {budget} guards are in use, and more would exhaust the program's mappings (vm.max_map_count)"
                )
            }
            StackErrorKind::Mappings => f.write_str("the program has too many slabs of stacks"),
            StackErrorKind::System(_) => f.write_str("the system refused memory"),
        }
    }
}

impl Error for StackError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            StackErrorKind::System(error) => Some(error),
            _ => None,
        }
    }
}
