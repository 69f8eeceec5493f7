//! The ways to open a file.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::file::File;
use super::jobs::run;
use crate::scheduler::placed::placed;

/// The ways to open a file, like [`std::fs::OpenOptions`]. All are off at first.
///
/// ```
/// use procession::fs::{self, OpenOptions};
///
/// # let path = std::env::temp_dir().join(format!("procession-log-{}", std::process::id()));
/// procession::run(async {
///     for line in ["one\n", "two\n"] {
///         let mut log = OpenOptions::new().create(true).append(true).open(&path).await?;
///         log.write_all(line.as_bytes()).await?;
///         log.flush().await?;
///     }
///     assert_eq!(fs::read_to_string(&path).await?, "one\ntwo\n");
///     fs::remove_file(&path).await
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

/// Methods that set one option.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $Value:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $name: $Value) -> &mut Self {
            self.0.$name($name);
            self
        }
    )*};
}

impl OpenOptions {
    /// Creates options that are all off.
    pub fn new() -> Self {
        Self(fs::OpenOptions::new())
    }

    options! {
        /// Sets whether the file can be read.
        read: bool;
        /// Sets whether the file can be written. Writing begins at its start, and keeps what it
        /// does not replace.
        write: bool;
        /// Sets whether each write goes to the end of the file, even if other programs write to it.
        append: bool;
        /// Sets whether the file is emptied when it is opened. Needs [`write`](Self::write).
        truncate: bool;
        /// Sets whether the file is created if it does not exist. Needs [`write`](Self::write) or
        /// [`append`](Self::append).
        create: bool;
        /// Sets whether the file is created, and an existing one is an error.
        create_new: bool;
        /// Sets the permissions of a file that is created, before the umask. Default: `0o666`.
        mode: u32;
        /// Sets further flags of `open(2)`, such as `libc::O_NOFOLLOW`.
        custom_flags: i32;
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// Returns the errors of [`std::fs::OpenOptions::open`], and an error if the system has no
    /// thread for the call.
    ///
    /// # Cancellation
    /// If the future is dropped after it was polled, the file is still opened, and perhaps created
    /// or emptied, and is closed again.
    #[track_caller]
    pub fn open<P: AsRef<Path>>(&self, path: P) -> impl Future<Output = io::Result<File>> + use<P> {
        let (options, path) = (self.0.clone(), path.as_ref().to_owned());
        let opens = run(move || options.open(path));
        placed(async move { opens.await.map(File::from) })
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl From<fs::OpenOptions> for OpenOptions {
    fn from(options: fs::OpenOptions) -> Self {
        Self(options)
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// Returns the errors of [`OpenOptions::open`].
    ///
    /// # Cancellation
    /// As [`OpenOptions::open`].
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> impl Future<Output = io::Result<Self>> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing. If the file exists, it is emptied; otherwise it is created.
    ///
    /// # Errors
    /// Returns the errors of [`OpenOptions::open`].
    ///
    /// # Cancellation
    /// As [`OpenOptions::open`].
    #[track_caller]
    pub fn create(path: impl AsRef<Path>) -> impl Future<Output = io::Result<Self>> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file for reading and writing, which must not exist yet.
    ///
    /// # Errors
    /// Returns the errors of [`OpenOptions::open`].
    ///
    /// # Cancellation
    /// As [`OpenOptions::open`].
    #[track_caller]
    pub fn create_new(path: impl AsRef<Path>) -> impl Future<Output = io::Result<Self>> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// Returns options to open a file with.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}
