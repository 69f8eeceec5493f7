//! Options that most kinds of sockets share, and options that a socket needs before it has an
//! address.

use std::future::Future;
use std::io;
use std::net::{
    SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream, UdpSocket as StdUdpSocket,
};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, sockopt};

use super::accept::BACKLOG;
use super::attempts::first_connected;
use super::io::{Io, IoResult, Side};
use super::resolve::Host;
use super::simulated;
use super::tcp::{TcpListener, TcpStream};
use super::udp::UdpSocket;
use crate::sys::system::sockets;

/// Options of a socket that must be set before it has an address.
///
/// Options that can be changed at any time are methods of the sockets themselves. For an option
/// that is found in neither place, use a crate such as `socket2` or `rustix`: all sockets implement
/// [`AsFd`](std::os::fd::AsFd) and convert from and to the types of std.
///
/// ```
/// use procession::net::{SocketOptions, TcpStream};
///
/// procession::run(async {
///     let shared = SocketOptions::new().reuse_port(true);
///     let first = shared.clone().backlog(64).listen("127.0.0.1:0").await?;
///     // The system distributes connections between the two listeners.
///     let second = shared.listen(first.local_addr()?).await?;
///     assert_eq!(first.local_addr()?, second.local_addr()?);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing unless a socket is made with them"]
pub struct SocketOptions {
    reuse_address: Option<bool>,
    reuse_port: Option<bool>,
    only_v6: Option<bool>,
    receive_buffer: Option<usize>,
    send_buffer: Option<usize>,
    backlog: Option<u32>,
    local: Option<SocketAddr>,
}

/// Binds a listener for a scheduler that does not exist yet. Returns the listener and its address.
#[cfg(feature = "door")]
pub(crate) fn bind_before(address: SocketAddr) -> io::Result<(StdTcpListener, SocketAddr)> {
    let listener = match simulated::listen(address, BACKLOG) {
        Some(listener) => StdTcpListener::from(listener?),
        None => StdTcpListener::bind(address)?,
    };
    let address = simulated::local_addr(&listener).unwrap_or_else(|| listener.local_addr())?;
    Ok((listener, address))
}

impl SocketOptions {
    /// Creates options with the system's defaults. The only exception is that listeners reuse
    /// addresses; see [`reuse_address`](Self::reuse_address).
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether a socket may bind an address that was in use a moment ago (`SO_REUSEADDR`).
    ///
    /// For UDP this also allows an address that is still in use, if all its users allow it, as
    /// multicast requires. Default: on for [`listen`](Self::listen), off otherwise.
    pub fn reuse_address(mut self, reuse: bool) -> Self {
        self.reuse_address = Some(reuse);
        self
    }

    /// Sets whether other sockets of the same user may bind the same address (`SO_REUSEPORT`).
    ///
    /// All these sockets must set this option. The system distributes incoming connections and
    /// datagrams among the sockets. Default: off.
    pub fn reuse_port(mut self, reuse: bool) -> Self {
        self.reuse_port = Some(reuse);
        self
    }

    /// Sets whether a socket with an IPv6 address ignores IPv4 (`IPV6_V6ONLY`). Sockets with an
    /// IPv4 address ignore this option. Default: the system's, which is off unless it is configured
    /// otherwise.
    pub fn only_v6(mut self, only: bool) -> Self {
        self.only_v6 = Some(only);
        self
    }

    /// Sets the size of the kernel's receive buffer, in bytes. Default: the system's.
    ///
    /// Linux doubles the value to make room for its bookkeeping. The connections that a listener
    /// accepts inherit the size. To let TCP announce windows of more than 64 KiB, set the size
    /// here, before the connection begins.
    pub fn recv_buffer_size(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Sets the size of the kernel's send buffer, in bytes. Default: the system's. As for
    /// [`recv_buffer_size`](Self::recv_buffer_size), Linux doubles the value.
    pub fn send_buffer_size(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// Sets how many connections may wait to be accepted. Default: 4096. The system may lower the
    /// value.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = Some(connections);
        self
    }

    /// Sets the local address of a connection. Default: the system chooses one.
    /// [`listen`](Self::listen) and [`bind`](Self::bind) ignore this option.
    pub fn local_addr(mut self, address: SocketAddr) -> Self {
        self.local = Some(address);
        self
    }

    /// Creates a listener at `host`; see [`TcpListener::bind`].
    ///
    /// # Errors
    /// Returns the errors of [`TcpListener::bind`], and the system's error if it refuses an option.
    #[track_caller]
    pub fn listen(self, host: impl Into<Host>) -> impl Future<Output = io::Result<TcpListener>> {
        crate::scheduler::placed::placed(async move {
            let backlog =
                self.backlog.map_or(BACKLOG, |most| i32::try_from(most).unwrap_or(i32::MAX));
            let listening = |address: SocketAddr| {
                if let Some(listening) = simulated::listen(address, backlog) {
                    return listening;
                }
                let socket = self.bound(address, SocketType::STREAM, true)?;
                listen(&socket, backlog)?;
                Ok(socket)
            };
            let socket = first_of(host.into().addresses().await?, listening)?;
            Ok(TcpListener(Io::socket(StdTcpListener::from(socket))?.bound_here()))
        })
    }

    /// Connects to `host`; see [`TcpStream::connect`].
    ///
    /// # Errors
    /// Returns the errors of [`TcpStream::connect`], and the system's error if it refuses an option
    /// or the local address cannot be bound.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, all connection attempts are abandoned.
    #[track_caller]
    pub fn connect(self, host: impl Into<Host>) -> impl Future<Output = io::Result<TcpStream>> {
        crate::scheduler::placed::placed(async move {
            let addresses = host.into().addresses().await?;
            first_connected(addresses, |address| self.connect_to(address)).await
        })
    }

    /// Creates a UDP socket at `host`; see [`UdpSocket::bind`].
    ///
    /// # Errors
    /// Returns the errors of [`UdpSocket::bind`], and the system's error if it refuses an option.
    #[track_caller]
    pub fn bind(self, host: impl Into<Host>) -> impl Future<Output = io::Result<UdpSocket>> {
        crate::scheduler::placed::placed(async move {
            let bound = |address| match simulated::bind(address) {
                Some(bound) => bound,
                None => self.bound(address, SocketType::DGRAM, false),
            };
            let socket = first_of(host.into().addresses().await?, bound)?;
            Io::socket(StdUdpSocket::from(socket)).map(UdpSocket)
        })
    }

    /// Creates a socket with these options, in non-blocking mode.
    fn socket(
        &self,
        address: SocketAddr,
        of: SocketType,
        reuse_address: bool,
    ) -> io::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = sockets::open(family, of)?;
        if self.reuse_address.unwrap_or(reuse_address) {
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        if let Some(reuse) = self.reuse_port {
            sockopt::set_socket_reuseport(&socket, reuse)?;
        }
        if let Some(only) = self.only_v6.filter(|_| address.is_ipv6()) {
            sockopt::set_ipv6_v6only(&socket, only)?;
        }
        if let Some(bytes) = self.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        if let Some(bytes) = self.send_buffer {
            sockopt::set_socket_send_buffer_size(&socket, bytes)?;
        }
        Ok(socket)
    }

    fn bound(
        &self,
        address: SocketAddr,
        of: SocketType,
        reuse_address: bool,
    ) -> io::Result<OwnedFd> {
        let socket = self.socket(address, of, reuse_address)?;
        bind(&socket, &address)?;
        Ok(socket)
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let io = match simulated::connect(self.local, address) {
            // Its events are the events of the connection: it becomes writable once.
            Some(socket) => Io::socket(StdTcpStream::from(socket?))?,
            None => self.begin_to_connect(address)?,
        };
        let connected = |socket: &StdTcpStream| {
            if let Some(connected) = simulated::is_connected(socket) {
                return match connected? {
                    true => Ok(IoResult::whole(())),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                };
            }
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
            match socket.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                peer => peer.map(|_| IoResult::whole(())),
            }
        };
        io.run(Side::Write, connected).await?;
        Ok(TcpStream(io))
    }

    fn begin_to_connect(&self, address: SocketAddr) -> io::Result<Io<StdTcpStream>> {
        let socket = self.socket(address, SocketType::STREAM, false)?;
        if let Some(local) = self.local {
            bind(&socket, &local)?;
        }
        match connect(&socket, &address) {
            // After a signal, the kernel continues to connect as well.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Registered only after `connect`, since the kernel reports a socket that is not connecting
        // as closed.
        Io::socket(StdTcpStream::from(socket))
    }
}

/// Returns the first socket that `make` creates, or the error for the last address.
fn first_of(
    addresses: Vec<SocketAddr>,
    make: impl Fn(SocketAddr) -> io::Result<OwnedFd>,
) -> io::Result<OwnedFd> {
    let mut last = None;
    for address in addresses {
        match make(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("a host has at least one address"))
}

/// The methods of all sockets.
macro_rules! socket_methods {
    ($Socket:ident) => {
        impl $Socket {
            /// Returns the error that occurred on the socket since the last call, and clears it.
            ///
            /// # Errors
            /// Returns the system's error if the socket cannot be asked.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.0.get().take_error()
            }
        }

        impl std::os::fd::AsFd for $Socket {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl std::fmt::Debug for $Socket {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

pub(super) use socket_methods;

/// The methods of streams and datagram sockets.
macro_rules! waiting_methods {
    ($Socket:ident) => {
        super::options::socket_methods!($Socket);

        impl $Socket {
            /// Waits until a read without waiting is worth trying. The wait may end although there
            /// is nothing to read.
            ///
            /// # Errors
            /// Returns an error if the scheduler has ended.
            #[track_caller]
            pub fn readable(&self) -> impl Future<Output = std::io::Result<()>> {
                crate::scheduler::placed::placed(async move { self.0.ready(Side::Read).await })
            }

            /// Waits until a write without waiting is worth trying. The wait may end although there
            /// is no room.
            ///
            /// # Errors
            /// Returns an error if the scheduler has ended.
            #[track_caller]
            pub fn writable(&self) -> impl Future<Output = std::io::Result<()>> {
                crate::scheduler::placed::placed(async move { self.0.ready(Side::Write).await })
            }

            /// Returns the read timeout, or `None` if reads wait without a limit. Default: `None`.
            pub fn read_timeout(&self) -> Option<std::time::Duration> {
                self.0.timeout(Side::Read)
            }

            /// Sets how long each read or receive may wait; `None` is without a limit.
            ///
            /// The new timeout applies to operations that begin afterwards. An operation that
            /// already waits keeps its timeout, unless it is one of the I/O traits and the new
            /// timeout is `None`.
            ///
            /// # Errors
            /// Returns [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a timeout of zero.
            pub fn set_read_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0.set_timeout(Side::Read, timeout)
            }

            /// Returns the write timeout, or `None` if writes wait without a limit. Default:
            /// `None`.
            pub fn write_timeout(&self) -> Option<std::time::Duration> {
                self.0.timeout(Side::Write)
            }

            /// Sets how long each write or send may wait; `None` is without a limit.
            ///
            /// The new timeout applies to operations that begin afterwards. An operation that
            /// already waits keeps its timeout, unless it is one of the I/O traits and the new
            /// timeout is `None`.
            ///
            /// # Errors
            /// Returns [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a timeout of zero.
            pub fn set_write_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0.set_timeout(Side::Write, timeout)
            }

            /// Returns the sizes of the kernel's receive buffer and send buffer, in bytes. Linux
            /// returns twice the value that was set, since it adds room for its bookkeeping.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn buffer_sizes(&self) -> std::io::Result<(usize, usize)> {
                use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};
                let socket = self.0.get();
                Ok((socket_recv_buffer_size(socket)?, socket_send_buffer_size(socket)?))
            }

            /// Sets the size of the kernel's receive buffer, in bytes.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn set_recv_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                Ok(rustix::net::sockopt::set_socket_recv_buffer_size(self.0.get(), bytes)?)
            }

            /// Sets the size of the kernel's send buffer, in bytes.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn set_send_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                Ok(rustix::net::sockopt::set_socket_send_buffer_size(self.0.get(), bytes)?)
            }
        }
    };
}

pub(super) use waiting_methods;
