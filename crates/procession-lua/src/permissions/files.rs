//! Files that a process may open.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use rustix::fs::{
    CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, fstatfs, openat, openat2,
};
use rustix::io::Errno;

use super::{Bounds, Grant, Permissions, refused};
use crate::limits::{Hold, Resource};

/// The number of attempts to open a path while others rename folders in it.
const ATTEMPTS_MAX: u32 = 16;

/// The flags of a folder below which files are opened.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The purpose for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    fn option(self) -> &'static str {
        match self {
            Self::Read => "--allow-read",
            Self::Write => "--allow-write",
        }
    }
}

/// A folder. Files are opened below it, whatever else its path leads to later.
#[derive(Clone, Debug)]
pub(crate) struct Folder(Arc<Open>);

/// A descriptor, and the charge for a descriptor that a process keeps open.
#[derive(Debug)]
struct Open(OwnedFd, #[expect(dead_code, reason = "it ends when this is dropped")] Option<Hold>);

/// The object that a path below a folder leads to.
pub(crate) enum Beneath {
    File(File),
    Nothing,
    /// It leads out of the folder.
    Outside,
}

impl Folder {
    /// Opens a folder. An empty path is the current folder.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::open_charged(path, None)
    }

    fn open_charged(path: &Path, charge: Option<Hold>) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let folder = Self::new(openat(CWD, path, FOLDER, Mode::empty())?, charge);
        // If this fails, no file could be opened later.
        folder.beneath(Path::new("."), FOLDER, Mode::empty()).map_err(|error| {
            let cause = io::Error::from(error);
            io::Error::new(cause.kind(), format!("the system refuses openat2: {cause}"))
        })?;
        Ok(folder)
    }

    fn new(descriptor: OwnedFd, charge: Option<Hold>) -> Self {
        Self(Arc::new(Open(descriptor, charge)))
    }

    /// Opens a path, which the kernel resolves below the folder.
    fn beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut attempts = 0;
        loop {
            match openat2(&self.0.0, path, flags, mode, resolve) {
                // The kernel does not know whether `..` has left the folder, because something was
                // renamed.
                Err(Errno::AGAIN) if attempts < ATTEMPTS_MAX => attempts += 1,
                opened => return opened,
            }
        }
    }

    /// Opens a file to read it. Does not wait for the writer of a pipe.
    pub(crate) fn open_file(&self, path: &Path) -> io::Result<Beneath> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        match self.beneath(path, flags, Mode::empty()) {
            Ok(opened) => Ok(Beneath::File(opened.into())),
            Err(Errno::NOENT) => Ok(Beneath::Nothing),
            Err(Errno::XDEV) => Ok(Beneath::Outside),
            Err(error) => Err(error.into()),
        }
    }
}

/// A folder below which files may be opened, or one file.
///
/// Paths are compared only to choose a place. What may be opened is decided by the kernel, which
/// resolves the rest of the path below the descriptor.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The absolute path, as it was written, and without links.
    paths: [PathBuf; 2],
    folder: Folder,
    /// The name of the only file in the folder that may be opened.
    file: Option<OsString>,
}

impl Place {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        Self::open(path, Folder::open)
    }

    /// Returns the place at a path. `open` opens its folder.
    fn open(path: &Path, open: impl FnOnce(&Path) -> io::Result<Folder>) -> io::Result<Self> {
        let written = absolute(path)?;
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            // A file that will be created.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match (written.parent(), written.file_name()) {
                    (Some(folder), Some(name)) => fs::canonicalize(folder)?.join(name),
                    _ => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        let (folder, file) = match (real.is_dir(), real.parent(), real.file_name()) {
            (false, Some(folder), Some(name)) => (folder, Some(name.to_owned())),
            _ => (&*real, None),
        };
        let folder = open(folder)?;
        Ok(Self { paths: [written, real], folder, file })
    }

    /// Returns the bytes that this takes.
    pub(super) fn size(&self) -> usize {
        let paths = self.paths.iter().map(|path| path.as_os_str().len()).sum::<usize>();
        size_of::<Self>() + paths + self.file.as_ref().map_or(0, |name| name.len())
    }

    /// Returns the path below the folder that `path` leads to.
    fn rest<'a>(&'a self, path: &'a Path) -> Option<&'a Path> {
        let rest = self.paths.iter().find_map(|own| path.strip_prefix(own).ok())?;
        match &self.file {
            Some(name) => rest.as_os_str().is_empty().then_some(Path::new(name)),
            None if rest.as_os_str().is_empty() => Some(Path::new(".")),
            None => Some(rest),
        }
    }
}

/// Makes the places of a child inside of the places of the process that spawns it.
///
/// The permissions of the child keep the folders open. Each is opened once, and charged as a socket
/// is. A folder that the process itself keeps open is shared.
pub(super) struct Narrowing<'a> {
    parent: &'a Bounds,
    access: Access,
    /// The folders that were opened, by the number of the place that they are in, and the path
    /// below that. Without a place, by the path alone.
    opened: HashMap<(Option<usize>, PathBuf), Folder>,
}

impl<'a> Narrowing<'a> {
    /// Begins for a child of a process with the bounds `parent`.
    pub(super) fn new(parent: &'a Bounds, access: Access) -> Self {
        Self { parent, access, opened: HashMap::new() }
    }

    /// Returns the place at a path.
    ///
    /// # Errors
    /// If the process may not use it, it cannot be opened, or the limits have no room for its
    /// folder, returns an error.
    pub(super) fn place(&mut self, path: &Path) -> io::Result<Place> {
        let parent = self.parent;
        let Some(places) = places(&parent.permissions, self.access) else {
            let place = Place::open(path, |folder| {
                self.folder(None, folder, |charge| Folder::open_charged(folder, Some(charge)))
            })?;
            if place.file.is_some() && !parent.permissions.is_all() {
                check_outside_proc(&place.folder.0.0)?;
            }
            return Ok(place);
        };
        let full = absolute(path)?;
        for (index, place) in places.iter().enumerate() {
            let Some(rest) = place.rest(&full) else { continue };
            let found = place.folder.beneath(rest, FOLDER, Mode::empty());
            let (inner, file) = match (found, rest.parent(), rest.file_name()) {
                (Ok(_), ..) if place.file.is_none() => (rest, None),
                // A file, which may not exist yet.
                (Err(Errno::NOTDIR | Errno::NOENT), Some(inner), Some(name)) => {
                    (inner, Some(name.to_owned()))
                }
                // It leads out of the folder.
                (Err(Errno::XDEV), ..) => continue,
                (Err(error), ..) => return Err(error.into()),
                (Ok(_), ..) => continue,
            };
            let is_own = inner.as_os_str().is_empty() || inner == Path::new(".");
            let folder = match is_own {
                true => place.folder.clone(),
                false => self.folder(Some(index), inner, |charge| {
                    let opened = place.folder.beneath(inner, FOLDER, Mode::empty())?;
                    Ok(Folder::new(opened, Some(charge)))
                })?,
            };
            if file.is_some() && place.file.is_none() {
                check_outside_proc(&folder.0.0)?;
            }
            return Ok(Place { paths: [full.clone(), full], folder, file });
        }
        Err(refused(format_args!("{}={}", self.access.option(), path.display())))
    }

    /// Returns a folder, which is opened by `open` if it was not opened before.
    fn folder(
        &mut self,
        place: Option<usize>,
        path: &Path,
        open: impl FnOnce(Hold) -> io::Result<Folder>,
    ) -> io::Result<Folder> {
        match self.opened.entry((place, path.to_owned())) {
            Entry::Occupied(opened) => Ok(opened.get().clone()),
            Entry::Vacant(vacant) => {
                let charge =
                    self.parent.limits.hold(Resource::Sockets).map_err(io::Error::other)?;
                Ok(vacant.insert(open(charge)?).clone())
            }
        }
    }
}

/// Returns the places that a process may use, or `None` for all.
fn places(permissions: &Permissions, access: Access) -> Option<&[Place]> {
    let places = match access {
        Access::Read => &permissions.0.read,
        Access::Write => &permissions.0.write,
    };
    match places {
        Grant::Nothing => Some(&[]),
        Grant::Only(places) => Some(places),
        Grant::Everything => None,
    }
}

/// Returns the folder of an object, and its name in that. The process may use the object.
///
/// # Errors
/// If the process may not use it, or the folder cannot be opened, returns an error.
pub(crate) fn named(
    permissions: &Permissions,
    access: Access,
    path: &Path,
) -> io::Result<(OwnedFd, OsString)> {
    let parts = |path: &Path| {
        let nameless = || io::Error::new(io::ErrorKind::InvalidInput, "the path has no name");
        let name = path.file_name().ok_or_else(nameless)?.to_owned();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Ok::<_, io::Error>((folder.unwrap_or(Path::new(".")).to_owned(), name))
    };
    let Some(places) = places(permissions, access) else {
        let (folder, name) = parts(path)?;
        return Ok((open(permissions, &folder, FOLDER, Mode::empty())?, name));
    };
    let full = absolute(path)?;
    for place in places {
        // The folder itself is not below itself.
        let Some(rest) = place.rest(&full).filter(|rest| *rest != Path::new(".")) else { continue };
        let (folder, name) = parts(rest)?;
        match place.folder.beneath(&folder, FOLDER, Mode::empty()) {
            Ok(opened) => return Ok((opened, name)),
            // It leads out of the folder.
            Err(Errno::XDEV) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(refused(format_args!("{}={}", access.option(), path.display())))
}

/// Returns the folder of an object that the process may read and write, and its name in that.
///
/// # Errors
/// If the process may not do both, or the folder cannot be opened, returns an error.
pub(crate) fn movable(permissions: &Permissions, path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let (folder, name) = named(permissions, Access::Write, path)?;
    let (readable, readable_name) = named(permissions, Access::Read, path)?;
    // Others may rename folders between the two, and a file that is permitted may be a link.
    let place = |folder: &OwnedFd| fstat(folder).map(|found| (found.st_dev, found.st_ino));
    match place(&folder)? == place(&readable)? && name == readable_name {
        true => Ok((folder, name)),
        false => Err(refused(format_args!("{}={}", Access::Read.option(), path.display()))),
    }
}

/// Opens any path, if a process may use all files.
///
/// In `/proc`, the memory and the variables of the host are files, and there are links to what the
/// host has opened. They need all permissions.
fn open(permissions: &Permissions, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    if permissions.is_all() {
        return Ok(openat(CWD, path, flags, mode)?);
    }
    let opened = match openat2(CWD, path, flags, mode, ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::NOSYS) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the system has no openat2: it needs --allow-all",
            ));
        }
        Err(Errno::LOOP) => {
            // Other links may lead in a circle.
            let path_only = OFlags::PATH | OFlags::CLOEXEC;
            return match openat(CWD, path, path_only, Mode::empty()) {
                Err(Errno::LOOP) => Err(Errno::LOOP.into()),
                _ => Err(belongs_to_proc()),
            };
        }
        opened => opened?,
    };
    check_outside_proc(&opened)?;
    Ok(opened)
}

/// # Errors
/// If the object is in `/proc`, returns the refusal.
fn check_outside_proc(opened: &OwnedFd) -> io::Result<()> {
    match fstatfs(opened)?.f_type == PROC_SUPER_MAGIC {
        true => Err(belongs_to_proc()),
        false => Ok(()),
    }
}

fn belongs_to_proc() -> io::Error {
    let cause =
        "it leads to /proc, which has the memory and variables of the host: it needs --allow-all";
    io::Error::new(io::ErrorKind::PermissionDenied, cause)
}

/// Opens a file.
///
/// # Errors
/// If the process may not open it, or the system refuses that, returns an error.
pub(crate) fn file(
    permissions: &Permissions,
    access: Access,
    path: &Path,
    flags: OFlags,
) -> io::Result<File> {
    // A descriptor for the path alone opens no terminal, and openat2 refuses the flag for it.
    let no_terminal = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NOCTTY };
    let flags = flags | OFlags::CLOEXEC | no_terminal;
    let creates = flags.contains(OFlags::CREATE);
    let mode = if creates { Mode::from_raw_mode(0o666) } else { Mode::empty() };
    let Some(places) = places(permissions, access) else {
        return Ok(open(permissions, path, flags, mode)?.into());
    };
    let full = absolute(path)?;
    for place in places {
        let Some(rest) = place.rest(&full) else { continue };
        match place.folder.beneath(rest, flags, mode) {
            Ok(opened) => {
                // A file of `/proc` that was named alone is meant.
                if place.file.is_none() {
                    check_outside_proc(&opened)?;
                }
                return Ok(opened.into());
            }
            // It leads out of the folder.
            Err(Errno::XDEV) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(refused(format_args!("{}={}", access.option(), path.display())))
}
