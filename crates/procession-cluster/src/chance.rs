//! Random bytes of the system.

use std::io;

/// Fills the buffer with bytes that nobody can guess.
#[cfg(target_os = "linux")]
pub(crate) fn fill(mut buffer: &mut [u8]) -> io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};

    while !buffer.is_empty() {
        match getrandom(&mut *buffer, GetRandomFlags::empty()) {
            Ok(count) => buffer = &mut buffer[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fills the buffer with bytes that nobody can guess.
#[cfg(not(target_os = "linux"))]
pub(crate) fn fill(buffer: &mut [u8]) -> io::Result<()> {
    use std::io::Read;

    std::fs::File::open("/dev/urandom")?.read_exact(buffer)
}

/// Returns a number that nobody can guess.
pub(crate) fn number() -> io::Result<u32> {
    let mut bytes = [0; 4];
    fill(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}
