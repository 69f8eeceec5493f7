//! TCP sockets.

use std::future::Future;
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
use super::simulated::{self, OptionSocket};
use super::stream::{std_conversions, stream_methods};
use crate::sys::system::sockets;
use crate::time;

/// A TCP socket that accepts connections.
///
/// ```
/// use procession::net::{TcpListener, TcpStream};
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     // The server echoes what the client sends.
///     let server = procession::spawn(async move {
///         let (stream, _) = listener.accept().await?;
///         let mut bytes = [0; 64];
///         let count = stream.read(&mut bytes).await?;
///         stream.write_all(&bytes[..count]).await
///     });
///     let stream = TcpStream::connect(address).await?;
///     stream.write_all(b"hello").await?;
///     let mut echo = [0; 5];
///     stream.read_exact(&mut echo).await?;
///     assert_eq!(&echo, b"hello");
///     server.await.expect("it does not panic")
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener(pub(super) Io<StdTcpListener>);

impl TcpListener {
    /// Creates a listener at `host`. If the host has several addresses, uses the first address that
    /// can be bound. With port 0, the system chooses a free port.
    ///
    /// An address that was in use a moment ago can be bound again. The backlog holds 4096
    /// connections. Use [`SocketOptions::listen`] to change these settings.
    ///
    /// # Errors
    /// Returns the system's error for the last address, or the error of
    /// [resolving](Host::addresses) the host.
    #[track_caller]
    pub fn bind(host: impl Into<Host>) -> impl Future<Output = io::Result<Self>> {
        crate::scheduler::placed::placed(async move { SocketOptions::new().listen(host).await })
    }

    /// Waits for the next connection, and returns it with the address of its peer.
    ///
    /// If the system has no file descriptor left, the connection stays in the backlog until there
    /// is one. If the program closes a socket of this scheduler, the wait ends immediately. If a
    /// descriptor becomes free elsewhere, the wait ends at most 20 ms later. No descriptor is kept
    /// in reserve. [`DescriptorSnapshot::accepts_put_off`][put_off] counts these waits.
    ///
    /// If the system has a descriptor, but watches no further one for this user
    /// (`fs.epoll.max_user_watches` of Linux), the connection is closed, and the same wait follows.
    ///
    /// [put_off]: crate::observe::snapshot::DescriptorSnapshot::accepts_put_off
    ///
    /// # Errors
    /// Returns the system's error of the listener. If a connection is gone before it is accepted,
    /// that is no error; the method waits for the next connection.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no connection is lost.
    #[track_caller]
    pub fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> {
        crate::scheduler::placed::placed(async move {
            let admit = |socket, peer: Option<_>| {
                let socket = StdTcpStream::from(socket);
                let peer = peer.map_or_else(|| socket.peer_addr(), Ok)?;
                Ok((TcpStream(Io::socket_on(self.0.shared(), socket)?), peer))
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
        let socket = self.0.get();
        simulated::local_addr(socket).unwrap_or_else(|| socket.local_addr())
    }

    /// Returns the maximum number of hops for packets of accepted connections (`IP_TTL`).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets the maximum number of hops; see [`ttl`](Self::ttl).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_ttl(&self, hops: u32) -> io::Result<()> {
        self.0.get().set_ttl(hops)
    }
}

std_conversions!(TcpListener, StdTcpListener, socket);

socket_methods!(TcpListener);

/// A TCP connection.
///
/// All methods take `&self`, so one process can read while another process writes. The stream and
/// references to it implement the I/O traits of `futures-io`. The feature `tokio-io` adds the
/// traits of tokio, and the feature `hyper` adds the traits of hyper. In coroutines and on plain
/// threads, use [`std::io::Read`] and [`std::io::Write`].
///
/// ```
/// use std::time::Duration;
/// use procession::net::{TcpListener, TcpStream};
///
/// procession::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     let (server, _) = listener.accept().await?;
///
///     client.set_nodelay(true)?;
///     client.write_all(b"GET").await?;
///     client.shutdown(std::net::Shutdown::Write)?;
///
///     server.set_read_timeout(Some(Duration::from_secs(5)))?;
///     let mut bytes = [0; 16];
///     assert_eq!(server.read(&mut bytes).await?, 3);
///     assert_eq!(server.read(&mut bytes).await?, 0, "the end of the stream");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream(pub(super) Io<StdTcpStream>);

stream_methods!(TcpStream, StdTcpStream);
std_conversions!(TcpStream, StdTcpStream, socket);

impl TcpStream {
    /// Returns the socket that holds the options.
    #[inline]
    fn options(&self) -> OptionSocket<'_> {
        OptionSocket::of(self.0.get())
    }

    /// Connects to `host`. Use [`SocketOptions::connect`] to set options first.
    ///
    /// If the host has several addresses, tries them as RFC 8305 ("happy eyeballs") says: IPv6 and
    /// IPv4 take turns, beginning with the family of the first address. The next attempt begins
    /// when an attempt fails, and at the latest 250 ms after the previous attempt has begun. The
    /// first connection wins. On a test clock, the next attempt begins only when an attempt fails,
    /// because the clock stands still during an attempt.
    ///
    /// # Errors
    /// Returns the system's error for the address that failed last, or the error of
    /// [resolving](Host::addresses) the host.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, all connection attempts are abandoned.
    #[track_caller]
    pub fn connect(host: impl Into<Host>) -> impl Future<Output = io::Result<Self>> {
        crate::scheduler::placed::placed(async move { SocketOptions::new().connect(host).await })
    }

    /// Like [`connect`](Self::connect), with a limit of `timeout`. The limit includes the time to
    /// resolve the host.
    ///
    /// # Errors
    /// Returns the errors of [`connect`](Self::connect), or [`TimedOut`](io::ErrorKind::TimedOut)
    /// if the timeout elapses.
    #[track_caller]
    pub fn connect_timeout(
        host: impl Into<Host>,
        timeout: Duration,
    ) -> impl Future<Output = io::Result<Self>> {
        crate::scheduler::placed::placed(async move {
            match time::timeout(timeout, Self::connect(host)).await {
                Ok(connected) => connected,
                Err(_) => {
                    Err(io::Error::new(io::ErrorKind::TimedOut, "not connected within the timeout"))
                }
            }
        })
    }

    /// Returns the local address of the connection.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let socket = self.0.get();
        simulated::local_addr(socket).unwrap_or_else(|| socket.local_addr())
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// Returns the system's error, for example if the stream is no longer connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let socket = self.0.get();
        simulated::peer_addr(socket).unwrap_or_else(|| socket.peer_addr())
    }

    /// Returns `true` if data is sent immediately, and not held back to be sent together with more
    /// (Nagle's algorithm, `TCP_NODELAY`).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.options().nodelay()
    }

    /// Sets whether data is sent immediately; see [`nodelay`](Self::nodelay). Default: `false`.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.options().set_nodelay(nodelay)
    }

    /// Returns the maximum number of hops for packets (`IP_TTL`).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn ttl(&self) -> io::Result<u32> {
        self.options().ttl()
    }

    /// Sets the maximum number of hops; see [`ttl`](Self::ttl).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_ttl(&self, hops: u32) -> io::Result<()> {
        self.options().set_ttl(hops)
    }

    /// Returns how long the connection is idle before the system probes whether the peer is still
    /// there (`SO_KEEPALIVE` and `TCP_KEEPIDLE`). `None` means never.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        let socket = &*self.options();
        Ok(if sockopt::socket_keepalive(socket)? {
            Some(sockopt::tcp_keepidle(socket)?)
        } else {
            None
        })
    }

    /// Sets how long the connection is idle before the system probes the peer; see
    /// [`keepalive`](Self::keepalive). The unit is whole seconds. Default: `None`.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        let socket = &*self.options();
        if let Some(idle) = idle {
            sockopt::set_tcp_keepidle(socket, idle)?;
        }
        Ok(sockopt::set_socket_keepalive(socket, idle.is_some())?)
    }

    /// Returns the interval between keepalive probes, and the number of unanswered probes after
    /// which the connection ends. It then ends with [`TimedOut`](io::ErrorKind::TimedOut), also for
    /// pending reads.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn keepalive_probes(&self) -> io::Result<(Duration, u32)> {
        let socket = &*self.options();
        Ok((sockopt::tcp_keepintvl(socket)?, sockopt::tcp_keepcnt(socket)?))
    }

    /// Sets the interval and the number of keepalive probes; see
    /// [`keepalive_probes`](Self::keepalive_probes). The interval counts in whole seconds. Default:
    /// the system's, which is 75 s and 9 probes on Linux.
    ///
    /// # Errors
    /// Returns the system's error. It accepts neither zero nor large values.
    pub fn set_keepalive_probes(&self, interval: Duration, count: u32) -> io::Result<()> {
        let socket = &*self.options();
        sockopt::set_tcp_keepintvl(socket, interval)?;
        Ok(sockopt::set_tcp_keepcnt(socket, count)?)
    }

    /// Returns the limit for data that is not acknowledged, or `None` if the system decides.
    ///
    /// The limit applies to data that was sent and not acknowledged, and to data that cannot be
    /// sent since the peer does not read. When it elapses, the connection ends with
    /// [`TimedOut`](io::ErrorKind::TimedOut) (`TCP_USER_TIMEOUT`).
    ///
    /// This may also cut off a peer that reads slowly, if more is written than it reads, because
    /// Linux 6.18 counts until the peer's window has room for the whole next segment. For example,
    /// with a limit of 5 s and segments of 1448 bytes, it ended a connection to a peer that read
    /// 100 kB each second.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        let timeout_ms = sockets::tcp_user_timeout(&*self.options())?;
        Ok((timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into())))
    }

    /// Sets the limit for data that is not acknowledged; see [`user_timeout`](Self::user_timeout).
    /// The unit is whole milliseconds. Default: `None`, which is about 15 minutes on Linux.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](io::ErrorKind::InvalidInput) for less than 1 ms and for more than
    /// 24 days. Returns the system's error otherwise.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout_ms = match timeout.map(|timeout| i32::try_from(timeout.as_millis())) {
            None => 0,
            Some(Ok(timeout_ms @ 1..)) => timeout_ms.cast_unsigned(),
            Some(_) => {
                let text =
                    "cannot set a user timeout outside of 1 ms to 24 days: use None for no timeout";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        Ok(sockets::set_tcp_user_timeout(&*self.options(), timeout_ms)?)
    }

    /// Returns `true` if received data is acknowledged immediately, and not together with the next
    /// data that is sent (`TCP_QUICKACK`). The system also changes this setting by itself.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn quick_ack(&self) -> io::Result<bool> {
        Ok(sockets::tcp_quickack(&*self.options())?)
    }

    /// Sets for the moment whether received data is acknowledged immediately; see
    /// [`quick_ack`](Self::quick_ack).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_quick_ack(&self, quick: bool) -> io::Result<()> {
        Ok(sockets::set_tcp_quickack(&*self.options(), quick)?)
    }

    /// Returns what happens to unsent data when the socket is closed (`SO_LINGER`).
    ///
    /// With `None`, the system continues to send it in the background. With zero, it is discarded,
    /// and the peer's connection is reset. With any other time, closing the socket blocks for at
    /// most that long.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_linger(&*self.options())?)
    }

    /// Sets what happens to unsent data when the socket is closed; see [`linger`](Self::linger).
    /// Default: `None`.
    ///
    /// # Blocking
    /// With a time other than zero, closing the socket blocks the worker, for at most that time.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&*self.options(), linger)?)
    }
}
