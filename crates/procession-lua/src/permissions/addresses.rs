//! Addresses that a process may connect to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use procession::net::{Host, TcpStream};

use super::{Grant, Permissions, refused};

const LOCALHOST: &str = "localhost";
/// Any port but 0.
const DISCARD: u16 = 9;

/// Addresses that a process may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    host: Named,
    /// `None` for all ports.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    Address(IpAddr),
    Name(String),
    /// A node of a cluster, as `word@host`, and its host.
    Node(String, Box<Self>),
}

impl Target {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let Some((word, host)) = text.split_once('@') else { return Self::parse_host(text) };
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match Self::parse_host(host) {
            Ok(Self { host, port: None }) if !word.is_empty() && word.bytes().all(is_word) => {
                Ok(Self { host: Named::Node(text.to_owned(), Box::new(host)), port: None })
            }
            _ => Err("a node must be a word, @ and a host without a port"),
        }
    }

    /// Reads a host, with or without a port.
    fn parse_host(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { host: Named::Address(address.to_canonical()), port: None });
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            let host = Named::Address(address.ip().to_canonical());
            return Ok(Self { host, port: Some(address.port()) });
        }
        let (name, port) = match text.rsplit_once(':') {
            None => (text, None),
            Some((name, port)) => {
                let port = port.parse().map_err(|_| "the port must be a number up to 65535")?;
                (name, Some(port))
            }
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err("it must be a host, or a host and a port");
        }
        Ok(Self { host: Named::Name(plain(name)), port })
    }

    /// Returns `true` if this permits everything that `other` permits.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let is_on_host = matches!(&other.host, Named::Node(_, host) if self.host == **host);
        let is_within = self.host == other.host || is_on_host;
        is_within && (self.port.is_none() || self.port == other.port)
    }

    /// Returns the bytes that this takes.
    pub(super) fn size(&self) -> usize {
        let text = match &self.host {
            Named::Address(_) => 0,
            Named::Name(name) => name.len(),
            // It has its host a second time.
            Named::Node(name, _) => 2 * name.len() + size_of::<Named>(),
        };
        size_of::<Self>() + text
    }

    /// Returns `true` if this permits the node with a name.
    #[cfg(any(feature = "cluster", test))]
    pub(super) fn is_node(&self, name: &str) -> bool {
        match (&self.host, name.split_once('@')) {
            (Named::Node(known, _), _) => known == name,
            (_, Some((_, host))) if self.port.is_none() => {
                Self::parse_host(host).is_ok_and(|host| host == *self)
            }
            _ => false,
        }
    }

    fn has_port(&self, port: u16) -> bool {
        self.port.is_none_or(|known| known == port)
    }

    fn is_name(&self, name: &str, port: u16) -> bool {
        matches!(&self.host, Named::Name(known) if known == name) && self.has_port(port)
    }

    fn is_address(&self, address: SocketAddr) -> bool {
        self.host == Named::Address(address.ip().to_canonical()) && self.has_port(address.port())
    }
}

/// Returns the form of a name that is compared.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Returns `true` for addresses of this machine and for link-local addresses. A foreign name server
/// could let a name lead to them.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback()
                || address.octets()[0] == 0
                || address.is_link_local()
                || address.is_multicast()
                || address.is_broadcast()
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unicast_link_local()
                || address.is_multicast()
                || embedded(address).is_some_and(|inner| is_near(inner.into()))
        }
    }
}

/// Returns the IPv4 address to which a translator or a tunnel may pass on what is sent to an
/// address.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let inner = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        // IPv4-compatible, IPv4-translated, NAT64 (also with a prefix of the local network), 6to4.
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0 | 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => inner(high, low),
        _ => None,
    }
}

/// Returns `true` if this machine has the address.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // From an own address, the system reaches itself by the same address. Nothing is sent.
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, DISCARD))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address)
}

/// Connects to an address.
///
/// # Errors
/// If the process may not connect to it, or the connection fails, returns an error.
pub(crate) async fn connect(permissions: &Permissions, address: &str) -> io::Result<TcpStream> {
    TcpStream::connect(&*resolve(permissions, address).await?).await
}

/// Returns the name in an address, if the targets permit connections to it. `None` for an address
/// without a name, and for `localhost` if it is not among the targets.
///
/// # Errors
/// A name that is not permitted is not even resolved, because its name server would learn of the
/// attempt. So this returns the refusal.
fn permitted_name(targets: &[Target], host: &Host, address: &str) -> io::Result<Option<String>> {
    if !host.is_name() {
        return Ok(None);
    }
    let parts = address.rsplit_once(':').and_then(|(name, port)| {
        let port: u16 = port.parse().ok()?;
        Some((plain(name), port))
    });
    let (wanted, port) = parts.ok_or(io::ErrorKind::InvalidInput)?;
    let is_named = targets.iter().any(|target| target.is_name(&wanted, port));
    if !is_named && wanted != LOCALHOST {
        return Err(refused(format_args!("--allow-net={address}")));
    }
    Ok(is_named.then_some(wanted))
}

/// Checks that the process may resolve the name in an address at which it listens.
///
/// # Errors
/// If the process may not connect to the name, returns the refusal.
pub(super) fn check_name(permissions: &Permissions, address: &str) -> io::Result<()> {
    let targets: &[Target] = match &permissions.0.connect {
        Grant::Nothing => &[],
        Grant::Only(targets) => targets,
        Grant::Everything => return Ok(()),
    };
    permitted_name(targets, &Host::from(address), address).map(drop)
}

/// Resolves an address, and returns the addresses that the process may use.
///
/// # Errors
/// If there are none, or the host has no address, returns an error.
pub(crate) async fn resolve(
    permissions: &Permissions,
    address: &str,
) -> io::Result<Vec<SocketAddr>> {
    let targets = match &permissions.0.connect {
        Grant::Nothing => return Err(refused(format_args!("--allow-net={address}"))),
        Grant::Only(targets) => targets,
        Grant::Everything => return Host::from(address).addresses().await,
    };
    let host = Host::from(address);
    let name = permitted_name(targets, &host, address)?;
    let resolved = host.addresses().await?;
    let is_allowed = |found: &SocketAddr| {
        let is_far = |address| !is_near(address) && !is_own(address);
        let by_name = name.as_deref().is_some_and(|name| name == LOCALHOST || is_far(found.ip()));
        by_name || targets.iter().any(|target| target.is_address(*found))
    };
    let allowed: Vec<SocketAddr> = resolved.iter().copied().filter(is_allowed).collect();
    match (allowed.first(), resolved.first()) {
        (None, Some(first)) => Err(refused(format_args!("--allow-net={first}"))),
        _ => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, is_near, is_own};

    #[test]
    fn a_target_is_a_host_with_or_without_a_port() {
        let target = |text| Target::parse(text).expect("it is a target");
        let address = |text: &str| text.parse().expect("it is an address");
        for (text, inside, outside) in [
            ("10.0.0.1:80", "10.0.0.1:80", "10.0.0.1:81"),
            ("10.0.0.1", "10.0.0.1:81", "10.0.0.2:81"),
            ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80", "[::1]:81"),
            ("::1", "[::1]:80", "[::]:80"),
        ] {
            assert!(target(text).is_address(address(inside)), "{text} {inside}");
            assert!(!target(text).is_address(address(outside)), "{text} {outside}");
        }
        assert!(target("Example.ORG.:80").is_name("example.org", 80));
        assert!(!target("example.org:80").is_name("example.org", 81));
        assert!(target("example.org").is_name("example.org", 81));
        assert!(!target("example.org").is_name("an.example.org", 81));
        let node = target("shop@db.example.org");
        assert!(node.is_node("shop@db.example.org") && !node.is_node("till@db.example.org"));
        assert!(!node.is_name("db.example.org", 80), "a node is no address");
        let (host, port) = (target("db.example.org"), target("db.example.org:80"));
        assert!(host.is_node("till@db.example.org") && !host.is_node("till@example.org"));
        assert!(!port.is_node("till@db.example.org"), "a node may have any port");
        assert!(host.includes(&node) && !node.includes(&host) && node.includes(&node));
        assert!(target("10.0.0.1").is_node("till@10.0.0.1"));
        // Recursive, the last one would overflow the stack.
        let many = "a@".repeat(1 << 20) + "a";
        for text in ["@host", "shop@", "shop@host:80", "shop@a@b", "s p@host", &many] {
            assert!(Target::parse(text).is_err(), "{}", &text[..8.min(text.len())]);
            assert!(!host.is_node(text));
        }
        for text in ["", ":80", "host:", "host:65536", "a b:1", "[::1", "http://host", "a/b"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_of_this_machine_and_its_link_are_near() {
        for text in [
            "127.1.2.3",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "::1",
            "::",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::127.0.0.1",
            "2002:7f00:1::",
        ] {
            assert!(is_near(text.parse().expect("it is an address")), "{text}");
        }
        for text in ["192.0.2.1", "10.0.0.1", "64:ff9b::192.0.2.1", "2001:db8::7f00:1"] {
            assert!(!is_near(text.parse().expect("it is an address")), "{text}");
        }
        assert!(is_own("127.0.0.1".parse().expect("it is an address")));
        assert!(!is_own("198.51.100.7".parse().expect("it is an address")));
    }
}
