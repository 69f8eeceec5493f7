//! Sockets: what only Linux does in one call, or knows at all.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

use rustix::cmsg_space;
#[cfg(feature = "hyper")]
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    acceptfrom_with, socket_with,
};

/// A write to a stream that nobody reads fails, and sends no signal.
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;

/// Descriptors that are received are closed when this program becomes another.
pub(crate) const OWN_FDS: RecvFlags = RecvFlags::CMSG_CLOEXEC;

/// A receive returns the whole length of a datagram, even if it does not fit.
pub(crate) const WHOLE_LENGTH: RecvFlags = RecvFlags::TRUNC;

/// The peer of a stream has shut down its write direction.
#[cfg(feature = "hyper")]
pub(crate) const HALF_CLOSED: PollFlags = PollFlags::RDHUP;

/// The space of the credentials of a sender, which a socket with `SO_PASSCRED` receives.
pub(crate) const CREDENTIALS_SPACE: usize = cmsg_space!(ScmCredentials(1));

/// The machine is not on the network.
pub(crate) const NO_NETWORK: Option<Errno> = Some(Errno::NONET);

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Opens a socket in non-blocking mode.
pub(crate) fn open(family: AddressFamily, of: SocketType) -> io::Result<OwnedFd> {
    Ok(socket_with(family, of, FLAGS, None)?)
}

/// Takes the next connection of a listener, in non-blocking mode.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    Ok(acceptfrom_with(listener, FLAGS)?)
}

/// Does what [`OWN_FDS`] leaves to do for a descriptor that was received.
pub(crate) fn own_fd(_: &OwnedFd) -> io::Result<()> {
    Ok(())
}

/// Converts an address of std into one of the system.
pub(crate) fn to_system(address: &SocketAddr) -> io::Result<SocketAddrUnix> {
    match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => Ok(SocketAddrUnix::new(path)?),
        (_, Some(name)) => Ok(SocketAddrUnix::new_abstract_name(name)?),
        _ => Ok(SocketAddrUnix::new_unnamed()),
    }
}

/// Returns the abstract name in an address of the system, as an address of std.
pub(crate) fn abstract_address(address: &SocketAddrUnix) -> Option<io::Result<SocketAddr>> {
    address.abstract_name().map(SocketAddr::from_abstract_name)
}

/// Options of TCP.
#[cfg(feature = "io")]
pub(crate) use rustix::net::sockopt::{
    set_tcp_quickack, set_tcp_user_timeout, tcp_quickack, tcp_user_timeout,
};
