//! Random bytes of the system.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills the buffer with bytes that nobody can guess.
pub(crate) fn fill(mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match getrandom(&mut *buffer, GetRandomFlags::empty()) {
            Ok(count) => buffer = &mut buffer[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns a number that nobody can guess.
pub(crate) fn number() -> io::Result<u32> {
    let mut bytes = [0; 4];
    fill(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}
