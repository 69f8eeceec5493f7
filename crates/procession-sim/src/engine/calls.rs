//! The calls of programs on the network.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use procession::sim::Network;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::engine::{Engine, Held};
use crate::faults::Fault;
use crate::net::Net;
use crate::net::moment::Moment;
use crate::net::places::target;
use crate::net::sockets::{Datagrams, Kind, Phase};

/// For how long the name of a host may be looked up.
const LOOKUPS: [u64; 4] = [0, 1_000_000, 100_000_000, 5_000_000_000];

impl Engine {
    /// Calls the network, unless the system has no descriptor left.
    fn open(
        &self,
        call: impl FnOnce(&mut Net, &mut Moment<'_>, usize) -> io::Result<OwnedFd>,
    ) -> io::Result<OwnedFd> {
        let home = self.home();
        self.with_net(|net, moment| {
            if moment.happens(Fault::NoDescriptor) {
                moment.tell(|| "the system refuses a descriptor for a socket".to_owned());
                return Err(Errno::MFILE.into());
            }
            call(net, moment, home)
        })?
    }

    /// Asks about the socket that a descriptor refers to.
    fn ask<R>(
        &self,
        socket: BorrowedFd<'_>,
        ask: impl FnOnce(&mut Net, &mut Moment<'_>, u64) -> R,
    ) -> Option<R> {
        let asked = self.with_net_if_any(|net, moment| {
            let id = net.find(socket)?;
            Some(ask(net, moment, id))
        });
        asked.flatten()
    }
}

impl Network for Engine {
    fn resolve(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let (host, port) = name
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .ok_or_else(|| invalid(format!("cannot look up {name:?}: the port is no number")))?;
        let (ip, late) = self.with_net(|net, moment| {
            let late = moment.fault(Fault::SlowNetwork, &LOOKUPS);
            let found = net.host_named(host).map(|host| net.hosts[host].address.into());
            let local = (host == "localhost").then_some(IpAddr::from([127, 0, 0, 1]));
            (found.or(local).or_else(|| host.parse().ok()), late)
        })?;
        if let Some(late) = late {
            self.hold(late, Held::Late);
        }
        let unknown = || {
            io::Error::new(io::ErrorKind::NotFound, format!("no simulated host is called {host:?}"))
        };
        Ok(vec![SocketAddr::new(ip.ok_or_else(unknown)?, port)])
    }

    fn listen(&self, at: SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
        self.open(|net, _, home| net.listen(home, at, backlog))
    }

    fn accept(&self, listener: BorrowedFd<'_>) -> Option<io::Result<(OwnedFd, SocketAddr)>> {
        self.ask(listener, |net, moment, id| {
            if moment.happens(Fault::NoDescriptor) {
                moment.tell(|| "the system refuses a descriptor for a connection".to_owned());
                return Err(Errno::MFILE.into());
            }
            net.accept(id, listener)
        })
    }

    fn connect(&self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<OwnedFd> {
        self.open(|net, moment, home| net.connect(moment, home, from, to))
    }

    fn is_connected(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let phase = self.ask(socket, |net, _, id| {
            let phase = net.phase(id);
            if matches!(phase, Some(Phase::Failed(_))) {
                // The program learns it here, and asks nothing else of such a socket.
                net.broken.remove(&id);
            }
            phase
        });
        match phase.flatten() {
            Some(Phase::Connecting) => Ok(false),
            Some(Phase::Connected) => Ok(true),
            Some(Phase::Failed(error)) => Err(error.into()),
            // The host has gone down.
            None => Err(Errno::NETDOWN.into()),
        }
    }

    fn bind(&self, at: SocketAddr) -> io::Result<OwnedFd> {
        self.open(|net, _, home| net.bind(home, at))
    }

    fn connect_datagrams(&self, socket: BorrowedFd<'_>, to: SocketAddr) -> Option<io::Result<()>> {
        self.ask(socket, |net, _, id| {
            if let Some(Kind::Datagrams(own)) = net.sockets.get_mut(&id).map(|one| &mut one.kind) {
                own.peer = Some(target(to));
            }
            Ok(())
        })
    }

    fn local_addr(&self, socket: BorrowedFd<'_>) -> Option<SocketAddr> {
        self.ask(socket, |net, _, id| match net.broken.get(&id) {
            Some(broken) => broken.local,
            None => net.sockets[&id].local,
        })
    }

    fn peer_addr(&self, socket: BorrowedFd<'_>) -> Option<io::Result<SocketAddr>> {
        self.ask(socket, |net, _, id| {
            let peer = if let Some(&Kind::Datagrams(Datagrams { peer, .. })) =
                net.sockets.get(&id).map(|socket| &socket.kind)
            {
                peer
            } else if net.phase(id) == Some(Phase::Connected) {
                net.peer_addr(id)
            } else {
                None
            };
            peer.ok_or_else(|| Errno::NOTCONN.into())
        })
    }

    fn error(&self, socket: BorrowedFd<'_>, reads: bool) -> Option<io::Error> {
        let error = self.ask(socket, |net, _, id| {
            (*net.error(id)?)?;
            // What has arrived before can still be read, except for datagrams.
            let has_data = |net: &mut Net| {
                net.has_more(id) || rustix::io::ioctl_fionread(socket).is_ok_and(|count| count > 0)
            };
            let is_stream = net.phase(id).is_some();
            if reads && is_stream && has_data(net) { None } else { net.error(id)?.take() }
        });
        error.flatten().map(io::Error::from)
    }

    fn options(&self, socket: BorrowedFd<'_>) -> Option<Arc<TcpStream>> {
        let options = self.ask(socket, |net, _, id| {
            let fresh = || {
                let flags = SocketFlags::CLOEXEC;
                let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
                // If the real system has no descriptor left, the options are refused.
                socket.ok().map(|socket| Arc::new(TcpStream::from(socket)))
            };
            if net.broken.contains_key(&id) {
                // Nothing depends on them any more.
                return fresh();
            }
            net.changed_options.push(id);
            let stream = net.stream(id)?;
            stream.options = stream.options.take().or_else(fresh);
            stream.options.clone()
        });
        options.flatten()
    }

    fn close(&self, socket: BorrowedFd<'_>) {
        self.ask(socket, |net, _, id| net.close(id, socket));
    }

    fn release(&self, socket: BorrowedFd<'_>) {
        self.ask(socket, |net, _, id| net.release(id));
    }
}
