//! The network between the hosts of a simulated system.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A network. Its sockets are descriptors of the real system, of which it holds the other ends, so
/// that reading, writing, waiting and closing are the system's calls.
///
/// A method that gets a socket of another kind, for example a socket that a library has made,
/// returns `None`.
pub trait Network {
    /// Returns the addresses that a name and a port stand for. Blocks the thread.
    ///
    /// # Errors
    /// The name is not known, or there is no port.
    fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>>;

    /// Opens a listener, in non-blocking mode.
    ///
    /// # Errors
    /// The address is not one of the host, or is in use; or there is no descriptor.
    fn listen(&self, at: SocketAddr, backlog: u32) -> io::Result<OwnedFd>;

    /// Takes the next connection from a listener, in non-blocking mode.
    fn accept(&self, listener: BorrowedFd<'_>) -> Option<io::Result<(OwnedFd, SocketAddr)>>;

    /// Begins to connect. The result is in non-blocking mode, and becomes writable when the
    /// attempt is over.
    ///
    /// # Errors
    /// The local address cannot be used, or there is no descriptor.
    fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<OwnedFd>;

    /// Returns `true` if the socket is connected, and `false` if it is about to be.
    ///
    /// # Errors
    /// The attempt has failed.
    fn is_connected(&self, socket: BorrowedFd<'_>) -> io::Result<bool>;

    /// Opens a socket for datagrams, in non-blocking mode. Each datagram that is written to it
    /// begins with the address of its target, and each that is read with the address of its source
    /// ([`DatagramAddress`](crate::sys::datagram::DatagramAddress)).
    ///
    /// # Errors
    /// The address is not one of the host, or is in use; or there is no descriptor.
    fn bind(&self, at: SocketAddr) -> io::Result<OwnedFd>;

    /// Sets the peer of a socket for datagrams.
    fn connect_datagrams(&self, socket: BorrowedFd<'_>, to: SocketAddr) -> Option<io::Result<()>>;

    /// Returns the local address of a socket.
    fn local_addr(&self, socket: BorrowedFd<'_>) -> Option<SocketAddr>;

    /// Returns the address of the peer of a socket.
    fn peer_addr(&self, socket: BorrowedFd<'_>) -> Option<io::Result<SocketAddr>>;

    /// Returns the error that the network has for the next call on a socket, and takes it.
    fn error(&self, socket: BorrowedFd<'_>, reads: bool) -> Option<io::Error>;

    /// Returns a socket that holds the options of a connection.
    fn options(&self, socket: BorrowedFd<'_>) -> Option<Arc<TcpStream>>;

    /// A program is about to close a socket. This also closes all duplicates of the descriptor.
    fn close(&self, socket: BorrowedFd<'_>);

    /// A socket becomes one of std. From now on, [`close`](Self::close) is not called for it.
    fn release(&self, socket: BorrowedFd<'_>);
}
