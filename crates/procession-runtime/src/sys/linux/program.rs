//! What the system tells about this program, and gives it.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// The key of `AT_SECURE` in the auxiliary vector. Its value is not 0 if the program has more
/// rights than its caller.
const AT_SECURE: usize = 23;

/// Returns `true` if the program has more rights than its caller, or the system does not say.
pub(crate) fn has_more_rights() -> bool {
    let Ok(vector) = fs::read("/proc/self/auxv") else { return true };
    let words = vector.chunks_exact(size_of::<usize>());
    let words: Vec<_> = words.map(|word| word.try_into().map_or(0, usize::from_ne_bytes)).collect();
    let value = words.chunks_exact(2).find(|pair| pair[0] == AT_SECURE).map(|pair| pair[1]);
    value != Some(0)
}

/// Fills the buffer with bytes that nobody can guess.
pub(crate) fn fill_at_random(mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match getrandom(&mut *buffer, GetRandomFlags::empty()) {
            Ok(count) => buffer = &mut buffer[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
