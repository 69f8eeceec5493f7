//! The settings of a door.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The settings of a door: where it listens, and what it allows.
///
/// The default is a read-only door at a Unix socket.
///
/// ```
/// use procession::observe::DoorOptions;
/// use procession::Scheduler;
///
/// # let folder = std::env::temp_dir().join(format!("procession-door-{}", std::process::id()));
/// let options = DoorOptions::default().directory(&folder);
/// let scheduler = Scheduler::builder().door(options).build()?;
/// let door = scheduler.door().expect("it was asked for");
/// assert!(door.socket().starts_with(&folder));
/// # drop(scheduler);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct DoorOptions {
    pub(super) directory: Option<PathBuf>,
    pub(super) tcp: Option<SocketAddr>,
    pub(super) actions: bool,
}

impl DoorOptions {
    /// Sets the directory of the Unix socket. It is created with the mode 0700 if it does not
    /// exist. Default: `procession` in the user's runtime directory (`$XDG_RUNTIME_DIR`, or else
    /// `/run/user/UID`), or `/tmp/procession-UID` if there is none.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Also listens at a TCP port of the loopback address 127.0.0.1. 0 is any free port. Default:
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
    Given(DoorOptions),
    None,
}
