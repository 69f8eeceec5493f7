//! Datagrams, which may be lost, doubled or reordered.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use procession::sim::DatagramAddress;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send};

use super::listeners::pair;
use super::places::{serves, target};
use crate::faults::Fault;
use crate::net::Net;
use crate::net::cargo::Cargo;
use crate::net::moment::Moment;
use crate::net::sockets::{Datagrams, Kind, Socket};

/// The longest datagram, with its address.
const LENGTH_MAX: usize = (64 << 10) + DatagramAddress::LENGTH;

impl Net {
    pub(crate) fn bind(&mut self, home: usize, at: SocketAddr) -> io::Result<OwnedFd> {
        let host = self.running(home)?;
        let local = self.claim(host, at, true)?;
        // These keep the bounds of datagrams, and say when the other end is closed.
        let (near, far) = pair(SocketType::SEQPACKET)?;
        self.add(
            &near,
            Socket::new(home, host, local, far, Kind::Datagrams(Datagrams::default())),
        )?;
        Ok(near)
    }

    /// Takes the datagrams that a program has sent.
    pub(super) fn drain_datagrams(&mut self, moment: &mut Moment<'_>, id: u64) {
        let mut buffer = vec![0; LENGTH_MAX];
        loop {
            let Some(socket) = self.sockets.get_mut(&id).filter(|socket| socket.is_readable) else {
                return;
            };
            let Kind::Datagrams(Datagrams { peer, .. }) = socket.kind else { return };
            let (host, local) = (socket.host, socket.local);
            let count = match recv(&socket.far, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => break,
                Ok((count, _)) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    socket.is_readable = false;
                    break;
                }
                Err(_) => break,
            };
            let Some((to, bytes)) = DatagramAddress::take(&buffer[..count]) else { continue };
            if let Some(to) = to.decode().or(peer) {
                self.send_datagram(moment, (host, local), target(to), bytes);
            }
        }
        if self.sockets.get(&id).is_some_and(|socket| socket.is_closed) {
            self.sockets.remove(&id);
        }
    }

    fn send_datagram(
        &mut self,
        moment: &mut Moment<'_>,
        (host, local): (usize, SocketAddr),
        to: SocketAddr,
        bytes: &[u8],
    ) {
        // A datagram to an address that no host has is lost.
        let Some(target) = self.host_at(host, to.ip()) else { return };
        let ip = match local.ip().is_unspecified() {
            true => self.source_ip(host, to.ip()),
            false => local.ip(),
        };
        let from = SocketAddr::new(ip, local.port());
        let copies = match moment.fault(Fault::Datagrams, &[1, 0, 2]) {
            None => 1,
            Some(copies) => {
                let what = if copies == 0 { "is lost" } else { "comes twice" };
                moment.tell(|| format!("a datagram from {from} to {to} {what}"));
                copies
            }
        };
        for _ in 0..copies {
            let cargo = Cargo::Datagram { from, to, bytes: bytes.to_vec() };
            self.send(moment, (host, target), cargo);
        }
    }

    /// A datagram arrives at a host.
    pub(super) fn deliver_datagram(
        &mut self,
        moment: &mut Moment<'_>,
        host: usize,
        from: SocketAddr,
        to: SocketAddr,
        bytes: &[u8],
    ) {
        let target = self.sockets.values().find(|socket| match socket.kind {
            Kind::Datagrams(Datagrams { peer, .. }) => {
                let is_for = socket.host == host && !socket.is_closed && serves(socket.local, to);
                is_for && peer.is_none_or(|peer| serves(peer, from))
            }
            _ => false,
        });
        if let Some(socket) = target {
            let mut datagram = DatagramAddress::encode(Some(from)).bytes().to_vec();
            datagram.extend(bytes);
            // If there is no room, the datagram is lost.
            let _ = send(&socket.far, &datagram, SendFlags::NOSIGNAL);
        } else if let Some(sender) = self.host_at(host, from.ip()) {
            self.send(moment, (host, sender), Cargo::Unreachable { socket: from, peer: to });
        }
    }

    /// A host reports that none of its sockets is at an address. Only a socket with this peer gets
    /// the error.
    pub(super) fn refuse_datagrams(&mut self, host: usize, socket: SocketAddr, peer: SocketAddr) {
        for one in self.sockets.values_mut().filter(|one| one.host == host) {
            if let Kind::Datagrams(Datagrams { peer: Some(own), error }) = &mut one.kind
                && serves(*own, peer)
                && serves(one.local, socket)
            {
                *error = Some(Errno::CONNREFUSED);
                // If there is no room, the program has something to read.
                let _ = send(&one.far, DatagramAddress::NO_DATAGRAM, SendFlags::NOSIGNAL);
            }
        }
    }
}
