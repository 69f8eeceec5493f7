//! Copying between streams, and standard input, output and error.

mod copy;

pub use self::copy::{CopyBidirectional, copy, copy_bidirectional};
pub use crate::stdio::{Stderr, Stdin, Stdout, stderr, stdin, stdout};
