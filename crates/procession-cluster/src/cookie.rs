//! Cookies, which keep clusters apart.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// The longest cookie, in bytes.
const BYTES_MAX: usize = 255;

/// A word that all nodes of a cluster know.
///
/// It keeps clusters apart, but keeps no reader of the network out: without TLS, all that two
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
        let file = open_secret(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let mut text = String::new();
        file.take(BYTES_MAX as u64 + 3).read_to_string(&mut text)?;
        Self::new(text.trim()).ok_or_else(|| wrong("it has no cookie of 1 to 255 bytes".to_owned()))
    }

    /// Reads a cookie from a file like [`read`](Self::read). If there is no such file, creates it
    /// first, with a [random](Self::random) cookie and the mode 0600.
    ///
    /// # Errors
    /// As for `read`, or if the file cannot be created.
    pub fn read_or_create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let cookie = Self::random()?;
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match created {
            Ok(mut file) => file.write_all(cookie.0.as_bytes()).map(|()| cookie),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(path),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Opens a file with a secret, which no other user may be able to read.
pub(crate) fn open_secret(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!("its mode is {mode:o}, and must be 600: it has a secret");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(file)
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(..)")
    }
}
