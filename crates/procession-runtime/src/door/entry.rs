//! The methods by which a program opens its door, and finds it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use std::sync::Arc;

use super::access::Keys;
use super::part::DoorPart;
use super::settings::{DoorChoice, Observe};
use crate::{Builder, Scheduler};

/// Available with the crate feature `observe`.
impl Builder {
    /// Opens a [door](crate::door) through which the scheduler can be observed from outside. It is
    /// closed when the last [`Scheduler`] handle is dropped. Default: no door, unless the
    /// environment variable `PROCESSION_OBSERVE` is 1.
    ///
    /// If the door cannot be opened, [`build`](Self::build) fails with
    /// [`BuildError::Observe`](crate::scheduler::BuildError::Observe).
    pub fn observe(self, observe: Observe) -> Self {
        self.door_choice(DoorChoice::Given(observe))
    }

    /// Opens no door, whatever the environment says.
    pub fn no_observe(self) -> Self {
        self.door_choice(DoorChoice::None)
    }
}

/// Available with the crate feature `observe`.
impl Scheduler {
    /// Returns the door of this scheduler, if it has one.
    pub fn door(&self) -> Option<Door> {
        DoorPart::look(self.shared(), |opened| Door {
            socket: opened.socket.path().to_owned(),
            tcp: opened.tcp,
            keys: Arc::clone(&opened.keys),
        })
    }
}

/// The address of a door. It does not keep the door open.
///
/// Available with the crate feature `observe`.
pub struct Door {
    socket: PathBuf,
    tcp: Option<SocketAddr>,
    keys: Arc<Keys>,
}

impl Door {
    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the TCP address, if the door listens at one.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Returns a link with which a browser gets in by TCP, or `None` if the door does not listen
    /// there.
    ///
    /// Each call returns another link, and each link works once. A browser exchanges it for a
    /// cookie. Of links that were not used, and of sessions, the last 8 are kept.
    ///
    /// # Errors
    /// Returns the system's error if it has no random bytes.
    pub fn link(&self) -> io::Result<Option<String>> {
        let Some(address) = self.tcp else { return Ok(None) };
        let token = self.keys.add_link()?;
        Ok(Some(format!("http://{address}/?token={token}")))
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("socket", &self.socket())
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}
