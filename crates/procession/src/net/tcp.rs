//! TCP.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, listen, socket_with, sockopt};

use super::accept::{BACKLOG, accept};
use super::half::{ReadHalf, WriteHalf};
use super::io::{Done, Io, Side};
use super::resolve::Host;
use super::stream::{std_conversions, stream_methods};
use crate::time::timeout;

/// A socket that accepts TCP connections.
///
/// ```
/// use procession::net::{TcpListener, TcpStream};
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     let server = procession::spawn(async move {
///         let (stream, _) = listener.accept().await?;
///         let mut bytes = [0; 64];
///         let count = stream.read(&mut bytes).await?;
///         stream.write_all(&bytes[..count]).await
///     });
///     let stream = TcpStream::connect(address).await?;
///     stream.write_all(b"hello").await?;
///     let mut back = [0; 5];
///     stream.read_exact(&mut back).await?;
///     assert_eq!(&back, b"hello");
///     server.await.expect("it does not panic")
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener(Io<StdTcpListener>);

impl TcpListener {
    /// Listens at `host`; of several addresses, at the first that can be bound. Port 0 lets the system choose one. An address that was in use
    /// a moment ago can be bound again.
    ///
    /// # Errors
    /// The system's, of the last address tried.
    pub async fn bind(host: impl Into<Host>) -> io::Result<Self> {
        let addresses = host.into().addresses().await?;
        let listener = StdTcpListener::bind(&*addresses)?;
        // std has set a backlog that is full soon.
        listen(&listener, BACKLOG)?;
        Self::try_from(listener)
    }

    /// Waits for the next connection.
    ///
    /// If the system has no descriptor for it, it stays in the backlog, and this waits until there is one: at once when the program closes
    /// one of this scheduler's sockets, a fiftieth of a second later at the latest if something else is closed. No descriptor is held in
    /// reserve. [`DescriptorSnapshot::accepts_put_off`](crate::DescriptorSnapshot::accepts_put_off) counts it.
    ///
    /// # Errors
    /// The system's, of the listener. Those of a connection that was gone before it was accepted are not told: the next is awaited.
    ///
    /// # Cancellation
    /// Dropped before it is complete, no connection is lost.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (socket, address) = accept(&self.0).await?;
        let socket = StdTcpStream::from(socket);
        let address = match address.and_then(|address| SocketAddr::try_from(address).ok()) {
            Some(address) => address,
            None => socket.peer_addr()?,
        };
        Ok((TcpStream(Io::on(self.0.shared(), socket)?), address))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Hops that packets of its connections may take.
    ///
    /// # Errors
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets that.
    ///
    /// # Errors
    /// The system's.
    pub fn set_ttl(&self, hops: u32) -> io::Result<()> {
        self.0.get().set_ttl(hops)
    }
}

std_conversions!(TcpListener, StdTcpListener);

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A TCP connection. See [`TcpListener`] for an example.
///
/// All methods take `&self`: one process may read while another writes. It has the I/O traits of `futures-io`, for `&TcpStream`, too; with
/// the feature `tokio-io` those of tokio, with `hyper` those of hyper.
pub struct TcpStream(Io<StdTcpStream>);

stream_methods!(TcpStream, StdTcpStream);
std_conversions!(TcpStream, StdTcpStream);

impl TcpStream {
    /// Connects to `host`; of several addresses, to the first that answers.
    ///
    /// # Errors
    /// The system's, of the last address tried.
    ///
    /// # Cancellation
    /// Dropped before it is complete, the connection is given up.
    pub async fn connect(host: impl Into<Host>) -> io::Result<Self> {
        let mut last = None;
        for address in host.into().addresses().await? {
            match Self::connect_to(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a host has at least one address"))
    }

    /// As [`connect`](Self::connect), within `patience`, looking up the name included.
    ///
    /// # Errors
    /// As there; [`TimedOut`](io::ErrorKind::TimedOut).
    pub async fn connect_timeout(host: impl Into<Host>, patience: Duration) -> io::Result<Self> {
        match timeout(patience, Self::connect(host)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "not connected within the time")),
        }
    }

    async fn connect_to(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        match connect(&socket, &address) {
            // The kernel goes on connecting after a signal, too.
            Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Registered only now: the kernel calls a socket that is not connecting closed.
        let io = Io::new(StdTcpStream::from(socket))?;
        let connected = |socket: &StdTcpStream| {
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
            match socket.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
                peer => peer.map(|_| Done::whole(())),
            }
        };
        io.run(Side::Write, connected).await?;
        Ok(Self(io))
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

    /// Whether what is written is sent at once, and not held back to be sent with more (Nagle's algorithm).
    ///
    /// # Errors
    /// The system's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get().nodelay()
    }

    /// Sets that. Default: it is held back.
    ///
    /// # Errors
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get().set_nodelay(nodelay)
    }

    /// Hops that a packet may take.
    ///
    /// # Errors
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets that.
    ///
    /// # Errors
    /// The system's.
    pub fn set_ttl(&self, hops: u32) -> io::Result<()> {
        self.0.get().set_ttl(hops)
    }

    /// After how long without data the system asks whether the peer is still there; `None` is never.
    ///
    /// # Errors
    /// The system's.
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        let socket = self.0.get();
        Ok(if sockopt::socket_keepalive(socket)? { Some(sockopt::tcp_keepidle(socket)?) } else { None })
    }

    /// Sets that, to the second. Default: never.
    ///
    /// # Errors
    /// The system's.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        let socket = self.0.get();
        if let Some(idle) = idle {
            sockopt::set_tcp_keepidle(socket, idle)?;
        }
        Ok(sockopt::set_socket_keepalive(socket, idle.is_some())?)
    }

    /// What becomes of data that are not sent when the socket is closed: `None`, the system goes on sending them; zero, they are
    /// discarded, and the peer is reset.
    ///
    /// # Errors
    /// The system's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_linger(self.0.get())?)
    }

    /// Sets that. With a time other than zero, the close blocks the worker for so long.
    ///
    /// # Errors
    /// The system's.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self.0.get(), linger)?)
    }
}
