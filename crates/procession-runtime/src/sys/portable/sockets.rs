//! Sockets, by calls that all systems have.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::SocketAddr;

#[cfg(feature = "hyper")]
use rustix::event::PollFlags;
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketType, acceptfrom,
    socket,
};

/// A write to a stream that nobody reads fails, and sends no signal. Apple's systems have an option
/// of the socket instead.
#[cfg(target_vendor = "apple")]
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::empty();
#[cfg(not(target_vendor = "apple"))]
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;

/// Descriptors that are received need [`own_fd`].
pub(crate) const OWN_FDS: RecvFlags = RecvFlags::empty();

/// A receive only says whether a datagram fits.
pub(crate) const WHOLE_LENGTH: RecvFlags = RecvFlags::empty();

/// The peer of a stream has shut down its write direction. Other systems than Linux report a peer
/// that has closed the stream in the same way.
#[cfg(all(feature = "hyper", target_os = "linux"))]
pub(crate) const HALF_CLOSED: PollFlags = PollFlags::RDHUP;
#[cfg(all(feature = "hyper", not(target_os = "linux")))]
pub(crate) const HALF_CLOSED: PollFlags = PollFlags::HUP;

/// No socket receives the credentials of a sender unasked.
pub(crate) const CREDENTIALS_SPACE: usize = 0;

/// No error says that the machine is not on the network.
pub(crate) const NO_NETWORK: Option<Errno> = None;

/// Opens a socket in non-blocking mode.
pub(crate) fn open(family: AddressFamily, of: SocketType) -> io::Result<OwnedFd> {
    prepared(socket(family, of, None)?)
}

/// Takes the next connection of a listener, in non-blocking mode. Some systems refuse to prepare a
/// connection that its peer has reset, which says nothing about the listener.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
    let (socket, peer) = acceptfrom(listener)?;
    Ok((prepared(socket).map_err(|_| Errno::CONNABORTED)?, peer))
}

fn prepared(socket: OwnedFd) -> io::Result<OwnedFd> {
    own_fd(&socket)?;
    ioctl_fionbio(&socket, true)?;
    #[cfg(target_vendor = "apple")]
    rustix::net::sockopt::set_socket_nosigpipe(&socket, true)?;
    Ok(socket)
}

/// Lets a descriptor be closed when this program becomes another. A child that another thread
/// starts before this call keeps the descriptor.
pub(crate) fn own_fd(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfd(fd, FdFlags::CLOEXEC)?)
}

/// Converts an address of std into one of the system.
pub(crate) fn to_system(address: &SocketAddr) -> io::Result<SocketAddrUnix> {
    match address.as_pathname() {
        Some(path) => Ok(SocketAddrUnix::new(path)?),
        // As Linux answers.
        None if address.is_unnamed() => Err(Errno::INVAL.into()),
        None => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "abstract names of Unix sockets exist only on Linux: use a path",
        )),
    }
}

/// There are no abstract names.
pub(crate) fn abstract_address(_: &SocketAddrUnix) -> Option<io::Result<SocketAddr>> {
    None
}

/// The system does not have this option.
pub(crate) fn tcp_user_timeout(_: impl AsFd) -> rustix::io::Result<u32> {
    Err(Errno::NOPROTOOPT)
}

/// The system does not have this option.
pub(crate) fn set_tcp_user_timeout(_: impl AsFd, _: u32) -> rustix::io::Result<()> {
    Err(Errno::NOPROTOOPT)
}

/// The system does not have this option.
pub(crate) fn tcp_quickack(_: impl AsFd) -> rustix::io::Result<bool> {
    Err(Errno::NOPROTOOPT)
}

/// The system does not have this option.
pub(crate) fn set_tcp_quickack(_: impl AsFd, _: bool) -> rustix::io::Result<()> {
    Err(Errno::NOPROTOOPT)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::ErrorKind;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    #[test]
    fn an_abstract_name_is_refused_and_the_error_says_what_to_use() {
        let named = SocketAddr::from_abstract_name("name").expect("it is short");
        let error = super::to_system(&named).expect_err("there are no abstract names");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().ends_with("only on Linux: use a path"), "{error}");
        let path = SocketAddr::from_pathname("/tmp/name").expect("it is short");
        super::to_system(&path).expect("it is a path");
    }
}
