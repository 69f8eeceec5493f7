//! Versions of programs.

use std::fmt;

/// The version of a program: a hash of its bytes and of the bytes of its modules, so that equal
/// sources have equal versions everywhere. It is not cryptographic. Its `Display` is 16 hexadecimal
/// digits.
///
/// ```
/// use procession_lua::Program;
///
/// let one = Program::load("one", "x = 1")?;
/// let same = Program::load("same", "x = 1")?;
/// let other = Program::load("one", "x = 2")?;
/// assert!(one.version() == same.version() && one.version() != other.version());
/// assert_eq!(one.version().to_string().len(), 16);
/// # Ok::<(), procession_lua::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

const PRIME: u64 = 0x0000_0100_0000_01b3;

impl Version {
    /// Returns the hash of a source by FNV-1a, which is the same in every build.
    pub(crate) fn of(source: &[u8]) -> Self {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        Self(BASIS).with(source)
    }

    /// Returns the hash of everything so far and of more bytes.
    pub(crate) fn with(self, more: &[u8]) -> Self {
        Self(more.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
