//! Unix domain sockets: sockets within one machine, which paths name.

use std::ffi::OsStr;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{
    SocketAddr, UnixDatagram as StdUnixDatagram, UnixListener as StdUnixListener,
    UnixStream as StdUnixStream,
};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrAny, SocketAddrUnix, SocketType, connect, listen, recv,
    recvfrom,
};

use super::accept::{BACKLOG, accept};
use super::datagram::{self, Datagram};
use super::descriptors::descriptor_methods;
use super::half::{ReadHalf, WriteHalf};
use super::io::{Io, IoResult, Side, timed_out};
use super::options::{socket_methods, waiting_methods};
use super::parts::{receive_parts, send_parts, send_parts_to};
use super::stream::{std_conversions, stream_methods};
use crate::scheduler::budget;
use crate::sys::system::sockets;
use crate::time::{is_last_try, sleep, timeout};

/// Interval between attempts while the peer's queue is full, for a connect or a datagram. The
/// kernel does not report when there is room again.
const BACKLOG_FULL_RETRY: Duration = Duration::from_millis(5);

/// Calls until the peer's queue has room. Between the calls, waits for [`BACKLOG_FULL_RETRY`]. The
/// last try of a timeout calls once more, because there may have been room since.
async fn call_repeatedly<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    let mut was_last_try = false;
    loop {
        budget::charged().await;
        match call() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut pause = pin!(sleep(BACKLOG_FULL_RETRY));
                poll_fn(|task| {
                    let has_tried = mem::replace(&mut was_last_try, is_last_try());
                    if was_last_try && !has_tried {
                        return Poll::Ready(());
                    }
                    pause.as_mut().poll(task)
                })
                .await;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A Unix socket that accepts connections at a path.
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
    /// Creates a listener at a path, which must not exist yet. The file stays when the socket is
    /// closed. The backlog holds 4096 connections.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Like [`bind`](Self::bind), but at an address, which may be abstract. An abstract name is not
    /// a file and disappears with the socket.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        let listener = StdUnixListener::bind_addr(address)?;
        // The backlog that std has set fills up quickly.
        listen(&listener, BACKLOG)?;
        let Self(listener) = Self::try_from(listener)?;
        Ok(Self(listener.bound_here()))
    }

    /// Waits for the next connection, and returns it with the address of its peer. If the system
    /// has no file descriptor left, the connection waits in the backlog; see
    /// [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Errors
    /// Returns the same errors as [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no connection is lost.
    #[track_caller]
    pub fn accept(&self) -> impl Future<Output = io::Result<(UnixStream, SocketAddr)>> {
        crate::scheduler::placed::placed(async move {
            let admit = |socket, _: Option<_>| {
                let socket = StdUnixStream::from(socket);
                let peer = socket.peer_addr()?;
                Ok((UnixStream(Io::on(self.0.shared(), socket)?), peer))
            };
            accept(&self.0, admit).await
        })
    }

    /// Makes the system refuse connections from now on, if this program has bound the listener.
    #[cfg(feature = "hyper")]
    #[doc(hidden)]
    pub fn refuse_connections(&self) {
        self.0.refuse_connections();
    }

    /// Returns the address at which the socket listens.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }
}

std_conversions!(UnixListener, StdUnixListener, new);

socket_methods!(UnixListener);

/// A connection within this machine.
///
/// All methods take `&self`, and the I/O traits are the same as for
/// [`TcpStream`](super::TcpStream).
///
/// ```
/// use procession::net::UnixStream;
///
/// procession::run(async {
///     let (left, right) = UnixStream::pair()?;
///     left.write_all(b"hello").await?;
///     let mut bytes = [0; 16];
///     assert_eq!(right.read(&mut bytes).await?, 5);
///     assert_eq!(&bytes[..5], b"hello");
///     drop(left);
///     assert_eq!(right.read(&mut bytes).await?, 0, "the end of the stream");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream(pub(super) Io<StdUnixStream>);

stream_methods!(UnixStream, StdUnixStream);
descriptor_methods!(UnixStream);
std_conversions!(UnixStream, StdUnixStream, new);

impl UnixStream {
    /// Connects to the listener at a path.
    ///
    /// While the listener's backlog is full, tries again every 5 ms without a limit. Use
    /// [`timeout`](crate::timeout()) to limit the wait.
    ///
    /// # Errors
    /// Returns the system's error.
    #[track_caller]
    pub fn connect(path: impl AsRef<Path>) -> impl Future<Output = io::Result<Self>> {
        crate::scheduler::placed::placed(async move {
            Self::connect_to(SocketAddrUnix::new(path.as_ref())?).await
        })
    }

    /// Like [`connect`](Self::connect), but to an address, which may be abstract.
    ///
    /// # Errors
    /// Returns the same errors as [`connect`](Self::connect).
    #[track_caller]
    pub fn connect_addr(address: &SocketAddr) -> impl Future<Output = io::Result<Self>> {
        crate::scheduler::placed::placed(async move {
            Self::connect_to(sockets::to_system(address)?).await
        })
    }

    async fn connect_to(address: SocketAddrUnix) -> io::Result<Self> {
        let socket = sockets::open(AddressFamily::UNIX, SocketType::STREAM)?;
        call_repeatedly(|| Ok(connect(&socket, &address)?)).await?;
        Io::new(StdUnixStream::from(socket)).map(Self)
    }

    /// Creates two connected sockets.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = StdUnixStream::pair()?;
        Ok((Self::try_from(one)?, Self::try_from(other)?))
    }

    /// Returns the local address of the connection.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// Returns the system's error, for example if the stream is no longer connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }
}

/// A Unix socket for datagrams within this machine.
///
/// ```
/// use procession::net::UnixDatagram;
///
/// procession::run(async {
///     let (left, right) = UnixDatagram::pair()?;
///     left.send(b"one datagram").await?;
///     let mut bytes = [0; 64];
///     let count = right.recv(&mut bytes).await?;
///     assert_eq!(&bytes[..count], b"one datagram");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram(pub(super) Io<StdUnixDatagram>);

std_conversions!(UnixDatagram, StdUnixDatagram, new);

impl UnixDatagram {
    /// Creates a socket at a path, which must not exist yet. The file stays when the socket is
    /// closed.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::try_from(StdUnixDatagram::bind(path)?)
    }

    /// Like [`bind`](Self::bind), but at an address, which may be abstract.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::try_from(StdUnixDatagram::bind_addr(address)?)
    }

    /// Creates a socket without an address. It can send, and cannot be sent to.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn unbound() -> io::Result<Self> {
        Self::try_from(StdUnixDatagram::unbound()?)
    }

    /// Creates two connected sockets.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = StdUnixDatagram::pair()?;
        Ok((Self::try_from(one)?, Self::try_from(other)?))
    }

    /// Connects the socket to a path. From then on [`send`](Self::send) sends to that path, and
    /// only datagrams from there are received.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.get().connect(path)
    }

    /// Like [`connect`](Self::connect), but to an address, which may be abstract.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.0.get().connect_addr(address)
    }

    /// Sends a datagram to the address that the socket is connected to, and returns its length.
    ///
    /// # Errors
    /// Returns the system's error, or [`TimedOut`](io::ErrorKind::TimedOut) if the write timeout
    /// elapses.
    #[track_caller]
    pub fn send(&self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.0.run(Side::Write, |io| io.send(bytes).map(IoResult::whole)).await
        })
    }

    /// Like [`send`](Self::send), but makes one datagram of several buffers, one after the other.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send). The system takes at most 1024 buffers.
    #[track_caller]
    pub fn send_vectored(&self, parts: &[IoSlice<'_>]) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.0.run(Side::Write, |io| send_parts(io, parts).map(IoResult::whole)).await
        })
    }

    /// Sends a datagram to a path, and returns its length. While the receiver's queue is full,
    /// tries again every 5 ms, within the write timeout.
    ///
    /// # Errors
    /// Returns the same errors as [`send`](Self::send).
    #[track_caller]
    pub fn send_to(
        &self,
        bytes: &[u8],
        path: impl AsRef<Path>,
    ) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.send_parts_to(&[IoSlice::new(bytes)], SocketAddrUnix::new(path.as_ref())?).await
        })
    }

    /// Like [`send_to`](Self::send_to), but to an address, which may be abstract.
    ///
    /// # Errors
    /// Returns the same errors as [`send`](Self::send).
    #[track_caller]
    pub fn send_to_addr(
        &self,
        bytes: &[u8],
        address: &SocketAddr,
    ) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.send_parts_to(&[IoSlice::new(bytes)], sockets::to_system(address)?).await
        })
    }

    /// Like [`send_to`](Self::send_to), but makes one datagram of several buffers, one after the
    /// other.
    ///
    /// # Errors
    /// Returns the same errors as [`send_vectored`](Self::send_vectored).
    #[track_caller]
    pub fn send_vectored_to(
        &self,
        parts: &[IoSlice<'_>],
        path: impl AsRef<Path>,
    ) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.send_parts_to(parts, SocketAddrUnix::new(path.as_ref())?).await
        })
    }

    async fn send_parts_to(
        &self,
        parts: &[IoSlice<'_>],
        address: SocketAddrUnix,
    ) -> io::Result<usize> {
        // The kernel reports when this socket has room, not when the receiver has.
        let sends = call_repeatedly(|| send_parts_to(self.0.get(), parts, &address));
        match self.write_timeout() {
            None => sends.await,
            Some(limit) => {
                timeout(limit, sends).await.unwrap_or_else(|_| Err(timed_out(Side::Write)))
            }
        }
    }

    /// Receives a datagram into `buffer`, and returns the number of bytes. Bytes that do not fit
    /// are discarded; [`recv_datagram`](Self::recv_datagram) reports whether there were any.
    ///
    /// # Errors
    /// Returns the system's error, or [`TimedOut`](io::ErrorKind::TimedOut) if the read timeout
    /// elapses.
    #[track_caller]
    pub fn recv(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.0.run(Side::Read, |io| io.recv(buffer).map(IoResult::whole)).await
        })
    }

    /// Like [`recv`](Self::recv), but also returns the address of the sender.
    ///
    /// # Errors
    /// Returns the same errors as [`recv`](Self::recv).
    #[track_caller]
    pub fn recv_from(
        &self,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<(usize, SocketAddr)>> {
        crate::scheduler::placed::placed(async move {
            self.0.run(Side::Read, |io| io.recv_from(buffer).map(IoResult::whole)).await
        })
    }

    /// Like [`recv_from`](Self::recv_from), but also returns the length of a datagram that does not
    /// fit into `buffer`.
    ///
    /// # Errors
    /// Returns the same errors as [`recv`](Self::recv).
    #[track_caller]
    pub fn recv_datagram(
        &self,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<Datagram<SocketAddr>>> {
        crate::scheduler::placed::placed(async move {
            let call = |io: &StdUnixDatagram| {
                let (length, sender) = datagram::receive(io, buffer)?;
                let sender = from_system(sender)?;
                Ok(IoResult::whole(Datagram::new(buffer.len(), length, sender)))
            };
            self.0.run(Side::Read, call).await
        })
    }

    /// Like [`recv`](Self::recv), but fills several buffers, one after the other.
    ///
    /// # Errors
    /// Returns the same errors as [`recv`](Self::recv).
    #[track_caller]
    pub fn recv_vectored(
        &self,
        buffers: &mut [IoSliceMut<'_>],
    ) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.0
                .run(Side::Read, |io| {
                    receive_parts(io, buffers).map(|(count, _)| IoResult::whole(count))
                })
                .await
        })
    }

    /// Like [`recv`](Self::recv), but leaves the datagram in the queue.
    ///
    /// # Errors
    /// Returns the same errors as [`recv`](Self::recv).
    #[track_caller]
    pub fn peek(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            let call = |io: &StdUnixDatagram| {
                Ok(IoResult::whole(recv(io, &mut *buffer, RecvFlags::PEEK)?.0))
            };
            self.0.run(Side::Read, call).await
        })
    }

    /// Like [`recv_from`](Self::recv_from), but leaves the datagram in the queue.
    ///
    /// # Errors
    /// Returns the same errors as [`recv`](Self::recv).
    #[track_caller]
    pub fn peek_from(
        &self,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<(usize, SocketAddr)>> {
        crate::scheduler::placed::placed(async move {
            let call = |io: &StdUnixDatagram| {
                let (count, _, address) = recvfrom(io, &mut *buffer, RecvFlags::PEEK)?;
                Ok(IoResult::whole((count, from_system(address)?)))
            };
            self.0.run(Side::Read, call).await
        })
    }

    /// Like [`recv_from`](Self::recv_from), but without waiting.
    ///
    /// # Errors
    /// Returns the system's error, or [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no
    /// datagram.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_once(Side::Read, |io| io.recv_from(buffer).map(IoResult::whole))
    }

    /// Like [`send`](Self::send), but without waiting.
    ///
    /// # Errors
    /// Returns the system's error, or [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no
    /// room.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_once(Side::Write, |io| io.send(bytes).map(IoResult::whole))
    }

    /// Shuts down one direction of the socket, or both.
    ///
    /// # Errors
    /// Returns the system's error, for example if the socket is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Returns the address of this socket.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the address that this socket is connected to.
    ///
    /// # Errors
    /// Returns the system's error, for example if the socket is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }
}

waiting_methods!(UnixDatagram);
descriptor_methods!(UnixDatagram);

/// Converts an address of the system into one of std, for which an empty path is an unnamed
/// address.
fn from_system(address: Option<SocketAddrAny>) -> io::Result<SocketAddr> {
    let address = address.map(SocketAddrUnix::try_from).transpose()?;
    if let Some(named) = address.as_ref().and_then(sockets::abstract_address) {
        return named;
    }
    SocketAddr::from_pathname(OsStr::from_bytes(
        address.as_ref().and_then(SocketAddrUnix::path_bytes).unwrap_or_default(),
    ))
}
