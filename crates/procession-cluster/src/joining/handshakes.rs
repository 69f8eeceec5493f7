//! The handshakes with nodes that connect: how many run at a time, and what is reported of refused
//! handshakes.
//!
//! Before the proof of the cookie, a connection may be by anybody. So there are few places, and a
//! new handshake always gets a place: the oldest handshake of the busiest address makes room.
//! Machines that connect and say nothing lose their places to nodes, because the handshake of a
//! node takes milliseconds. An IPv6 network of 64 bits counts as one address, because a machine
//! usually has all addresses of its network.
//!
//! With TLS, a handshake moves to other places once it has a session, because the certificate has
//! shown that its machine belongs to the cluster. Strangers without a certificate displace no
//! handshake with a session, however fast they connect. Until a node has its session, which takes
//! two round trips, strangers with as many addresses as there are places can displace it. The node
//! tries again then.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use procession::net::TcpStream;
use procession::sync::oneshot;
use procession::time::Instant;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::handshake::HandshakeError;
use crate::joining::connect::ConnectError;
use crate::node::Node;
use crate::node::refusals::Report;

/// The handshakes that may be going on at a time, with TLS before the session is there, and as many
/// after it.
const HANDSHAKES_MAX: usize = 32;
/// Carries out the handshake with a node that has connected.
pub(super) async fn accept(
    node: Node,
    stream: TcpStream,
    from: SocketAddr,
    mut place: Place,
) -> Result<(), Report> {
    let ended = shake(&node, stream, &mut place).await;
    drop(place);
    let (cause, why) = match &ended {
        Ok(()) => return Ok(()),
        Err(Refused::Error(error)) => (cause_of(error), error.to_string()),
        Err(Refused::Displaced) => (Some("displaced"), "it made room for a newer one".to_owned()),
    };
    let Some(cause) = cause else { return Ok(()) };
    let what = || format!("the handshake with {from} was refused");
    let report = node.0.refusals.report(cause, what, why);
    // A client that closes has only looked whether the port is open, as monitoring programs do.
    report.filter(|_| cause != "closed").map_or(Ok(()), Err)
}

/// The reason why a handshake has made no connection.
#[derive(Debug)]
enum Refused {
    /// A newer one has its place.
    Displaced,
    Error(ConnectError),
}

async fn shake(node: &Node, stream: TcpStream, place: &mut Place) -> Result<(), Refused> {
    let limit = Instant::now() + node.connect_timeout();
    let carrier = place.hold(node.secure(stream, limit)).await?;
    if carrier.session().is_some() {
        place.secure();
    }
    place.hold(node.accept(carrier, limit)).await
}

/// Returns the cause for which an error is counted, or `None` if it refuses nobody.
pub(super) fn cause_of(error: &ConnectError) -> Option<&'static str> {
    Some(match error {
        ConnectError::Handshake(why) => match why {
            HandshakeError::Protocol => "protocol",
            HandshakeError::Flags(_) => "abilities",
            HandshakeError::Name(_) | HandshakeError::NotAllowed => "name",
            HandshakeError::Cookie => "cookie",
            // Both nodes have connected at the same time.
            HandshakeError::Connected => return None,
        },
        ConnectError::PlainText(_) => "plain_text",
        ConnectError::Tls(_) => "insecure",
        ConnectError::TimedOut => "timed_out",
        ConnectError::Process(_) => "process",
        ConnectError::Stopped => return None,
        _ => "closed",
    })
}

/// The places of the handshakes.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    strangers: Arc<Places>,
    /// The handshakes with a session.
    secure: Arc<Places>,
}

impl Handshakes {
    /// Returns a place for a new handshake.
    pub(super) fn admit(&self, from: IpAddr) -> Place {
        Places::admit(&self.strangers, from, Some(Arc::clone(&self.secure)))
    }
}

/// The handshakes of a kind, from the oldest one on.
#[derive(Debug, Default)]
struct Places {
    last: AtomicU64,
    taken: Mutex<Vec<Taken>>,
}

#[derive(Debug)]
struct Taken {
    number: u64,
    from: IpAddr,
    /// Its drop ends the handshake.
    _displaces: oneshot::Sender<Infallible>,
}

/// The place of a handshake. The handshake may continue until the receiver is ready. Its drop makes
/// room.
#[derive(Debug)]
pub(super) struct Place {
    all: Arc<Places>,
    next: Option<Arc<Places>>,
    from: IpAddr,
    number: u64,
    displaced: oneshot::Receiver<Infallible>,
}

impl Place {
    /// Carries out a part of the handshake, as long as it has the place.
    async fn hold<T>(
        &mut self,
        part: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, Refused> {
        let mut part = pin!(part);
        poll_fn(|task| match part.as_mut().poll(task) {
            Poll::Ready(ended) => Poll::Ready(ended.map_err(Refused::Error)),
            Poll::Pending => {
                Pin::new(&mut self.displaced).poll(task).map(|_| Err(Refused::Displaced))
            }
        })
        .await
    }

    /// Moves to the places of handshakes with a session.
    fn secure(&mut self) {
        if let Some(secure) = self.next.take() {
            *self = Places::admit(&secure, self.from, None);
        }
    }
}

impl Places {
    /// Returns a place for a handshake with an address. If no place is free, the oldest handshake
    /// of the busiest address makes room. The new handshake counts for its address, so an address
    /// with many handshakes loses one of its own places. If all addresses have the same number, the
    /// oldest handshake of all makes room.
    fn admit(this: &Arc<Self>, from: IpAddr, next: Option<Arc<Self>>) -> Place {
        let from = machine(from);
        let mut taken = this.taken.lock();
        let displaced = if taken.len() < HANDSHAKES_MAX {
            None
        } else {
            let mut counts = BTreeMap::from([(from, 1_usize)]);
            taken.iter().for_each(|other| *counts.entry(other.from).or_default() += 1);
            let most = counts.values().max().copied();
            let at = taken.iter().position(|other| counts.get(&other.from).copied() == most);
            // There is always one: if the address of the new one is the busiest, it has a place.
            Some(taken.remove(at.unwrap_or_default()))
        };
        // Relaxed: the numbers only have to differ.
        let number = this.last.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        taken.push(Taken { number, from, _displaces: sender });
        drop(taken);
        // Outside of the lock, because it wakes the process of that one.
        drop(displaced);
        Place { all: Arc::clone(this), next, from, number, displaced: receiver }
    }
}

/// Returns the address that stands for all addresses of a machine: for IPv6, the address of its
/// network.
fn machine(address: IpAddr) -> IpAddr {
    // An address of version 4 is the same in a socket of version 6.
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.all.taken.lock();
        let at = taken.iter().position(|other| other.number == self.number);
        let ended = at.map(|at| taken.remove(at));
        drop(taken);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use procession::sync::RecvError;

    use super::{HANDSHAKES_MAX, Handshakes, Place};

    fn ip(last: usize) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last as u8).into()
    }

    fn is_displaced(place: &mut Place) -> bool {
        place.displaced.try_recv() == Err(RecvError::Closed)
    }

    /// Goal: as many addresses as there are places keep nobody out.
    #[test]
    fn the_oldest_makes_room_if_no_address_is_busier() {
        let all = Handshakes::default();
        let mut places: Vec<_> = (0..HANDSHAKES_MAX).map(|at| all.admit(ip(at))).collect();
        let mut new = all.admit(ip(200));
        let displaced: Vec<_> = places.iter_mut().map(is_displaced).collect();
        assert!(displaced[0] && !displaced[1..].contains(&true), "{displaced:?}");
        // An address that connects again displaces itself, and no other.
        let mut again = all.admit(ip(7));
        let displaced: Vec<_> =
            (1..HANDSHAKES_MAX).filter(|at| is_displaced(&mut places[*at])).collect();
        assert_eq!(displaced, [7]);
        assert!(!is_displaced(&mut new) && !is_displaced(&mut again));
    }

    #[test]
    fn the_busiest_address_makes_room() {
        let all = Handshakes::default();
        let mut one = all.admit(ip(1));
        let mut many: Vec<_> = (1..HANDSHAKES_MAX).map(|_| all.admit(ip(2))).collect();
        let mut new = all.admit(ip(3));
        assert!(is_displaced(&mut many[0]) && !is_displaced(&mut many[1]));
        assert!(!is_displaced(&mut one) && !is_displaced(&mut new));
        // A place that is left is free.
        drop(new);
        let _new = all.admit(ip(3));
        assert!(!is_displaced(&mut many[1]));
    }

    /// Goal: a machine with a network of IPv6 has no more addresses than others.
    #[test]
    fn the_addresses_of_a_network_count_as_one() {
        let all = Handshakes::default();
        let network = |last: usize| Ipv6Addr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, last as u16]);
        let other = Ipv6Addr::from([0x2001, 0xdb8, 0, 8, 0, 0, 0, 1]);
        let mut one = all.admit(other.into());
        let mut many: Vec<_> =
            (1..4 * HANDSHAKES_MAX).map(|at| all.admit(network(at).into())).collect();
        let mapped = all.admit(Ipv4Addr::new(127, 0, 0, 1).to_ipv6_mapped().into());
        assert!(!is_displaced(&mut one) && is_displaced(&mut many[0]));
        assert_eq!(mapped.from, ip(1));
    }

    /// Goal: strangers that connect again and again do not push out a node with a session.
    #[test]
    fn a_secure_handshake_is_not_displaced_by_strangers() {
        let all = Handshakes::default();
        let secured = |from| {
            let mut place = all.admit(from);
            place.secure();
            place
        };
        let mut secure = secured(ip(1));
        let strangers: Vec<_> = (0..4 * HANDSHAKES_MAX).map(|at| all.admit(ip(2 + at))).collect();
        assert!(!is_displaced(&mut secure));
        let mut others: Vec<_> = (0..HANDSHAKES_MAX).map(|at| secured(ip(2 + at))).collect();
        assert!(is_displaced(&mut secure) && !is_displaced(&mut others[0]));
        drop(strangers);
    }
}
