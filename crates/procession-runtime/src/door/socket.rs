//! The Unix socket of a door: its directory, its name, and the sockets that ended programs left.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::mem;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use procession_sync::Mutex;

use crate::scheduler::error::DoorError;
use crate::sys::World;

/// The maximum length of the program's name in the name of a socket. The path of a socket has at
/// most 107 bytes.
const NAME_MAX: usize = 24;
/// The age of a socket file from which on it may be removed. A younger one may be about to listen.
const LEFT_AFTER: Duration = Duration::from_secs(60);
/// The maximum number of files that are looked at for sockets that were left.
const FILES_MAX: usize = 256;

/// The files of all open doors.
static OPEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The file of a socket. Dropping this removes the file. The end of the program removes it too,
/// because the default scheduler is never dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl SocketFile {
    fn new(path: PathBuf) -> Self {
        static REGISTERED: OnceLock<()> = OnceLock::new();
        REGISTERED.get_or_init(|| World::at_exit(remove_open));
        OPEN.lock().push(path.clone());
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Removes the files of the doors that are open when the program ends.
fn remove_open() {
    for path in mem::take(&mut *OPEN.lock()) {
        // Ignored: if it is gone, someone has removed it before.
        let _ = fs::remove_file(path);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        OPEN.lock().retain(|open| *open != self.0);
        // Ignored: if it is gone, someone has removed it before.
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the effective user of the program.
pub(super) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the directory in which doors are, unless the program chose one.
fn default_directory() -> PathBuf {
    let by_system = || {
        let path = PathBuf::from(format!("/run/user/{}", user()));
        path.is_dir().then_some(path)
    };
    let by_variable = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match by_variable.filter(|path| path.is_absolute()).or_else(by_system) {
        Some(path) => path.join("procession"),
        None => PathBuf::from(format!("/tmp/procession-{}", user())),
    }
}

/// Creates the directory if it is not there, and checks that only this user can get into it. From
/// then on nobody else can replace it: its parent is the user's own, or sticky as `/tmp`.
fn prepare(directory: &Path) -> Result<(), DoorError> {
    let error = |error| DoorError::Directory(directory.to_owned(), error);
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(cause) if cause.kind() != ErrorKind::AlreadyExists => return Err(error(cause)),
        _ => {}
    }
    let found = fs::symlink_metadata(directory).map_err(error)?;
    let path = || directory.to_owned();
    if !found.is_dir() {
        return Err(DoorError::NoDirectory(path()));
    }
    if found.uid() != user() {
        return Err(DoorError::OtherOwner(path(), found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(DoorError::OpenToOthers(path(), found.mode()));
    }
    Ok(())
}

/// Returns the name of this program, as far as it may stand in the name of a file.
pub(super) fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = name.chars().filter(is_plain).take(NAME_MAX).collect();
    if name.is_empty() { String::from("program") } else { name }
}

/// Listens at a new socket in the directory. Its name contains the program and the number that the
/// system gave it. It ends in a random part, because another namespace of the system, or another
/// scheduler of the program, may have the same number.
pub(super) fn listen(
    directory: Option<&Path>,
    random: u32,
) -> Result<(StdUnixListener, SocketFile), DoorError> {
    let directory = directory.map_or_else(default_directory, Path::to_owned);
    prepare(&directory)?;
    let name = format!("{}.{}.{random:08x}.sock", program_name(), std::process::id());
    let path = directory.join(name);
    let error = |error| DoorError::Socket(path.clone(), error);
    let listener = StdUnixListener::bind(&path).map_err(error)?;
    let file = SocketFile::new(path.clone());
    fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(error)?;
    Ok((listener, file))
}

/// Returns the sockets in a directory that are old enough to have been left.
pub(super) fn old_sockets(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let files = fs::read_dir(directory)?.take(FILES_MAX).filter_map(Result::ok);
    let is_old = |file: &fs::DirEntry| {
        let modified = file.metadata().and_then(|found| found.modified());
        modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age >= LEFT_AFTER))
    };
    let is_socket = |file: &fs::DirEntry| file.file_name().as_encoded_bytes().ends_with(b".sock");
    Ok(files.filter(is_socket).filter(is_old).map(|file| file.path()).collect())
}
