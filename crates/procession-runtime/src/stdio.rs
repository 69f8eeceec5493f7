//! Standard input, output and error of the program.
//!
//! The standard streams may be files, terminals or pipes, and other programs may share them. If
//! this program made such a stream non-blocking, it would be non-blocking for all these programs.
//! So the streams stay blocking, and helper threads read and write.

mod input;
mod output;

pub use input::{Stdin, stdin};
pub use output::{Stderr, Stdout, stderr, stdout};
