//! Hosts: their names, addresses and ports, and the ways between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::net::host::{Home, HostProgram, Place, Stopped};
use crate::net::moment::Moment;
use crate::net::sockets::{Kind, Socket};
use crate::net::{Net, PROGRAM, PROGRAM_NAME};
use crate::time::NEVER;

/// The first of the ports that the system chooses from.
const EPHEMERAL: u16 = 49152;

impl Net {
    /// Adds a host, which runs from now on. Returns its number.
    pub(crate) fn add_host(&mut self, name: &str, program: Option<Arc<HostProgram>>) -> usize {
        let host = self.hosts.len();
        let number = u32::try_from(host + 1).expect("the network has so many addresses");
        self.hosts.push(Place {
            name: name.to_owned(),
            address: Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + number),
            has_power: true,
            home: None,
            program,
            next_port: EPHEMERAL,
        });
        self.start(host);
        host
    }

    /// Starts the program of a host. Returns the number of the start.
    pub(crate) fn start(&mut self, host: usize) -> usize {
        let home = self.homes.len();
        self.homes.push(Home { host, root: None, scheduler: None, is_stopped: false });
        (self.hosts[host].has_power, self.hosts[host].home) = (true, Some(home));
        home
    }

    /// Returns the number of the host with a name.
    pub(crate) fn host_named(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// Returns the name of the host of a start.
    pub(crate) fn name_of_home(&self, home: usize) -> &str {
        self.homes.get(home).map_or(PROGRAM_NAME, |home| self.name(home.host))
    }

    pub(crate) fn name(&self, host: usize) -> &str {
        &self.hosts[host].name
    }

    /// Returns the host of a start, if that has not ended.
    pub(crate) fn running(&self, home: usize) -> Result<usize, Errno> {
        let host = self.homes.get(home).map_or(PROGRAM, |home| home.host);
        if self.hosts[host].home == Some(home) { Ok(host) } else { Err(Errno::NETDOWN) }
    }

    /// Notes that the program of a host is to end.
    pub(crate) fn stop(&mut self, home: usize) -> Stopped {
        let home = &mut self.homes[home];
        home.is_stopped = true;
        Stopped { scheduler: home.scheduler.take(), root: home.root.take() }
    }

    /// The program of a host has ended by itself.
    pub(crate) fn note_end(&mut self, home: usize) {
        if let Ok(host) = self.running(home) {
            self.hosts[host].home = None;
        }
        self.homes[home].scheduler = None;
    }

    /// Returns the host that `from` reaches at an address.
    pub(super) fn host_at(&self, from: usize, ip: IpAddr) -> Option<usize> {
        let ip = ip.to_canonical();
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(from);
        }
        self.hosts.iter().position(|host| IpAddr::V4(host.address) == ip)
    }

    /// Returns the address from which a host reaches another host.
    pub(super) fn source_ip(&self, host: usize, to: IpAddr) -> IpAddr {
        if to.to_canonical().is_loopback() || to.is_unspecified() {
            return if to.is_ipv4() {
                Ipv4Addr::LOCALHOST.into()
            } else {
                Ipv6Addr::LOCALHOST.into()
            };
        }
        self.hosts[host].address.into()
    }

    /// Returns the address that a socket of a host gets, with a port.
    ///
    /// # Errors
    /// The address is not one of the host, or is in use.
    pub(super) fn claim(
        &mut self,
        host: usize,
        at: SocketAddr,
        is_datagram: bool,
    ) -> Result<SocketAddr, Errno> {
        let ip = at.ip().to_canonical();
        let is_own = ip.is_loopback() || ip.is_unspecified() || ip == self.hosts[host].address;
        if !is_own {
            return Err(Errno::ADDRNOTAVAIL);
        }
        if at.port() != 0 {
            let is_free = !self.is_used(host, at, is_datagram);
            return if is_free { Ok(at) } else { Err(Errno::ADDRINUSE) };
        }
        for _ in EPHEMERAL..=u16::MAX {
            let place = &mut self.hosts[host];
            let port = place.next_port;
            place.next_port = port.checked_add(1).unwrap_or(EPHEMERAL);
            let at = SocketAddr::new(at.ip(), port);
            if !self.is_used(host, at, is_datagram) {
                return Ok(at);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    fn is_used(&self, host: usize, at: SocketAddr, is_datagram: bool) -> bool {
        self.sockets.values().any(|socket| {
            let is_like = match socket.kind {
                Kind::Listener(_) => !is_datagram,
                Kind::Datagrams(_) => is_datagram,
                Kind::Stream(_) => false,
            };
            let overlaps = serves(socket.local, at) || serves(at, socket.local);
            is_like && socket.host == host && !socket.is_closed && overlaps
        })
    }

    /// Cuts the way from one host to another, until then.
    pub(crate) fn cut(&mut self, from: usize, to: usize, until: u64) {
        let cut = self.cuts.entry((from, to)).or_insert(until);
        *cut = until.max(*cut);
    }

    /// Mends the way from one host to another. What waits for it is sent again immediately.
    pub(crate) fn mend(&mut self, now: u64, from: usize, to: usize) {
        self.cuts.remove(&(from, to));
        self.hasten(now, Some((from, to)));
    }

    /// Returns `true` if nothing arrives on the way from one host to another.
    pub(super) fn is_cut(&self, from: usize, to: usize, now: u64) -> bool {
        let until = self.cuts.get(&(from, to)).copied().unwrap_or(0);
        from != to && until > now || !self.hosts[to].has_power
    }

    /// Ends the faults: mends all ways, and lets what is late arrive.
    pub(crate) fn heal(&mut self, now: u64) {
        self.cuts.clear();
        for socket in self.sockets.values_mut() {
            if let Kind::Stream(stream) = &mut socket.kind {
                stream.grain = usize::MAX;
            }
        }
        self.hasten(now, None);
    }

    /// Ends the sockets of a host, because its program was killed or its machine has lost its
    /// power.
    pub(crate) fn close_all(&mut self, moment: &mut Moment<'_>, host: usize, tells: bool) {
        self.broken.retain(|_, broken| broken.host != host);
        // What the program has closed before, the system of the host brings to its end.
        let is_own = |socket: &Socket| socket.host == host && !(tells && socket.is_closed);
        let own = self.sockets.iter().filter(|(_, socket)| is_own(socket));
        let own: Vec<_> = own.map(|(&id, _)| id).collect();
        for id in own {
            if tells {
                self.abort(moment, id);
            }
            // What the program has sent is with the system of the host.
            let stays = tells && self.has_sent(id);
            match self.sockets.get_mut(&id).filter(|_| stays) {
                Some(socket) => {
                    socket.is_closed = true;
                    // It fails if the program has closed its socket.
                    let _ = shutdown(&socket.far, Shutdown::Both);
                }
                None => drop(self.sockets.remove(&id)),
            }
        }
    }

    /// Describes what each host does, for a report.
    pub(crate) fn describe_cuts(&self, now: u64) -> Vec<String> {
        let cuts = self.cuts.iter().filter(|&(_, &until)| until > now);
        let cut = cuts.map(|(&(from, to), _)| {
            format!("the way from {} to {} is cut", self.name(from), self.name(to))
        });
        let dark = self.hosts.iter().filter(|host| !host.has_power);
        let dark = dark.map(|host| format!("{} has no power", host.name));
        cut.chain(dark).collect()
    }
}

/// Returns `true` if a socket at a local address gets what is sent to another address. `[::]`
/// stands for the addresses of both families, and `0.0.0.0` for all IPv4 addresses.
pub(super) fn serves(local: SocketAddr, to: SocketAddr) -> bool {
    let (own, wanted) = (local.ip().to_canonical(), to.ip().to_canonical());
    let is_any = own.is_unspecified() && (own.is_ipv6() || wanted.is_ipv4());
    local.port() == to.port() && (own == wanted || is_any)
}

/// Returns the address that the system of a host really sends to. An unspecified address means the
/// host itself.
pub(crate) fn target(to: SocketAddr) -> SocketAddr {
    let ip = match to.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => return to,
    };
    SocketAddr::new(ip, to.port())
}

/// The end of a cut that only the program mends.
pub(crate) const FOR_GOOD: u64 = NEVER;
