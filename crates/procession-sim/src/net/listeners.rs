//! Listeners, and how streams are connected.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};

use super::places::{serves, target};
use crate::faults::Fault;
use crate::net::Net;
use crate::net::cargo::Cargo;
use crate::net::moment::Moment;
use crate::net::sockets::{Kind, Listener, Phase, Socket, Stream};

/// Returns two connected ends, both in non-blocking mode: the program's end, and the far end.
pub(super) fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?)
}

impl Net {
    pub(crate) fn listen(
        &mut self,
        home: usize,
        at: SocketAddr,
        backlog: u32,
    ) -> io::Result<OwnedFd> {
        let host = self.running(home)?;
        let local = self.claim(host, at, false)?;
        let (near, far) = pair(SocketType::STREAM)?;
        let kind =
            Kind::Listener(Listener { backlog_max: backlog as usize, backlog: VecDeque::new() });
        self.add(&near, Socket::new(home, host, local, far, kind))?;
        Ok(near)
    }

    /// Takes the next connection from a listener.
    pub(crate) fn accept(
        &mut self,
        id: u64,
        near: BorrowedFd<'_>,
    ) -> io::Result<(OwnedFd, SocketAddr)> {
        let socket = self.sockets.get_mut(&id);
        let Some(Kind::Listener(listener)) = socket.map(|socket| &mut socket.kind) else {
            return Err(Errno::INVAL.into());
        };
        let (stream, accepted) = listener.backlog.pop_front().ok_or(Errno::AGAIN)?;
        if listener.backlog.is_empty() {
            // The listener is readable as long as there are bytes in it.
            let mut bytes = [0; 512];
            while recv(near, &mut bytes[..], RecvFlags::empty()).is_ok_and(|(count, _)| count > 0) {
            }
        }
        Ok((accepted, self.peer_addr(stream).ok_or(Errno::CONNABORTED)?))
    }

    /// Begins to connect.
    pub(crate) fn connect(
        &mut self,
        moment: &mut Moment<'_>,
        home: usize,
        from: Option<SocketAddr>,
        to: SocketAddr,
    ) -> io::Result<OwnedFd> {
        let host = self.running(home)?;
        let to = target(to);
        let ip = self.source_ip(host, to.ip());
        let local = self.claim(host, from.unwrap_or(SocketAddr::new(ip, 0)), false)?;
        let local = match local.ip().is_unspecified() {
            true => SocketAddr::new(ip, local.port()),
            false => local,
        };
        let (near, far) = pair(SocketType::STREAM)?;
        // Once the network takes this byte, the socket becomes writable once more.
        send(&near, &[0], SendFlags::empty())?;
        let stream = Stream::new(to, None, Phase::Connecting, moment);
        let client =
            self.add(&near, Socket::new(home, host, local, far, Kind::Stream(Box::new(stream))))?;
        match self.host_at(host, to.ip()) {
            Some(target) => {
                let cargo = Cargo::Request { client, to, is_ignored: false };
                self.send(moment, (host, target), cargo);
            }
            None => {
                let cargo = Cargo::Answer { client, answer: Err(Errno::HOSTUNREACH) };
                self.send(moment, (host, host), cargo);
            }
        }
        Ok(near)
    }

    /// A request to connect arrives at a host. Returns `false` if it gets no answer, so that the
    /// client repeats it. Sets `is_ignored` if the repetitions get none either.
    #[must_use]
    pub(super) fn request(
        &mut self,
        moment: &mut Moment<'_>,
        client: u64,
        host: usize,
        to: SocketAddr,
        is_ignored: &mut bool,
    ) -> bool {
        // The client may have closed its socket.
        let Some(asking) = self.sockets.get(&client) else { return true };
        let (from, source) = (asking.host, asking.local);
        if *is_ignored {
            *is_ignored = moment.faults.contains(Fault::NoAnswer);
        } else if moment.happens(Fault::NoAnswer) {
            *is_ignored = true;
            moment.tell(|| format!("a request to connect to {to} gets no answer"));
        }
        if *is_ignored {
            return false;
        }
        let answer = match self.listener_at(host, to) {
            Some(_) if moment.happens(Fault::Refused) => {
                moment.tell(|| format!("a request to connect to {to} is refused"));
                Err(Errno::CONNREFUSED)
            }
            None => Err(Errno::CONNREFUSED),
            Some(listener) => match self.admit(moment, listener, client, source, to) {
                Ok(Some(server)) => Ok(server),
                // The backlog is full, or the real system has no descriptor left.
                Ok(None) | Err(_) => return false,
            },
        };
        self.send(moment, (host, from), Cargo::Answer { client, answer });
        true
    }

    fn listener_at(&self, host: usize, to: SocketAddr) -> Option<u64> {
        let listens = |socket: &Socket| {
            let is_listener = matches!(socket.kind, Kind::Listener(_));
            is_listener && !socket.is_closed && socket.host == host && serves(socket.local, to)
        };
        self.sockets.iter().find(|(_, socket)| listens(socket)).map(|(&id, _)| id)
    }

    /// Puts a connection into the backlog of a listener, unless that is full.
    fn admit(
        &mut self,
        moment: &mut Moment<'_>,
        id: u64,
        client: u64,
        source: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<Option<u64>> {
        let listening = &self.sockets[&id];
        let (home, host, is_v6) = (listening.home, listening.host, listening.local.is_ipv6());
        let peer_addr = match source.ip() {
            IpAddr::V4(ip) if is_v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), source.port()),
            _ => source,
        };
        let stream = Stream::new(peer_addr, Some(client), Phase::Connected, moment);
        let (near, far) = pair(SocketType::STREAM)?;
        let socket = Socket::new(home, host, to, far, Kind::Stream(Box::new(stream)));
        let Some(listening) = self.sockets.get_mut(&id) else { return Ok(None) };
        let Kind::Listener(listener) = &mut listening.kind else { return Ok(None) };
        // Linux admits one more than the program has asked for.
        if listener.backlog.len() > listener.backlog_max {
            return Ok(None);
        }
        // Each connection is an event. If there is no room for the byte, the listener is readable.
        let _ = send(&listening.far, &[0], SendFlags::NOSIGNAL);
        let server = self.add(&near, socket)?;
        if let Some(Kind::Listener(listener)) =
            self.sockets.get_mut(&id).map(|socket| &mut socket.kind)
        {
            listener.backlog.push_back((server, near));
        }
        Ok(Some(server))
    }

    /// The answer to a request to connect arrives.
    pub(super) fn answer(
        &mut self,
        moment: &mut Moment<'_>,
        client: u64,
        answer: Result<u64, Errno>,
    ) {
        let server = match answer {
            Err(error) => return self.fail_to_connect(client, error),
            Ok(server) => server,
        };
        let has_reset = self.has_reset(client, server);
        let Some(socket) = self.sockets.get_mut(&client) else {
            // The client has closed its socket before the answer.
            return self.break_stream(server, Errno::CONNRESET);
        };
        let Kind::Stream(stream) = &mut socket.kind else { return };
        if stream.phase != Phase::Connecting {
            return;
        }
        (stream.phase, stream.peer) = (Phase::Connected, Some(server));
        // Takes the byte that the socket began with. Its program waits for that.
        let _ = recv(&socket.far, &mut [0; 1][..], RecvFlags::empty());
        socket.is_readable = true;
        match has_reset {
            true => self.break_stream(client, Errno::CONNRESET),
            false => self.drain(moment, client),
        }
    }

    /// Returns `true` if the server has reset a connection before the answer reached the client.
    /// That reset had no effect. If the host of the server has lost its power, nobody says
    /// anything.
    fn has_reset(&mut self, client: u64, server: u64) -> bool {
        if self.stream(server).is_some_and(|server| !server.is_broken()) {
            return false;
        }
        let has_power = self.way(client).is_some_and(|(_, host)| self.hosts[host].has_power);
        has_power && !self.stream(client).is_some_and(|client| client.has_heard_end())
    }

    /// An attempt to connect fails.
    pub(super) fn fail_to_connect(&mut self, client: u64, error: Errno) {
        if let Some(stream) = self.stream(client)
            && stream.phase == Phase::Connecting
        {
            stream.phase = Phase::Failed(error);
            self.hang_up(client);
        }
    }

    /// A program may have closed a listener.
    pub(super) fn serve_listener(&mut self, moment: &mut Moment<'_>, id: u64) {
        if self.sockets[&id].is_closed
            && let Some(Socket { kind: Kind::Listener(listener), .. }) = self.sockets.remove(&id)
        {
            for (stream, _) in listener.backlog {
                self.abort(moment, stream);
                self.sockets.remove(&stream);
                self.broken.remove(&stream);
            }
        }
    }
}
