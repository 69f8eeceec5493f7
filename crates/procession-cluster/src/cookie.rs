//! Cookies, which keep clusters apart.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The longest cookie, in bytes.
const BYTES_MAX: usize = 255;

/// A word that all nodes of a cluster know.
///
/// It keeps clusters apart and keeps nobody out who can read the network: without TLS, all that two
/// nodes say to each other can be read and changed on the way. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie(Arc<str>);

impl Cookie {
    /// Creates a cookie. Returns `None` if the text is empty or has more than 255 bytes.
    pub fn new(text: impl Into<Arc<str>>) -> Option<Self> {
        let text = text.into();
        (1..=BYTES_MAX).contains(&text.len()).then_some(Self(text))
    }

    /// Creates a cookie of 160 random bits.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 20];
        crate::chance::fill(&mut bytes)?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(text.into()))
    }

    /// Reads a cookie from a file, such as `~/.erlang.cookie`. Space around it does not count.
    ///
    /// # Errors
    /// If the file cannot be read, if it has no cookie or one that is too long, or if other users
    /// can read it: its mode must be 0600 or 0400, as BEAM nodes demand.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let wrong = |why: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
        };
        let file = File::open(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let mode = file.metadata()?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(wrong(format!("its mode is {mode:o}, and must be 600: it has a secret")));
        }
        let mut text = String::new();
        file.take(BYTES_MAX as u64 + 3).read_to_string(&mut text)?;
        Self::new(text.trim()).ok_or_else(|| wrong("it has no cookie of 1 to 255 bytes".to_owned()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(..)")
    }
}
