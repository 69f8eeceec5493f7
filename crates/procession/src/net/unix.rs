//! Sockets of this machine, named by paths.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{
    SocketAddr, UnixDatagram as StdUnixDatagram, UnixListener as StdUnixListener, UnixStream as StdUnixStream,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, listen, socket_with, sockopt};

use super::accept::{BACKLOG, accept};
use super::half::{ReadHalf, WriteHalf};
use super::io::{Done, Io, Side};
use super::stream::{std_conversions, stream_methods};
use crate::time::sleep;

/// How long a connect waits before it tries again because the listener's backlog is full: the kernel does not tell when it is not.
const BACKLOG_FULL_RETRY: Duration = Duration::from_millis(5);

/// A socket that accepts connections at a path.
///
/// ```
/// use procession::net::{UnixListener, UnixStream};
///
/// # let folder = std::env::temp_dir().join(format!("procession-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let path = folder.join("socket");
/// procession::run(async {
///     let listener = UnixListener::bind(&path)?;
///     let client = UnixStream::connect(&path).await?;
///     let (server, _) = listener.accept().await?;
///     server.write_all(b"welcome").await?;
///     let mut bytes = [0; 7];
///     client.read_exact(&mut bytes).await?;
///     assert_eq!(&bytes, b"welcome");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener(Io<StdUnixListener>);

impl UnixListener {
    /// Listens at a path, which must not exist. Closing the socket leaves the file there.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        let listener = StdUnixListener::bind(path)?;
        listen(&listener, BACKLOG)?;
        Self::try_from(listener)
    }

    /// Waits for the next connection; as [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Errors
    /// As there.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (socket, _) = accept(&self.0).await?;
        let socket = StdUnixStream::from(socket);
        let address = socket.peer_addr()?;
        Ok((UnixStream(Io::on(self.0.shared(), socket)?), address))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }
}

std_conversions!(UnixListener, StdUnixListener);

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A connection within this machine. See [`UnixListener`] for an example, and [`TcpStream`](super::TcpStream) for the I/O traits.
pub struct UnixStream(Io<StdUnixStream>);

stream_methods!(UnixStream, StdUnixStream);
std_conversions!(UnixStream, StdUnixStream);

impl UnixStream {
    /// Connects to the listener at a path. If its backlog is full, tries again every 5 ms: put a [`timeout`](crate::timeout()) around it.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path.as_ref())?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => return Io::new(StdUnixStream::from(socket)).map(Self),
                Err(rustix::io::Errno::AGAIN) => sleep(BACKLOG_FULL_RETRY).await,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Two that are connected with each other.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = StdUnixStream::pair()?;
        Ok((Self::try_from(one)?, Self::try_from(other)?))
    }

    /// The address here.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// The address there.
    ///
    /// # Errors
    /// The system's: it is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }
}

/// A socket for datagrams within this machine.
///
/// ```
/// use procession::net::UnixDatagram;
///
/// procession::run(async {
///     let (one, other) = UnixDatagram::pair()?;
///     one.send(b"whole").await?;
///     let mut bytes = [0; 64];
///     let count = other.recv(&mut bytes).await?;
///     assert_eq!(&bytes[..count], b"whole");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram(Io<StdUnixDatagram>);

std_conversions!(UnixDatagram, StdUnixDatagram);

impl UnixDatagram {
    /// Receives at a path, which must not exist. Closing the socket leaves the file there.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::try_from(StdUnixDatagram::bind(path)?)
    }

    /// Receives nowhere.
    ///
    /// # Errors
    /// The system's.
    pub fn unbound() -> io::Result<Self> {
        Self::try_from(StdUnixDatagram::unbound()?)
    }

    /// Two that are connected with each other.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = StdUnixDatagram::pair()?;
        Ok((Self::try_from(one)?, Self::try_from(other)?))
    }

    /// From now on [`send`](Self::send) goes to that path, and only what comes from there is received.
    ///
    /// # Errors
    /// The system's.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.get().connect(path)
    }

    /// Sends a datagram to where this is connected to.
    ///
    /// # Errors
    /// The system's; [`TimedOut`](io::ErrorKind::TimedOut) after the write timeout.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.run(Side::Write, |io| io.send(bytes).map(Done::whole)).await
    }

    /// Sends a datagram to a path. If the receiver's queue is full, waits for room.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        loop {
            match self.0.get().send_to(bytes, path) {
                // The kernel tells when this socket has room, not when the receiver has.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(BACKLOG_FULL_RETRY).await,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Receives a datagram; what does not fit into `buffer` is discarded.
    ///
    /// # Errors
    /// The system's; [`TimedOut`](io::ErrorKind::TimedOut) after the read timeout.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.run(Side::Read, |io| io.recv(buffer).map(Done::whole)).await
    }

    /// As [`recv`](Self::recv), with the sender's address.
    ///
    /// # Errors
    /// As there.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run(Side::Read, |io| io.recv_from(buffer).map(Done::whole)).await
    }

    /// The address here.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Sets how long a receive may wait; `None` is for ever.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_patience(Side::Read, timeout)
    }

    /// Sets how long a [`send`](Self::send) may wait; `None` is for ever.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_patience(Side::Write, timeout)
    }
}

impl AsFd for UnixDatagram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
