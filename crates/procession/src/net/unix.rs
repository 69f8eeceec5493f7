//! Sockets of this machine, named by paths.

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{
    SocketAddr, UnixDatagram as StdUnixDatagram, UnixListener as StdUnixListener, UnixStream as StdUnixStream,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, connect, listen, recv, recvfrom,
    socket_with,
};

use super::accept::{BACKLOG, accept};
use super::half::{ReadHalf, WriteHalf};
use super::io::{Done, Io, Side, timed_out};
use super::options::{socket_methods, waiting_methods};
use super::parts::{receive_parts, send_parts, send_parts_to};
use super::stream::{std_conversions, stream_methods};
use crate::time::{sleep, timeout};

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
        Self::bind_addr(&SocketAddr::from_pathname(path)?)
    }

    /// As [`bind`](Self::bind), at an address, which may be an abstract one: such a name is no file, and goes with the socket.
    ///
    /// # Errors
    /// The system's.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        let listener = StdUnixListener::bind_addr(address)?;
        // std has set a backlog that is full soon.
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

socket_methods!(UnixListener);

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
        Self::connect_to(SocketAddrUnix::new(path.as_ref())?).await
    }

    /// As [`connect`](Self::connect), to an address, which may be an abstract one.
    ///
    /// # Errors
    /// As there.
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::connect_to(to_system(address)?).await
    }

    async fn connect_to(address: SocketAddrUnix) -> io::Result<Self> {
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

    /// As [`bind`](Self::bind), at an address, which may be an abstract one.
    ///
    /// # Errors
    /// The system's.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::try_from(StdUnixDatagram::bind_addr(address)?)
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

    /// As [`connect`](Self::connect), to an address, which may be an abstract one.
    ///
    /// # Errors
    /// The system's.
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.0.get().connect_addr(address)
    }

    /// Sends a datagram to where this is connected to.
    ///
    /// # Errors
    /// The system's; [`TimedOut`](io::ErrorKind::TimedOut) after the write timeout.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.run(Side::Write, |io| io.send(bytes).map(Done::whole)).await
    }

    /// As [`send`](Self::send), one datagram out of several parts, one after the other.
    ///
    /// # Errors
    /// As there; the system takes 1024 parts at most.
    pub async fn send_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.run(Side::Write, |io| send_parts(io, parts).map(Done::whole)).await
    }

    /// Sends a datagram to a path. If the receiver's queue is full, waits for room: it tries again every 5 ms.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_parts_to(&[IoSlice::new(bytes)], SocketAddrUnix::new(path.as_ref())?).await
    }

    /// As [`send_to`](Self::send_to), to an address, which may be an abstract one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_to_addr(&self, bytes: &[u8], address: &SocketAddr) -> io::Result<usize> {
        self.send_parts_to(&[IoSlice::new(bytes)], to_system(address)?).await
    }

    /// As [`send_to`](Self::send_to), one datagram out of several parts, one after the other.
    ///
    /// # Errors
    /// As [`send_vectored`](Self::send_vectored).
    pub async fn send_vectored_to(&self, parts: &[IoSlice<'_>], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_parts_to(parts, SocketAddrUnix::new(path.as_ref())?).await
    }

    async fn send_parts_to(&self, parts: &[IoSlice<'_>], address: SocketAddrUnix) -> io::Result<usize> {
        let sends = async {
            loop {
                match send_parts_to(self.0.get(), parts, &address) {
                    // The kernel tells when this socket has room, not when the receiver has.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(BACKLOG_FULL_RETRY).await,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => return result,
                }
            }
        };
        match self.write_timeout() {
            None => sends.await,
            Some(patience) => timeout(patience, sends).await.unwrap_or_else(|_| Err(timed_out(Side::Write))),
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

    /// As [`recv`](Self::recv), into several buffers, one after the other.
    ///
    /// # Errors
    /// As there.
    pub async fn recv_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.run(Side::Read, |io| receive_parts(io, buffers).map(|(count, _)| Done::whole(count))).await
    }

    /// As [`recv`](Self::recv), and leaves the datagram there.
    ///
    /// # Errors
    /// As there.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let call = |io: &StdUnixDatagram| Ok(Done::whole(recv(io, &mut *buffer, RecvFlags::PEEK)?.0));
        self.0.run(Side::Read, call).await
    }

    /// As [`recv_from`](Self::recv_from), and leaves the datagram there.
    ///
    /// # Errors
    /// As there.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let call = |io: &StdUnixDatagram| {
            let (count, _, address) = recvfrom(io, &mut *buffer, RecvFlags::PEEK)?;
            Ok(Done::whole((count, from_system(address)?)))
        };
        self.0.run(Side::Read, call).await
    }

    /// As [`recv_from`](Self::recv_from), without waiting.
    ///
    /// # Errors
    /// The system's; [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_once(Side::Read, |io| io.recv_from(buffer).map(Done::whole))
    }

    /// As [`send`](Self::send), without waiting.
    ///
    /// # Errors
    /// The system's; [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_once(Side::Write, |io| io.send(bytes).map(Done::whole))
    }

    /// Ends one direction, or both.
    ///
    /// # Errors
    /// The system's, if it is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// The address here.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// The address that this is connected to.
    ///
    /// # Errors
    /// The system's: it is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }
}

waiting_methods!(UnixDatagram);

/// The same address for the system.
fn to_system(address: &SocketAddr) -> io::Result<SocketAddrUnix> {
    match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => Ok(SocketAddrUnix::new(path)?),
        (_, Some(name)) => Ok(SocketAddrUnix::new_abstract_name(name)?),
        _ => Ok(SocketAddrUnix::new_unnamed()),
    }
}

/// The same address for std, which takes an empty path for one without a name.
fn from_system(address: Option<SocketAddrAny>) -> io::Result<SocketAddr> {
    let address = address.map(SocketAddrUnix::try_from).transpose()?;
    if let Some(name) = address.as_ref().and_then(SocketAddrUnix::abstract_name) {
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(OsStr::from_bytes(
        address.as_ref().and_then(SocketAddrUnix::path_bytes).unwrap_or_default(),
    ))
}
