//! Sockets of a simulated network.
//!
//! On a thread of a simulated system, a socket is one end of a pair of Unix sockets, and the system
//! holds the other end. So everything works as on a socket of the Internet, except for addresses,
//! options, and what opens and connects a socket. For these the functions here ask the network.
//! They return `None` on other threads and for other sockets. Without the feature `sim` that is
//! known to the compiler.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, recv, recvmsg, sendmsg};

use crate::sys::datagram::DatagramAddress;
use crate::sys::os::{self, CallFault, Network, Os};
use crate::sys::system::sockets::NO_SIGNAL;

/// Asks the network of the calling thread, if it has one.
fn ask<R>(call: impl FnOnce(&dyn Network) -> Option<R>) -> Option<R> {
    os::here().and_then(|os| call(os.network()?))
}

/// Looks a name up.
pub(super) fn resolve(name: &str) -> Option<io::Result<Vec<SocketAddr>>> {
    ask(|network| Some(network.resolve(name)))
}

pub(super) fn listen(at: SocketAddr, backlog: i32) -> Option<io::Result<OwnedFd>> {
    ask(|network| Some(network.listen(at, backlog.max(0).cast_unsigned())))
}

pub(super) fn accept(listener: impl AsFd) -> Option<io::Result<(OwnedFd, SocketAddr)>> {
    ask(|network| network.accept(listener.as_fd()))
}

pub(super) fn connect(from: Option<SocketAddr>, to: SocketAddr) -> Option<io::Result<OwnedFd>> {
    ask(|network| Some(network.connect(from, to)))
}

pub(super) fn is_connected(socket: impl AsFd) -> Option<io::Result<bool>> {
    ask(|network| Some(network.is_connected(socket.as_fd())))
}

pub(super) fn bind(at: SocketAddr) -> Option<io::Result<OwnedFd>> {
    ask(|network| Some(network.bind(at)))
}

pub(super) fn connect_datagrams(socket: impl AsFd, to: SocketAddr) -> Option<io::Result<()>> {
    ask(|network| network.connect_datagrams(socket.as_fd(), to))
}

pub(super) fn local_addr(socket: impl AsFd) -> Option<io::Result<SocketAddr>> {
    ask(|network| network.local_addr(socket.as_fd()).map(Ok))
}

pub(super) fn peer_addr(socket: impl AsFd) -> Option<io::Result<SocketAddr>> {
    ask(|network| network.peer_addr(socket.as_fd()))
}

/// Returns the error that the network has for a call.
#[inline]
pub(super) fn error(socket: impl AsFd, reads: bool) -> Option<io::Error> {
    ask(|network| network.error(socket.as_fd(), reads))
}

/// Returns the error that the system has for a call that is repeated after a signal.
#[inline]
pub(super) fn error_of_wait(socket: impl AsFd, reads: bool) -> Option<io::Error> {
    let os = os::here()?;
    if os.fault(CallFault::Interrupted, 2) != 0 {
        return Some(Errno::INTR.into());
    }
    os.network()?.error(socket.as_fd(), reads)
}

/// Informs the network that a socket is about to be closed.
#[inline]
pub(super) fn close(socket: impl AsFd) {
    ask(|network| {
        network.close(socket.as_fd());
        Some(())
    });
}

/// Informs the network that a socket becomes a socket of std, which does not announce its drop.
#[inline]
pub(super) fn release(socket: impl AsFd) {
    ask(|network| {
        network.release(socket.as_fd());
        Some(())
    });
}

/// Returns the part of `bytes` that one write takes.
#[inline]
pub(super) fn shorten(bytes: &[u8]) -> &[u8] {
    let Some(os) = os::here() else { return bytes };
    let length = short_length(&*os, bytes.len());
    &bytes[..length]
}

/// Returns the part that one write takes of several buffers, if it takes only a part of the first
/// buffer with data.
#[inline]
pub(super) fn short_part<'a>(parts: &'a [IoSlice<'_>]) -> Option<&'a [u8]> {
    let os = os::here()?;
    let first = parts.iter().find(|part| !part.is_empty())?;
    let length = short_length(&*os, first.len());
    (length < first.len()).then(|| &first[..length])
}

fn short_length(os: &dyn Os, length: usize) -> usize {
    if length < 2 {
        return length;
    }
    match os.fault(CallFault::ShortWrite, 4) {
        0 => length,
        1 => 1,
        2 => length / 2,
        _ => length - 1,
    }
}

/// Sends a datagram to `to`, or to the peer.
pub(super) fn send(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    to: Option<SocketAddr>,
) -> Option<io::Result<usize>> {
    ask(|network| network.local_addr(socket.as_fd()))?;
    let peer = match to.map(Ok).or_else(|| peer_addr(&socket)) {
        // As `send(2)` reports a socket without a peer.
        Some(Err(error)) if error.kind() == io::ErrorKind::NotConnected => {
            return Some(Err(Errno::DESTADDRREQ.into()));
        }
        Some(Err(error)) => return Some(Err(error)),
        Some(Ok(peer)) => Some(peer),
        None => None,
    };
    let is_v6 = peer.is_some_and(|peer| peer.ip().to_canonical().is_ipv6());
    if parts.iter().map(|part| part.len()).sum::<usize>() > longest_datagram(is_v6) {
        return Some(Err(Errno::MSGSIZE.into()));
    }
    let address = DatagramAddress::encode(to);
    let mut all = vec![IoSlice::new(address.bytes())];
    all.extend(parts.iter().map(|part| IoSlice::new(part)));
    let sent = sendmsg(socket, &all, &mut SendAncillaryBuffer::default(), NO_SIGNAL);
    let sent = sent.map_err(io::Error::from);
    Some(sent.map(|count| count.saturating_sub(DatagramAddress::LENGTH)))
}

/// Returns how many bytes fit into a datagram: the length of a packet has 16 bits, and includes the
/// headers of UDP and of IPv4.
fn longest_datagram(is_v6: bool) -> usize {
    let header = if is_v6 { 0 } else { 20 };
    usize::from(u16::MAX) - 8 - header
}

/// Receives a datagram, and the address of its sender.
pub(super) fn receive(
    socket: impl AsFd,
    buffers: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
) -> Option<io::Result<(usize, SocketAddr)>> {
    ask(|network| network.local_addr(socket.as_fd()))?;
    let mut address = [0; DatagramAddress::LENGTH];
    let mut all = vec![IoSliceMut::new(&mut address)];
    all.extend(buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)));
    let received = loop {
        let received = recvmsg(&socket, &mut all, &mut RecvAncillaryBuffer::default(), flags);
        match received {
            Ok(received) if received.bytes == DatagramAddress::NO_DATAGRAM.len() => {
                if flags.contains(RecvFlags::PEEK) {
                    let _ = recv(&socket, &mut [0; 1][..], RecvFlags::empty());
                }
            }
            received => break received,
        }
    };
    let from = DatagramAddress::take(&address).and_then(|(address, _)| address.decode());
    Some(received.map_err(io::Error::from).and_then(|received| {
        let from = from.ok_or(io::ErrorKind::InvalidData)?;
        Ok((received.bytes.saturating_sub(DatagramAddress::LENGTH), from))
    }))
}

/// The socket that holds the options of a connection: the connection itself, or another socket.
pub(super) enum OptionSocket<'a> {
    Own(&'a StdTcpStream),
    Other(Arc<StdTcpStream>),
}

impl<'a> OptionSocket<'a> {
    #[inline]
    pub(super) fn of(socket: &'a StdTcpStream) -> Self {
        let other = ask(|network| network.options(socket.as_fd()));
        other.map_or(Self::Own(socket), Self::Other)
    }
}

impl Deref for OptionSocket<'_> {
    type Target = StdTcpStream;

    #[inline]
    fn deref(&self) -> &StdTcpStream {
        match self {
            Self::Own(socket) => socket,
            Self::Other(socket) => socket,
        }
    }
}
