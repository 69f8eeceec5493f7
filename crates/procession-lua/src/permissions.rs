//! The permissions of guests: the parts of the outside world that a process may use.

mod addresses;
mod files;

use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use self::addresses::Target;
pub(crate) use self::addresses::{connect, resolve};
pub(crate) use self::files::{Access, Beneath, Folder, file, movable, named};
use self::files::{Narrowing, Place};
use crate::limits::{Hold, Limits, Resource};

/// What a process may use: its permissions, and the limits that count it.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) permissions: Permissions,
    pub(crate) limits: Limits,
}

impl From<Permissions> for Bounds {
    fn from(permissions: Permissions) -> Self {
        Self { permissions, limits: Limits::default() }
    }
}

/// The part of a permission that the spawner of a process leaves to it.
pub(crate) enum Allowed<'a> {
    Everything,
    Nothing,
    Only(Vec<&'a [u8]>),
}

/// The permissions of the processes of a [`Program`](crate::Program): connections, listeners,
/// files, variables of the environment, and ends of foreign processes. By default a process has
/// none.
///
/// A function of the library that is not permitted fails with an error that names the option of
/// `procession run` that permits it. A spawned process has the permissions of its parent, or fewer.
/// A socket is itself a permission: a process that receives a socket may use it.
///
/// ```
/// use procession_lua::{Permissions, Program, Value};
///
/// let source = "function main() return select(2, fs.read('/etc/hostname')) end";
/// let program = Program::load("reads", source)?;
/// let refused = "cannot read /etc/hostname: it needs --allow-read=/etc/hostname";
/// procession::run(async {
///     let result = program.spawn("main", [])?.await?;
///     assert_eq!(result, Value::string(refused));
///
///     let permitted = program.permissions(Permissions::none().read_below("/etc")?);
///     assert_ne!(permitted.spawn("main", [])?.await?, Value::string(refused));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Permissions(Arc<Inner>);

#[derive(Clone, Debug, Default)]
struct Inner {
    connect: Grant<Target>,
    listen: bool,
    read: Grant<Place>,
    write: Grant<Place>,
    env: Grant<Box<OsStr>>,
    exits: bool,
    /// The charge for the lists, if `allow` has made them.
    held: Option<Arc<Hold>>,
}

impl Inner {
    /// Returns the bytes of the lists.
    fn size(&self) -> usize {
        self.connect.size(Target::size)
            + self.env.size(|name| size_of::<Box<OsStr>>() + name.len())
            + self.read.size(Place::size)
            + self.write.size(Place::size)
    }
}

/// The objects of a kind that a process may use.
#[derive(Clone, Debug, Default)]
enum Grant<T> {
    #[default]
    Nothing,
    Only(Vec<T>),
    Everything,
}

impl<T> Grant<T> {
    /// Returns `true` if everything is permitted, or an object that `includes` the wanted one.
    fn has(&self, includes: impl Fn(&T) -> bool) -> bool {
        match self {
            Self::Nothing => false,
            Self::Only(objects) => objects.iter().any(includes),
            Self::Everything => true,
        }
    }

    fn is_everything(&self) -> bool {
        matches!(self, Self::Everything)
    }

    /// Returns the bytes of the objects, if each has a `size`.
    fn size(&self, size: impl Fn(&T) -> usize) -> usize {
        match self {
            Self::Nothing | Self::Everything => 0,
            Self::Only(objects) => objects.iter().map(size).sum(),
        }
    }

    /// Adds an object, or everything for `None`.
    fn add(&mut self, object: Option<T>) {
        match (&mut *self, object) {
            (Self::Everything, _) => {}
            (_, None) => *self = Self::Everything,
            (Self::Nothing, Some(object)) => *self = Self::Only(vec![object]),
            (Self::Only(objects), Some(object)) => objects.push(object),
        }
    }
}

impl Permissions {
    /// Returns the permissions to use nothing. This is the default.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the permissions to use everything.
    pub fn all() -> Self {
        Self::none().connect().listen().read().write().env().exits()
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Permits connections to all addresses.
    #[must_use]
    pub fn connect(self) -> Self {
        self.with(|inner| inner.connect.add(None))
    }

    /// Permits connections to `host:port`, or to all ports of `host`, or to the node `word@host` of
    /// a cluster. Connections to all ports of a host include connections to all nodes there.
    ///
    /// A name is resolved once for each connection, and the addresses are checked after that. A
    /// name never permits addresses of this machine or its link, unless it is `localhost`: these
    /// must be permitted as addresses.
    ///
    /// # Errors
    /// Returns a [`PermissionError`] if `address` is not an address.
    pub fn connect_to(self, address: &str) -> Result<Self, PermissionError> {
        let target = Target::parse(address).map_err(|cause| PermissionError {
            permission: format!("connections to {address:?}"),
            cause: io::Error::new(io::ErrorKind::InvalidInput, cause),
        })?;
        Ok(self.with(|inner| inner.connect.add(Some(target))))
    }

    /// Permits listeners at all addresses. A name other than `localhost` also needs the permission
    /// to [connect](Self::connect_to) to it, because its name server learns of the attempt.
    #[must_use]
    pub fn listen(self) -> Self {
        self.with(|inner| inner.listen = true)
    }

    /// Permits reads of all files, except for files of `/proc`, which has the memory and the
    /// variables of the host: these need [all](Self::all) permissions, and so do links of `/proc`
    /// to what the host has opened, such as `/dev/stdin`.
    ///
    /// The system must have `openat2`, as Linux has since 5.6.
    #[must_use]
    pub fn read(self) -> Self {
        self.with(|inner| inner.read.add(None))
    }

    /// Permits reads of the file at `path`, or of all files below the folder at `path`.
    ///
    /// The folder is opened now, and files are opened below that descriptor by `openat2(2)`. A link
    /// that leads out of the folder is refused, and so is an absolute link. A folder does not
    /// include files of `/proc`, but you may name such a file itself.
    ///
    /// # Blocking
    /// Blocks the calling thread while it opens the folder.
    ///
    /// # Errors
    /// Returns a [`PermissionError`] if the folder, or the folder that contains the file, cannot be
    /// opened, or if the system refuses `openat2`, as Linux before 5.6 does.
    pub fn read_below(self, path: impl AsRef<Path>) -> Result<Self, PermissionError> {
        let place = place("reads below", path.as_ref())?;
        Ok(self.with(|inner| inner.read.add(Some(place))))
    }

    /// Permits writes of all files, except for files of `/proc`, like [`read`](Self::read).
    #[must_use]
    pub fn write(self) -> Self {
        self.with(|inner| inner.write.add(None))
    }

    /// Permits writes of the file at `path`, or of all files below the folder at `path`, like
    /// [`read_below`](Self::read_below). A file that does not exist yet may be named.
    ///
    /// # Blocking
    /// Blocks the calling thread while it opens the folder.
    ///
    /// # Errors
    /// Returns a [`PermissionError`] if [`read_below`](Self::read_below) does.
    pub fn write_below(self, path: impl AsRef<Path>) -> Result<Self, PermissionError> {
        let place = place("writes below", path.as_ref())?;
        Ok(self.with(|inner| inner.write.add(Some(place))))
    }

    /// Permits all variables of the environment.
    #[must_use]
    pub fn env(self) -> Self {
        self.with(|inner| inner.env.add(None))
    }

    /// Permits a variable of the environment.
    #[must_use]
    pub fn env_var(self, name: impl AsRef<OsStr>) -> Self {
        self.with(|inner| inner.env.add(Some(name.as_ref().into())))
    }

    /// Permits to end processes of the host and of other programs: by exits, cancels and links, and
    /// through their supervisors.
    ///
    /// Without this, a process may end the guests of its own program, and the supervisors that they
    /// have started. If it has limits, it may end only processes that the same limits count. Other
    /// nodes of a cluster decide for themselves.
    #[must_use]
    pub fn exits(self) -> Self {
        self.with(|inner| inner.exits = true)
    }

    /// Returns the permissions of a child of a process with the bounds `parent`: the permissions of
    /// the process, limited to `allowed` for each kind that `allowed` names. `all` is for the other
    /// kinds. What they take is charged to the limits of the process.
    pub(crate) fn narrowed<'a>(
        parent: &Bounds,
        allowed: impl Iterator<Item = Result<(&'a [u8], Allowed<'a>), String>>,
    ) -> Result<Self, String> {
        let own = &parent.permissions;
        let nothing = Inner::default();
        let mut inner = Inner { held: None, ..(*own.0).clone() };
        let mut allowed = allowed.collect::<Result<Vec<_>, _>>()?;
        // The entries of a table have no order.
        allowed.sort_by_key(|(key, _)| *key != b"all");
        for (key, allowed) in allowed {
            let from = match &allowed {
                Allowed::Everything => &*own.0,
                Allowed::Nothing => &nothing,
                Allowed::Only(objects) => {
                    own.narrow(&mut inner, key, objects, parent)?;
                    continue;
                }
            };
            match key {
                b"net" => inner.connect = from.connect.clone(),
                b"listen" => inner.listen = from.listen,
                b"read" => inner.read = from.read.clone(),
                b"write" => inner.write = from.write.clone(),
                b"env" => inner.env = from.env.clone(),
                b"exits" => inner.exits = from.exits,
                b"all" => inner = Inner { held: None, ..from.clone() },
                _ => return Err(unknown(key)),
            }
        }
        match inner.size() {
            0 => {}
            size => inner.held = Some(Arc::new(parent.limits.hold_amount(Resource::Memory, size)?)),
        }
        Ok(Self(Arc::new(inner)))
    }

    /// Leaves only these objects of a permission in `inner`, for a child of a process with the
    /// bounds `parent`.
    fn narrow(
        &self,
        inner: &mut Inner,
        key: &[u8],
        objects: &[&[u8]],
        parent: &Bounds,
    ) -> Result<(), String> {
        let text = |object: &[u8]| String::from_utf8_lossy(object).into_owned();
        let only = |option: &str, object: &[u8]| {
            format!("cannot allow {}: it needs {option}={0}", text(object))
        };
        match key {
            b"net" => {
                let targets = objects.iter().map(|object| {
                    let target = Target::parse(&text(object))?;
                    match self.0.connect.has(|known| known.includes(&target)) {
                        true => Ok(target),
                        false => Err(only("--allow-net", object)),
                    }
                });
                inner.connect = Grant::Only(targets.collect::<Result<_, _>>()?);
            }
            b"env" => {
                let names = objects.iter().map(|name| match self.check_env(name) {
                    Ok(()) => Ok(OsStr::from_bytes(name).into()),
                    Err(_) => Err(only("--allow-env", name)),
                });
                inner.env = Grant::Only(names.collect::<Result<_, _>>()?);
            }
            b"read" | b"write" => {
                let access = if key == b"read" { Access::Read } else { Access::Write };
                let mut narrowing = Narrowing::new(parent, access);
                let places = objects.iter().map(|path| {
                    let place = narrowing.place(Path::new(OsStr::from_bytes(path)));
                    place.map_err(|error| format!("cannot allow {}: {error}", text(path)))
                });
                let places = Grant::Only(places.collect::<Result<_, _>>()?);
                *(if key == b"read" { &mut inner.read } else { &mut inner.write }) = places;
            }
            b"listen" | b"exits" | b"all" => {
                return Err(format!("the permission {:?} is true or false", text(key)));
            }
            _ => return Err(unknown(key)),
        }
        Ok(())
    }

    /// # Errors
    /// If the process may not listen at the address, returns the refusal.
    pub(crate) fn check_listen(&self, address: &str) -> io::Result<()> {
        if !self.0.listen {
            return Err(refused("--allow-listen"));
        }
        addresses::check_name(self, address)
    }

    fn is_all(&self) -> bool {
        let Inner { connect, listen, read, write, env, exits, held: _ } = &*self.0;
        connect.is_everything()
            && read.is_everything()
            && write.is_everything()
            && env.is_everything()
            && *listen
            && *exits
    }

    pub(crate) fn has_exits(&self) -> bool {
        self.0.exits
    }

    /// # Errors
    /// If the process may not use the node, returns the refusal.
    #[cfg(feature = "cluster")]
    pub(crate) fn check_node(&self, name: &str) -> io::Result<()> {
        match self.0.connect.has(|known| known.is_node(name)) {
            true => Ok(()),
            false => Err(refused(format_args!("--allow-net={name}"))),
        }
    }

    /// # Errors
    /// If the process may not use the variable of the environment, returns the refusal.
    pub(crate) fn check_env(&self, name: &[u8]) -> io::Result<()> {
        match self.0.env.has(|known| known.as_bytes() == name) {
            true => Ok(()),
            false => Err(refused(format!("--allow-env={}", String::from_utf8_lossy(name)))),
        }
    }
}

/// Returns the refusal of a key that names no permission.
fn unknown(key: &[u8]) -> String {
    format!("there is no permission {:?}", String::from_utf8_lossy(key))
}

fn place(permission: &'static str, path: &Path) -> Result<Place, PermissionError> {
    Place::new(path).map_err(|cause| PermissionError {
        permission: format!("{permission} {}", path.display()),
        cause,
    })
}

/// Returns the error of an operation that an option of `procession run` permits.
fn refused(option: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("it needs {option}"))
}

/// The error of a permission that cannot be given.
#[derive(Debug)]
pub struct PermissionError {
    permission: String,
    cause: io::Error,
}

impl fmt::Display for PermissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot permit {}: {}", self.permission, self.cause)
    }
}

impl Error for PermissionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}
