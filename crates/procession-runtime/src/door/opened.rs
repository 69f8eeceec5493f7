//! An open door, as its scheduler keeps it.

use std::net::SocketAddr;

use std::sync::Arc;

use super::access::Keys;
use super::socket::SocketFile;

/// An open door. Dropping this closes it.
pub(crate) struct Opened {
    /// Removed with this, whatever becomes of the [`Door`](super::Door)s that name it.
    pub(super) socket: SocketFile,
    pub(super) tcp: Option<SocketAddr>,
    pub(super) keys: Arc<Keys>,
    /// The scheduler of the server. It ends with its last handle.
    pub(super) _server: crate::Scheduler,
}
