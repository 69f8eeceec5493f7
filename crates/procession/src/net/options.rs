//! What can be set of sockets: what most kinds have in common, and what must be set before a socket has an address.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener, TcpStream as StdTcpStream, UdpSocket as StdUdpSocket};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt};

use super::accept::BACKLOG;
use super::io::{Done, Io, Side};
use super::resolve::Host;
use super::tcp::{TcpListener, TcpStream};
use super::udp::UdpSocket;

/// What sockets that have not got their address yet are to be like. What can be set at any time is set on the sockets themselves.
///
/// ```
/// use procession::net::{SocketOptions, TcpStream};
///
/// procession::run(async {
///     let shares = SocketOptions::new().reuse_port(true);
///     let one = shares.clone().backlog(64).listen("127.0.0.1:0").await?;
///     // The system distributes connections among the two.
///     let other = shares.listen(one.local_addr()?).await?;
///     assert_eq!(one.local_addr()?, other.local_addr()?);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Options that are neither here nor there can be set by crates such as `socket2` or `rustix`: all sockets are [`AsFd`](std::os::fd::AsFd), and come
/// from and go to the types of std.
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

impl SocketOptions {
    /// As the system has it, but that a listener reuses addresses.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether an address can be bound that was in use a moment ago; of UDP also one that is in use by others who allow it, as for
    /// multicast. Default: listeners can.
    pub fn reuse_address(mut self, reuse: bool) -> Self {
        self.reuse_address = Some(reuse);
        self
    }

    /// Whether others of this user may bind the same address, if they allow it, too: the system distributes among them what comes.
    pub fn reuse_port(mut self, reuse: bool) -> Self {
        self.reuse_port = Some(reuse);
        self
    }

    /// Whether a socket with an IPv6 address leaves IPv4 alone. Others ignore it.
    pub fn only_v6(mut self, only: bool) -> Self {
        self.only_v6 = Some(only);
        self
    }

    /// The size of the kernel's buffer for receiving, in bytes. Linux doubles it, for its own books. Connections that a listener accepts
    /// inherit it, and only if it is set here, before they begin, TCP announces windows of more than 64 KiB for it.
    pub fn receive_buffer_size(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// The size of the kernel's buffer for sending; as [`receive_buffer_size`](Self::receive_buffer_size).
    pub fn send_buffer_size(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// How many connections may wait to be accepted. Default: 4096; the system may cut it off.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = Some(connections);
        self
    }

    /// The address from which to connect. Default: what the system chooses. [`listen`](Self::listen) and [`bind`](Self::bind) ignore it.
    pub fn local_addr(mut self, address: SocketAddr) -> Self {
        self.local = Some(address);
        self
    }

    /// Listens at `host`, as [`TcpListener::bind`].
    ///
    /// # Errors
    /// As there; an option that the system refuses.
    pub async fn listen(self, host: impl Into<Host>) -> io::Result<TcpListener> {
        let backlog = self.backlog.map_or(BACKLOG, |most| i32::try_from(most).unwrap_or(i32::MAX));
        let listening = |address: SocketAddr| {
            let socket = self.bound(address, SocketType::STREAM, true)?;
            listen(&socket, backlog)?;
            Ok(socket)
        };
        let socket = first_of(host.into().addresses().await?, listening)?;
        Io::new(StdTcpListener::from(socket)).map(TcpListener)
    }

    /// Connects to `host`, as [`TcpStream::connect`].
    ///
    /// # Errors
    /// As there; an option that the system refuses; the local address cannot be bound.
    ///
    /// # Cancellation
    /// Dropped before it is complete, the connection is given up.
    pub async fn connect(self, host: impl Into<Host>) -> io::Result<TcpStream> {
        let mut last = None;
        for address in host.into().addresses().await? {
            match self.connect_to(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a host has at least one address"))
    }

    /// Receives datagrams at `host`, as [`UdpSocket::bind`].
    ///
    /// # Errors
    /// As there; an option that the system refuses.
    pub async fn bind(self, host: impl Into<Host>) -> io::Result<UdpSocket> {
        let bound = |address| self.bound(address, SocketType::DGRAM, false);
        let socket = first_of(host.into().addresses().await?, bound)?;
        Io::new(StdUdpSocket::from(socket)).map(UdpSocket)
    }

    /// A socket with these options, in non-blocking mode.
    fn socket(&self, address: SocketAddr, of: SocketType, reuse_address: bool) -> io::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, of, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
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

    fn bound(&self, address: SocketAddr, of: SocketType, reuse_address: bool) -> io::Result<OwnedFd> {
        let socket = self.socket(address, of, reuse_address)?;
        bind(&socket, &address)?;
        Ok(socket)
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket(address, SocketType::STREAM, false)?;
        if let Some(local) = self.local {
            bind(&socket, &local)?;
        }
        match connect(&socket, &address) {
            // The kernel goes on connecting after a signal, too.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
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
        Ok(TcpStream(io))
    }
}

/// The first that can be made, or the error of the last.
fn first_of(addresses: Vec<SocketAddr>, make: impl Fn(SocketAddr) -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    let mut last = None;
    for address in addresses {
        match make(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("a host has at least one address"))
}

/// What all sockets share.
macro_rules! socket_methods {
    ($Socket:ident) => {
        impl $Socket {
            /// The error that happened to the socket since the last look, which this forgets.
            ///
            /// # Errors
            /// The system's, of looking.
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

/// What streams and sockets for datagrams share.
macro_rules! waiting_methods {
    ($Socket:ident) => {
        super::options::socket_methods!($Socket);

        impl $Socket {
            /// Waits until it is worth to try to read without waiting. May be over for nothing.
            ///
            /// # Errors
            /// The scheduler has ended.
            pub async fn readable(&self) -> std::io::Result<()> {
                self.0.ready(Side::Read).await
            }

            /// As [`readable`](Self::readable), for writing.
            ///
            /// # Errors
            /// As there.
            pub async fn writable(&self) -> std::io::Result<()> {
                self.0.ready(Side::Write).await
            }

            /// How long whoever reads may wait. Default: for ever.
            pub fn read_timeout(&self) -> Option<std::time::Duration> {
                self.0.patience(Side::Read)
            }

            /// Sets how long whoever reads, or receives, may wait, each time by itself; `None` is for ever. One who waits already is not
            /// concerned.
            ///
            /// # Errors
            /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for zero.
            pub fn set_read_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                self.0.set_patience(Side::Read, timeout)
            }

            /// How long whoever writes may wait. Default: for ever.
            pub fn write_timeout(&self) -> Option<std::time::Duration> {
                self.0.patience(Side::Write)
            }

            /// Sets how long whoever writes, or sends, may wait; as [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            /// As there.
            pub fn set_write_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
                self.0.set_patience(Side::Write, timeout)
            }

            /// Sizes of the kernel's buffers, for receiving and for sending, in bytes. Linux doubles what is set, for its own books.
            ///
            /// # Errors
            /// The system's.
            pub fn buffer_sizes(&self) -> std::io::Result<(usize, usize)> {
                use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};
                let socket = self.0.get();
                Ok((socket_recv_buffer_size(socket)?, socket_send_buffer_size(socket)?))
            }

            /// Sets the size of the kernel's buffer for receiving.
            ///
            /// # Errors
            /// The system's.
            pub fn set_receive_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                Ok(rustix::net::sockopt::set_socket_recv_buffer_size(self.0.get(), bytes)?)
            }

            /// Sets the size of the kernel's buffer for sending.
            ///
            /// # Errors
            /// The system's.
            pub fn set_send_buffer_size(&self, bytes: usize) -> std::io::Result<()> {
                Ok(rustix::net::sockopt::set_socket_send_buffer_size(self.0.get(), bytes)?)
            }
        }
    };
}

pub(super) use waiting_methods;
