//! The settings of a door, and the errors of opening one.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::{fmt, io};

/// The settings of a door: where it listens, and what it allows.
///
/// The default is a read-only door at a Unix socket.
///
/// ```
/// use procession::Scheduler;
/// use procession::door::Observe;
///
/// # let folder = std::env::temp_dir().join(format!("procession-door-{}", std::process::id()));
/// let observe = Observe::default().directory(&folder);
/// let scheduler = Scheduler::builder().observe(observe).build()?;
/// let door = scheduler.door().expect("it was asked for");
/// assert!(door.socket().starts_with(&folder));
/// # drop(scheduler);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Observe {
    pub(super) directory: Option<PathBuf>,
    pub(super) tcp: Option<SocketAddr>,
    pub(super) actions: bool,
}

impl Observe {
    /// Sets the directory of the Unix socket. It is created with the mode 0700 if it does not
    /// exist. Default: `procession` in the user's runtime directory (`$XDG_RUNTIME_DIR`, or else
    /// `/run/user/UID`), or `/tmp/procession-UID` if there is none.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Listens at a TCP port of the loopback address 127.0.0.1, too. 0 is any free port. Default:
    /// no TCP.
    ///
    /// A browser gets in by a [link](super::Door::link).
    pub fn tcp(self, port: u16) -> Self {
        self.tcp_at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Like [`tcp`](Self::tcp), but at an address, which must be a loopback address.
    pub fn tcp_at(mut self, address: SocketAddr) -> Self {
        self.tcp = Some(address);
        self
    }

    /// Allows requests that act on processes: cancel and terminate. Default: they are refused with
    /// the status 403.
    pub fn allow_actions(mut self) -> Self {
        self.actions = true;
        self
    }
}

/// A builder's decision about its door.
#[derive(Debug, Default)]
pub(crate) enum DoorChoice {
    /// The environment variable decides.
    #[default]
    ByVariable,
    Given(Observe),
    None,
}

/// The error of opening a door.
#[derive(Debug)]
#[non_exhaustive]
pub enum ObserveError {
    /// The directory of the socket cannot be created or read.
    Directory(PathBuf, io::Error),
    /// The path is no directory. A symbolic link is none.
    NoDirectory(PathBuf),
    /// The directory belongs to another user, with this number.
    OtherOwner(PathBuf, u32),
    /// Other users can get into the directory. Holds its mode.
    OpenToOthers(PathBuf, u32),
    /// The system refused the socket.
    Socket(PathBuf, io::Error),
    /// The address is no loopback address.
    NotLoopback(SocketAddr),
    /// The system refused the TCP socket.
    Tcp(SocketAddr, io::Error),
    /// The system refused the random bytes of a token.
    Random(io::Error),
    /// The scheduler of the door could not be built.
    Scheduler(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for ObserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot open a door: ")?;
        match self {
            Self::Directory(path, cause) => {
                write!(f, "the directory {} cannot be used: {cause}", path.display())
            }
            Self::NoDirectory(path) => write!(f, "{} is no directory", path.display()),
            Self::OtherOwner(path, user) => {
                write!(f, "the directory {} belongs to the user {user}", path.display())
            }
            Self::OpenToOthers(path, mode) => write!(
                f,
                "the directory {} has the mode {:04o}, and must have 0700",
                path.display(),
                mode & 0o7777
            ),
            Self::Socket(path, cause) => {
                write!(f, "the system refused the socket {}: {cause}", path.display())
            }
            Self::NotLoopback(address) => {
                write!(f, "{address} is no loopback address, and there is no encryption")
            }
            Self::Tcp(address, cause) => {
                write!(f, "the system refused to listen at {address}: {cause}")
            }
            Self::Random(cause) => {
                write!(f, "the system refused random bytes for a token: {cause}")
            }
            Self::Scheduler(cause) => write!(f, "its scheduler could not be built: {cause}"),
        }
    }
}

impl Error for ObserveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Directory(_, cause)
            | Self::Socket(_, cause)
            | Self::Tcp(_, cause)
            | Self::Random(cause) => Some(cause),
            Self::Scheduler(cause) => Some(&**cause),
            _ => None,
        }
    }
}
