//! UDP sockets.

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket};

use rustix::net::{RecvFlags, sockopt};

use super::datagram::{self, Datagram};
use super::io::{Io, IoResult, Side};
use super::options::{SocketOptions, waiting_methods};
use super::parts::{receive_parts, send_parts, send_parts_to};
use super::resolve::Host;
use super::simulated;
use super::stream::std_conversions;
use crate::sys::system::sockets::WHOLE_LENGTH;

/// A socket for UDP datagrams.
///
/// All methods take `&self`, so one process can receive while another process sends.
///
/// ```
/// use procession::net::UdpSocket;
///
/// procession::run(async {
///     let client = UdpSocket::bind("127.0.0.1:0").await?;
///     let server = UdpSocket::bind("127.0.0.1:0").await?;
///     client.send_to(b"hello", server.local_addr()?).await?;
///     let mut bytes = [0; 64];
///     let (count, sender) = server.recv_from(&mut bytes).await?;
///     assert_eq!((&bytes[..count], sender), (&b"hello"[..], client.local_addr()?));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(pub(super) Io<StdUdpSocket>);

std_conversions!(UdpSocket, StdUdpSocket, socket);

impl UdpSocket {
    /// Creates a socket at `host`. If the host has several addresses, uses the first address that
    /// can be bound. With port 0, the system chooses a free port. Use [`SocketOptions::bind`] to
    /// set options first.
    ///
    /// # Errors
    /// Returns the system's error for the last address, or the error of
    /// [resolving](Host::addresses) the host.
    #[track_caller]
    pub fn bind(host: impl Into<Host>) -> impl Future<Output = io::Result<Self>> {
        crate::scheduler::placed::placed(async move { SocketOptions::new().bind(host).await })
    }

    /// Connects the socket to `host`. From then on [`send`](Self::send) sends to that address, and
    /// only datagrams from that address are received. If the host has several addresses, uses the
    /// first address that works.
    ///
    /// # Errors
    /// Returns the system's error for the last address, or the error of
    /// [resolving](Host::addresses) the host.
    #[track_caller]
    pub fn connect(&self, host: impl Into<Host>) -> impl Future<Output = io::Result<()>> {
        crate::scheduler::placed::placed(async move {
            let addresses = host.into().addresses().await?;
            match simulated::connect_datagrams(self.0.get(), addresses[0]) {
                Some(connected) => connected,
                None => self.0.get().connect(&*addresses),
            }
        })
    }

    /// Sends a datagram to the address that the socket is connected to, and returns its length.
    ///
    /// # Errors
    /// Returns the system's error, or [`TimedOut`](io::ErrorKind::TimedOut) if the write timeout
    /// elapses. The error may belong to an earlier datagram that found no receiver.
    #[track_caller]
    pub fn send(&self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.0.run(Side::Write, |io| send(io, bytes)).await
        })
    }

    /// Sends a datagram to the first address of `host`, and returns its length.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send), or the error of [resolving](Host::addresses) the
    /// host.
    #[track_caller]
    pub fn send_to(
        &self,
        bytes: &[u8],
        host: impl Into<Host>,
    ) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            let addresses = host.into().addresses().await?;
            let address = addresses[0];
            self.0.run(Side::Write, |io| send_to(io, bytes, address)).await
        })
    }

    /// Like [`send`](Self::send), but makes one datagram of several buffers, one after the other.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send). The system takes at most 1024 buffers.
    #[track_caller]
    pub fn send_vectored(&self, parts: &[IoSlice<'_>]) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            let call = |io: &StdUdpSocket| {
                let sent = simulated::send(io, parts, None);
                sent.unwrap_or_else(|| send_parts(io, parts)).map(IoResult::whole)
            };
            self.0.run(Side::Write, call).await
        })
    }

    /// Like [`send_to`](Self::send_to), but makes one datagram of several buffers, one after the
    /// other.
    ///
    /// # Errors
    /// Returns the errors of [`send_to`](Self::send_to). The system takes at most 1024 buffers.
    #[track_caller]
    pub fn send_vectored_to(
        &self,
        parts: &[IoSlice<'_>],
        host: impl Into<Host>,
    ) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            let addresses = host.into().addresses().await?;
            let address = addresses[0];
            let call = |io: &StdUdpSocket| {
                let sent = simulated::send(io, parts, Some(address));
                sent.unwrap_or_else(|| send_parts_to(io, parts, &address)).map(IoResult::whole)
            };
            self.0.run(Side::Write, call).await
        })
    }

    /// Receives a datagram into `buffer`, and returns the number of bytes. Bytes that do not fit
    /// are discarded; [`recv_datagram`](Self::recv_datagram) reports whether there were any.
    ///
    /// # Errors
    /// Returns the system's error, or [`TimedOut`](io::ErrorKind::TimedOut) if the read timeout
    /// elapses. The error may belong to a datagram that was sent before.
    #[track_caller]
    pub fn recv(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            self.0.run(Side::Read, |io| receive(io, buffer)).await
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
            self.0.run(Side::Read, |io| receive_from(io, buffer)).await
        })
    }

    /// Like [`recv_from`](Self::recv_from), but also returns the length of a datagram that does not
    /// fit into `buffer`.
    ///
    /// ```
    /// use procession::net::UdpSocket;
    ///
    /// procession::run(async {
    ///     let socket = UdpSocket::bind("127.0.0.1:0").await?;
    ///     socket.send_to(b"too long", socket.local_addr()?).await?;
    ///     let datagram = socket.recv_datagram(&mut [0; 3]).await?;
    ///     assert!(datagram.is_truncated());
    ///     assert_eq!((datagram.len, datagram.full_len), (3, 8));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`recv`](Self::recv).
    #[track_caller]
    pub fn recv_datagram(
        &self,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<Datagram<SocketAddr>>> {
        crate::scheduler::placed::placed(async move {
            let call = |io: &StdUdpSocket| {
                let (room, parts) = (buffer.len(), &mut [IoSliceMut::new(buffer)]);
                if let Some(received) = simulated::receive(io, parts, WHOLE_LENGTH) {
                    let (length, sender) = received?;
                    return Ok(IoResult::whole(Datagram::new(room, length, sender)));
                }
                let (length, sender) = datagram::receive(io, buffer)?;
                let sender = sender.ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
                Ok(IoResult::whole(Datagram::new(room, length, sender.try_into()?)))
            };
            self.0.run(Side::Read, call).await
        })
    }

    /// Like [`recv_from`](Self::recv_from), but fills several buffers, one after the other.
    ///
    /// # Errors
    /// Returns the same errors as [`recv`](Self::recv).
    #[track_caller]
    pub fn recv_vectored_from(
        &self,
        buffers: &mut [IoSliceMut<'_>],
    ) -> impl Future<Output = io::Result<(usize, SocketAddr)>> {
        crate::scheduler::placed::placed(async move {
            let call = |io: &StdUdpSocket| {
                if let Some(received) = simulated::receive(io, buffers, RecvFlags::empty()) {
                    return received.map(IoResult::whole);
                }
                let (count, address) = receive_parts(io, buffers)?;
                let address = address.ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
                Ok(IoResult::whole((count, address.try_into()?)))
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
            let call = |io: &StdUdpSocket| {
                if let Some(received) = simulated::receive(io, buffers, RecvFlags::empty()) {
                    return received.map(|(count, _)| IoResult::whole(count));
                }
                receive_parts(io, buffers).map(|(count, _)| IoResult::whole(count))
            };
            self.0.run(Side::Read, call).await
        })
    }

    /// Like [`recv`](Self::recv), but leaves the datagram in the queue.
    ///
    /// # Errors
    /// Returns the same errors as [`recv`](Self::recv).
    #[track_caller]
    pub fn peek(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        crate::scheduler::placed::placed(async move {
            let call = |io: &StdUdpSocket| match peek_simulated(io, buffer) {
                Some(peeked) => peeked.map(|(count, _)| IoResult::whole(count)),
                None => io.peek(buffer).map(IoResult::whole),
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
            let call = |io: &StdUdpSocket| match peek_simulated(io, buffer) {
                Some(peeked) => peeked.map(IoResult::whole),
                None => io.peek_from(buffer).map(IoResult::whole),
            };
            self.0.run(Side::Read, call).await
        })
    }

    /// Like [`recv`](Self::recv), but without waiting.
    ///
    /// # Errors
    /// Returns the system's error, or [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no
    /// datagram.
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_once(Side::Read, |io| receive(io, buffer))
    }

    /// Like [`send`](Self::send), but without waiting.
    ///
    /// # Errors
    /// Returns the system's error, or [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no
    /// room.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_once(Side::Write, |io| send(io, bytes))
    }

    /// Like [`recv_from`](Self::recv_from), but without waiting.
    ///
    /// # Errors
    /// Returns the system's error, or [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no
    /// datagram.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.try_once(Side::Read, |io| receive_from(io, buffer))
    }

    /// Like [`send_to`](Self::send_to), but without waiting.
    ///
    /// # Errors
    /// Returns the system's error, or [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no
    /// room.
    pub fn try_send_to(&self, bytes: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.0.try_once(Side::Write, |io| send_to(io, bytes, address))
    }

    /// Returns the address of this socket.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let socket = self.0.get();
        simulated::local_addr(socket).unwrap_or_else(|| socket.local_addr())
    }

    /// Returns the address that this socket is connected to.
    ///
    /// # Errors
    /// Returns the system's error, for example if the socket is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let socket = self.0.get();
        simulated::peer_addr(socket).unwrap_or_else(|| socket.peer_addr())
    }

    /// Returns `true` if the socket may send to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.get().broadcast()
    }

    /// Sets whether the socket may send to broadcast addresses. Default: `false`.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_broadcast(&self, allowed: bool) -> io::Result<()> {
        self.0.get().set_broadcast(allowed)
    }

    /// Returns the maximum number of hops for datagrams (`IP_TTL`).
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

    /// Returns `true` if multicast datagrams also reach members on this machine
    /// (`IP_MULTICAST_LOOP`).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.0.get().multicast_loop_v4()
    }

    /// Sets whether multicast datagrams also reach members on this machine. Default: `true`.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_multicast_loop_v4(&self, loops: bool) -> io::Result<()> {
        self.0.get().set_multicast_loop_v4(loops)
    }

    /// The counterpart of [`multicast_loop_v4`](Self::multicast_loop_v4) for IPv6.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.0.get().multicast_loop_v6()
    }

    /// The counterpart of [`set_multicast_loop_v4`](Self::set_multicast_loop_v4) for IPv6.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_multicast_loop_v6(&self, loops: bool) -> io::Result<()> {
        self.0.get().set_multicast_loop_v6(loops)
    }

    /// Returns the maximum number of hops for multicast datagrams (`IP_MULTICAST_TTL`).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.0.get().multicast_ttl_v4()
    }

    /// Sets the maximum number of hops for multicast datagrams. Default: 1, so that they stay in
    /// the local network.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_multicast_ttl_v4(&self, hops: u32) -> io::Result<()> {
        self.0.get().set_multicast_ttl_v4(hops)
    }

    /// The counterpart of [`multicast_ttl_v4`](Self::multicast_ttl_v4) for IPv6.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn multicast_hops_v6(&self) -> io::Result<u32> {
        Ok(sockopt::ipv6_multicast_hops(self.0.get())?)
    }

    /// The counterpart of [`set_multicast_ttl_v4`](Self::set_multicast_ttl_v4) for IPv6.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_multicast_hops_v6(&self, hops: u32) -> io::Result<()> {
        Ok(sockopt::set_ipv6_multicast_hops(self.0.get(), hops)?)
    }

    /// Returns the address of the interface that sends multicast datagrams. With all zeros, the
    /// system chooses the interface.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn multicast_if_v4(&self) -> io::Result<Ipv4Addr> {
        Ok(sockopt::ip_multicast_if(self.0.get())?)
    }

    /// Sets the interface that sends multicast datagrams; see
    /// [`multicast_if_v4`](Self::multicast_if_v4).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_multicast_if_v4(&self, interface: &Ipv4Addr) -> io::Result<()> {
        Ok(sockopt::set_ip_multicast_if(self.0.get(), interface)?)
    }

    /// Returns the number of the interface that sends IPv6 multicast datagrams. With 0, the system
    /// chooses the interface.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn multicast_if_v6(&self) -> io::Result<u32> {
        Ok(sockopt::ipv6_multicast_if(self.0.get())?)
    }

    /// Sets the interface that sends IPv6 multicast datagrams; see
    /// [`multicast_if_v6`](Self::multicast_if_v6).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn set_multicast_if_v6(&self, interface: u32) -> io::Result<()> {
        Ok(sockopt::set_ipv6_multicast_if(self.0.get(), interface)?)
    }

    /// Joins a multicast group on the interface with the address `interface`. The socket then also
    /// receives the datagrams of the group.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.get().join_multicast_v4(group, interface)
    }

    /// Leaves a multicast group; see [`join_multicast_v4`](Self::join_multicast_v4).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.get().leave_multicast_v4(group, interface)
    }

    /// Joins an IPv6 multicast group on the interface with the number `interface`; 0 is any
    /// interface. The socket then also receives the datagrams of the group.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().join_multicast_v6(group, interface)
    }

    /// Leaves an IPv6 multicast group; see [`join_multicast_v6`](Self::join_multicast_v6).
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().leave_multicast_v6(group, interface)
    }
}

waiting_methods!(UdpSocket);

fn send(io: &StdUdpSocket, bytes: &[u8]) -> io::Result<IoResult<usize>> {
    let sent = simulated::send(io, &[IoSlice::new(bytes)], None);
    sent.unwrap_or_else(|| io.send(bytes)).map(IoResult::whole)
}

fn send_to(io: &StdUdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<IoResult<usize>> {
    let sent = simulated::send(io, &[IoSlice::new(bytes)], Some(to));
    sent.unwrap_or_else(|| io.send_to(bytes, to)).map(IoResult::whole)
}

fn receive(io: &StdUdpSocket, buffer: &mut [u8]) -> io::Result<IoResult<usize>> {
    match simulated::receive(io, &mut [IoSliceMut::new(buffer)], RecvFlags::empty()) {
        Some(received) => received.map(|(count, _)| IoResult::whole(count)),
        None => io.recv(buffer).map(IoResult::whole),
    }
}

fn receive_from(io: &StdUdpSocket, buffer: &mut [u8]) -> io::Result<IoResult<(usize, SocketAddr)>> {
    match simulated::receive(io, &mut [IoSliceMut::new(buffer)], RecvFlags::empty()) {
        Some(received) => received.map(IoResult::whole),
        None => io.recv_from(buffer).map(IoResult::whole),
    }
}

fn peek_simulated(io: &StdUdpSocket, buffer: &mut [u8]) -> Option<io::Result<(usize, SocketAddr)>> {
    simulated::receive(io, &mut [IoSliceMut::new(buffer)], RecvFlags::PEEK)
}
