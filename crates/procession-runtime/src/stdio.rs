//! Standard input, output and error of the program.
//!
//! They may be files, terminals or pipes, and they may be shared with other programs. Setting them
//! non-blocking would do so for all that share them. So they stay as they are, and helper threads
//! read and write.

mod input;
mod output;

pub use input::{Stdin, stdin};
pub use output::{Stderr, Stdout, stderr, stdout};

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

/// Waits on this thread until a descriptor is ready that another program has set non-blocking.
fn wait_until_ready(file: &impl AsFd, flags: PollFlags) {
    // Ignored: the call that follows has the error of the descriptor.
    let _ = poll(&mut [PollFd::new(file, flags)], None);
}
