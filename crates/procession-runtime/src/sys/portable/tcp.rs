//! Without `/proc`, nobody asks about sockets.

use std::net::SocketAddr;

/// No descriptor is known to be a TCP socket.
pub(crate) fn state(_: i32) -> Option<u8> {
    None
}

/// See [`state`].
pub(crate) fn sends(_: i32) -> bool {
    false
}

/// See [`state`].
pub(crate) fn local(_: i32) -> Option<SocketAddr> {
    None
}

/// See [`state`].
pub(crate) fn remote(_: i32) -> Option<SocketAddr> {
    None
}
