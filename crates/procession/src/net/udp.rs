//! UDP.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket};

use rustix::net::sockopt;

use super::io::{Done, Io, Side};
use super::options::{SocketOptions, waiting_methods};
use super::parts::{receive_parts, send_parts, send_parts_to};
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
pub struct UdpSocket(pub(super) Io<StdUdpSocket>);

std_conversions!(UdpSocket, StdUdpSocket);

impl UdpSocket {
    /// Receives at `host`; of several addresses, at the first that can be bound. Port 0 lets the system choose one.
    /// [`SocketOptions::bind`] for more say in this.
    ///
    /// # Errors
    /// The system's, of the last address tried.
    pub async fn bind(host: impl Into<Host>) -> io::Result<Self> {
        SocketOptions::new().bind(host).await
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

    /// As [`send`](Self::send), one datagram out of several parts, one after the other.
    ///
    /// # Errors
    /// As there; the system takes 1024 parts at most.
    pub async fn send_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.run(Side::Write, |io| send_parts(io, parts).map(Done::whole)).await
    }

    /// As [`send_to`](Self::send_to), one datagram out of several parts, one after the other.
    ///
    /// # Errors
    /// As [`send_vectored`](Self::send_vectored).
    pub async fn send_vectored_to(&self, parts: &[IoSlice<'_>], host: impl Into<Host>) -> io::Result<usize> {
        let addresses = host.into().addresses().await?;
        let address = addresses[0];
        self.0.run(Side::Write, |io| send_parts_to(io, parts, &address).map(Done::whole)).await
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

    /// As [`recv_from`](Self::recv_from), into several buffers, one after the other.
    ///
    /// # Errors
    /// As there.
    pub async fn recv_vectored_from(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<(usize, SocketAddr)> {
        let call = |io: &StdUdpSocket| {
            let (count, address) = receive_parts(io, buffers)?;
            let address = address.ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
            Ok(Done::whole((count, address.try_into()?)))
        };
        self.0.run(Side::Read, call).await
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
        self.0.run(Side::Read, |io| io.peek(buffer).map(Done::whole)).await
    }

    /// As [`recv_from`](Self::recv_from), and leaves the datagram there.
    ///
    /// # Errors
    /// As there.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.run(Side::Read, |io| io.peek_from(buffer).map(Done::whole)).await
    }

    /// As [`recv`](Self::recv), without waiting.
    ///
    /// # Errors
    /// The system's; [`WouldBlock`](io::ErrorKind::WouldBlock) if there is none.
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_once(Side::Read, |io| io.recv(buffer).map(Done::whole))
    }

    /// As [`send`](Self::send), without waiting.
    ///
    /// # Errors
    /// The system's; [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_once(Side::Write, |io| io.send(bytes).map(Done::whole))
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

    /// Whether it may send to broadcast addresses.
    ///
    /// # Errors
    /// The system's.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.get().broadcast()
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

    /// Whether what is sent to a group comes to members on this machine, too.
    ///
    /// # Errors
    /// The system's.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.0.get().multicast_loop_v4()
    }

    /// Sets that. Default: it does.
    ///
    /// # Errors
    /// The system's.
    pub fn set_multicast_loop_v4(&self, loops: bool) -> io::Result<()> {
        self.0.get().set_multicast_loop_v4(loops)
    }

    /// As [`multicast_loop_v4`](Self::multicast_loop_v4), for IPv6.
    ///
    /// # Errors
    /// The system's.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.0.get().multicast_loop_v6()
    }

    /// As [`set_multicast_loop_v4`](Self::set_multicast_loop_v4), for IPv6.
    ///
    /// # Errors
    /// The system's.
    pub fn set_multicast_loop_v6(&self, loops: bool) -> io::Result<()> {
        self.0.get().set_multicast_loop_v6(loops)
    }

    /// Hops that a datagram to a group may take.
    ///
    /// # Errors
    /// The system's.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.0.get().multicast_ttl_v4()
    }

    /// Sets that. Default: 1, so that it stays in its network.
    ///
    /// # Errors
    /// The system's.
    pub fn set_multicast_ttl_v4(&self, hops: u32) -> io::Result<()> {
        self.0.get().set_multicast_ttl_v4(hops)
    }

    /// As [`multicast_ttl_v4`](Self::multicast_ttl_v4), for IPv6.
    ///
    /// # Errors
    /// The system's.
    pub fn multicast_hops_v6(&self) -> io::Result<u32> {
        Ok(sockopt::ipv6_multicast_hops(self.0.get())?)
    }

    /// As [`set_multicast_ttl_v4`](Self::set_multicast_ttl_v4), for IPv6.
    ///
    /// # Errors
    /// The system's.
    pub fn set_multicast_hops_v6(&self, hops: u32) -> io::Result<()> {
        Ok(sockopt::set_ipv6_multicast_hops(self.0.get(), hops)?)
    }

    /// The address of the interface through which datagrams to groups go; all zeros is the system's choice.
    ///
    /// # Errors
    /// The system's.
    pub fn multicast_if_v4(&self) -> io::Result<Ipv4Addr> {
        Ok(sockopt::ip_multicast_if(self.0.get())?)
    }

    /// Sets that.
    ///
    /// # Errors
    /// The system's.
    pub fn set_multicast_if_v4(&self, interface: &Ipv4Addr) -> io::Result<()> {
        Ok(sockopt::set_ip_multicast_if(self.0.get(), interface)?)
    }

    /// As [`multicast_if_v4`](Self::multicast_if_v4), for IPv6: the number of the interface; 0 is the system's choice.
    ///
    /// # Errors
    /// The system's.
    pub fn multicast_if_v6(&self) -> io::Result<u32> {
        Ok(sockopt::ipv6_multicast_if(self.0.get())?)
    }

    /// Sets that.
    ///
    /// # Errors
    /// The system's.
    pub fn set_multicast_if_v6(&self, interface: u32) -> io::Result<()> {
        Ok(sockopt::set_ipv6_multicast_if(self.0.get(), interface)?)
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

waiting_methods!(UdpSocket);
