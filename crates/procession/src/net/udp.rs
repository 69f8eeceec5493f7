//! UDP.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::io::{Done, Io, Side};
use super::resolve::Host;
use super::stream::std_conversions;

/// A socket for UDP datagrams.
///
/// ```
/// use procession::net::UdpSocket;
///
/// procession::run(async {
///     let one = UdpSocket::bind("127.0.0.1:0").await?;
///     let other = UdpSocket::bind("127.0.0.1:0").await?;
///     one.send_to(b"hello", other.local_addr()?).await?;
///     let mut bytes = [0; 64];
///     let (count, from) = other.recv_from(&mut bytes).await?;
///     assert_eq!((&bytes[..count], from), (&b"hello"[..], one.local_addr()?));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(Io<StdUdpSocket>);

std_conversions!(UdpSocket, StdUdpSocket);

impl UdpSocket {
    /// Receives at `host`; of several addresses, at the first that can be bound. Port 0 lets the system choose one.
    ///
    /// # Errors
    /// The system's, of the last address tried.
    pub async fn bind(host: impl Into<Host>) -> io::Result<Self> {
        let addresses = host.into().addresses().await?;
        Self::try_from(StdUdpSocket::bind(&*addresses)?)
    }

    /// From now on [`send`](Self::send) goes there, and only what comes from there is received; of several addresses, the first that can be.
    ///
    /// # Errors
    /// The system's, of the last address tried.
    pub async fn connect(&self, host: impl Into<Host>) -> io::Result<()> {
        let addresses = host.into().addresses().await?;
        self.0.get().connect(&*addresses)
    }

    /// Sends a datagram to where this is connected to.
    ///
    /// # Errors
    /// The system's, which may be of an earlier datagram that nobody took; [`TimedOut`](io::ErrorKind::TimedOut) after the write timeout.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.run(Side::Write, |io| io.send(bytes).map(Done::whole)).await
    }

    /// Sends a datagram to `host`, to the first of its addresses.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_to(&self, bytes: &[u8], host: impl Into<Host>) -> io::Result<usize> {
        let addresses = host.into().addresses().await?;
        let address = addresses[0];
        self.0.run(Side::Write, |io| io.send_to(bytes, address).map(Done::whole)).await
    }

    /// Receives a datagram; what does not fit into `buffer` is discarded.
    ///
    /// # Errors
    /// The system's, which may be of a datagram sent before; [`TimedOut`](io::ErrorKind::TimedOut) after the read timeout.
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

    /// As [`recv`](Self::recv), and leaves the datagram there.
    ///
    /// # Errors
    /// As there.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.run(Side::Read, |io| io.peek(buffer).map(Done::whole)).await
    }

    /// As [`recv_from`](Self::recv_from), and leaves the datagram there.
    ///
    /// # Errors
    /// As there.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run(Side::Read, |io| io.peek_from(buffer).map(Done::whole)).await
    }

    /// As [`recv_from`](Self::recv_from), without waiting.
    ///
    /// # Errors
    /// The system's; [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_once(Side::Read, |io| io.recv_from(buffer).map(Done::whole))
    }

    /// As [`send_to`](Self::send_to), without waiting.
    ///
    /// # Errors
    /// The system's; [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room.
    pub fn try_send_to(&self, bytes: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.0.try_once(Side::Write, |io| io.send_to(bytes, address).map(Done::whole))
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

    /// Sets how long a receive may wait; `None` is for ever.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_patience(Side::Read, timeout)
    }

    /// Sets how long a send may wait; `None` is for ever.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_patience(Side::Write, timeout)
    }

    /// Allows sending to broadcast addresses.
    ///
    /// # Errors
    /// The system's.
    pub fn set_broadcast(&self, allowed: bool) -> io::Result<()> {
        self.0.get().set_broadcast(allowed)
    }

    /// Hops that a datagram may take.
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

    /// Receives what is sent to a group, too, through the interface that has the address `interface`.
    ///
    /// # Errors
    /// The system's.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.get().join_multicast_v4(group, interface)
    }

    /// Ends that.
    ///
    /// # Errors
    /// The system's.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.get().leave_multicast_v4(group, interface)
    }

    /// Receives what is sent to a group, too, through the interface with the number `interface`; 0 is any.
    ///
    /// # Errors
    /// The system's.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().join_multicast_v6(group, interface)
    }

    /// Ends that.
    ///
    /// # Errors
    /// The system's.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().leave_multicast_v6(group, interface)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
