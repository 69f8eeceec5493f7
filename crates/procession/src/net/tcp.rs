//! TCP.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;

use super::accept::accept;
use super::half::{ReadHalf, WriteHalf};
use super::io::{Io, Side};
use super::options::{SocketOptions, socket_methods};
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
pub struct TcpListener(pub(super) Io<StdTcpListener>);

impl TcpListener {
    /// Listens at `host`; of several addresses, at the first that can be bound. Port 0 lets the system choose one. An address that was in use
    /// a moment ago can be bound again. [`SocketOptions::listen`] for more say in this.
    ///
    /// # Errors
    /// The system's, of the last address tried.
    pub async fn bind(host: impl Into<Host>) -> io::Result<Self> {
        SocketOptions::new().listen(host).await
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

socket_methods!(TcpListener);

/// A TCP connection. See [`TcpListener`] for an example.
///
/// All methods take `&self`: one process may read while another writes. It has the I/O traits of `futures-io`, for `&TcpStream`, too; with
/// the feature `tokio-io` those of tokio, with `hyper` those of hyper.
pub struct TcpStream(pub(super) Io<StdTcpStream>);

stream_methods!(TcpStream, StdTcpStream);
std_conversions!(TcpStream, StdTcpStream);

impl TcpStream {
    /// Connects to `host`; of several addresses, to the first that answers. [`SocketOptions::connect`] for more say in this.
    ///
    /// # Errors
    /// The system's, of the last address tried.
    ///
    /// # Cancellation
    /// Dropped before it is complete, the connection is given up.
    pub async fn connect(host: impl Into<Host>) -> io::Result<Self> {
        SocketOptions::new().connect(host).await
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

    /// How long after each such question the next one follows, and after how many without an answer the connection ends: with
    /// [`TimedOut`](io::ErrorKind::TimedOut), for whoever reads, too.
    ///
    /// # Errors
    /// The system's.
    pub fn keepalive_probes(&self) -> io::Result<(Duration, u32)> {
        let socket = self.0.get();
        Ok((sockopt::tcp_keepintvl(socket)?, sockopt::tcp_keepcnt(socket)?))
    }

    /// Sets that, the time to the second. Default: the system's, of Linux 75 s and 9.
    ///
    /// # Errors
    /// The system's: it takes neither zero nor much.
    pub fn set_keepalive_probes(&self, interval: Duration, count: u32) -> io::Result<()> {
        let socket = self.0.get();
        sockopt::set_tcp_keepintvl(socket, interval)?;
        Ok(sockopt::set_tcp_keepcnt(socket, count)?)
    }

    /// How long data that are sent may be without an answer, or wait for a peer that does not read, until the connection ends with
    /// [`TimedOut`](io::ErrorKind::TimedOut); `None` is as long as the system tries.
    ///
    /// # Errors
    /// The system's.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        let timeout_ms = sockopt::tcp_user_timeout(self.0.get())?;
        Ok((timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into())))
    }

    /// Sets that, to the millisecond. Default: `None`, which is about a quarter of an hour.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for less than a millisecond, and for more than 24 days; the system's.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout_ms = match timeout.map(|timeout| i32::try_from(timeout.as_millis())) {
            None => 0,
            Some(Ok(timeout_ms @ 1..)) => timeout_ms.cast_unsigned(),
            Some(_) => {
                let text = "cannot set a user timeout outside of 1 ms to 24 days: use None for none";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        Ok(sockopt::set_tcp_user_timeout(self.0.get(), timeout_ms)?)
    }

    /// Whether what comes is acknowledged at once, and not with what is sent next. The system changes that by itself, too.
    ///
    /// # Errors
    /// The system's.
    pub fn quick_ack(&self) -> io::Result<bool> {
        Ok(sockopt::tcp_quickack(self.0.get())?)
    }

    /// Sets that, for now.
    ///
    /// # Errors
    /// The system's.
    pub fn set_quick_ack(&self, quick: bool) -> io::Result<()> {
        Ok(sockopt::set_tcp_quickack(self.0.get(), quick)?)
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
