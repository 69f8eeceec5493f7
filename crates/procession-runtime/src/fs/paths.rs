//! Operations on paths: each is one call of std's on a helper, unless the system has a file that is
//! read in memory.

use std::fs::{self, Metadata, Permissions};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use super::file::INLINE_MAX;
use super::jobs::{run, run_write};
use crate::scheduler::budget;
use crate::scheduler::placed::placed;
use crate::sys::system::cached_files;

/// Functions with one path, which each call the function of the same name in `std::fs` by `$run`.
macro_rules! of_a_path {
    ($run:ident: $($(#[$doc:meta])* $name:ident -> $Result:ty = $call:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        #[doc = concat!("Returns the errors of [`", stringify!($call), "`], and an error if the system gives no thread for")]
        /// the call.
        ///
        /// # Cancellation
        /// If the future is dropped after it was polled, the call still runs to its end.
        #[track_caller]
        pub fn $name(path: impl AsRef<Path>) -> impl Future<Output = io::Result<$Result>> {
            let path = path.as_ref().to_owned();
            placed($run(move || $call(path)))
        }
    )*};
}

of_a_path! {
    run:
    /// Returns the absolute path without symbolic links and without `.` and `..`.
    canonicalize -> PathBuf = std::fs::canonicalize;
    /// Returns the metadata of a file or directory, and follows symbolic links.
    metadata -> Metadata = std::fs::metadata;
    /// Returns the target of a symbolic link.
    read_link -> PathBuf = std::fs::read_link;
    /// Returns the metadata of a file, a directory or a symbolic link itself.
    symlink_metadata -> Metadata = std::fs::symlink_metadata;
    /// Returns `true` if the path exists.
    try_exists -> bool = std::fs::exists;
}

of_a_path! {
    run_write:
    /// Creates a directory. Its parent must exist.
    create_dir -> () = std::fs::create_dir;
    /// Creates a directory, and its parents if they do not exist. It is no error if the directory
    /// exists already.
    create_dir_all -> () = std::fs::create_dir_all;
    /// Removes an empty directory.
    remove_dir -> () = std::fs::remove_dir;
    /// Removes a directory with everything in it. Symbolic links are removed and not followed.
    remove_dir_all -> () = std::fs::remove_dir_all;
    /// Removes a file, or a symbolic link.
    remove_file -> () = std::fs::remove_file;
}

/// Reads a whole file, with `cached` if the system has it in memory, and with `call` on a helper
/// otherwise.
async fn read_with<T: Send + 'static>(
    path: PathBuf,
    cached: fn(&Path) -> Option<T>,
    call: fn(PathBuf) -> io::Result<T>,
) -> io::Result<T> {
    budget::charged().await;
    match cached(&path) {
        Some(content) => Ok(content),
        None => run(move || call(path)).await,
    }
}

/// Reads a whole file.
///
/// # Errors
/// Returns the errors of [`std::fs::read`], and an error if the system has no thread for the call.
///
/// # Cancellation
/// If the future is dropped, the file may still be read. Only the result is lost.
#[track_caller]
pub fn read(path: impl AsRef<Path>) -> impl Future<Output = io::Result<Vec<u8>>> {
    let path = path.as_ref().to_owned();
    placed(read_with(path, |path| cached_files::read(path, INLINE_MAX), fs::read))
}

/// Reads a whole file, which must be UTF-8.
///
/// # Errors
/// Returns the errors of [`std::fs::read_to_string`], and an error if the system has no thread for
/// the call.
///
/// # Cancellation
/// If the future is dropped, the file may still be read. Only the result is lost.
///
/// ```
/// procession::run(async {
///     let name = procession::fs::read_to_string("/proc/self/comm").await?;
///     assert!(name.ends_with('\n'));
///     let missing = procession::fs::read_to_string("/no/such/file").await;
///     assert_eq!(missing.unwrap_err().kind(), std::io::ErrorKind::NotFound);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn read_to_string(path: impl AsRef<Path>) -> impl Future<Output = io::Result<String>> {
    let path = path.as_ref().to_owned();
    let cached = |path: &Path| String::from_utf8(cached_files::read(path, INLINE_MAX)?).ok();
    placed(read_with(path, cached, fs::read_to_string))
}

/// Functions with two paths.
macro_rules! of_two_paths {
    ($($(#[$doc:meta])* $name:ident($from:ident, $to:ident) -> $Result:ty = $call:path;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        #[doc = concat!("Returns the errors of [`", stringify!($call), "`], and an error if the system gives no thread for")]
        /// the call.
        ///
        /// # Cancellation
        /// If the future is dropped after it was polled, the call still runs to its end.
        #[track_caller]
        pub fn $name(
            $from: impl AsRef<Path>,
            $to: impl AsRef<Path>,
        ) -> impl Future<Output = io::Result<$Result>> {
            let ($from, $to) = ($from.as_ref().to_owned(), $to.as_ref().to_owned());
            placed(run_write(move || $call($from, $to)))
        }
    )*};
}

of_two_paths! {
    /// Copies the content and the permissions of a file, and returns the number of bytes. A file
    /// that exists is replaced.
    copy(from, to) -> u64 = std::fs::copy;
    /// Creates a hard link at `link` to the file `original`.
    hard_link(original, link) -> () = std::fs::hard_link;
    /// Renames a file or directory. A file that exists is replaced, in one step for all programs.
    rename(from, to) -> () = std::fs::rename;
    /// Creates a symbolic link at `link` that points to `original`.
    symlink(original, link) -> () = std::os::unix::fs::symlink;
}

/// Writes a whole file, and replaces a file that exists. The old content is removed before the new
/// content is written, so a reader may see a part of the new content.
///
/// # Errors
/// Returns the errors of [`std::fs::write`], and an error if the system has no thread for the call.
///
/// # Cancellation
/// If the future is dropped after it was polled, the call still runs to its end.
#[track_caller]
pub fn write(
    path: impl AsRef<Path>,
    contents: impl AsRef<[u8]>,
) -> impl Future<Output = io::Result<()>> {
    let (path, contents) = (path.as_ref().to_owned(), contents.as_ref().to_owned());
    placed(run_write(move || fs::write(path, contents)))
}

/// Changes the permissions of a file or directory.
///
/// # Errors
/// Returns the errors of [`std::fs::set_permissions`], and an error if the system has no thread for
/// the call.
///
/// # Cancellation
/// If the future is dropped after it was polled, the call still runs to its end.
#[track_caller]
pub fn set_permissions(
    path: impl AsRef<Path>,
    permissions: Permissions,
) -> impl Future<Output = io::Result<()>> {
    let path = path.as_ref().to_owned();
    placed(run_write(move || fs::set_permissions(path, permissions)))
}
