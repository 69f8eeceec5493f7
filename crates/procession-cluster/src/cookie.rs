//! Cookies, which keep clusters apart.

use std::fmt;
use std::fs::{File, OpenOptions, hard_link, remove_file};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// The longest cookie, in bytes.
const BYTES_MAX: usize = 255;

/// A word that all nodes of a cluster know.
///
/// It keeps clusters apart, but does not protect them: without TLS, everything between two nodes
/// can be read and changed on the way. It is not printed.
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
    /// If the file cannot be read, if it has no cookie or a longer cookie than allowed, or if other
    /// users can read it: its mode must be 0600 or 0400, as BEAM nodes demand.
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
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if path.try_exists().map_err(named)? {
            return Self::read(path);
        }
        let cookie = Self::random()?;
        match create_whole(path, cookie.0.as_bytes()) {
            Ok(()) => Ok(cookie),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(path),
            Err(error) => Err(named(error)),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Creates a file with the mode 0600, which has all its bytes from the moment at which other
/// programs can see it: the bytes are written to a file with another name, which then gets this
/// one. Fails with [`AlreadyExists`](io::ErrorKind::AlreadyExists) if another program was first.
fn create_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{:08x}.new", crate::chance::number()?));
    let draft = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    // A link, because a rename would replace the file of another program.
    let linked = written.and_then(|()| hard_link(&draft, path));
    // Ignored: the file is no longer needed.
    drop(remove_file(&draft));
    linked
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
